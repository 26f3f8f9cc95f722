package chat

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"
	"unicode/utf8"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/agent"
	"github.com/dohost/dohost/chat/internal/rawjson"
	"github.com/dohost/dohost/chat/uimessage"
)

// External makes another party complete the calls of a [Tool]: another object, a service that calls back, or a person. Run
// hands off the call, for example into the queue of another object, with the Key of [CallFrom]. The other party passes the
// result to [Complete]. The reply ends, as it does for a call that a client runs, and Complete continues it. So the wait
// needs no handler and no connection, and outlives the process.
//
// Timeout and Policy of the tool apply only to Run: if Run was interrupted, the call is handed off again if the policy is
// PolicyIdempotent, up to 5 times in total, and is unknown otherwise. An error of Run ends the call. A stop ends the reply, but
// not a call that was handed off, except a call of an [AgentTool] or a [PoolTool].
type External struct {
	// Within bounds the time from the start of Run to Complete. After it the call has the state [CallUnknown], and the model
	// receives an error. Zero means no bound; [Answer] fails if it is negative.
	Within time.Duration
	// Async sends the model a result as soon as Run has returned: the result of Run, or, if Run returns nil, the Key and a
	// status, {"id": "call_…", "status": "queued"}. The reply continues. [Complete] then changes only the call: see
	// [FindCall]. Without Async, Run returns nil, and the model receives the result of Complete.
	Async bool
}

// maxOutput bounds the output of a completion, in bytes.
const maxOutput = 1 << 20

// expires returns the time when the wait for Complete ends, in ms; 0 if there is no bound.
func (e *External) expires(now int64) int64 {
	if e.Within == 0 {
		return 0
	}
	return now + e.Within.Milliseconds()
}

// Completion is the result of an external call. At most one of Output and Error is set.
type Completion struct {
	Key    string          `json:"key"`              // the Key of the [Call]
	Output json.RawMessage `json:"output,omitempty"` // the result, at most 1 MiB; nil means null
	Error  string          `json:"error,omitempty"`  // the text of an error, for the model: at most 64 KiB of it
	// Unknown states that the executor does not know whether the call took effect. Then the state is CallUnknown instead of
	// CallFailed. Only for errors.
	Unknown bool `json:"unknown,omitempty"`

	ofTask bool // the task of the call has ended, or was not posted: see PoolTool
}

// check returns an error for a completion that no call can have.
func (c *Completion) check() error {
	switch {
	case c == nil:
		return fmt.Errorf("chat: the completion is nil: %w", dohost.ErrMisuse)
	case c.Error != "" && c.Output != nil && string(c.Output) != "null":
		return fmt.Errorf("chat: the completion of %q has an Output and an Error: %w", c.Key, dohost.ErrMisuse)
	case c.Error == "" && c.Unknown:
		return fmt.Errorf("chat: the completion of %q is unknown without an Error: %w", c.Key, dohost.ErrMisuse)
	case c.Output != nil && !json.Valid(c.Output):
		return fmt.Errorf("chat: the Output of %q is not JSON: %w", c.Key, dohost.ErrMisuse)
	case !utf8.Valid(c.Output): // clients could not receive the conversation
		return fmt.Errorf("chat: the Output of %q is not UTF-8: %w", c.Key, dohost.ErrMisuse)
	case len(c.Output) > maxOutput:
		return &dohost.LimitError{Subject: "output of a call", Size: len(c.Output), Limit: maxOutput}
	case rawjson.Nesting(c.Output) >= uimessage.MaxNesting:
		return fmt.Errorf("chat: the Output of %q: %w", c.Key, errNesting)
	}
	return nil
}

// result returns the result of a checked completion.
func (c *Completion) result() callResult {
	if c.Error != "" {
		return callResult{failure: clipText(c.Error, maxToolError)}
	}
	return callResult{output: rawjson.OrNull(c.Output)}
}

