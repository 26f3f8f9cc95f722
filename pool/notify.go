package pool

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/agent"
)

// The end of a task and the intent to notify of it are one row: a task that has ended, has a Notify, and is not Notified is in the index
// "notify", whose rows are work of the pool (agent.OnRows). So the notification survives evictions and crashes. It is an item in the queue of
// the agent to notify, and the item's id is a function of the task and its end, so a repetition that the agent has not run yet replaces it. The
// agent runs its callback at least once for each end. The pool keeps the task until the item is queued.

// Notify names a callback of an agent that runs when a task has ended: see [NewTask].
type Notify struct {
	To       dohost.ID
	Callback agent.Callback[Ended]
}

// Ended is the end of a task.
type Ended struct {
	Pool   string          `json:"pool"` // its name
	Task   string          `json:"task"`
	Role   string          `json:"role"`
	Key    string          `json:"key,omitempty"`    // of the post
	Result json.RawMessage `json:"result,omitempty"` // of a task that is done
	Error  string          `json:"error,omitempty"`  // of a task that has failed
	// Uncertain says that the failed task may have had effects that no worker has reported: see [Task].
	Uncertain bool `json:"uncertain,omitempty"`
}

// noReason is the Error of a task that has failed without one.
const noReason = "the task has failed without a reason"

// unnotified reports whether the agent of the task is to be notified.
func (t *taskRow) unnotified() bool { return t.Status.ended() && t.Notify != nil && !t.Notified }

// notifyOptions bound the notifications. The agent of one of them may be slow, so others run concurrently.
var notifyOptions = &agent.RowsOptions{Parallel: 16, MaxAttempts: -1, MaxRetryDelay: time.Minute}

// notifyRetry bounds the attempts of the callback.
var notifyRetry = dohost.RetryPolicy{MaxAttempts: 10, MaxDelay: time.Minute}

// notify queues the callback of a task that has ended. It gives up after Options.Keep, or if there is no such callback, with a report.
func (p *Pool) notify(ctx context.Context, row dohost.Row[taskRow]) error {
	t := row.Value
	err := p.enqueueEnd(ctx, &t)
	switch {
	case err == nil:
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case finalNotifyError(err) || p.clock().Sub(t.Since) >= p.options.Keep:
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

// finalNotifyError reports whether a repetition is useless: there is no such agent, or it does not have the callback.
func finalNotifyError(err error) bool {
	if errors.Is(err, errNoAgent) || errors.Is(err, dohost.ErrMisuse) {
		return true
	}
	e, ok := errors.AsType[*dohost.Error](err)
	return ok && e.Outcome == dohost.OutcomeNotRun && errors.Is(err, dohost.ErrNotFound)
}

// enqueueEnd puts the end of a task into the queue of the agent to notify.
func (p *Pool) enqueueEnd(ctx context.Context, t *taskRow) error {
	end := Ended{Pool: p.Name(), Task: t.ID, Role: t.Role, Key: t.Key}
	if t.Status == Done {
		c, _, err := get(ctx, p, &contents, t.ID)
		if err != nil {
			return err
		}
		end.Result = c.Result
	} else if end.Error, end.Uncertain = t.Reason, t.Uncertain; end.Error == "" {
		end.Error = noReason
	}
	of := sha256.Sum256([]byte(p.Object().ID().String())) // a queue's ids are short
	id := fmt.Sprintf("pool:%x:%s:%d", of[:16], t.ID, t.Since.UnixNano())
	return dohost.Do(ctx, p.Object(), t.Notify.To, func(ctx context.Context, object any) error {
		a, ok := object.(agent.Ref)
		if !ok {
			return errNoAgent
		}
		_, err := agent.Enqueue(ctx, a, t.Notify.Callback, end, &agent.QueueOptions{ID: id, Retry: notifyRetry})
		return err
	})
}
