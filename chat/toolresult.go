package chat

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/agent"
)

// answerFrame is a client's answer to a tool call: a result, or an approval.
type answerFrame struct {
	CallID       string          `json:"toolCallId"`
	Output       json.RawMessage `json:"output"`
	State        string          `json:"state"`
	ErrorText    string          `json:"errorText"`
	Approved     *bool           `json:"approved"`
	AutoContinue bool            `json:"autoContinue"`
	Tools        json.RawMessage `json:"clientTools"`
}

// answerOf returns the answer in a client's copy of a call, if there is one.
func answerOf(p Part) (f answerFrame, ok bool) {
	f.CallID = p.Text("toolCallId")
	switch f.State = p.Text("state"); f.State {
	case approvalResponded:
		var approval struct {
			Approved *bool `json:"approved"`
		}
		_ = json.Unmarshal(orNull(p.Member("approval")), &approval) // a copy without an approval has no answer
		f.Approved = approval.Approved
		return f, f.Approved != nil
	case outputDenied:
		f.Approved = new(bool)
	case outputAvailable:
		f.Output = p.Member("output")
		return f, !p.is("preliminary")
	case outputError:
		f.ErrorText = p.Text("errorText")
	default:
		return f, false
	}
	return f, true
}

// effect is the effect of an answer on a call.
type effect int

const (
	refused  effect = iota // the call does not wait for such an answer
	repeated               // the call has its result, or its approval
	applied
)

// effectOn returns the effect of an answer on a call. A call that waits for an approval accepts one, or an error, which
// refuses the call. A call that a client runs accepts a result; a call that the server runs never accepts a result
// from a client. The first answer counts.
func (f *answerFrame) effectOn(p Part, server bool) effect {
	state := p.Text("state")
	switch rank := toolRank(p); {
	case hasResult(p), f.Approved != nil && rank >= 4:
		return repeated
	case p.is("providerExecuted"), rank < 2 || rank > 5:
		return refused
	case f.Approved != nil, server:
		if state != approvalRequested || f.Approved == nil && f.State != outputError {
			return refused
		}
	}
	return applied
}

// apply changes a call according to the answer.
func (f *answerFrame) apply(p Part) {
	switch {
	case f.Approved != nil:
		setApproval(p, f.CallID, *f.Approved)
	case f.State == outputError:
		p.set("state", outputError)
		p.set("errorText", cmp.Or(f.ErrorText, deniedText))
	default:
		p.set("state", outputAvailable)
		p.set("output", orNull(f.Output))
	}
}

// deniedText is the error text of a call if a client's error has no text.
const deniedText = "Tool execution denied by user"

// setApproval records an approval or refusal in a call.
func setApproval(p Part, call string, approved bool) {
	var approval map[string]json.RawMessage
	if json.Unmarshal(orNull(p.Member("approval")), &approval) != nil || approval == nil {
		approval = map[string]json.RawMessage{}
	}
	if _, ok := approval["id"]; !ok {
		approval["id"] = mustEncode(call)
	}
	approval["approved"] = mustEncode(approved)
	p.set("approval", mustEncode(approval))
	state := outputDenied
	if approved {
		state = approvalResponded
	}
	p.set("state", state)
}

// chunk returns the chunk for an answer, or the zero Chunk for an approval, which has none.
func (f *answerFrame) chunk() Chunk {
	switch {
	case f.Approved != nil && *f.Approved:
		return Chunk{}
	case f.Approved != nil:
		return newChunk("tool-output-denied").with("toolCallId", f.CallID)
	case f.State == outputError:
		return newChunk("tool-output-error").with("toolCallId", f.CallID).with("errorText", cmp.Or(f.ErrorText, deniedText))
	}
	c := newChunk("tool-output-available").with("toolCallId", f.CallID)
	c.set("output", orNull(f.Output))
	return c
}

// toolAnswered applies a client's answer to a call, and requests a continuation of the message if the client asks for
// that.
func (k *conversation) toolAnswered(ctx context.Context, conn *agent.Conn, data []byte) error {
	var f answerFrame
	if err := json.Unmarshal(data, &f); err != nil {
		return k.sendRefusal(ctx, conn, fmt.Errorf("chat: tool result or approval: %w", err))
	}
	switch {
	case nesting(f.Output) >= maxChunkNesting:
		return k.sendRefusal(ctx, conn, fmt.Errorf("chat: the result of the tool call %q: %w", f.CallID, errNesting))
	case len(f.Tools) > maxRequest:
		return k.sendRefusal(ctx, conn, &dohost.LimitError{What: "list of tools", Size: len(f.Tools), Limit: maxRequest})
	}
	of, how, err := k.applyAnswer(ctx, &f)
	switch {
	case err != nil:
		return err
	case of == "":
		return k.sendRefusal(ctx, conn, fmt.Errorf("chat: no tool call has the id %q", f.CallID))
	case how == refused:
		return k.sendRefusal(ctx, conn, fmt.Errorf("chat: the tool call %q is not waiting for this result or approval", f.CallID))
	case !f.AutoContinue:
		return nil
	}
	note, err := k.readNote(ctx, requestNote)
	if err != nil {
		return err
	}
	if f.Tools != nil {
		note.Tools = f.Tools
	}
	open, err := k.queueContinuation(ctx, conn.ID(), of, note)
	if err == nil && open && conn.Protocol() { // as if the client had asked for the continuation
		k.waiting = append(withoutConn(k.waiting, conn), conn)
	}
	return err
}

