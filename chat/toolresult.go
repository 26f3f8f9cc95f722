package chat

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/agent"
	"github.com/dohost/dohost/chat/internal/rawjson"
	"github.com/dohost/dohost/chat/uimessage"
	"github.com/dohost/dohost/internal/work"
)

// answerFrame is a client's answer to a tool call.
type answerFrame struct {
	uimessage.ToolAnswer
	AutoContinue bool            `json:"autoContinue"`
	Tools        json.RawMessage `json:"-"` // clientTools

	invalid error // the mismatch of a result with the schema of the call: see callRow.withoutInvalidOutput
}

// toolAnswered applies a client's answer to a call, and requests a continuation of the message if the client asks for
// that.
func (k *toolCalls) toolAnswered(ctx context.Context, conn *agent.Conn, data []byte) error {
	var f answerFrame
	var exact map[string]json.RawMessage // struct fields accept other spellings of clientTools, which checkFrame does not count
	if err := errors.Join(json.Unmarshal(data, &f), json.Unmarshal(data, &exact)); err != nil {
		return k.sendRefusal(ctx, conn, fmt.Errorf("chat: tool result or approval: %w", err))
	}
	f.Tools = exact["clientTools"]
	switch {
	case f.Tools != nil && f.Tools[0] != '[':
		return k.sendRefusal(ctx, conn, fmt.Errorf("chat: clientTools of the tool call %q: want an array", f.CallID))
	case rawjson.Nesting(f.Output) >= uimessage.MaxNesting:
		return k.sendRefusal(ctx, conn, fmt.Errorf("chat: the result of the tool call %q: %w", f.CallID, errNesting))
	case len(f.Tools) > maxRequest:
		return k.sendRefusal(ctx, conn, &dohost.LimitError{Subject: "list of tools", Size: len(f.Tools), Limit: maxRequest})
	}
	of, how, err := k.applyAnswer(ctx, &f, false, answerWait)
	refused, isRefused := errors.AsType[*clientBudgetError](err)
	switch {
	case isRefused: // the published client has applied the approval to its copy of the message
		err = k.sendRefusal(ctx, conn, fmt.Errorf("chat: the tool call %q: %w", f.CallID, err))
		return errors.Join(err, k.clients.send(ctx, conn, updatedFrame{frameUpdated, refused.message}))
	case noSpace(err):
		return k.refuseWithoutSpace(ctx, conn, &f, err)
	case err != nil:
		return err
	case of == "":
		return k.sendRefusal(ctx, conn, fmt.Errorf("chat: no tool call has the id %q", f.CallID))
	case how == uimessage.EffectRefused:
		return k.sendRefusal(ctx, conn, fmt.Errorf("chat: the tool call %q is not waiting for this result or approval", f.CallID))
	case f.invalid != nil: // the model gets the error, and so does the client that has to be corrected
		err = k.sendRefusal(ctx, conn, fmt.Errorf("%w (the tool call %q)", f.invalid, f.CallID))
	}
	if err != nil || !f.AutoContinue {
		return err
	}
	err = k.continueForClient(ctx, conn, of, &f)
	if noSpace(err) {
		return k.sendRefusal(ctx, conn, fmt.Errorf("chat: the answer to the tool call %q is stored, but not its continuation: %w", f.CallID, err))
	}
	return err
}

// continueForClient queues the continuation of a message that a client's answer requests, as soon as there is space for it, within answerWait.
func (k *toolCalls) continueForClient(ctx context.Context, conn *agent.Conn, message string, f *answerFrame) error {
	note, err := k.conv.requestOfMessage(ctx, message)
	if err != nil {
		return err
	}
	if f.Tools != nil {
		note.Tools = f.Tools
	}
	open := false
	err = retryNoSpaceWithin(ctx, answerWait, func() (err error) {
		open, err = k.conv.queueContinuation(ctx, conn.ID(), message, note, false)
		return err
	})
	if err == nil && open && conn.Protocol() { // as if the client had asked for the continuation
		k.clients.audience.waits(conn)
	}
	return err
}

// refuseWithoutSpace sends a client the error of an answer that was not stored, and the message as it is stored: the published client has
// applied the answer to its copy, and can answer again.
func (k *toolCalls) refuseWithoutSpace(ctx context.Context, conn *agent.Conn, f *answerFrame, why error) error {
	err := k.sendRefusal(ctx, conn, fmt.Errorf("chat: the answer to the tool call %q is not stored: %w", f.CallID, why))
	if err != nil {
		return err
	}
	call, err := k.findCall(ctx, f.CallID)
	if err != nil || call.ID == "" {
		return err
	}
	m, err := k.messageOfCall(ctx, &call)
	if err != nil || m.ID == "" { // deleted
		return err
	}
	return k.clients.send(ctx, conn, updatedFrame{frameUpdated, m})
}