// Complete ends a call of a tool with [External]. The first completion counts: applied is false if the call has already ended,
// so an executor may repeat a completion. If no other call of the message waits, the assistant continues the message, unless a
// newer message from a user or the program follows: then the model receives the result with the next request. A message that
// answers another agent continues in any case (see [AgentTool]). Complete is for the program: if other objects or HTTP clients
// complete the calls of a class, the class needs a method that checks the rights of its callers and calls Complete. On a full
// disk, Complete waits up to 20 s for space, without the turn; after that it returns [dohost.ErrNoSpace], and the call has not
// changed.
//
// A completion is discarded after the end of [External].Within, and if an error or an interruption of Run has ended the call.
// After the end of Within the completion is reported as chat:late, and kept if the tool has KeepLate. A result that does not fit
// into its message becomes an error.
//
// An output that does not match [Tool].Output also ends the call: the state is [CallUnknown], and the model receives the error
// with the place in the output. Complete then returns [ErrInvalidOutput], and false without an error for a repetition.
//
// Errors: [ErrNoCall], also after the call's message was deleted; [ErrInvalidOutput]; a [*dohost.LimitError] for an output
// of more than 1 MiB; an error for an output that is nested more than 100 deep; the error of [agent.CheckWrite] in an event
// of a read-only client; [dohost.ErrMisuse] for an invalid Completion and in a transaction.
func Complete(ctx context.Context, a Ref, c *Completion) (applied bool, err error) {
	if err := c.check(); err != nil {
		return false, err
	}
	if err := agent.CheckWrite(ctx); err != nil {
		return false, err
	}
	k := a.conv()
	if err := k.store().Sync(ctx); err != nil { // not in a Transaction: frames cannot be rolled back
		return false, err
	}
	return k.calls.complete(ctx, c, answerWait)
}

// complete is Complete, with a bound for the wait for space.
func (k *toolCalls) complete(ctx context.Context, c *Completion, most time.Duration) (applied bool, err error) {
	var invalid error
	tool := ""
	err = retryNoSpaceWithin(ctx, most, func() error {
		applied = false
		row, ok, err := k.externalCall(ctx, c.Key)
		tool = row.Tool
		if err == nil && ok && !row.ended() && row.overdue(time.Now().UnixMilli()) { // its schedule is late, after a downtime
			if err = k.expireExternal(ctx, row, 0); err == nil {
				row, ok, err = k.externalCall(ctx, c.Key)
			}
		}
		switch {
		case err != nil:
			return err
		case !ok:
			return fmt.Errorf("%w: no external call has the key %q", ErrNoCall, c.Key)
		case row.ended():
			if row.State == CallUnknown && row.overdue(row.Changed) {
				k.object().Report(ctx, "chat:late", slog.String("call", row.ID), slog.String("tool", row.Tool))
				return k.keepLate(ctx, row.Message, row.ID, c.result())
			}
			return nil
		}
		f := &uimessage.ToolAnswer{CallID: row.ID, State: uimessage.OutputAvailable, Output: c.Output}
		if c.Error != "" {
			f.State, f.Output, f.ErrorText = uimessage.OutputError, nil, clipText(c.Error, maxToolError)
		}
		invalid = row.withoutInvalidOutput(f)
		applied = true
		if err := k.endExternal(ctx, row, f, !c.Unknown && invalid == nil); err != nil || row.Role == "" || c.ofTask {
			return err
		}
		return k.sent.cancelTask(ctx, &row)
	})
	if err == nil && applied && invalid != nil {
		applied, err = false, fmt.Errorf("%w (the call %q of the tool %q has ended)", invalid, c.Key, tool)
	}
	return applied && err == nil, err
}

// externalCall returns the external call with a key.
func (k *toolCalls) externalCall(ctx context.Context, key string) (row callRow, ok bool, err error) {
	rows, err := callRows.List(ctx, k.store(), &dohost.Query[callRow]{Index: "external", Equal: dohost.KeyOf(key), Limit: 1})
	if err != nil || len(rows) == 0 {
		return row, false, err
	}
	return rows[0].Value, true, nil
}

