package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/dohost/dohost"
)

// errCancelled ends the update of a row that has ended in the meantime.
var errCancelled = errors.New("agent: the fiber was cancelled")

// callOutcome is the outcome of a call of a fiber's method.
type callOutcome struct {
	result json.RawMessage
	failed error
	final  bool // it failed, and is not retried
}

// write writes a row with this outcome. If the result does not fit into the row, the fiber fails: its effects
// stay.
func (e *callOutcome) write(do func() error) error {
	err := do()
	if _, full := errors.AsType[*dohost.LimitError](err); full {
		*e = callOutcome{failed: fmt.Errorf("agent: the fiber's result: %w", err), final: true}
		err = do()
	}
	return err
}

// recordOutcome writes the outcome of a call of a fiber's method.
func (c *core) recordOutcome(ctx context.Context, row *fiberRow, e *callOutcome) error {
	return e.write(func() error {
		return retryInNewBatch(ctx, func() error {
			written, err := fiberRows.Update(ctx, c.store(), row.ID, func(r *fiberRow) error {
				if !r.open() || r.Restarts != row.Restarts {
					return errCancelled
				}
				c.applyOutcome(r, e, time.Now().UnixMilli())
				return nil
			})
			if err == nil {
				*row = written.Value
			}
			return err
		})
	})
}

// applyOutcome sets the outcome of a call of a fiber's method in its row.
func (c *core) applyOutcome(r *fiberRow, e *callOutcome, now int64) {
	r.Updated = now
	if e.failed == nil {
		r.Result = e.result
		c.endFiber(r, FiberCompleted, now)
		return
	}
	r.countFailure()
	r.Error = truncatedText(e.failed)
	if e.final || r.exhausted(0) {
		c.endFiber(r, FiberFailed, now)
	}
}

// endFiber ends a row.
func (c *core) endFiber(r *fiberRow, status FiberStatus, now int64) {
	r.Status, r.Ended, r.Updated = status, now, now
	r.Dead, r.Hooks, r.FirstHook, r.NextHook = false, 0, 0, 0
	if c.class.ended == nil || status == FiberCancelled || c.class.kinds[r.Name].options.Quiet {
		c.setExpiry(r, now)
		return
	}
	r.NotifyPending, r.Incarnation, r.NextHook = true, "", now
	c.fibers.hookDelayed = true
}

// setExpiry clears the state of the hook, and starts the retention period of an ended fiber.
func (c *core) setExpiry(r *fiberRow, now int64) {
	o := c.class.kinds[r.Name].options
	if _, known := c.class.kinds[r.Name]; !known {
		o = o.withDefaults()
	}
	retention := o.KeepCompleted
	if r.Status == FiberFailed {
		retention = o.KeepFailed
	}
	r.NotifyPending, r.Hooks, r.FirstHook, r.NextHook = false, 0, 0, 0
	if retention <= 0 {
		return
	}
	r.Expires = now + retention.Milliseconds()
	if c.fibers.expiry == 0 || r.Expires < c.fibers.expiry {
		c.fibers.expiry = r.Expires
	}
}

// recordOutcomeLater is for a full disk. Work that has ended must not run again, so it deletes the fiber's row
// immediately, which needs no space, and writes the ended row again when there is space. The row of a failed
// call that will be retried stays, and gets the outcome then, unless the fiber was cancelled.
func (c *core) recordOutcomeLater(ctx context.Context, row *fiberRow, e *callOutcome) error {
	current, ok, err := fiberRows.Get(ctx, c.store(), row.ID) // with the checkpoints of the call
	if err != nil {
		return err
	}
	before, now := current.Value, time.Now().UnixMilli()
	if !ok || !before.open() || before.Restarts != row.Restarts {
		return errCancelled
	}
	ended := before
	if c.applyOutcome(&ended, e, now); !ended.open() {
		if _, err := fiberRows.Delete(ctx, c.store(), row.ID); err != nil {
			return err
		}
	}
	for {
		if err := dohost.Sleep(ctx, time.Second); err != nil {
			return err
		}
		if ended.open() {
			err = c.recordOutcome(ctx, row, e)
		} else {
			err = e.write(func() error {
				*row = before
				c.applyOutcome(row, e, now)
				return c.putFiber(ctx, *row)
			})
		}
		if !errors.Is(err, dohost.ErrNoSpace) {
			return err
		}
	}
}
