package agent

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/dohost/dohost/internal/work"
)

// runHook durably counts a call of a hook about rows, and makes the call. In the constructor, until is the deadline of
// the hook. The caller writes the outcome of the call in the batch of the hook's last writes.
func (c *core) runHook(ctx context.Context, rows []*fiberRow, until time.Time, call func(context.Context) error) (failed, err error) {
	now, written := time.Now(), 0
	for _, row := range rows {
		if eff, err := c.step(row, work.Event{Kind: work.HookCalled}, now); err != nil || eff == work.Refused {
			return nil, cmp.Or(err, errChanged)
		}
		if written += len(row.Checkpoint); written > recoveryBatch {
			written = 0
			if err := c.store().Sync(ctx); err != nil {
				return nil, err
			}
		}
		if err := c.putFiber(ctx, *row); err != nil {
			return nil, err
		}
	}
	if err := c.store().Sync(ctx); err != nil {
		return nil, err
	}
	if !until.IsZero() {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, until)
		defer cancel()
	}
	c.fibers.hookCalls++
	return call(ctx), nil
}

// errChanged ends the update of a row that a hook or another caller has changed concurrently.
var errChanged = errors.New("agent: the fiber has moved on")

// recordHookFailure records that a recovery hook failed for a row. outcome is "" if the row has changed since.
func (c *core) recordHookFailure(ctx context.Context, row *fiberRow, failed error) (outcome string, err error) {
	changed, err := c.updateAfterHook(ctx, row, work.Event{Kind: work.HookReturned, Failed: true}, func(r *fiberRow) {
		r.Error = truncatedText(failed)
	})
	switch {
	case err != nil || changed:
		return "", err
	case row.State == work.Dead:
		return "dead", nil
	}
	return "hook failed", nil
}

// updateAfterHook updates a row when its hook has returned, in the batch of the hook's last writes if the row fits. It
// reports whether the row has changed since the hook was called, so that the event does not apply.
func (c *core) updateAfterHook(ctx context.Context, row *fiberRow, ev work.Event, set func(*fiberRow)) (changed bool, err error) {
	state, run := row.State, row.Run
	err = retryInNewBatch(ctx, func() error {
		_, err := c.updateFiber(ctx, row.ID, func(r *fiberRow) error {
			if r.State != state || r.Run != run {
				return errChanged
			}
			eff, err := c.step(r, ev, time.Now())
			if err != nil || eff == work.Refused {
				return cmp.Or(err, errChanged)
			}
			set(r)
			*row = *r
			return nil
		})
		return err
	})
	if errors.Is(err, errChanged) || noRow(err) {
		return true, nil
	}
	return false, err
}

// markHookRunning marks a row as passed to a hook until done is called.
func (c *core) markHookRunning(id string) (done func()) {
	if c.fibers.hookRunning == nil {
		c.fibers.hookRunning = map[string]bool{}
	}
	c.fibers.hookRunning[id] = true
	return func() { delete(c.fibers.hookRunning, id) }
}

// startHookTask starts a task that calls the hook of a row.
func (c *core) startHookTask(ctx context.Context, id string) error {
	err := c.obj.Go(ctx, "recovery", func(ctx context.Context) error {
		defer delete(c.fibers.hookRunning, id)
		row, ok, err := fiberRows.Get(ctx, c.store(), id)
		r := &row.Value
		switch {
		case err != nil || !ok:
			return err
		case r.State == work.Notifying:
			err = c.notify(ctx, r)
		case !r.Started && r.Interrupted(c.incarnation):
			err = c.askInterrupted(ctx, r, time.Time{})
		}
		_, err = c.deferIfFull(ctx, r, err)
		return errors.Join(err, c.rearm(ctx)) // recovery may have been deferred
	})
	if err == nil {
		c.markHookRunning(id)
	}
	return err
}