// endExternal ends an external call that has not ended, without waiting for space. It queues the continuation of the message
// in the same batch. certain is about an error: the executor knows whether the call took effect.
func (k *toolCalls) endExternal(ctx context.Context, row callRow, f *uimessage.ToolAnswer, certain bool) error {
	being, ok, err := k.conv.running(ctx)
	if err != nil {
		return err
	}
	if ok && being.Message == row.Message {
		l, err := k.conv.loadLive(ctx, being)
		if err != nil {
			return err
		}
		return l.endExternal(ctx, row, f, certain)
	}
	err = k.endStored(ctx, row, f, certain, true)
	if _, large := errors.AsType[*dohost.LimitError](err); large {
		short := &uimessage.ToolAnswer{CallID: f.CallID, State: uimessage.OutputError, ErrorText: largeResultText}
		err = k.endStored(ctx, row, short, certain && f.State == uimessage.OutputError, true)
	}
	if _, large := errors.AsType[*dohost.LimitError](err); large { // not even that: the row ends alone
		f = &uimessage.ToolAnswer{CallID: f.CallID, State: uimessage.OutputError, ErrorText: largeResultText}
		next := row.asyncResult(f, false, time.Now().UnixMilli())
		if err = k.putCall(ctx, row, next, callResult{}); err == nil && next.shown() {
			err = k.clients.broadcast(ctx, next.endFrame(Part{}, false), k.clients.openConns())
		}
	}
	return err
}

// largeResultText is the error of a call whose result does not fit into its message.
const largeResultText = "The result of the call does not fit into the message."

// endStored ends an external call of a stored message. With continues it queues a continuation of the message.
func (k *toolCalls) endStored(ctx context.Context, row callRow, f *uimessage.ToolAnswer, certain, continues bool) error {
	r, ok, err := messages.Get(ctx, k.store(), row.Message)
	if err != nil || !ok {
		return errors.Join(err, fmt.Errorf("%w: the message %q is deleted", ErrNoCall, row.Message))
	}
	m, err := r.Message()
	if err != nil {
		return err
	}
	p, ok := uimessage.Call(&m, row.ID)
	if !ok {
		return fmt.Errorf("%w: %q", ErrNoCall, row.ID)
	}
	next := row
	next.Certain = certain
	if row.Async {
		next = row.asyncResult(f, certain, time.Now().UnixMilli())
		if uimessage.HasResult(p) {
			return k.putCall(ctx, row, next, callResult{})
		}
		f = queuedAnswer(&row) // the program has stored an older copy of the message
	}
	f.Apply(p)
	err = dohost.Transaction(ctx, func(ctx context.Context) error {
		if err := k.putCall(ctx, row, next, callResult{}); err != nil {
			return err
		}
		if _, err := k.messages.putReplacing(ctx, r, m, 0, ""); err != nil || !continues {
			return err
		}
		return k.conv.continueMessage(ctx, m.ID, true)
	})
	if err != nil {
		return err
	}
	if err := k.sent.sendRunEnd(ctx, &m, row.ID); err != nil {
		return err
	}
	return k.clients.broadcast(ctx, updatedFrame{frameUpdated, m}, k.clients.openConns())
}

// endExternal is toolCalls.endExternal for a call of the running reply.
func (l *liveReply) endExternal(ctx context.Context, row callRow, f *uimessage.ToolAnswer, certain bool) error {
	if !row.Async {
		if err := l.k.continueMessage(ctx, row.Message, true); err != nil {
			return err
		}
		err := l.applyOnce(ctx, row.ID, func(r callRow) callRow {
			r.Certain = certain
			return r
		})
		if err != nil {
			return err
		}
		return l.answer(ctx, &answerFrame{ToolAnswer: *f})
	}
	if row.State == CallRunning { // Run has not returned: the model receives its result first
		if err := l.answer(ctx, &answerFrame{ToolAnswer: *queuedAnswer(&row)}); err != nil {
			return err
		}
	}
	return l.applyOnce(ctx, row.ID, func(r callRow) callRow { return r.asyncResult(f, certain, time.Now().UnixMilli()) })
}

