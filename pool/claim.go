package pool

import (
	"bytes"
	"context"
	"encoding/json"
	"time"

	"github.com/dohost/dohost"
)

// ClaimRequest asks for a task.
type ClaimRequest struct {
	Role string `json:"role"`
	Conn string `json:"conn"`
	// WaitMS is how long the worker waits for a task, in milliseconds. It is at most 50 s; zero does not wait.
	WaitMS int64 `json:"wait_ms,omitempty"`
}

// ClaimResponse is the answer to a [ClaimRequest].
type ClaimResponse struct {
	Task *Task `json:"task"` // nil: there is none, a newer Claim of the connection has ended this one, or the host closes
}

// Claim gives a worker the oldest pending task of its role, and counts as a heartbeat. A worker that has a task that it has not
// started gets this task again, with the same fence: so a repeated claim is harmless, and a connection that works on several tasks
// starts each before it claims the next. A newer Claim of a connection ends an older one that waits. The worker must [Pool.Start] the
// task before Task.Lease ends.
//
// Errors: [ErrStale]; [ErrFull] if there is no task and 2,000 workers of the pool wait.
func (p *Pool) Claim(ctx context.Context, c ClaimRequest) (claimed ClaimResponse, err error) {
	if err := checkNames("role", c.Role, "conn", c.Conn); err != nil {
		return ClaimResponse{}, err
	}
	wait := time.Duration(c.WaitMS) * time.Millisecond
	if c.WaitMS < 0 || c.WaitMS > maxWait.Milliseconds() {
		return ClaimResponse{}, refuse(ErrInvalid, "wait_ms is %d: want 0 to %d", c.WaitMS, maxWait.Milliseconds())
	}
	for until, woken := time.Now().Add(wait), false; ; {
		var fresh, more bool
		claimed.Task, fresh, more, err = p.claim(ctx, c)
		if err == nil && more {
			if err = dohost.AwaitDurable(ctx); err == nil {
				continue
			}
		}
		if err != nil || claimed.Task != nil {
			if woken && !fresh { // the task that it was woken for is still pending
				p.wakeClaimer(c.Role)
			}
			return claimed, err
		}
		left := time.Until(until)
		if left <= 0 {
			return ClaimResponse{}, nil
		}
		if woken, err = p.waitForTask(ctx, c, left); err != nil {
			return ClaimResponse{}, err
		}
		if !woken {
			return ClaimResponse{}, nil
		}
	}
}

// claim claims a task; nil if there is none. fresh is false for a task that the connection had claimed before. With more it has ended
// sweepBatch tasks whose deadlines are over, and there may be others.
func (p *Pool) claim(ctx context.Context, c ClaimRequest) (claimed *Task, fresh, more bool, err error) {
	err = p.update(ctx, func(ctx context.Context, v *view) error {
		if _, err := v.beat(ctx, c.Role, c.Conn); err != nil {
			return err
		}
		t, ok, err := first(ctx, p, &tasks, dohost.Query[taskRow]{Index: "conn", Prefix: connStatus(c.Role, c.Conn, StatusAcknowledged)})
		if err != nil {
			return err
		}
		if !ok {
			if t, ok, more, err = v.claimable(ctx, c.Role); err != nil || !ok {
				return err
			}
			t.Fence++
			t.Attempts++
			t.enter(StatusAcknowledged, v.now)
			t.Conn, t.Reason, t.Progress = c.Conn, "", ""
			t.Lease = v.now.Add(p.options.Acknowledged)
			v.progressed(&t)
			if err := v.putHeld(ctx, &t); err != nil {
				return err
			}
			fresh = true
		}
		whole, err := v.whole(ctx, t)
		claimed = &whole
		return err
	})
	return claimed, fresh, more, err
}

// claimable returns the oldest pending task of a role that is not overdue, and ends the overdue tasks before it: sweepBatch of them at most.
// more reports whether there may be others.
func (v *view) claimable(ctx context.Context, role string) (t taskRow, ok, more bool, err error) {
	if t, ok, err = v.head(ctx, role); err != nil || !ok || !t.overdue(v.now) {
		return t, ok, false, err
	}
	rows, err := tasks.List(ctx, v.Storage(), &dohost.Query[taskRow]{Index: "role", Prefix: roleStatus(role, StatusPending), Limit: sweepBatch})
	for _, row := range rows {
		if err != nil || !row.Value.overdue(v.now) {
			return row.Value, err == nil, false, err
		}
		err = v.expire(ctx, &row.Value)
	}
	return taskRow{}, false, len(rows) == sweepBatch, err
}

// progressed moves the deadline of the next progress.
func (v *view) progressed(t *taskRow) {
	if t.ProgressBy = (time.Time{}); v.options.Progress >= 0 {
		t.ProgressBy = v.now.Add(v.options.Progress)
	}
}

