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
func (rc *recovery) runHook(ctx context.Context, rows []*fiberRow, until time.Time, call func(context.Context) error) (failed, err error) {
	err = rc.rows.batches(ctx, false, func(ctx context.Context, p pause) (bool, error) { return true, rc.chargeHook(ctx, p, rows) })
	if err != nil {
		return nil, err
	}
	if err := rc.store().Sync(ctx); err != nil {
		return nil, err
	}
	if !until.IsZero() {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, until)
		defer cancel()
	}
	rc.hookCalls++
	return call(ctx), nil
}

// chargeHook charges one call of the hook to each row, and writes the rows.
func (rc *recovery) chargeHook(ctx context.Context, p pause, rows []*fiberRow) error {
	now, written := time.Now(), 0
	for _, row := range rows {
		if eff, err := rc.step(row, work.Event{Kind: work.HookCalled}, now); err != nil || eff == work.Refused {
			return cmp.Or(err, errChanged)
		}
		if err := rc.syncLarge(p, row, &written); err != nil {
			return err
		}
		if err := rc.put(ctx, row); err != nil {
			return err
		}
	}
	return nil
}

// errChanged ends the update of a row that a hook or another caller has changed concurrently.
var errChanged = errors.New("agent: the fiber has changed")

// recordHookFailure records that a recovery hook failed for a row. outcome is "" if the row has changed since.
func (rc *recovery) recordHookFailure(ctx context.Context, row *fiberRow, failed error) (outcome string, err error) {
	changed, err := rc.updateAfterHook(ctx, row, work.Event{Kind: work.HookReturned, Failed: true}, func(r *fiberRow) {
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
func (rc *recovery) updateAfterHook(ctx context.Context, row *fiberRow, ev work.Event, set func(*fiberRow)) (changed bool, err error) {
	state, run := row.State, row.Run
	err = retryInNewBatch(ctx, func() error {
		_, err := rc.update(ctx, row.ID, func(r *fiberRow) error {
			if r.State != state || r.Run != run {
				return errChanged
			}
			eff, err := rc.step(r, ev, time.Now())
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
func (rc *recovery) markHookRunning(id string) (done func()) {
	if rc.hookRunning == nil {
		rc.hookRunning = map[string]bool{}
	}
	rc.hookRunning[id] = true
	return func() { delete(rc.hookRunning, id) }
}

// startHookTask starts a task that calls the hook of a row.
func (rc *recovery) startHookTask(ctx context.Context, id string) error {
	err := rc.obj.Go(ctx, "recovery", func(ctx context.Context) error {
		defer delete(rc.hookRunning, id)
		row, ok, err := get(ctx, rc.rows, &fiberRows, id)
		switch {
		case err != nil || !ok:
			return err
		case row.State == work.Notifying:
			err = rc.notify(ctx, &row)
		case !row.Started && row.Interrupted(rc.owner):
			err = rc.askInterrupted(ctx, &row, time.Time{})
		}
		_, err = rc.deferIfFull(ctx, &row, err)
		return err
	})
	if err == nil {
		rc.markHookRunning(id)
	}
	return err
}
