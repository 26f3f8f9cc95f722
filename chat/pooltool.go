package chat

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/agent"
	"github.com/dohost/dohost/chat/internal/rawjson"
	"github.com/dohost/dohost/internal/agenttool"
	"github.com/dohost/dohost/ledger"
	"github.com/dohost/dohost/pool"
)

// A pool tool makes a call a task of a worker pool. Invariants:
//
//   - The key of the task is a function of the call's key, so all runs and repetitions post the same task.
//   - The batch that hands the call over starts the fiber that posts the task. The fiber ends when the pool has stored the task, or
//     when the call has ended.
//   - The pool keeps the task until its end is in the queue of this agent (pool.Notification). The callback completes the call.
//   - The call accepts the first completion, so all of these may be repeated.
//   - A task with PolicyAtMostOnce is started once (pool.NewTask.Once).
//   - If the call ends first, after a stop, a deletion or the end of its time, a fiber cancels the task. A post may be on its way from another
//     host then, if its fiber had not ended when the call ended. In that case the cancellation posts a task that has ended, with the key: the late
//     post finds it. Both are one batch.

// taskTimeout is the default of PoolToolOptions.Timeout.
const taskTimeout = time.Hour

// defaultPool is the default of PoolToolOptions.Pool.
const defaultPool = "tools"

// PoolToolOptions tunes [PoolTool]. A nil *PoolToolOptions, and the zero PoolToolOptions, mean the defaults.
type PoolToolOptions[In any] struct {
	// Pool names the pool, an object of the class of [pool.Class]. Empty means "tools".
	Pool string
	// Role is the role of the workers. Empty means the name of the tool. The pool creates it if there is none.
	Role string
	// Text returns the text of the task, which is the input of its worker. It is called with the turn, and again after an interruption. An
	// error is the result of the call. Nil means the JSON of the input.
	Text func(ctx context.Context, in In) (string, error)
	// Policy decides about a call if a worker has started its task but has not reported the end. Zero means PolicyAtMostOnce: the call is
	// [CallUnknown]. With PolicyIdempotent another worker gets the task, with the same key, up to the pool's MaxAttempts. PolicyReconcile is an
	// error of [Answer].
	Policy ledger.Policy
	// Timeout bounds the time from the start of the call to the result. After it the call is [CallUnknown], and the task is cancelled. Zero
	// means 1 h; negative means no bound.
	Timeout time.Duration
	// Async is as in [External].
	Async bool
	// Output is as in [Tool], for the result of the task. The pool does not check the result: to the pool the task is
	// done.
	Output *Output
	// Approve and ApproveWithin are as in [ToolOptions].
	Approve       func(ctx context.Context, in In) (bool, error)
	ApproveWithin time.Duration
}

// PoolTool returns a tool that turns its calls into tasks of a worker pool, on this host or, in a cluster, on another: see package pool, dohost
// work and [pool.Work]. The model receives the JSON schema of In, as with [NewTool]. The result of the task is the result of the call. A call is
// an [External] call: its reply ends, and continues with the result, so it waits without an event, a turn or a connection. It waits for a
// worker, too: a role without workers is not an error before Timeout. A task does not name its tool, so give each tool its own role.
//
// A task that fails is an error of the call. The state is [CallUnknown] if a worker has started the task but the pool has no report of the
// end of that attempt. If the call ends first, because it was completed by hand, its time is over, its reply was stopped while it ran, or its
// message was deleted, the agent cancels the task. A cancellation of the task in the pool ends the call.
//
// [Answer] returns an error for options that are not valid. The fields of the returned Tool may be changed, except Run, Policy and External.
func PoolTool[In any](name, description string, o *PoolToolOptions[In]) Tool {
	var own PoolToolOptions[In]
	if o != nil {
		own = *o
	}
	to := dohost.ID{Class: string(pool.Pools), Name: cmp.Or(own.Pool, defaultPool)}
	role := cmp.Or(own.Role, name)
	own.Policy = cmp.Or(own.Policy, ledger.PolicyAtMostOnce)
	within := max(0, cmp.Or(own.Timeout, taskTimeout)) // negative: no bound, which is 0 for External
	run := func(ctx context.Context, in In) (any, error) {
		of, ok := ctx.Value(callContextKey{}).(callContext)
		if !ok || of.l == nil {
			return nil, ledger.NoEffect(errors.New("the Run of a pool tool is for calls of Answer"))
		}
		text, err := own.text(ctx, in)
		if err != nil {
			return nil, ledger.NoEffect(err)
		}
		return nil, of.l.post(ctx, &of.call, to, &poolTask{role, text, own.Policy == ledger.PolicyAtMostOnce, taskWithin(within).Milliseconds()}, within)
	}
	t := NewTool(name, description, run, &ToolOptions[In, any]{
		Policy: ledger.PolicyIdempotent, External: &External{Within: within, Async: own.Async}, Output: own.Output, Approve: own.Approve, ApproveWithin: own.ApproveWithin,
	})
	if own.Policy != ledger.PolicyAtMostOnce && own.Policy != ledger.PolicyIdempotent {
		t.err = errors.Join(t.err, fmt.Errorf("the Policy is %v: want PolicyAtMostOnce or PolicyIdempotent", own.Policy))
	}
	t.err = errors.Join(t.err, pool.CheckRole(role), to.Validate())
	return t
}