// putHeld writes a task that a worker has, with the time of its next check.
func (v *view) putHeld(ctx context.Context, t *taskRow) error {
	if t.ProgressBy.After(v.now.Add(v.options.Progress)) { // the clock was set back, or the options have changed
		v.progressed(t)
	}
	if t.Check = t.Lease; !t.ProgressBy.IsZero() && t.ProgressBy.Before(t.Check) {
		t.Check = t.ProgressBy
	}
	return tasks.Put(ctx, v.Storage(), *t)
}

// ClaimRef names a task and the claim of the worker that has it: the ID and the Fence of the task as the pool has returned it to Claim.
type ClaimRef struct {
	Task  string `json:"task"`
	Conn  string `json:"conn"`
	Fence uint64 `json:"fence"`
}

// held returns the task of a hold, if its claim is the current one. The worker need not be a worker of the role any more: it may leave
// when it has a task.
func (v *view) held(ctx context.Context, h ClaimRef) (taskRow, error) {
	if err := checkNames("conn", h.Conn); err != nil {
		return taskRow{}, err
	}
	t, err := v.find(ctx, h.Task)
	if err != nil {
		return taskRow{}, err
	}
	if t.Fence != h.Fence || t.Conn != h.Conn {
		return t, refuse(ErrClaimLost, "the task %s is %s, and its last claim has the fence %d", t.ID, t.Status, t.Fence)
	}
	return t, nil
}

// had reports whether the hold is an earlier claim of the task.
func (t *taskRow) had(h ClaimRef) bool {
	return h.Fence > 0 && (h.Fence < t.Fence || h.Fence == t.Fence && t.Conn == "")
}

func noTransition(t *taskRow, step string) error {
	return refuse(ErrTransition, "the task %s is %s: %s is not possible", t.ID, t.Status, step)
}

// change changes a held task, and returns it without its content.
func (p *Pool) change(ctx context.Context, h ClaimRef, fn func(context.Context, *view, *taskRow) error) (task Task, err error) {
	err = p.update(ctx, func(ctx context.Context, v *view) error {
		t, err := v.held(ctx, h)
		if err != nil {
			return err
		}
		if err := fn(ctx, v, &t); err != nil {
			return err
		}
		task = t.public(content{})
		return nil
	})
	return task, err
}

// Start begins the lease of a task that the worker has claimed. A repeated Start renews the lease.
//
// Errors: [ErrNotFound], [ErrClaimLost], [ErrTransition].
func (p *Pool) Start(ctx context.Context, h ClaimRef) (Task, error) {
	return p.change(ctx, h, func(ctx context.Context, v *view, t *taskRow) error {
		if !t.Status.held() {
			return noTransition(t, "a start")
		}
		if t.Status == StatusAcknowledged {
			t.enter(StatusRunning, v.now)
			t.Started = true
			v.progressed(t)
		}
		t.Lease = v.now.Add(p.options.Lease)
		return v.putHeld(ctx, t)
	})
}

// RenewRequest renews the lease of a running task.
type RenewRequest struct {
	ClaimRef
	// Progress describes the state of the work, in up to 1 KiB. A text that differs from the last one is progress. Empty reports none.
	Progress string `json:"progress,omitempty"`
}

// Renew renews the lease of a running task, and moves the deadline of its progress if there is progress.
//
// Errors: [ErrNotFound], [ErrClaimLost], [ErrTransition].
func (p *Pool) Renew(ctx context.Context, r RenewRequest) (Task, error) {
	if err := checkText("progress", r.Progress, maxProgress); err != nil {
		return Task{}, err
	}
	return p.change(ctx, r.ClaimRef, func(ctx context.Context, v *view, t *taskRow) error {
		if t.Status != StatusRunning {
			return noTransition(t, "a renewal")
		}
		if r.Progress != "" && r.Progress != t.Progress {
			t.Progress = r.Progress
			v.progressed(t)
		}
		t.Lease = v.now.Add(p.options.Lease)
		return v.putHeld(ctx, t)
	})
}

// HandoffRequest ends a running task with its result.
type HandoffRequest struct {
	ClaimRef
	Result json.RawMessage `json:"result"` // JSON of up to Options.MaxResult bytes; nil: null
}

