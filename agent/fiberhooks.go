package agent

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/dohost/dohost"
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

// decide carries out a decision, which write writes. The zero outcome means that the fiber resumes.
func (f *InterruptedFiber) decide(ctx context.Context, o work.Outcome, write func(context.Context, *fiberRow) error) error {
	rc := f.recovery
	if f.returned {
		return ErrFiberDone
	}
	var decided fiberRow
	err := retryInNewBatch(ctx, func() error {
		return rc.rows.transaction(ctx, func(ctx context.Context) error {
			row, eff, err := rc.stepRow(ctx, f.ID, work.Event{Kind: work.Decided, Outcome: o})
			if err != nil || eff == work.Refused {
				return cmp.Or(err, ErrFiberDone)
			}
			decided = row
			return write(ctx, &decided)
		})
	})
	if err == nil {
		outcome := string(decided.status())
		if decided.Open() {
			outcome = outcomeResumed
		}
		rc.reportRecovery(ctx, &decided, outcome, nil)
	}
	return err
}

// startRecoveryTask starts a task that calls OnRecovery, unless one is running.
func (rc *recovery) startRecoveryTask(ctx context.Context) error {
	if rc.asking {
		return nil
	}
	err := rc.obj.Go(ctx, "recovery", func(ctx context.Context) error {
		defer func() { rc.asking = false }()
		rows, err := rc.undecided(ctx)
		if err != nil {
			return err
		}
		return rc.askRecovery(ctx, rows, time.Time{})
	})
	if errors.Is(err, dohost.ErrOverloaded) {
		return rc.deferRecovery(ctx)
	}
	rc.asking = err == nil
	return err
}

// askRecovery calls OnRecovery about rows. In the constructor, until is the deadline of the hook.
func (rc *recovery) askRecovery(ctx context.Context, rows []*fiberRow, until time.Time) error {
	if len(rows) == 0 {
		return nil // all were cancelled
	}
	fibers := make([]*InterruptedFiber, len(rows))
	for i, row := range rows {
		fibers[i] = &InterruptedFiber{
			ID: row.ID, Kind: row.Name, Created: time.UnixMilli(row.Created), Attempt: row.Attempt + 1, recovery: rc, row: row,
		}
		defer rc.markHookRunning(row.ID)()
	}
	failed, err := rc.runHook(ctx, rows, until, func(ctx context.Context) error {
		return rc.class.recovery(rc.self, ctx, slices.Clone(fibers))
	})
	for i, f := range fibers {
		f.returned = true
		if err == nil {
			err = rc.recordUndecided(ctx, rows[i], failed)
		}
	}
	_, err = rc.deferIfFull(ctx, rows[0], err)
	return err
}

// errUndecided is the error of a fiber about which OnRecovery has not decided.
var errUndecided = errors.New("agent: OnRecovery returned without a decision about the fiber")

// recordUndecided writes the outcome of a row that was passed to OnRecovery, which may not have decided about it.
func (rc *recovery) recordUndecided(ctx context.Context, row *fiberRow, failed error) error {
	if failed != nil {
		return rc.recordHookFailure(ctx, row, failed)
	}
	changed, err := rc.updateAfterHook(ctx, row, work.Event{Kind: work.HookReturned}, func(r *fiberRow) {
		r.Error = truncatedText(errUndecided)
	})
	if err == nil && !changed {
		rc.reportRecovery(ctx, row, string(row.status()), errUndecided)
	}
	return err
}

// recordHookFailure records and reports that OnRecovery or OnInterrupted failed for a row, unless the row has changed since the call: the
// hook may have decided about it, or resumed it, before it failed.
func (rc *recovery) recordHookFailure(ctx context.Context, row *fiberRow, failed error) error {
	changed, err := rc.updateAfterHook(ctx, row, work.Event{Kind: work.HookReturned, Failed: true}, func(r *fiberRow) {
		r.Error = truncatedText(failed)
	})
	if err != nil || changed {
		return err
	}
	outcome := "hook failed"
	if row.State == work.Dead {
		outcome = "dead"
	}
	rc.reportRecovery(ctx, row, outcome, failed)
	return nil
}

// reportRecovery reports the outcome of recovery for a row.
func (rc *recovery) reportRecovery(ctx context.Context, row *fiberRow, outcome string, failed error) {
	rc.wakeWaiters(row.ID)
	rc.report(ctx, "fiber:recovery", failed, slog.String("fiber", row.ID), slog.String("name", row.Name), slog.String("outcome", outcome))
}

