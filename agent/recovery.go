package agent

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/internal/work"
)

// wake runs after the constructor and before the first event.
func (c *core) wake(ctx context.Context) error {
	if err := c.readDestroying(ctx); err != nil {
		return err
	}
	if err := c.recovery.begin(ctx, c.jobs.find); err != nil {
		return err
	}
	if err := c.rows.refresh(ctx, c.jobs.alarmIsLate); err != nil {
		return err
	}
	if err := c.rows.refresh(ctx, c.rowWork.alarmIsLate); err != nil {
		return err
	}
	if err := c.extendedWake(ctx); err != nil {
		return err
	}
	if c.class.start == nil {
		return nil
	}
	if err := c.class.start(c.self, ctx); err != nil {
		return err
	}
	return c.recovery.resumeDeferred(ctx)
}

// onAlarm is the alarm's handler. If its last run fails, the alarm is parked, and onAlarm also ends
// the incarnation: when the next event wakes the agent, the new incarnation sets the alarm for
// its rows. Otherwise an agent that stays in memory would have no alarm until an operator acts.
func (c *core) onAlarm(ctx context.Context, info dohost.AlarmInfo) error {
	err := c.startDue(ctx)
	if err == nil || errors.Is(err, dohost.ErrNoSpace) || info.Attempt+1 < dohost.AlarmRuns {
		return err
	}
	return c.obj.Abort(ctx, err, nil)
}

// startDue starts due work as separate tasks and returns. All its writes are one batch, which also sets the
// alarm again. So no long work runs in the alarm's handler, and a crash repeats all of it or nothing.
func (c *core) startDue(ctx context.Context) error {
	now := time.Now()
	return c.rows.batch(ctx, true, func(ctx context.Context) error { // no other code has held this turn
		if c.rows.plan.destroying {
			_, err := c.startTask(ctx, "destroy", now, c.destroy)
			return err
		}
		if err := c.recovery.recoverDue(ctx, now); err != nil {
			return err
		}
		if err := c.jobs.start(ctx, now); err != nil {
			return err
		}
		return c.rowWork.start(ctx, now)
	})
}

// recovery handles the fibers whose incarnation has ended, and calls the hooks: it resumes such a fiber, ends it, or asks
// the class. Each resume and each call of a hook is counted before it begins. A row is passed to at most one call of a
// hook at a time.
type recovery struct {
	*fibers
	hookRunning map[string]bool // rows passed to a hook, outside the constructor
	hookCalls   int             // calls of hooks that have begun
	asking      bool            // OnRecovery has rows, or is about to
	deferred    bool            // rows are deferred until OnStart has succeeded
}

// recoveryBudget is how long the constructor calls hooks of interrupted fibers. The alarm does the rest.
const recoveryBudget = 10 * time.Second

// begin resumes interrupted fibers when the agent wakes. It calls prepare before it writes the first row.
func (rc *recovery) begin(ctx context.Context, prepare func(context.Context) error) error {
	until := time.Now().Add(recoveryBudget)
	return rc.rows.batches(ctx, true, func(ctx context.Context, p pause) (found bool, err error) {
		written, asked, full := 0, false, false
		err = rc.eachRecoverable(ctx, func(row *fiberRow) (bool, error) {
			if err := prepare(ctx); err != nil {
				return false, err
			}
			found = true
			rc.times.delay(row)
			now := time.Now()
			switch {
			case !now.Before(until):
				return false, rc.deferRecovery(ctx)
			case rc.asksRecovery(row, now):
				asked = true
				return true, nil
			case rc.class.start != nil && rc.effect(row, now) == work.Run:
				rc.deferred = true
				return true, nil
			}
			if err := rc.syncLarge(p, row, &written); err != nil {
				return false, err
			}
			more, err := rc.deferIfFull(ctx, row, rc.recoverInConstructor(ctx, row, p, now, until))
			full = !more
			return more, err
		})
		if err == nil && asked && !full { // else the alarm continues
			err = p.between(func(ctx context.Context) error { return rc.askRecoveryInConstructor(ctx, p, until) })
		}
		return found, err
	})
}

// recoverInConstructor handles a row in the constructor.
func (rc *recovery) recoverInConstructor(ctx context.Context, row *fiberRow, p pause, now, until time.Time) error {
	if row.Calls > 0 && !row.Started && rc.effect(row, now) == work.CallHook {
		return rc.deferRecovery(ctx) // retries do not delay the first event
	}
	asks, err := rc.recoverRow(ctx, row, now)
	if err != nil || !asks {
		return err
	}
	return p.between(func(ctx context.Context) error { return rc.askInterrupted(ctx, row, p, until) })
}

