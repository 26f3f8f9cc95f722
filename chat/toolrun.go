package chat

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/base32"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/chat/internal/rawjson"
	"github.com/dohost/dohost/chat/uimessage"
	"github.com/dohost/dohost/ledger"
)

const (
	// toolTimeout is the default of Tool.Timeout.
	toolTimeout = 60 * time.Second
	// maxParallel bounds the calls of a reply that run concurrently.
	maxParallel = 16
	// maxToolError bounds the text of an error for the model, in bytes.
	maxToolError = 64 << 10
	// maxToolAttempts bounds the runs of a call that may be repeated.
	maxToolAttempts = 5
)

// repeats reports whether an interrupted call of the tool runs again, or asks the other side.
func (t *Tool) repeats() bool {
	return t.Policy == ledger.PolicyIdempotent || t.Policy == ledger.PolicyReconcile
}

// check returns an error for a tool with contradicting fields.
func (t *Tool) check() error {
	wrong := func(text string) error { return fmt.Errorf("chat: tool %q: %s", t.Name, text) }
	switch {
	case t.err != nil:
		return wrong(t.err.Error())
	case t.Name == budgetTool:
		return wrong("the name is reserved")
	case t.Output.check() != nil:
		return wrong(t.Output.check().Error())
	case t.Approve != nil && t.Approve.Within < 0:
		return wrong("Approve.Within is negative")
	case t.Policy > ledger.PolicyReconcile:
		return wrong("want a Policy of package ledger")
	case t.Run == nil && (t.Policy != 0 || t.Find != nil):
		return wrong("Policy and Find are for tools with Run")
	case t.KeepLate && t.Run == nil:
		return wrong("KeepLate is for tools with Run")
	case t.External != nil && t.Run == nil:
		return wrong("External needs Run, which hands the call over")
	case t.External != nil && t.External.Within < 0:
		return wrong("External.Within is negative")
	case t.External != nil && t.Policy == ledger.PolicyReconcile:
		return wrong("External allows PolicyAtMostOnce and PolicyIdempotent")
	case t.Unrecorded && t.Policy != ledger.PolicyIdempotent:
		return wrong("Unrecorded needs PolicyIdempotent")
	case (t.Policy == ledger.PolicyReconcile) != (t.Find != nil):
		return wrong("PolicyReconcile needs Find, and no other policy calls it")
	}
	return nil
}

// checkAnswerTools is checkTools for the tools of Answer.
func checkAnswerTools(tools []Tool) error {
	if i := slices.IndexFunc(tools, func(t Tool) bool { return t.Unrecorded }); i >= 0 {
		return fmt.Errorf("chat: tool %q: Unrecorded is for tools of a Worker", tools[i].Name)
	}
	return checkTools(tools)
}

// timeout returns the time limit of a call, or zero for none.
func (t *Tool) timeout() time.Duration {
	switch {
	case t.Timeout == 0:
		return toolTimeout
	case t.Timeout < 0:
		return 0
	}
	return t.Timeout
}

// callContextKey is the context key of the call that a tool runs.
type callContextKey struct{}

// callContext is the value of callContextKey.
type callContext struct {
	call Call
	l    *liveReply // nil for a call of a Worker
}

// toolEvent is the end of a run of a call, or the end of the time of some run: several times may end in one instant, and their events
// then have any order.
type toolEvent struct {
	run  *toolRun
	late bool
	err  error // of the reply, not of the tool
}

// toolRuns are the runs of the calls of a step. Each run is a task of the object. It begins when the
// running row is durable. It writes the result in the batch of the tool's last writes, whether or not other calls have ended.
// The goroutine of Answer waits for all of them.
type toolRuns struct {
	a      *answerRun
	ctx    context.Context // of the handler
	events chan toolEvent
	open   []*toolRun // started, without a result, in the order of their starts
}

// toolRun is one run of a call.
type toolRun struct {
	tool Tool
	part Part
	call Call
	// again is set if an earlier run was interrupted.
	again bool
	// deadline is the end of the time of the run. It is zero before the task begins, and if the time is not limited.
	deadline time.Time
}

