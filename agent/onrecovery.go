package agent

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/internal/work"
)

// InterruptedFiber is a fiber that [StartFiber] started in an incarnation that ended before the fiber did, for
// OnRecovery. Until the hook returns, one of Resume, Complete and Fail decides about the fiber, with a ctx
// that holds the turn. The decision takes effect immediately, even if the hook fails afterwards.
type InterruptedFiber struct {
	ID      string
	Kind    string
	Created time.Time
	// Attempt counts its failures and interruptions, including this one.
	Attempt int

	recovery *recovery
	row      *fiberRow
	returned bool // the hook has returned
}

// Checkpoint decodes the fiber's last checkpoint into v, and reports whether there is one.
func (f *InterruptedFiber) Checkpoint(v any) (bool, error) {
	return decodeCheckpoint(f.row.Checkpoint, v)
}

// Position returns the position where the fiber continues. The hook itself has no position, since it decides about
// several fibers: with this position ([dohost.WorkPosition.Context]) it repeats the operations of the fiber's method.
func (f *InterruptedFiber) Position() *dohost.WorkPosition { return f.row.position() }

// Resume resumes the fiber from its last checkpoint, as a separate task. In the constructor the task begins
// when the hook has returned.
//
// Errors: [ErrFiberDone] if the fiber was already decided about or cancelled; [dohost.ErrOverloaded] when the
// object has too many tasks.
func (f *InterruptedFiber) Resume(ctx context.Context) error {
	return f.decide(ctx, 0, func(ctx context.Context, r *fiberRow) error { return f.recovery.resume(ctx, r, false) })
}

// Complete ends the fiber as completed, with a result that is nil or is kept as JSON.
//
// Errors: [ErrFiberDone], as for Resume; one for a result that is not JSON.
func (f *InterruptedFiber) Complete(ctx context.Context, result any) error {
	var raw json.RawMessage
	if result != nil {
		var err error
		if raw, err = marshal(result); err != nil {
			return err
		}
	}
	return f.end(ctx, work.Completed, func(r *fiberRow) { r.Result = raw })
}

// Fail ends the fiber as failed. The first 4 KiB of the text of why are kept.
//
// Errors: [ErrFiberDone], as for Resume; one for a why that is nil.
func (f *InterruptedFiber) Fail(ctx context.Context, why error) error {
	if why == nil {
		return errors.New("agent: Fail needs an error: why is nil")
	}
	return f.end(ctx, work.Failed, func(r *fiberRow) { r.Error = truncatedText(why) })
}

func (f *InterruptedFiber) end(ctx context.Context, o work.Outcome, set func(*fiberRow)) error {
	return f.decide(ctx, o, func(ctx context.Context, r *fiberRow) error {
		set(r)
		return f.recovery.put(ctx, r)
	})
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

// errUndecided is the error of a fiber about which OnRecovery has not decided.
var errUndecided = errors.New("agent: OnRecovery returned without a decision about the fiber")

// undecided returns the rows about which OnRecovery has to decide now, the oldest first.
func (rc *recovery) undecided(ctx context.Context) (rows []*fiberRow, err error) {
	now := time.Now()
	err = rc.eachRecoverable(ctx, func(row *fiberRow) (bool, error) {
		if rc.asksRecovery(row, now) {
			rows = append(rows, row)
		}
		return true, nil
	})
	slices.SortFunc(rows, func(a, b *fiberRow) int { return cmp.Compare(a.Number, b.Number) })
	return rows, err
}

// askRecoveryInConstructor calls OnRecovery in the constructor, unless no time is left or an earlier call about one of
// the rows failed: retries do not delay the first event.
func (rc *recovery) askRecoveryInConstructor(ctx context.Context, until time.Time) error {
	rows, err := rc.undecided(ctx)
	if err != nil {
		return err
	}
	if !time.Now().Before(until) || slices.ContainsFunc(rows, func(r *fiberRow) bool { return r.Calls > 0 }) {
		return rc.deferRecovery(rc.rows.unarmedContext(ctx)) // recovery.begin sets the alarm
	}
	return rc.askRecovery(ctx, rows, until)
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

// recordUndecided writes the outcome of a row that was passed to OnRecovery, which may not have decided about it.
func (rc *recovery) recordUndecided(ctx context.Context, row *fiberRow, failed error) error {
	if failed != nil {
		outcome, err := rc.recordHookFailure(ctx, row, failed)
		if err == nil && outcome != "" {
			rc.reportRecovery(ctx, row, outcome, failed)
		}
		return err
	}
	changed, err := rc.updateAfterHook(ctx, row, work.Event{Kind: work.HookReturned}, func(r *fiberRow) {
		r.Error = truncatedText(errUndecided)
	})
	if err == nil && !changed {
		rc.reportRecovery(ctx, row, string(row.status()), errUndecided)
	}
	return err
}