// Resume runs fn as a new fiber with the name and the checkpoint of the interrupted one, as a separate task,
// when the hook has returned. One batch inserts the new fiber and deletes the interrupted one, so a crash
// leaves exactly one of them. Resume may be called once.
func (i *InterruptedRun) Resume(ctx context.Context, fn func(context.Context) error) (id string, err error) {
	if i.resumed {
		return "", ErrFiberDone
	}
	rc, now := i.recovery, time.Now().UnixMilli()
	next := fiberRow{
		// Its count of hook calls starts from the count of the interrupted fiber, until it saves a new checkpoint.
		Item: work.Item{State: work.Running, Owner: rc.owner, Run: rc.nextRun(), Calls: i.row.Calls, FirstCall: i.row.FirstCall},
		ID:   ulid.Make().String(), Name: i.Name, Checkpoint: i.row.Checkpoint, Saved: i.row.Saved, Work: i.row.work(),
		Number: i.row.Number, Created: i.row.Created, Began: now, Updated: now,
	}
	err = rc.rows.transaction(ctx, func(ctx context.Context) error {
		if err := rc.insert(ctx, &next); err != nil {
			return err
		}
		if existed, err := rc.delete(ctx, i.ID); err != nil || !existed {
			return errors.Join(err, ErrFiberDone) // a caller has cancelled it
		}
		return rc.obj.Go(ctx, "fiber "+i.Name, func(ctx context.Context) error {
			if err := rc.checkNotCancelled(ctx, next.ID); err != nil {
				return err
			}
			_, inner, end := rc.startCall(ctx, &next)
			defer end()
			err := fn(inner)
			return errors.Join(err, rc.endRun(ctx, next.ID, err != nil))
		})
	})
	i.resumed = err == nil
	return next.ID, err
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
			err = rc.askInterrupted(ctx, &row, pause{}, time.Time{})
		}
		_, err = rc.deferIfFull(ctx, &row, err)
		return err
	})
	if err == nil {
		rc.markHookRunning(id)
	}
	return err
}

// askInterrupted calls OnInterrupted for a row. In the constructor, the caller is in the pause p, and until is the deadline of
// the hook; otherwise both are zero, and the hook has no time limit.
func (rc *recovery) askInterrupted(ctx context.Context, row *fiberRow, p pause, until time.Time) error {
	i := &InterruptedRun{ID: row.ID, Name: row.Name, Created: time.UnixMilli(row.Created), Attempt: row.Calls, recovery: rc, row: row}
	failed, err := rc.runHook(ctx, []*fiberRow{row}, until, func(ctx context.Context) error {
		return rc.class.interrupted(rc.self, row.position().Context(ctx), i)
	})
	i.resumed = true // Resume fails after this
	switch {
	case err != nil:
		return err
	case failed != nil:
		return rc.recordHookFailure(ctx, row, failed)
	case p.rows != nil:
		ctx = p.armLater(ctx) // of recovery.begin
	}
	if err := rc.end(ctx, row.ID); err != nil {
		return err
	}
	rc.reportRecovery(ctx, row, "recovered", nil)
	return nil
}

// ended calls OnFiberEnded for a fiber that has ended in this task, if the row asks for it.
func (rc *recovery) ended(ctx context.Context, row *fiberRow) error {
	if row.State != work.Notifying || rc.hookRunning[row.ID] { // a hook still has the row from before a restart: the alarm retries
		return nil
	}
	defer rc.markHookRunning(row.ID)()
	_, err := rc.deferIfFull(ctx, row, rc.notify(ctx, row))
	return err
}

// notify calls OnFiberEnded for a row.
func (rc *recovery) notify(ctx context.Context, row *fiberRow) error {
	failed, err := rc.runHook(ctx, []*fiberRow{row}, time.Time{}, func(ctx context.Context) error {
		return rc.class.ended(rc.self, fixedPosition(row.work()+"/end", row.Saved).Context(ctx), infoOf(row))
	})
	if err != nil {
		return err
	}
	outcome := "notified"
	switch {
	case failed == nil:
	case row.Calls >= work.MaxCalls:
		outcome = outcomeNotNotified
	default:
		rc.reportNotify(ctx, row, "hook failed", failed)
		return nil // the row already has the time of the next call
	}
	changed, err := rc.updateAfterHook(ctx, row, work.Event{Kind: work.HookReturned, Failed: failed != nil}, func(*fiberRow) {})
	if err == nil && !changed {
		rc.reportNotify(ctx, row, outcome, failed)
	}
	return err
}

func (rc *recovery) reportNotify(ctx context.Context, row *fiberRow, outcome string, failed error) {
	rc.report(ctx, "fiber:notified", failed, slog.String("fiber", row.ID), slog.String("kind", row.Name), slog.String("outcome", outcome))
}