// text returns the text of a task.
func (o *PoolToolOptions[In]) text(ctx context.Context, in In) (string, error) {
	if o.Text != nil {
		return o.Text(ctx, in)
	}
	raw, err := rawjson.Encode(in)
	return string(raw), err
}

// poolTask is the task of a call.
type poolTask struct {
	Role string
	Text string
	Once bool
	// WithinMS bounds the time of the task in the pool, from its post: the call may be deleted before it ends.
	WithinMS int64
}

// post starts the fiber that posts the task of a call. The caller hands the call over in the same batch.
func (l *liveReply) post(ctx context.Context, call *Call, to dohost.ID, task *poolTask, within time.Duration) error {
	return l.retryNoSpace(ctx, func() error {
		if l.ended { // Text may have given up the turn
			return ErrReplyOver
		}
		old := l.calls[call.ID]
		row := callPosts(to, task.Role, within)(old)
		err := dohost.Transaction(ctx, func(ctx context.Context) error {
			if err := l.k.calls.putCall(ctx, old, row, callResult{}); err != nil {
				return err
			}
			return l.k.sent.startAsk(ctx, &outgoing{To: to, Task: task, Address: returnAddress{Request: agenttool.RequestID(call.Key), Key: call.Key}})
		})
		if _, large := errors.AsType[*dohost.LimitError](err); large {
			return ledger.NoEffect(err)
		}
		if err == nil {
			l.setCall(row)
		}
		return err
	})
}

// taskWithin returns the bound of a task's time: later than the end of the call, which cancels it; zero if there is none.
func taskWithin(within time.Duration) time.Duration {
	if within == 0 || within > pool.MaxWithin-time.Minute {
		return 0
	}
	return within + time.Minute
}

// callPosts is the event of a call that posts a task.
func callPosts(to dohost.ID, role string, within time.Duration) callEvent {
	return func(r callRow) callRow {
		r.Asks, r.Role, r.Within, r.Hidden = to.String(), role, within.Milliseconds(), true
		return r
	}
}

// cancelTask is cancelAsk for a call that has ended in this batch. It waits for space by itself: a repetition of the end would have no effect.
func (k *sentRequests) cancelTask(ctx context.Context, r *callRow) error {
	return retryNoSpace(ctx, func() error { return k.cancelAsk(ctx, r) })
}

// sendTask posts the task of a call, or cancels it.
func (k *sentRequests) sendTask(ctx context.Context, q *outgoing) error {
	t := sentTask{Task: *q.Task, Text: []byte(q.Task.Text), Key: q.Address.Request, To: k.object().ID(), Cancel: q.Cancel, Unsure: q.Unsure}
	t.Task.Text = ""
	r, err := taskProcedure.Call(ctx, k.object(), q.To, t, nil)
	if err == nil && r.Code != "" {
		err = &taskError{r}
	}
	return err
}

// sentTask is a task, or the cancellation of one.
type sentTask struct {
	Task   poolTask  `json:"task"` // without its text,
	Text   []byte    `json:"text"` // which may not be UTF-8: the pool refuses it
	Key    string    `json:"key"`
	To     dohost.ID `json:"to"` // the agent to notify
	Cancel bool      `json:"cancel,omitempty"`
	Unsure bool      `json:"unsure,omitempty"` // the post may be on its way
}

// sentTaskResult is the result of a sentTask; zero if the pool has the task.
type sentTaskResult struct {
	Code string `json:"code,omitempty"` // of the refusal of the pool, or codeNoPool
	Text string `json:"text,omitempty"`
}

// taskError is the refusal of a task.
type taskError struct{ sentTaskResult }

func (e *taskError) Error() string { return "pool: " + e.Text }

// codeNoPool is the code of an object that is not a pool.
const codeNoPool = "no_pool"

