package pool

import (
	"context"
	"time"

	"github.com/dohost/dohost"
)

// end ends a task. The claim remains, so that its worker may repeat the request.
func (v *view) end(ctx context.Context, t *taskRow, s Status, reason string) error {
	t.enter(s, v.now)
	t.Reason = reason
	t.Lease, t.ProgressBy, t.Check, t.Notified = time.Time{}, time.Time{}, time.Time{}, false
	return tasks.Put(ctx, v.Storage(), *t)
}

// endClaim ends the claim of a worker that has not reported the end of its attempt. A worker begins its work after the start, so a running task
// may have had effects.
func (v *view) endClaim(ctx context.Context, t *taskRow, reason string) error {
	t.Uncertain = t.Uncertain || t.Status == StatusRunning
	return v.again(ctx, t, reason)
}

// again makes a task pending again, or ends it as failed: after too many claims, and after the start of a task that is done once. The next
// claim has another fence, and no connection has this one.
func (v *view) again(ctx context.Context, t *taskRow, reason string) error {
	t.Conn = ""
	if t.Attempts >= v.options.MaxAttempts || t.Once && t.Status == StatusRunning {
		v.Object().Report(ctx, "pool:task_failed", attrTask(t), attrRole(t.Role), attrReason(reason))
		return v.end(ctx, t, StatusFailed, reason)
	}
	if err := v.end(ctx, t, StatusPending, reason); err != nil {
		return err
	}
	r, ok, err := get(ctx, v.Pool, &roles, t.Role)
	if err != nil || !ok {
		return err
	}
	before := r
	if r.checkBy(v.now.Add(v.options.Pending)); r != before {
		if err := roles.Put(ctx, v.Storage(), r); err != nil {
			return err
		}
	}
	v.wakeClaimer(t.Role)
	return nil
}

// withdraw ends a task as failed that has not ended. A worker that has it loses its claim.
func (v *view) withdraw(ctx context.Context, t *taskRow, reason string) error {
	t.Uncertain, t.Conn = t.Uncertain || t.Status == StatusRunning, ""
	return v.end(ctx, t, StatusFailed, reason)
}

// overdue reports whether the deadline of the task is over.
func (t *taskRow) overdue(now time.Time) bool { return !t.Deadline.IsZero() && !now.Before(t.Deadline) }

// expire ends a task whose deadline is over.
func (v *view) expire(ctx context.Context, t *taskRow) error {
	return v.withdraw(ctx, t, "it was not done by its deadline")
}

// findBy returns the task with the id or the key.
func (v *view) findBy(ctx context.Context, c CancelRequest) (taskRow, error) {
	if c.Task != "" {
		return v.find(ctx, c.Task)
	}
	t, ok, err := first(ctx, v.Pool, &tasks, dohost.Query[taskRow]{Index: "key", Equal: dohost.KeyOf(c.Key)})
	if err == nil && !ok {
		err = refuse(ErrNotFound, "the pool has no task with the key %.40q", c.Key)
	}
	return t, err
}
