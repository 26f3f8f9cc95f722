package chat

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/agent"
	"github.com/dohost/dohost/chat/internal/rawjson"
	"github.com/dohost/dohost/chat/uimessage"
	"github.com/dohost/dohost/ledger"
)

// workerCall is a call of a tool in a run of a worker.
type workerCall struct {
	index int // of its part
	tool  *Tool
	input json.RawMessage
	id    workerCallID
}

// workerCallID identifies a call in a run. A model that is asked again makes calls with other ids.
type workerCallID struct {
	digest string // of the tool and the input
	number uint64 // separates equal calls
}

// workerEvent is the end of a call, or the end of its time.
type workerEvent struct {
	call   *workerCall
	out    json.RawMessage
	failed error // for the model
	err    error // of the run
	// postponed is the error of an unrecorded tool that ends the run when the other calls of the step have ended.
	postponed *agent.PostponeError
}

// runCalls runs the calls of the last step, up to maxParallel concurrently, and returns when each has a result, or has postponed the run:
// then the error is the shortest postponement. first is the index of the first part of the step. If ctx ends first, the tasks that still run
// have an ended context.
func (r *workerRun) runCalls(ctx context.Context, first int) error {
	var postponed *agent.PostponeError
	calls := r.calls(first)
	events := make(chan workerEvent, 2*len(calls))
	open := map[*workerCall]bool{}
	for len(calls) > 0 || len(open) > 0 {
		for len(calls) > 0 && len(open) < maxParallel {
			c := calls[0]
			err := r.st.Go(ctx, "tool "+c.tool.Name, func(task context.Context) error {
				events <- r.call(task, ctx, c, events)
				return nil
			})
			if err != nil {
				return err
			}
			open[c], calls = true, calls[1:]
		}
		e, _, err := dohost.Recv(ctx, events)
		switch {
		case err != nil:
			return err
		case e.err != nil:
			return e.err
		case !open[e.call]: // the tool has returned after its time
			continue
		}
		delete(open, e.call)
		if p := e.postponed; p != nil {
			if postponed == nil || p.After < postponed.After {
				postponed = p
			}
			continue
		}
		if e.failed != nil && !e.call.tool.Unrecorded { // its effects have the key of the call, and so has the error
			delete(r.numbers, e.call.id)
		}
		r.result(e.call.index, e.out, e.failed)
	}
	if postponed != nil {
		return postponed
	}
	return nil
}

// calls returns the calls that have no result, and gives a result to those that cannot run. A call gets its number among equal calls:
// see lowestFree.
func (r *workerRun) calls(first int) (calls []*workerCall) {
	for i, p := range r.partial.Parts[first:] {
		if !uimessage.IsPending(p) {
			continue
		}
		name := uimessage.ToolName(p)
		c := &workerCall{index: first + i, tool: r.tool(name), input: rawjson.OrNull(p.Member("input"))}
		var err error
		if c.tool == nil {
			err = fmt.Errorf("there is no tool %q", name)
		} else if c.tool.valid != nil {
			err = c.tool.valid(c.input)
		}
		if err != nil {
			r.result(c.index, nil, err)
			continue
		}
		c.id.digest = string(uimessage.Digest(name, c.input))
		c.id.number = lowestFree(func(n uint64) bool { return r.numbers[workerCallID{c.id.digest, n}] })
		r.numbers[c.id] = true
		calls = append(calls, c)
	}
	return calls
}

func (r *workerRun) tool(name string) *Tool {
	for i := range r.worker.tools {
		if t := &r.worker.tools[i]; t.Name == name {
			return t
		}
	}
	return nil
}

// result sets the result of a call.
func (r *workerRun) result(index int, out json.RawMessage, failed error) {
	s := uimessage.NewStream(r.partial, "", 0)
	s.Add(resultChunk(r.partial.Parts[index].Text("toolCallId"), out, failed))
	r.partial = s.Message()
}

// lateGrace is the time that a tool has to return after the end of its context. After that the model gets an error.
const lateGrace = time.Second

// call runs a call in its task.
func (r *workerRun) call(task, caller context.Context, c *workerCall, events chan<- workerEvent) workerEvent {
	e := workerEvent{call: c}
	ctx, stop := inTask(task, caller)
	defer stop()
	late := func() { events <- workerEvent{call: c, failed: lateCallError{c.tool.timeout()}} }
	most := c.tool.timeout()
	waiting := time.AfterFunc(most+lateGrace, late) // for an equal call, whose tool has not returned
	defer waiting.Stop()
	if most <= 0 {
		waiting.Stop()
	}
	out, err := r.perform(ctx, c, func(ctx context.Context, id ledger.ID) (json.RawMessage, error) {
		waiting.Stop()
		if most > 0 {
			defer time.AfterFunc(most+lateGrace, late).Stop()
		}
		return r.runTool(ctx, c, id)
	})
	unknown, isUnknown := err.(*ledger.UnknownError) // and not one that the tool has returned
	failed, isFailed := errors.AsType[*toolError](err)
	postponed, isPostponed := errors.AsType[*agent.PostponeError](err)
	switch {
	case err == nil:
		e.out = out
	case ctx.Err() != nil:
		e.err = context.Cause(ctx)
	case isPostponed && c.tool.Unrecorded:
		e.postponed = postponed
	case isUnknown:
		e.failed = unknownCallError{unknown.Err}
	case isFailed:
		e.failed = failed.error
	case errors.Is(err, ledger.ErrNoCanonicalForm): // the input of the model
		e.failed = err
	default:
		e.err = err
	}
	return e
}

