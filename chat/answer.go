package chat

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/agent"
)

// answerFrame is what a client answers to a call of a tool: its outcome, or whether it may run.
type answerFrame struct {
	CallID       string          `json:"toolCallId"`
	Output       json.RawMessage `json:"output"`
	State        string          `json:"state"`
	ErrorText    string          `json:"errorText"`
	Approved     *bool           `json:"approved"`
	AutoContinue bool            `json:"autoContinue"`
	Tools        json.RawMessage `json:"clientTools"`
}

// apply brings a call on, as its answer says, and says whether that has changed anything: what has its
// outcome keeps it.
func (f *answerFrame) apply(p Part) bool {
	if rank := toolRank(p); rank < 2 || rank > 4 || f.Approved != nil && rank == 4 {
		return false
	}
	if f.Approved != nil {
		consent(p, f.CallID, *f.Approved)
		return true
	}
	if f.State == outputError {
		p.set("state", outputError)
		p.set("errorText", f.ErrorText)
		return true
	}
	p.set("state", outputAvailable)
	p.set("output", orNull(f.Output))
	return true
}

// consent notes in a call whether it may run.
func consent(p Part, call string, approved bool) {
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

// chunk is the chunk that says what an answer does, or the zero Chunk if there is none that does.
func (f *answerFrame) chunk() Chunk {
	switch {
	case f.Approved != nil && *f.Approved:
		return Chunk{}
	case f.Approved != nil:
		return newChunk("tool-output-denied").with("toolCallId", f.CallID)
	case f.State == outputError:
		return newChunk("tool-output-error").with("toolCallId", f.CallID).with("errorText", f.ErrorText)
	}
	c := newChunk("tool-output-available").with("toolCallId", f.CallID)
	c.set("output", orNull(f.Output))
	return c
}

// toolAnswered takes a client's answer to a call, and has the assistant go on if that was what it waited
// for.
func (k *conversation) toolAnswered(ctx context.Context, conn *agent.Conn, data []byte) error {
	var f answerFrame
	if err := json.Unmarshal(data, &f); err != nil {
		return k.refuse(ctx, conn, fmt.Errorf("chat: an answer to a tool's call: %w", err))
	}
	if f.ErrorText == "" {
		f.ErrorText = "Tool execution denied by user"
	}
	of, err := k.applyAnswer(ctx, &f)
	if err != nil {
		return err
	}
	if of == "" {
		return k.refuse(ctx, conn, fmt.Errorf("chat: no tool was called as %q", f.CallID))
	}
	if !f.AutoContinue {
		return nil
	}
	note, err := k.note(ctx, requestNote)
	if err != nil {
		return err
	}
	if f.Tools != nil {
		note.Tools = f.Tools
	}
	return k.goOnLater(ctx, conn.ID(), of, note)
}

// refuse tells a client why something that is no request was not done.
func (k *conversation) refuse(ctx context.Context, conn *agent.Conn, why error) error {
	return k.send(ctx, conn, map[string]string{"error": why.Error()})
}

// applyAnswer brings the call on, in the reply that is being made or in the message that has it, and
// returns the id of that message, or "" if there is none.
func (k *conversation) applyAnswer(ctx context.Context, f *answerFrame) (message string, err error) {
	row, ok, err := k.running(ctx)
	if err != nil {
		return "", err
	}
	if ok {
		l, err := k.liveOf(ctx, row)
		if err != nil {
			return "", err
		}
		if p, ok := l.acc.msg.call(f.CallID); ok {
			return row.Message, l.answer(ctx, f, p)
		}
	}
	for r, err := range messages.All(ctx, k.store(), &dohost.Query[messageRow]{Index: "place", Reverse: true}) {
		if err != nil {
			return "", err
		}
		m, err := r.Value.message()
		if err != nil {
			return "", err
		}
		p, ok := m.call(f.CallID)
		if !ok {
			continue
		}
		if !f.apply(p) {
			return m.ID, nil
		}
		if err := k.put(ctx, m, r.Value.Place); err != nil {
			return m.ID, err
		}
		return m.ID, k.tellAll(ctx, updatedFrame{frameUpdated, m}, nil)
	}
	return "", nil
}

// answer brings a call of the reply on.
func (l *live) answer(ctx context.Context, f *answerFrame, p Part) error {
	if !f.apply(p.clone()) {
		return nil
	}
	if c := f.chunk(); c.object != nil {
		if err := l.stitch(ctx, c); err != nil {
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
	return l.k.tellAll(ctx, updatedFrame{frameUpdated, l.acc.message()}, nil)
}

// liveOf is the reply that is being made, also before its fiber has begun.
func (k *conversation) liveOf(ctx context.Context, row replyRow) (*live, error) {
	if k.live != nil && k.live.row.ID == row.ID && !k.live.over {
		return k.live, nil
	}
	return k.load(ctx, row)
}

// goOnLater has the assistant go on in a message when what is being answered has ended, unless that waits
// to be done.
func (k *conversation) goOnLater(ctx context.Context, conn, message string, note noteRow) error {
	open, err := replies.List(ctx, k.store(), &dohost.Query[replyRow]{Index: "open"})
	if err != nil {
		return err
	}
	for _, r := range open {
		if r.Value.Status == Queued && r.Value.Continues && r.Value.Message == message {
			return nil
		}
	}
	row := replyRow{
		ID: "cont_" + ulid.Make().String(), Status: Queued, Continues: true, Answers: true, Conn: conn, Message: message,
		Body: note.Body, Tools: note.Tools, Created: time.Now().UnixMilli(),
	}
	return dohost.Transaction(ctx, func(ctx context.Context) (err error) {
		if row.Number, err = k.nextNumber(ctx); err != nil {
			return err
		}
		if err := replies.Insert(ctx, k.store(), row); err != nil {
			return err
		}
		return k.beginNext(ctx)
	})
}

// awaits says that a message has calls that somebody else is to answer.
func awaits(m *Message) bool {
	for _, p := range m.Parts {
		if isTool(p) && !settled(p) && p.Text("state") != approvalResponded {
			return true
		}
	}
	return false
}