// Handoff ends a running task. A repeated Handoff of the claim returns the task and changes nothing. If the claim is an earlier one of the
// task, the pool refuses the Handoff, and keeps the result as late: up to three of a task, one of each claim.
//
// Errors: [ErrNotFound], [ErrClaimLost], [ErrTransition].
func (p *Pool) Handoff(ctx context.Context, h HandoffRequest) (task Task, err error) {
	if len(h.Result) == 0 {
		h.Result = json.RawMessage("null")
	}
	if err := checkText("result", string(h.Result), p.options.MaxResult); err != nil {
		return Task{}, err
	}
	if !json.Valid(h.Result) { // it ignores bytes that are not UTF-8, which a frame of a WebSocket must not have
		return Task{}, refuse(ErrInvalid, "result is not JSON")
	}
	var refused error
	err = p.update(ctx, func(ctx context.Context, v *view) error {
		t, err := v.held(ctx, h.ClaimRef)
		switch {
		case err != nil && t.had(h.ClaimRef):
			refused = err
			return v.keepLate(ctx, &t, h)
		case err != nil:
			return err
		case t.Status == StatusDone:
			task = t.public(content{})
			return nil
		case t.Status != StatusRunning:
			return noTransition(&t, "a handoff")
		}
		c, _, err := get(ctx, p, &contents, t.ID)
		if err != nil {
			return err
		}
		c.Result = bytes.Clone(h.Result)
		if err := contents.Put(ctx, p.Storage(), c); err != nil {
			return err
		}
		if err := v.end(ctx, &t, StatusDone, ""); err != nil {
			return err
		}
		task = t.public(content{})
		return v.handedOff(ctx, t.Role)
	})
	if err == nil && refused != nil {
		return Task{}, refused
	}
	return task, err
}

// keepLate keeps the result of a claim that is not the current one.
func (v *view) keepLate(ctx context.Context, t *taskRow, h HandoffRequest) error {
	c, _, err := get(ctx, v.Pool, &contents, t.ID)
	if err != nil || len(c.Late) >= maxLate {
		return err
	}
	for _, l := range c.Late {
		if l.Fence == h.Fence {
			return nil
		}
	}
	c.ID = t.ID
	c.Late = append(c.Late, LateResult{h.Fence, v.now, bytes.Clone(h.Result)})
	t.Late = len(c.Late)
	if err := tasks.Put(ctx, v.Storage(), *t); err != nil {
		return err
	}
	v.Object().Report(ctx, "pool:late", attrTask(t), attrRole(t.Role))
	return contents.Put(ctx, v.Storage(), c)
}

// handedOff records that a role works, and attends to its other tasks: the worker may have left.
func (v *view) handedOff(ctx context.Context, name string) error {
	r, ok, err := get(ctx, v.Pool, &roles, name)
	if err != nil || !ok {
		return err
	}
	if r.Restarts > 0 {
		r.Restarts = 0
		if err := roles.Put(ctx, v.Storage(), r); err != nil {
			return err
		}
	}
	return v.handleOffline(ctx, name, "its worker has handed a task off, and has left")
}

// FailRequest reports that a worker could not do its task.
type FailRequest struct {
	ClaimRef
	Error string `json:"error"` // up to 4 KiB
	// Retry makes the task pending again, if it has attempts left.
	Retry bool `json:"retry,omitempty"`
	// Uncertain states that the attempt may have had effects: see [Task].
	Uncertain bool `json:"uncertain,omitempty"`
}

// Fail ends a task with an error, or makes it pending again if f.Retry is set. In spite of f.Retry the task fails after MaxAttempts claims, and
// if it is once and running.
//
// Errors: [ErrNotFound], [ErrClaimLost], [ErrTransition].
func (p *Pool) Fail(ctx context.Context, f FailRequest) (Task, error) {
	if err := checkText("error", f.Error, maxError); err != nil {
		return Task{}, err
	}
	return p.change(ctx, f.ClaimRef, func(ctx context.Context, v *view, t *taskRow) error {
		if !t.Status.held() {
			return noTransition(t, "a failure")
		}
		t.Uncertain = t.Uncertain || f.Uncertain
		switch {
		case f.Retry:
			if err := v.again(ctx, t, f.Error); err != nil {
				return err
			}
		default:
			if err := v.end(ctx, t, StatusFailed, f.Error); err != nil {
				return err
			}
		}
		return v.handleOffline(ctx, t.Role, "its worker has failed")
	})
}

// Release makes a task pending again, and does not count the claim against MaxAttempts. A running task that is once fails instead.
//
// Errors: [ErrNotFound], [ErrClaimLost], [ErrTransition].
func (p *Pool) Release(ctx context.Context, h ClaimRef) (Task, error) {
	return p.change(ctx, h, func(ctx context.Context, v *view, t *taskRow) error {
		if !t.Status.held() {
			return noTransition(t, "a release")
		}
		t.Attempts--
		if err := v.endClaim(ctx, t, "its worker has released it"); err != nil {
			return err
		}
		return v.handleOffline(ctx, t.Role, "its worker has released a task")
	})
}