// sendRefusal sends a client the reason why its frame was refused, if the frame is not a request.
func (k *conversation) sendRefusal(ctx context.Context, conn *agent.Conn, why error) error {
	return k.send(ctx, conn, map[string]string{"error": why.Error()})
}

// applyAnswer applies an answer to its call, in the running reply or in the message that has the call, and returns the
// id of that message, or "" if there is none.
func (k *conversation) applyAnswer(ctx context.Context, f *answerFrame) (message string, how effect, err error) {
	row, ok, err := k.running(ctx)
	if err != nil {
		return "", refused, err
	}
	if ok {
		l, err := k.loadLive(ctx, row)
		if err != nil {
			return "", refused, err
		}
		if p, ok := l.acc.call(f.CallID); ok {
			how := f.effectOn(p, l.serverRuns(f.CallID))
			if how == applied {
				err = l.answer(ctx, f, p)
			}
			return row.Message, how, err
		}
	}
	r, m, ok, err := k.messageOf(ctx, f.CallID)
	if err != nil || !ok {
		return "", refused, err
	}
	p, _ := m.call(f.CallID)
	record, _ := r.record(f.CallID)
	if how := f.effectOn(p, record.Server); how != applied {
		return m.ID, how, nil
	}
	f.apply(p)
	if _, err := k.putReplacing(ctx, r, m, 0, nil); err != nil {
		return m.ID, applied, err
	}
	return m.ID, applied, k.broadcast(ctx, updatedFrame{frameUpdated, m}, nil)
}

// maxRepeatSearch is how many of the newest messages are searched for a call that already has its result.
const maxRepeatSearch = 100

// messageOf returns the newest message with a waiting call of that id, or one of the newest messages with the call.
func (k *conversation) messageOf(ctx context.Context, call string) (row messageRow, m Message, ok bool, err error) {
	id, err := encode(call)
	if err != nil || call == "" {
		return row, m, false, err
	}
	for _, q := range []dohost.Query[messageRow]{{Index: "calls", Reverse: true}, {Reverse: true, Limit: maxRepeatSearch}} {
		for r, err := range messages.All(ctx, k.store(), &q) {
			if err != nil {
				return row, m, false, err
			}
			_, waits := r.Value.record(call)
			if q.Index != "" && !waits || q.Index == "" && !bytes.Contains(r.Value.JSON, id) {
				continue
			}
			if m, err = r.Value.message(); err != nil {
				return row, m, false, err
			}
			if _, ok := m.call(call); ok {
				return r.Value, m, true, nil
			}
		}
	}
	return row, m, false, nil
}

// answer applies an answer to a call of the reply.
func (l *liveReply) answer(ctx context.Context, f *answerFrame, p Part) error {
	if c := f.chunk(); c.object != nil {
		if err := l.sendMerged(ctx, c); err != nil {
			return err
		}
	} else {
		row := l.row
		row.Allowed = append(slices.Clone(row.Allowed), f.CallID)
		if err := replies.Put(ctx, l.k.store(), row); err != nil {
			return err
		}
		l.row = row
		f.apply(p)
	}
	return l.k.broadcast(ctx, updatedFrame{frameUpdated, l.acc.message()}, nil)
}

// loadLive returns the running reply, even before its fiber has begun.
func (k *conversation) loadLive(ctx context.Context, row replyRow) (*liveReply, error) {
	if k.live != nil && k.live.row.ID == row.ID && !k.live.ended {
		return k.live, nil
	}
	return k.load(ctx, row)
}

// queueContinuation queues a continuation of a message, unless one is queued, and reports whether one is queued or
// running.
func (k *conversation) queueContinuation(ctx context.Context, conn, message string, note noteRow) (open bool, err error) {
	rows, err := replies.List(ctx, k.store(), &dohost.Query[replyRow]{Index: "open"})
	if err != nil {
		return false, err
	}
	for _, r := range rows {
		if r.Value.Status == StatusQueued && r.Value.Continues && r.Value.Message == message {
			return true, nil
		}
	}
	row := replyRow{
		ID: "cont_" + ulid.Make().String(), Status: StatusQueued, Continues: true, Answers: true, Conn: conn, Message: message,
		Body: note.Body, Tools: note.Tools, Created: time.Now().UnixMilli(),
	}
	err = dohost.Transaction(ctx, func(ctx context.Context) (err error) {
		if row.Number, err = k.nextNumber(ctx); err != nil {
			return err
		}
		if err := replies.Insert(ctx, k.store(), row); err != nil {
			return err
		}
		if err := k.beginNext(ctx); err != nil {
			return err
		}
		now, _, err := replies.Get(ctx, k.store(), row.ID)
		open = !now.Value.Status.final()
		return err
	})
	return open, err
}

// awaitsClient reports whether a message has calls that wait for a client.
func awaitsClient(m *Message) bool {
	for _, p := range m.Parts {
		if isTool(p) && !hasResult(p) && p.Text("state") != approvalResponded {
			return true
		}
	}
	return false
}