// askRecoveryInConstructor calls OnRecovery in the constructor, unless no time is left or an earlier call about one of
// the rows failed: retries do not delay the first event.
func (rc *recovery) askRecoveryInConstructor(ctx context.Context, p pause, until time.Time) error {
	rows, err := rc.undecided(ctx)
	if err != nil {
		return err
	}
	if !time.Now().Before(until) || slices.ContainsFunc(rows, func(r *fiberRow) bool { return r.Calls > 0 }) {
		return rc.deferRecovery(p.armLater(ctx)) // recovery.begin sets the alarm
	}
	return rc.askRecovery(ctx, rows, until)
}

// resumeDeferred resumes the fibers that begin deferred until OnStart has succeeded. Otherwise a failing
// constructor would count as an interruption, although they had not resumed.
func (rc *recovery) resumeDeferred(ctx context.Context) error {
	if !rc.deferred {
		return nil
	}
	rc.deferred = false
	return rc.rows.batches(ctx, true, func(ctx context.Context, p pause) (bool, error) {
		written := 0
		return true, rc.eachRecoverable(ctx, func(row *fiberRow) (bool, error) {
			now := time.Now()
			if rc.effect(row, now) != work.Run {
				return true, nil
			}
			if err := rc.syncLarge(p, row, &written); err != nil {
				return false, err
			}
			_, err := rc.recoverRow(ctx, row, now)
			return rc.deferIfFull(ctx, row, err)
		})
	})
}

// recoverDue resumes interrupted fibers that are due, each in a separate task, and deletes expired ones.
func (rc *recovery) recoverDue(ctx context.Context, now time.Time) error {
	if err := rc.expire(ctx, now); err != nil {
		return err
	}
	if err := rc.rows.change(ctx, func(p *plan) { p.continueAt = time.Time{} }); err != nil {
		return err
	}
	if rc.times.open == openNone {
		return nil
	}
	written, asked := 0, false
	err := rc.eachRecoverable(ctx, func(row *fiberRow) (bool, error) {
		hookRunning := rc.hookRunning[row.ID]
		rc.times.delay(row) // the constructor may not have reached the row
		switch {
		case rc.effect(row, now) == work.Wait, hookRunning && row.NotBefore > now.UnixMilli():
			return true, nil
		case !hookRunning && rc.asksRecovery(row, now):
			asked = true
			return true, nil
		}
		if written += len(row.Checkpoint); written > recoveryBatch {
			return false, rc.deferRecovery(ctx) // the alarm's run is one batch
		}
		if hookRunning {
			eff, err := rc.step(row, work.Event{Kind: work.HookRunning}, now)
			if err == nil && eff == work.None { // else its task has not begun
				err = rc.put(ctx, row)
			}
			return rc.deferIfFull(ctx, row, err)
		}
		asks, err := rc.recoverRow(ctx, row, now)
		if err == nil && asks {
			err = rc.startHookTask(ctx, row.ID)
		}
		return rc.deferIfFull(ctx, row, err)
	})
	if err == nil && asked {
		err = rc.startRecoveryTask(ctx)
	}
	return err
}

// effect returns the effect of recovery on a row, without changing the row.
func (rc *recovery) effect(r *fiberRow, now time.Time) work.Effect {
	p := rc.policy(r)
	_, eff := work.Step(r.Item, work.Event{Kind: work.Due, Owner: rc.owner}, &p, now)
	return eff
}

// asksRecovery reports whether OnRecovery decides about a row now.
func (rc *recovery) asksRecovery(row *fiberRow, now time.Time) bool {
	return row.Started && row.State != work.Notifying && rc.effect(row, now) == work.CallHook
}

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

// markHookRunning marks a row as passed to a hook until done is called.
func (rc *recovery) markHookRunning(id string) (done func()) {
	if rc.hookRunning == nil {
		rc.hookRunning = map[string]bool{}
	}
	rc.hookRunning[id] = true
	return func() { delete(rc.hookRunning, id) }
}

// recoverRow makes the step of a row that is interrupted or due, and reports whether the caller must call
// OnInterrupted. Its caller has excluded the rows that OnRecovery decides about at that time: see asksRecovery.
func (rc *recovery) recoverRow(ctx context.Context, row *fiberRow, now time.Time) (asks bool, err error) {
	notifying, owner, updated := row.State == work.Notifying, row.Owner, row.Updated
	eff, err := rc.step(row, work.Event{Kind: work.Due}, now)
	switch {
	case err != nil || eff == work.Wait:
		return false, err
	case notifying && eff == work.CallHook:
		return false, rc.startHookTask(ctx, row.ID)
	case notifying:
		rc.reportNotify(ctx, row, outcomeNotNotified, nil)
		return false, rc.put(ctx, row)
	}
	var outcome string
	switch eff {
	case work.Run:
		outcome = outcomeResumed
		// A fiber that this process has worked on does not wait for the disk: if the fiber kills the process,
		// the next process counts that durably, so it cannot repeat forever. The prefix contains the store's fork,
		// since rows of a backup or an import may come from another host.
		err = rc.resume(ctx, row, strings.HasPrefix(owner, rc.obj.Epoch().HostPrefix()))
	case work.CallHook:
		outcome, asks = "hook", true
	case work.Delete:
		outcome = "dropped"
		_, err = rc.delete(ctx, row.ID)
	default:
		outcome = notResumed(row)
		err = rc.put(ctx, row)
	}
	if err == nil {
		rc.reportInterrupted(ctx, row, outcome, now.Sub(time.UnixMilli(updated)))
	}
	return asks, err
}

