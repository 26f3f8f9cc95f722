package pool

import (
	"cmp"
	"context"
)

// CancelRequest ends a task that has not ended.
type CancelRequest struct {
	Task string `json:"task,omitempty"` // its id; or
	Key  string `json:"key,omitempty"`  // the key of its post
	// Reason is the error of the task, up to 4 KiB. Empty means "cancelled".
	Reason string `json:"reason,omitempty"`
}

// Cancel ends a task as failed, and returns it. A worker that has it is refused at its next request, and the context of the function of
// [Work] ends. A task that has ended does not change.
//
// Errors: [ErrNotFound].
func (p *Pool) Cancel(ctx context.Context, c CancelRequest) (task Task, err error) {
	if (c.Task == "") == (c.Key == "") {
		return Task{}, refuse(ErrInvalid, "want a task or a key")
	}
	if err := checkText("reason", c.Reason, maxError); err != nil {
		return Task{}, err
	}
	err = p.update(ctx, func(ctx context.Context, v *view) error {
		t, err := v.findBy(ctx, c)
		if err != nil {
			return err
		}
		if !t.Status.ended() {
			t.Cancelled = true
			if err := v.withdraw(ctx, &t, cmp.Or(c.Reason, "cancelled")); err != nil {
				return err
			}
		}
		task = t.public(content{})
		return v.handleOffline(ctx, t.Role, "a task was cancelled")
	})
	return task, err
}