// sendRefusal sends a client the reason why its frame was refused, if the frame is not a request.
func (k *toolCalls) sendRefusal(ctx context.Context, conn *agent.Conn, why error) error {
	return k.clients.send(ctx, conn, map[string]string{"error": why.Error()})
}

// applyAnswer applies an answer to its call, in the running reply or in the message that has the call, as soon as there is
// space for it, within most. With continues it queues a continuation of the message in the same batch. It returns the id of that message, or ""
// if there is none. The call may begin during the wait, so the effect is computed after it.
func (k *toolCalls) applyAnswer(ctx context.Context, f *answerFrame, continues bool, most time.Duration) (
	message string, how uimessage.Effect, err error,
) {
	err = retryNoSpaceWithin(ctx, most, func() error {
		message, how, err = k.applyAnswerOnce(ctx, f, continues)
		return err
	})
	return message, how, err
}

// applyAnswerOnce is applyAnswer without waiting for space.
func (k *toolCalls) applyAnswerOnce(ctx context.Context, f *answerFrame, continues bool) (message string, how uimessage.Effect, err error) {
	row, ok, err := k.conv.running(ctx)
	if err != nil {
		return "", uimessage.EffectRefused, err
	}
	if ok {
		l, err := k.conv.loadLive(ctx, row)
		if err != nil {
			return "", uimessage.EffectRefused, err
		}
		if p, ok := l.call(f.CallID); ok {
			how, call := f.EffectOn(p, l.serverRuns(f.CallID)), l.calls[f.CallID]
			if !continues && k.refusesClient(&call, f) {
				return row.Message, uimessage.EffectRefused, &clientBudgetError{l.partial()}
			}
			if how == uimessage.EffectApplied && call.inProgress() {
				how = uimessage.EffectRepeated
			}
			if how != uimessage.EffectApplied {
				return row.Message, how, k.notApplied(ctx, f, how, &call)
			}
			f.amend(&call)
			if continues {
				if err := k.conv.continueMessage(ctx, row.Message, false); err != nil {
					return row.Message, how, err
				}
			}
			return row.Message, how, l.answer(ctx, f)
		}
	}
	r, m, call, err := k.messageOf(ctx, f.CallID)
	if err != nil || r.ID == "" {
		return "", uimessage.EffectRefused, err
	}
	p, _ := uimessage.Call(&m, f.CallID)
	how = f.EffectOn(p, call.Runs == runsOnServer)
	if !continues && k.refusesClient(&call, f) {
		return m.ID, uimessage.EffectRefused, &clientBudgetError{m}
	}
	if how == uimessage.EffectApplied && call.inProgress() {
		how = uimessage.EffectRepeated
	}
	if how != uimessage.EffectApplied {
		return m.ID, how, k.notApplied(ctx, f, how, &call)
	}
	f.amend(&call)
	f.Apply(p)
	err = dohost.Transaction(ctx, func(ctx context.Context) error {
		if _, err := k.messages.putReplacing(ctx, r, m, 0, ""); err != nil || !continues {
			return err
		}
		return k.conv.continueMessage(ctx, m.ID, false)
	})
	if err != nil {
		return m.ID, uimessage.EffectApplied, err
	}
	return m.ID, uimessage.EffectApplied, k.clients.broadcast(ctx, updatedFrame{frameUpdated, m}, k.clients.openConns())
}

// amend replaces an invalid result by an error.
func (f *answerFrame) amend(call *callRow) {
	if err := call.withoutInvalidOutput(&f.ToolAnswer); err != nil {
		f.invalid = err
	}
}

// notApplied records a decision that has no effect.
func (k *toolCalls) notApplied(ctx context.Context, f *answerFrame, how uimessage.Effect, call *callRow) error {
	if how != uimessage.EffectRepeated || f.Approved == nil || call.ID == "" {
		return nil
	}
	action := ApprovalDenied
	if *f.Approved {
		action = ApprovalApproved
	}
	return k.lateDecision(ctx, call, action)
}

// findCall returns the row of the call that applyAnswer applies an answer to, or the zero row.
func (k *toolCalls) findCall(ctx context.Context, id string) (call callRow, err error) {
	row, ok, err := k.conv.running(ctx)
	if err != nil {
		return call, err
	}
	if ok {
		calls, err := k.callsOf(ctx, row.Message)
		if err != nil {
			return call, err
		}
		if call, ok := calls[id]; ok {
			return call, nil
		}
	}
	_, _, call, err = k.messageOf(ctx, id)
	return call, err
}