// taskProcedure posts a task, or cancels it. A repetition finds the task by its key.
var taskProcedure = dohost.NewProcedure("chat.task", func(ctx context.Context, object any, t sentTask) (r sentTaskResult, err error) {
	p, ok := object.(*pool.Pool)
	if !ok {
		return sentTaskResult{Code: codeNoPool, Text: "the object is not a pool"}, nil
	}
	if t.Cancel {
		err = t.cancel(ctx, p)
	} else {
		_, err = p.Post(ctx, t.posted(true))
	}
	if public, ok := errors.AsType[*dohost.PublicError](err); ok && refusesTask(err) {
		return sentTaskResult{public.Code, public.Message}, nil
	}
	return r, err
})

// posted returns the task for the pool.
func (t *sentTask) posted(notifies bool) pool.NewTask {
	n := pool.NewTask{Role: t.Task.Role, Text: string(t.Text), Key: t.Key, Once: t.Task.Once, CreateRole: true, WithinMS: t.Task.WithinMS}
	if notifies {
		n.Notify = &pool.Notification{To: t.To, Callback: taskCallback}
	}
	return n
}

// cancel cancels the task. A post that is on its way from another host may arrive later: then it finds a task that has ended.
func (t *sentTask) cancel(ctx context.Context, p *pool.Pool) error {
	return dohost.Transaction(ctx, func(ctx context.Context) error {
		c := pool.CancelRequest{Key: t.Key, Reason: "the call has ended"}
		_, err := p.Cancel(ctx, c)
		if !errors.Is(err, pool.ErrNotFound) {
			return err
		}
		if !t.Unsure { // it was not posted, or is forgotten
			return nil
		}
		if _, err = p.Post(ctx, t.posted(false)); err == nil {
			_, err = p.Cancel(ctx, c)
		}
		return err
	})
}

// refusesTask reports whether the pool has refused a task, and refuses it again.
func refusesTask(err error) bool {
	return errors.Is(err, pool.ErrInvalid) || errors.Is(err, pool.ErrKeyUsed)
}

// finalTaskError reports whether a repetition of a post is useless.
func finalTaskError(err error) bool {
	_, refused := errors.AsType[*taskError](err)
	return refused || refusedTask(err)
}

// refusedTask reports whether an error proves that the task does not exist.
func refusedTask(err error) bool {
	if e, ok := errors.AsType[*taskError](err); ok {
		return e.Code != codeKeyUsed
	}
	return isNoObject(err)
}

// codeKeyUsed is the code of pool.ErrKeyUsed.
const codeKeyUsed = "key_used"

// taskErrorText returns the text of an error for the model.
func taskErrorText(err error) string {
	e, refused := errors.AsType[*taskError](err)
	p, public := errors.AsType[*dohost.PublicError](err)
	switch {
	case refused && e.Code != codeNoPool && e.Code != codeKeyUsed:
		return e.Error()
	case public && p.Code == "full":
		return "pool: " + p.Message
	case refused && e.Code == codeNoPool || isNoObject(err):
		return "there is no such pool"
	}
	return "the pool could not be reached"
}

// taskCallback completes a call with the end of its task.
const taskCallback agent.Callback[pool.TaskEnd] = "chat.task"

// unusableResultText is the error of a call whose result cannot be part of a message.
const unusableResultText = "A worker has done the call, and its result is not usable: it is nested too deep, or not UTF-8."

// taskEnded is the method of taskCallback.
func (k *sentRequests) taskEnded(ctx context.Context, e *pool.TaskEnd) error {
	rows, err := callRows.List(ctx, k.store(), &dohost.Query[callRow]{Index: "task", Equal: dohost.KeyOf(e.Key), Limit: 1})
	if err != nil || len(rows) == 0 { // its message was deleted
		return err
	}
	if of := rows[0].Value; of.Asks != (dohost.ID{Class: string(pool.Pools), Name: e.Pool}).String() || of.Role != e.Role {
		return nil // of a task that this call has not posted
	}
	c := &Completion{Key: rows[0].Value.Key, Output: e.Result, Error: e.Error, Unknown: e.Uncertain, ofTask: true}
	if err := c.check(); err != nil {
		c = &Completion{Key: c.Key, Error: unusableResultText, Unknown: true, ofTask: true}
	}
	_, err = k.calls.complete(ctx, c, math.MaxInt64)
	if errors.Is(err, ErrNoCall) || errors.Is(err, ErrInvalidOutput) { // the model has the error
		return nil
	}
	return err
}