// perform runs a call as an operation of the ledger, or without one if its tool is Unrecorded.
func (r *workerRun) perform(
	ctx context.Context, c *workerCall, run func(context.Context, ledger.ID) (json.RawMessage, error),
) (out json.RawMessage, err error) {
	if !c.tool.Unrecorded {
		return ledger.Do(r.place.context(ctx, c.id.number), r.st, r.toolKind(c.tool), c.input, run)
	}
	key := r.place.key(r.st.ID(), c)
	err = dohost.Await(ctx, func(ctx context.Context) error {
		out, err = run(ctx, ledger.ID(key))
		return err
	})
	return out, err
}

// toolError is an error that a tool has returned.
type toolError struct{ error }

func (e *toolError) Unwrap() error { return e.error }

// unknownCallError is the error that the model gets for a call with an unknown effect. err is the last error; it may be nil.
type unknownCallError struct{ err error }

func (e unknownCallError) Error() string {
	const text = "Whether the call took effect is not known."
	if e.err == nil {
		return text
	}
	return text + " " + e.err.Error()
}

// runTool calls the tool of a call with the turn.
func (r *workerRun) runTool(ctx context.Context, c *workerCall, id ledger.ID) (out json.RawMessage, err error) {
	if most := c.tool.timeout(); most > 0 {
		var stop context.CancelFunc
		ctx, stop = context.WithTimeoutCause(ctx, most, errToolTimeout)
		defer stop()
	}
	held := dohost.HoldTurn(ctx, func(ctx context.Context) error {
		var v any
		if v, err = c.tool.Run(r.toolContext(ctx, c.tool, id, c.input), c.input); err == nil {
			if out, err = encodeOutput(v); err == nil {
				err = checkOutput(c.tool.Output.schema(), out)
			}
		}
		return nil
	})
	switch {
	case held != nil: // the writes of the tool may be lost
		return nil, held
	case err != nil && errors.Is(context.Cause(ctx), errToolTimeout):
		err = lateCallError{c.tool.timeout()}
	}
	if err != nil {
		return nil, &toolError{err}
	}
	return out, nil
}

// toolContext returns the context of the function of a tool.
func (r *workerRun) toolContext(ctx context.Context, t *Tool, id ledger.ID, input json.RawMessage) context.Context {
	ctx = fixedPosition("operation/"+string(id), 0).Context(ctx)
	ctx = context.WithValue(ctx, workerDepthKey{}, r.depth)
	ctx = context.WithValue(ctx, toolAgentKey{}, r.agent)
	return context.WithValue(ctx, callContextKey{}, callContext{call: Call{
		ID: string(id), Tool: t.Name, Input: clipText(string(input), maxCallInput), Digest: hex.EncodeToString(uimessage.Digest(t.Name, input)),
		Key: string(id), State: CallRunning,
	}})
}

// toolKind returns the kind of the calls of a tool.
func (r *workerRun) toolKind(t *Tool) *ledger.Kind[json.RawMessage, json.RawMessage] {
	k := &ledger.Kind[json.RawMessage, json.RawMessage]{
		Name: r.worker.name + "/" + t.Name, Same: ledger.Whole[json.RawMessage], Policy: t.Policy, Keep: r.worker.keep,
		Unknown: func(ledger.ID, json.RawMessage) string {
			return fmt.Sprintf("the tool %q of the worker %q may have run", t.Name, r.worker.name)
		},
	}
	switch t.Policy {
	case 0:
		k.Policy = ledger.PolicyAtMostOnce
	case ledger.PolicyIdempotent:
		k.NoEffect = func(error) bool { return true } // the model gets the error; a repetition of the call is harmless
	case ledger.PolicyReconcile:
		k.Find = func(ctx context.Context, id ledger.ID, input json.RawMessage) (out json.RawMessage, answer ledger.Answer, err error) {
			held := dohost.HoldTurn(ctx, func(ctx context.Context) error {
				var v any
				if v, answer, err = t.Find(r.toolContext(ctx, t, id, input), input); err == nil && answer == ledger.AnswerDone {
					out, err = encodeOutput(v)
				}
				return nil
			})
			return out, answer, errors.Join(err, held)
		}
	}
	return k
}