// asyncResult returns the row of an asynchronous call after its end.
func (r callRow) asyncResult(f *uimessage.ToolAnswer, certain bool, now int64) callRow {
	if f.State == uimessage.OutputError {
		r.Certain, r.Failure = certain, f.ErrorText
		return r.failed(now)
	}
	r.Output = string(rawjson.OrNull(f.Output))
	return r.in(CallCompleted, now)
}

// queuedAnswer returns the result that the model receives for an asynchronous call whose Run has none.
func queuedAnswer(r *callRow) *uimessage.ToolAnswer {
	out, _ := json.Marshal(map[string]string{"id": r.Key, "status": "queued"})
	return &uimessage.ToolAnswer{CallID: r.ID, State: uimessage.OutputAvailable, Output: out}
}

// expireExternal ends the wait for a completion that has taken too long. most bounds the wait for space.
func (k *toolCalls) expireExternal(ctx context.Context, row callRow, most time.Duration) error {
	ctx = withActor(ctx, actor{expired: true}) // not the operator whose completion is too late
	f := &uimessage.ToolAnswer{CallID: row.ID, State: uimessage.OutputError, ErrorText: row.expiredText()}
	return retryNoSpaceWithin(ctx, most, func() error {
		now, ok, err := callRows.Get(ctx, k.store(), callRows.Key(row))
		if err != nil || !ok || now.Value.ended() {
			return err
		}
		if err := k.endExternal(ctx, now.Value, f, false); err != nil || now.Value.Role == "" {
			return err
		}
		return k.sent.cancelTask(ctx, &now.Value)
	})
}

// expiredCallText is the error of a call that was not completed within its time.
const expiredCallText = "The call was not completed in time. Whether it took effect is not known."

// runReturned records that Run has returned. An asynchronous call gets its result for the model.
func (run *toolRun) runReturned(ctx context.Context, a *answerRun, out any) error {
	p, ok := a.l.call(run.call.ID)
	if !ok || uimessage.HasResult(p) {
		return nil // Complete was faster
	}
	row := a.l.calls[run.call.ID]
	switch {
	case !row.Async && out != nil:
		return run.sendResult(ctx, a, nil, errors.New("the tool is external, but its Run has returned a result"))
	case !row.Async:
		return a.l.apply(ctx, run.call.ID, callExternal(time.Now().UnixMilli()))
	case out == nil:
		out = queuedAnswer(&row).Output
	}
	return run.sendResult(ctx, a, out, nil)
}

// FindCall returns an external call by its Key, in any state. Its Output and Error come from its message, which shortens outputs
// that do not fit; for an asynchronous call and for a late result they come from Complete. ok is false if there is no such call,
// or its message was deleted.
func FindCall(ctx context.Context, a Ref, key string) (c Call, ok bool, err error) {
	k := a.conv()
	row, ok, err := k.calls.externalCall(ctx, key)
	if err != nil || !ok {
		return c, false, err
	}
	c = row.call()
	if !row.ended() || row.Async || row.Late {
		return c, true, nil
	}
	m, err := k.calls.messageOfCall(ctx, &row)
	if err != nil {
		return c, true, err
	}
	if p, ok := uimessage.Call(&m, row.ID); ok {
		c.Output, c.Error = p.Member("output"), p.Text("errorText")
	}
	return c, true, nil
}

// messageOfCall returns the message of a call: that of the running reply, or the stored one.
func (k *toolCalls) messageOfCall(ctx context.Context, row *callRow) (Message, error) {
	being, ok, err := k.conv.running(ctx)
	if err != nil {
		return Message{}, err
	}
	if ok && being.Message == row.Message {
		l, err := k.conv.loadLive(ctx, being)
		if err != nil {
			return Message{}, err
		}
		return l.partial(), nil
	}
	r, ok, err := messages.Get(ctx, k.store(), row.Message)
	if err != nil || !ok {
		return Message{}, err
	}
	return r.Message()
}
