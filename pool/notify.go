package pool

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/agent"
)

// The end of a task and the intent to notify of it are one row: a task that has ended, has a Notify, and is not Notified is in the index
// "notify", whose rows are work of the pool (agent.OnRows). So the notification survives evictions and crashes. It is a schedule of the agent to
// notify, since the items of a queue wait for one another. A repetition that the agent has not run yet is the same schedule. The agent runs its
// callback at least once, and may be on another host. The pool keeps the task until the schedule is stored, or until it gives up.

// Notification names a callback of an agent that runs when a task has ended: see [NewTask].
type Notification struct {
	To       dohost.ID
	Callback agent.Callback[TaskEnd]
}

// TaskEnd is the end of a task.
type TaskEnd struct {
	Pool   string          `json:"pool"` // its name
	Task   string          `json:"task"`
	Role   string          `json:"role"`
	Key    string          `json:"key,omitempty"`    // of the post
	Result json.RawMessage `json:"result,omitempty"` // of a task that is done
	Error  string          `json:"error,omitempty"`  // of a task that has failed
	// Uncertain states that the failed task may have had effects that no worker has reported: see [Task].
	Uncertain bool `json:"uncertain,omitempty"`
}

// noReason is the Error of a task that has failed without one.
const noReason = "the task has failed without a reason"

// unnotified reports whether the agent of the task is to be notified.
func (t *taskRow) unnotified() bool { return t.Status.ended() && t.Notify != nil && !t.Notified }

// notifyOptions bound the notifications. The agent of one of them may be slow, so others run concurrently.
var notifyOptions = &agent.RowsOptions{Parallel: 16, Retry: dohost.RetryPolicy{MaxAttempts: -1, MaxDelay: time.Minute}}

// notifyRetry bounds the attempts of the callback, and notifyTimeout the time of one notification.
var notifyRetry = dohost.RetryPolicy{MaxAttempts: 10, MaxDelay: time.Minute}

const notifyTimeout = 30 * time.Second

// notify schedules the callback of a task that has ended. It gives up with a report if the object is not an agent, and after Options.Keep of the
// pool's time with a host. An agent whose class or callback is missing may have them after the next start.
func (p *Pool) notify(ctx context.Context, row dohost.Row[taskRow]) error {
	t := row.Value
	v, err := p.view(ctx)
	if err != nil {
		return err
	}
	until := later(t.Since, v.meta.Up).Add(p.options.Keep)
	err = p.scheduleEnd(ctx, &t)
	switch {
	case err == nil:
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.Is(err, errNoAgent) || !p.clock().Before(until):
		p.Object().Report(ctx, "pool:not_notified", attrTask(&t), attrRole(t.Role), slog.String("agent", t.Notify.To.String()), slog.Any("err", err))
	default:
		return err
	}
	now, ok, err := get(ctx, p, &tasks, row.Key)
	if err != nil || !ok || !now.Since.Equal(t.Since) || !now.unnotified() { // an operator has retried it during the delivery
		return err
	}
	now.Notified = true
	return tasks.Put(ctx, p.Storage(), now)
}

// errNoAgent is the error of an object that is not an agent.
var errNoAgent = errors.New("pool: the object to notify is not an agent")

// sentEnd is a notification: a callback, and its argument. The agent may be on another host.
type sentEnd struct {
	Callback agent.Callback[TaskEnd] `json:"callback"`
	Ended    TaskEnd                 `json:"ended"`
}

// tookEnd is the result of a notification.
type tookEnd struct {
	NoAgent bool `json:"noAgent,omitempty"`
}

// endProcedure schedules a callback. A repetition finds the schedule, unless it has run: then the callback runs again.
var endProcedure = dohost.NewProcedure("pool.end", func(ctx context.Context, object any, in sentEnd) (tookEnd, error) {
	a, ok := object.(agent.Ref)
	if !ok {
		return tookEnd{NoAgent: true}, nil
	}
	_, err := agent.Schedule(ctx, a, agent.After(0), in.Callback, in.Ended, &agent.ScheduleOptions{Idempotence: agent.IdempotenceOn, Retry: notifyRetry})
	return tookEnd{}, err
})

// scheduleEnd schedules the callback of the agent to notify.
func (p *Pool) scheduleEnd(ctx context.Context, t *taskRow) error {
	end := TaskEnd{Pool: p.Name(), Task: t.ID, Role: t.Role, Key: t.Key}
	if t.Status == StatusDone {
		c, _, err := get(ctx, p, &contents, t.ID)
		if err != nil {
			return err
		}
		end.Result = c.Result
	} else if end.Error, end.Uncertain = t.Reason, t.Uncertain; end.Error == "" {
		end.Error = noReason
	}
	ctx, cancel := context.WithTimeout(ctx, notifyTimeout)
	defer cancel()
	took, err := endProcedure.Call(ctx, p.Object(), t.Notify.To, sentEnd{t.Notify.Callback, end}, nil)
	if err == nil && took.NoAgent {
		err = errNoAgent
	}
	return err
}