// runTools runs calls, up to maxParallel concurrently, and returns when each has a result. If ctx ends first, the tasks that
// still run have an ended context, and send no result.
func (a *answerRun) runTools(ctx context.Context, calls []*toolRun) error {
	rs := &toolRuns{a: a, ctx: ctx, events: make(chan toolEvent, 2*len(calls))}
	for len(calls) > 0 || len(rs.open) > 0 {
		for len(calls) > 0 && len(rs.open) < maxParallel {
			err := rs.start(calls[0])
			if noSpace(err) { // for the row, or for another task
				break
			}
			if err != nil {
				return err
			}
			calls = calls[1:]
		}
		var err error
		switch {
		case len(rs.open) > 0:
			err = rs.next()
		case len(calls) > 0:
			err = dohost.Sleep(ctx, time.Second)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// next waits for an event of a run, and applies it.
func (rs *toolRuns) next() error {
	e, _, err := dohost.Recv(rs.ctx, rs.events)
	if err != nil {
		return err
	}
	switch {
	case e.err != nil:
		return e.err
	case e.late:
		return rs.endLateRuns()
	}
	rs.remove(e.run) // which may have been late
	return nil
}

// endLateRuns sends the errors of the runs that have no time left. A run that has claimed its result sends it, and is about to end.
func (rs *toolRuns) endLateRuns() error {
	now := time.Now()
	for _, run := range slices.Clone(rs.open) {
		if run.deadline.IsZero() || now.Before(run.deadline) || !rs.a.l.finish(run) {
			continue
		}
		if err := run.sendResult(rs.ctx, rs.a, nil, run.lateError()); err != nil {
			return err
		}
		rs.remove(run)
	}
	return nil
}

func (rs *toolRuns) remove(run *toolRun) {
	rs.open = slices.DeleteFunc(rs.open, func(r *toolRun) bool { return r == run })
}

// finish claims the right to send the result of a run, and reports whether the caller got it. Both the task and the goroutine
// of Answer call finish; the first caller sends the result.
func (l *liveReply) finish(run *toolRun) bool {
	if l.running[run.call.ID] != run {
		return false
	}
	delete(l.running, run.call.ID)
	return true
}

// start writes the running row of a call and starts its task, in one transaction. If the call already has its result, start
// does nothing.
func (rs *toolRuns) start(run *toolRun) error {
	l, id := rs.a.l, run.part.Text("toolCallId")
	now, ok := l.call(id)
	switch {
	case l.ended:
		return ErrReplyOver
	case rs.ctx.Err() != nil:
		return context.Cause(rs.ctx)
	case !ok || uimessage.HasResult(now) || l.running[id] != nil:
		return nil
	}
	run.again = l.begun(id)
	at := time.Now().UnixMilli()
	old, row := l.after(id, at, callBegun(&run.tool, newKey(), l.numberAmongEqual(run.part), at))
	run.call = row.call()
	if row.External && row.Expires != 0 && (row.Attempts == 1 || !old.External) { // a call with a time limit always has a schedule
		if err := l.k.calls.scheduleExpiry(rs.ctx, row.Message, id, time.UnixMilli(row.Expires)); err != nil {
			return err
		}
	}
	err := dohost.Transaction(rs.ctx, func(ctx context.Context) error {
		if err := l.k.calls.putCall(ctx, old, row, callResult{}); err != nil {
			return err
		}
		return l.object().Go(ctx, "tool "+run.tool.Name, func(ctx context.Context) error {
			rs.events <- toolEvent{run: run, err: rs.run(ctx, run)}
			return nil
		})
	})
	if err != nil {
		return err
	}
	l.setCall(row)
	if l.stallTimer != nil {
		l.stallTimer.Stop() // a tool has its own time limit
	}
	if l.running == nil {
		l.running = map[string]*toolRun{}
	}
	l.running[id] = run
	rs.open = append(rs.open, run)
	return nil
}

// run runs a call in its task. It sends an error of the tool as the result; the error that run returns ends Answer.
func (rs *toolRuns) run(task context.Context, run *toolRun) error {
	l := rs.a.l
	switch p, ok := l.call(run.call.ID); {
	case l.ended || rs.ctx.Err() != nil || !ok: // the reply has ended before the task began
		l.finish(run)
		return ErrReplyOver
	case uimessage.HasResult(p): // Complete, or the end of External.Within, was faster than the task
		l.finish(run)
		return nil
	}
	ctx, stop := inTask(task, rs.ctx)
	defer stop()
	inner := context.WithValue(ctx, callContextKey{}, callContext{run.call, l})
	inner = context.WithValue(inner, toolAgentKey{}, l.k.base)
	inner = l.positionOfCall(run.call.ID).Context(inner)
	if most := run.tool.timeout(); most > 0 {
		var end context.CancelFunc
		inner, end = context.WithTimeoutCause(inner, most, errToolTimeout)
		defer end()
		run.deadline = time.Now().Add(most)
		defer time.AfterFunc(most, func() { rs.events <- toolEvent{late: true} }).Stop()
	}
	out, failed := run.do(inner)
	switch {
	case !l.finish(run): // the model has the error of lateError
		return run.lateResult(task, inner, l, out, failed)
	case l.ended:
		return cmp.Or(run.lateResult(task, inner, l, out, failed), ErrReplyOver)
	case ctx.Err() != nil || rs.ctx.Err() != nil:
		return context.Cause(rs.ctx) // the reply, or the incarnation, has ended
	case inner.Err() != nil && errors.Is(context.Cause(inner), errToolTimeout):
		out, failed = nil, run.lateError()
	case run.tool.External != nil && failed == nil:
		return run.runReturned(ctx, rs.a, out)
	}
	return run.sendResult(ctx, rs.a, out, failed)
}

// do calls the tool, or asks the other side about an interrupted run.
func (run *toolRun) do(ctx context.Context) (any, error) {
	input := rawjson.OrNull(run.part.Member("input"))
	if run.again && run.tool.Find != nil {
		switch out, answer, err := run.tool.Find(ctx, input); {
		case err == nil && answer == ledger.AnswerDone:
			return out, nil
		case err != nil || answer != ledger.AnswerNotDone:
			return nil, stillUnknownError{err}
		}
		run.again = false // the interrupted run had no effect
	}
	return run.tool.Run(ctx, input)
}

// errToolTimeout is the cause of the end of a tool's context after its time.
var errToolTimeout = errors.New("chat: the call took longer than Tool.Timeout")

// stillUnknownError is the error of an interrupted call whose other side does not know the outcome.
type stillUnknownError struct{ err error }

func (e stillUnknownError) Error() string {
	if e.err == nil {
		return uimessage.InterruptedText
	}
	return uimessage.InterruptedText + " " + e.err.Error()
}

func (e stillUnknownError) Unwrap() error { return e.err }

// lateError returns the error of a call that took too long.
func (run *toolRun) lateError() error {
	return lateCallError{run.tool.timeout()}
}

// lateCallError is the error that the model receives for a call that took too long.
type lateCallError struct{ most time.Duration }

func (e lateCallError) Error() string {
	return fmt.Sprintf("The call took longer than %v. Whether it took effect is not known.", e.most)
}

func (e lateCallError) Unwrap() error { return errToolTimeout }

// certain reports whether an error leaves no doubt about the effect of the call.
func (run *toolRun) certain(failed error) bool {
	switch {
	case run.again: // the interrupted run may have had its effect
		return false
	case ledger.ProvesNoEffect(failed):
		return true
	}
	_, unknown := errors.AsType[stillUnknownError](failed)
	return run.tool.Policy == ledger.PolicyIdempotent && !unknown && !errors.Is(failed, errToolTimeout)
}

// sendResult sends the result of a call. The stream of the reply ignores it if Complete has ended the call.
func (run *toolRun) sendResult(ctx context.Context, a *answerRun, out any, failed error) error {
	if failed == nil && run.tool.External == nil {
		failed = run.tool.checkResult(out)
	}
	if failed != nil && run.certain(failed) {
		if err := a.l.apply(ctx, run.call.ID, callCertain); err != nil {
			return err
		}
	}
	err := a.sendResult(ctx, run.part, out, failed)
	if large, ok := errors.AsType[*dohost.LimitError](err); ok {
		err = a.sendResult(ctx, run.part, nil, large)
	}
	return err
}

// keyEncoding is the alphabet of the idempotency keys of calls.
var keyEncoding = base32.NewEncoding("0123456789abcdefghjkmnpqrstvwxyz").WithPadding(base32.NoPadding)

// newKey returns a random idempotency key. The row of the call keeps it for all runs. It does not derive from the message: a client
// may choose the id of a message, also the id that another conversation has.
func newKey() string { return "call_" + randomText() }

// randomText returns 26 letters and digits that no client can guess.
func randomText() string {
	var random [16]byte
	_, _ = rand.Read(random[:]) // it never fails
	return keyEncoding.EncodeToString(random[:])
}

// taskContext is the context of a task. If that context does not have a value, Value returns the one of the handler's context.
type taskContext struct {
	context.Context
	handler context.Context
}

// inTask returns a context for a tool in a task. It has the values of both contexts, and ends with either of them.
func inTask(task, handler context.Context) (ctx context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(taskContext{task, handler})
	release := context.AfterFunc(handler, func() { cancel(context.Cause(handler)) })
	return ctx, func() {
		release()
		cancel(nil)
	}
}

// Value implements [context.Context].
func (c taskContext) Value(key any) any {
	if v := c.Context.Value(key); v != nil {
		return v
	}
	return c.handler.Value(key)
}
