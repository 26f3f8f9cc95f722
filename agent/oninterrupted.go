package agent

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/dohost/dohost/internal/work"
)

// InterruptedRun is a fiber of [RunFiber] that the end of its incarnation interrupted.
type InterruptedRun struct {
	ID      string
	Name    string
	Created time.Time // of the first of them, if it was resumed
	// Attempt counts the earlier calls of the hook that failed, were cut off, or resumed the fiber, since the
	// fiber's checkpoint last changed.
	Attempt int

	recovery *recovery
	row      *fiberRow
	resumed  bool
}

// Checkpoint decodes the fiber's last checkpoint into v, and reports whether there is one.
func (i *InterruptedRun) Checkpoint(v any) (bool, error) {
	return decodeCheckpoint(i.row.Checkpoint, v)
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

// askInterrupted calls OnInterrupted for a row. In the constructor, until is the deadline of the hook; otherwise it is
// zero, and the hook has no time limit.
func (rc *recovery) askInterrupted(ctx context.Context, row *fiberRow, until time.Time) error {
	i := &InterruptedRun{ID: row.ID, Name: row.Name, Created: time.UnixMilli(row.Created), Attempt: row.Calls, recovery: rc, row: row}
	failed, err := rc.runHook(ctx, []*fiberRow{row}, until, func(ctx context.Context) error {
		return rc.class.interrupted(rc.self, row.position().Context(ctx), i)
	})
	i.resumed = true // Resume fails after this
	if err != nil {
		return err
	}
	outcome := "recovered"
	if failed == nil {
		if !until.IsZero() {
			ctx = rc.rows.unarmedContext(ctx) // of recovery.begin
		}
		if err := rc.end(ctx, row.ID); err != nil {
			return err
		}
	} else if outcome, err = rc.recordHookFailure(ctx, row, failed); err != nil || outcome == "" {
		return err // or the hook resumed it before it failed
	}
	rc.reportRecovery(ctx, row, outcome, failed)
	return nil
}

// reportRecovery reports the outcome of recovery for a row.
func (rc *recovery) reportRecovery(ctx context.Context, row *fiberRow, outcome string, failed error) {
	rc.wakeWaiters(row.ID)
	rc.report(ctx, "fiber:recovery", failed, slog.String("fiber", row.ID), slog.String("name", row.Name), slog.String("outcome", outcome))
}