// The outcomes of recovery that reports contain, in addition to the statuses of fibers.
const (
	outcomeResumed     = "resumed"
	outcomeNotNotified = "not notified" // OnFiberEnded is not called again
)

// resume writes the row of a fiber that was resumed, and starts its task: when the turn is free with immediately,
// else when the interruption is durably counted. With immediately, a rollback of the caller's Transaction does not stop
// the task.
func (rc *recovery) resume(ctx context.Context, row *fiberRow, immediately bool) error {
	row.Began = row.Updated
	rc.times.open = openResumed
	err := rc.rows.transaction(ctx, func(ctx context.Context) error {
		if err := rc.put(ctx, row); err != nil {
			return err
		}
		return rc.launch(ctx, row, immediately)
	})
	rc.times.open = openResumed // also for the alarm that ends recovery: after an error the row is open as well
	return err
}

// notResumed returns the outcome of recovery for a row that it has neither resumed nor deleted. A fiber that has failed
// gets it as its error.
func notResumed(row *fiberRow) (outcome string) {
	switch row.State {
	case work.Orphaned:
		return "no method"
	case work.Dead:
		return "dead"
	case work.Recovering:
		return "paused"
	}
	row.Error = "max retries exceeded"
	return row.Error
}

// reportInterrupted reports the outcome of recovery for an interrupted row. age is the time since its last change.
func (rc *recovery) reportInterrupted(ctx context.Context, row *fiberRow, outcome string, age time.Duration) {
	rc.wakeWaiters(row.ID)
	rc.report(ctx, "fiber:interrupted", nil, slog.String("fiber", row.ID), slog.String("name", row.Name), slog.String("outcome", outcome),
		slog.Int("attempt", row.Attempt), slog.Duration("age", age))
}

const (
	// recoveryBatch is about how many bytes of rows are written back in one batch.
	recoveryBatch = 4 << 20
	recoveryPage  = 64 // rows that are read at a time
)

// syncLarge syncs before a row is written, if those of the batch have too many bytes by then.
func (rc *recovery) syncLarge(p pause, row *fiberRow, written *int) error {
	if *written += len(row.Checkpoint); *written <= recoveryBatch {
		return nil
	}
	*written = 0
	return p.between(rc.store().Sync)
}

// deferIfFull handles an error about a row. If the disk or the task limit is full, it leaves this row and the
// following ones to the alarm.
func (rc *recovery) deferIfFull(ctx context.Context, row *fiberRow, err error) (more bool, _ error) {
	_, full := errors.AsType[*dohost.LimitError](err)
	switch {
	case err == nil:
		return true, nil
	case full, errors.Is(err, dohost.ErrNoSpace):
		rc.report(ctx, "fiber:waiting", err, slog.String("fiber", row.ID))
	case !errors.Is(err, dohost.ErrOverloaded):
		return false, err
	}
	rc.times.full(time.Now())
	return false, rc.deferRecovery(ctx)
}

// eachRecoverable calls do with the rows that need work and on which this incarnation does not work,
// until do returns false: the rows that wait for nothing first, oldest first. do may
// give up the turn.
func (rc *recovery) eachRecoverable(ctx context.Context, do func(*fiberRow) (more bool, err error)) error {
	q := &dohost.Query[fiberRow]{Index: "open", Limit: recoveryPage, Where: func(r fiberRow) bool { return r.Owner != rc.owner }}
	for {
		rows, err := fiberRows.List(ctx, rc.store(), q)
		if err != nil {
			return err
		}
		calls := rc.hookCalls
		for i := range rows {
			row := &rows[i].Value
			if rc.hookCalls != calls { // the hook of another row may have changed this one
				if still, err := rc.reread(ctx, row); err != nil {
					return err
				} else if !still {
					continue
				}
			}
			if more, err := do(row); err != nil || !more {
				return err
			}
		}
		if len(rows) < recoveryPage {
			return nil
		}
		q.After = rows[len(rows)-1].Cursor
	}
}

// reread reads a row again, and reports whether it still needs work on which this incarnation does not work.
func (rc *recovery) reread(ctx context.Context, row *fiberRow) (still bool, err error) {
	again, ok, err := get(ctx, rc.rows, &fiberRows, row.ID)
	*row = again
	return ok && row.pending() && row.Owner != rc.owner, err
}