// messageOf returns the newest message with a waiting call of that id, or else one of the newest messages with the call,
// and the row of the call. Without such a message it returns the zero row.
func (k *toolCalls) messageOf(ctx context.Context, id string) (row messageRow, m Message, call callRow, err error) {
	if row, call, err = k.waitingCall(ctx, id); err != nil {
		return row, m, call, err
	}
	if row.ID == "" {
		if row, err = k.searchCall(ctx, id); err != nil || row.ID == "" {
			return row, m, call, err
		}
		calls, err := k.callsOf(ctx, row.ID)
		if err != nil {
			return row, m, call, err
		}
		call = calls[id]
	}
	m, err = row.Message()
	return row, m, call, err
}

// waitingCall returns the newest message with a call of that id without a result, and the row of the call.
func (k *toolCalls) waitingCall(ctx context.Context, id string) (row messageRow, call callRow, err error) {
	waiting, err := callRows.List(ctx, k.store(), &dohost.Query[callRow]{
		Index: "waiting", Equal: callKey(id), Where: func(r callRow) bool { return r.ID == id },
	})
	for _, c := range waiting {
		if err != nil {
			break
		}
		r, stored, failed := messages.Get(ctx, k.store(), c.Value.Message)
		if err = failed; stored && r.Place >= row.Place {
			row, call = r, c.Value
		}
	}
	return row, call, err
}

// maxRepeatSearch is how many of the newest messages are searched for a call that already has its result.
const maxRepeatSearch = 100

// searchCall returns one of the newest messages with a call of that id.
func (k *toolCalls) searchCall(ctx context.Context, id string) (row messageRow, err error) {
	quoted, err := rawjson.Encode(id)
	quoted = append([]byte(`"toolCallId":`), quoted...) // as the JSON of a stored message has it
	if err != nil || id == "" {
		return row, err
	}
	for r, err := range messages.All(ctx, k.store(), &dohost.Query[messageRow]{Reverse: true, Limit: maxRepeatSearch}) {
		if err != nil {
			return row, err
		}
		if !bytes.Contains(r.Value.JSON, quoted) {
			continue
		}
		m, err := r.Value.Message()
		if err != nil {
			return row, err
		}
		if _, ok := uimessage.Call(&m, id); ok {
			return r.Value, nil
		}
	}
	return row, nil
}

// answer applies an answer to a call of the reply, without waiting for space.
func (l *liveReply) answer(ctx context.Context, f *answerFrame) error {
	if c := f.Chunk(); c.Type() != "" {
		for _, of := range append(l.stream.Before(c), c) {
			if err := l.addOnce(ctx, of); err != nil {
				return err
			}
		}
	} else {
		if err := l.applyOnce(ctx, f.CallID, callApproved(time.Now().UnixMilli())); err != nil {
			return err
		}
		l.answered(&f.ToolAnswer)
	}
	return l.k.clients.broadcast(ctx, updatedFrame{frameUpdated, l.partial()}, l.k.clients.openConns())
}

// loadLive returns the running reply, even before its fiber has begun.
func (k *conversation) loadLive(ctx context.Context, row replyRow) (*liveReply, error) {
	if k.live != nil && k.live.row.ID == row.ID && !k.live.ended {
		return k.live, nil
	}
	return k.load(ctx, row)
}

// requestOfMessage returns the body and the tools for a continuation of a message: those of the last request of a client or of the
// program, or none if the message answers another agent.
func (k *conversation) requestOfMessage(ctx context.Context, message string) (none noteRow, err error) {
	if _, asked, err := waitingRows.Get(ctx, k.store(), message); err != nil || asked {
		return none, err
	}
	being, ok, err := k.running(ctx)
	if err != nil || ok && being.Message == message && being.Asked != nil {
		return none, err
	}
	return k.readNote(ctx, requestNote)
}

// queueContinuation queues a continuation of a message, unless one is queued, and reports whether one is queued or
// running.
func (k *conversation) queueContinuation(ctx context.Context, conn, message string, note noteRow, completes bool) (open bool, err error) {
	rows, err := replies.List(ctx, k.store(), &dohost.Query[replyRow]{Index: "open"})
	if err != nil {
		return false, err
	}
	row := replyRow{
		ID: "cont_" + ulid.Make().String(), Continues: true, Answers: true, Conn: conn, Message: message, Completes: completes,
		Body: note.Body, Tools: note.Tools, Created: time.Now().UnixMilli(),
	}
	for _, r := range rows {
		if r.Value.State == work.Waiting && r.Value.Continues && r.Value.Message == message {
			return true, nil
		}
		row.Overlaps = row.Overlaps || r.Value.running() && r.Value.Message == message
	}
	err = dohost.Transaction(ctx, func(ctx context.Context) (err error) {
		if err := k.insertReply(ctx, row); err != nil {
			return err
		}
		now, _, err := replies.Get(ctx, k.store(), row.ID)
		open = now.Value.Open()
		return err
	})
	return open, err
}
