package agent

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/internal/work"
)

// recoveryBudget is how long the constructor calls hooks of interrupted fibers. The alarm does the rest.
const recoveryBudget = 10 * time.Second

// recoverFibers resumes interrupted fibers when the agent wakes.
func (c *core) recoverFibers(ctx context.Context) error {
	begun, written, found, asked, full := time.Now(), 0, false, false, false
	err := c.eachRecoverable(ctx, func(row *fiberRow) (bool, error) {
		if err := c.findJobs(ctx); err != nil {
			return false, err
		}
		found = true
		c.fibers.hookDelayed = c.fibers.hookDelayed || row.NotBefore > 0
		if time.Since(begun) >= recoveryBudget {
			c.deferRecovery()
			return false, nil
		}
		now := time.Now()
		switch {
		case c.asksRecovery(row, now):
			asked = true
			return true, nil
		case c.class.start != nil && c.recoveryEffect(row, now) == work.Run:
			c.fibers.deferred = true
			return true, nil
		}
		if written += len(row.Checkpoint); written > recoveryBatch {
			written = 0
			if err := c.store().Sync(ctx); err != nil {
				return false, err
			}
		}
		more, err := c.deferIfFull(ctx, row, c.recoverInConstructor(ctx, row, now, begun.Add(recoveryBudget)))
		full = !more
		return more, err
	})
	if err == nil && asked && !full { // else the alarm continues
		err = c.askRecoveryInConstructor(ctx, begun.Add(recoveryBudget))
	}
	if err != nil || !found {
		return err
	}
	return dohost.Transaction(ctx, func(ctx context.Context) error { return c.arm(ctx, true) })
}

// resumeDeferred resumes the fibers that recoverFibers deferred until OnStart has succeeded. Otherwise a failing
// constructor would count as an interruption, although they had not resumed.
func (c *core) resumeDeferred(ctx context.Context) error {
	if !c.fibers.deferred {
		return nil
	}
	c.fibers.deferred = false
	written := 0
	err := c.eachRecoverable(ctx, func(row *fiberRow) (bool, error) {
		now := time.Now()
		if c.recoveryEffect(row, now) != work.Run {
			return true, nil
		}
		if written += len(row.Checkpoint); written > recoveryBatch {
			written = 0
			if err := c.store().Sync(ctx); err != nil {
				return false, err
			}
		}
		_, err := c.recoverRow(ctx, row, now)
		return c.deferIfFull(ctx, row, err)
	})
	if err != nil {
		return err
	}
	return dohost.Transaction(ctx, func(ctx context.Context) error { return c.arm(ctx, true) })
}

const (
	// recoveryBatch is about how many bytes of rows are written back in one batch.
	recoveryBatch = 4 << 20
	recoveryPage  = 64 // rows that are read at a time
)

// deferIfFull handles an error about a row. If the disk or the task limit is full, it leaves this row and the
// following ones to the alarm.
func (c *core) deferIfFull(ctx context.Context, row *fiberRow, err error) (more bool, _ error) {
	_, full := errors.AsType[*dohost.LimitError](err)
	switch {
	case err == nil:
		return true, nil
	case full, errors.Is(err, dohost.ErrNoSpace):
		c.obj.Report(ctx, "fiber:waiting", slog.String("fiber", row.ID), slog.Any("err", err))
	case !errors.Is(err, dohost.ErrOverloaded):
		return false, err
	}
	c.deferRecovery()
	return false, nil
}

// deferRecovery makes the alarm continue recovery in a second.
func (c *core) deferRecovery() {
	if c.fibers.continueAt.IsZero() {
		c.fibers.continueAt = time.Now().Add(time.Second)
	}
}

// eachRecoverable calls do with the rows that need work and on which this incarnation does not work,
// until do returns false: the rows that wait for nothing first, oldest first. do may
// give up the turn.
func (c *core) eachRecoverable(ctx context.Context, do func(*fiberRow) (more bool, err error)) error {
	q := &dohost.Query[fiberRow]{Index: "open", Limit: recoveryPage, Where: func(r fiberRow) bool { return r.Owner != c.incarnation }}
	for {
		rows, err := fiberRows.List(ctx, c.store(), q)
		if err != nil {
			return err
		}
		calls := c.fibers.hookCalls
		for i := range rows {
			row := &rows[i].Value
			if c.fibers.hookCalls != calls { // the hook of another row may have changed this one
				again, ok, err := fiberRows.Get(ctx, c.store(), row.ID)
				if err != nil {
					return err
				}
				if *row = again.Value; !ok || row.due() == "" || row.Owner == c.incarnation {
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

// recoverInConstructor handles a row in the constructor.
func (c *core) recoverInConstructor(ctx context.Context, row *fiberRow, now, until time.Time) error {
	if row.Calls > 0 && !row.Started && c.recoveryEffect(row, now) == work.CallHook {
		c.deferRecovery() // retries do not delay the first event
		return nil
	}
	asks, err := c.recoverRow(ctx, row, now)
	if err != nil || !asks {
		return err
	}
	return c.askInterrupted(ctx, row, until)
}

// asksRecovery reports whether OnRecovery decides about a row now.
func (c *core) asksRecovery(row *fiberRow, now time.Time) bool {
	return row.Started && row.State != work.Notifying && c.recoveryEffect(row, now) == work.CallHook
}

// resumeFiber writes the row of a fiber that was resumed, and starts its task: when the turn is free with immediately,
// else when the interruption is durably counted. With immediately, a rollback of the caller's Transaction does not stop
// the task.
func (c *core) resumeFiber(ctx context.Context, row *fiberRow, immediately bool) error {
	row.Began = row.Updated
	c.fibers.resumed = true
	err := c.update(ctx, func(ctx context.Context) error {
		if err := c.putFiber(ctx, *row); err != nil {
			return err
		}
		return c.launch(ctx, row, immediately)
	})
	c.fibers.resumed = err == nil // also for the alarm that ends recovery
	return err
}

// The outcomes of recovery that reports contain, in addition to the statuses of fibers.
const (
	outcomeResumed     = "resumed"
	outcomeNotNotified = "not notified" // OnFiberEnded is not called again
)

// recoverRow makes the step of a row that is interrupted or due, and reports whether the caller must call
// OnInterrupted. A row that OnRecovery decides about must not get here: see asksRecovery, for the same now.
func (c *core) recoverRow(ctx context.Context, row *fiberRow, now time.Time) (asks bool, err error) {
	before := *row
	eff, err := c.step(row, work.Event{Kind: work.Due}, now)
	switch {
	case err != nil || eff == work.Wait:
		return false, err
	case before.State == work.Notifying && eff == work.CallHook:
		return false, c.startHookTask(ctx, row.ID)
	case before.State == work.Notifying:
		c.reportNotify(ctx, row, outcomeNotNotified, nil)
		return false, c.putFiber(ctx, *row)
	}
	var outcome string
	switch eff {
	case work.Run:
		outcome = outcomeResumed
		// A fiber that this process has worked on does not wait for the disk: if the fiber kills the process,
		// the next process counts that durably, so it cannot repeat forever.
		err = c.resumeFiber(ctx, row, strings.HasPrefix(before.Owner, c.hostPrefix()))
	case work.CallHook:
		outcome, asks = "hook", true
	case work.Delete:
		outcome = "dropped"
		_, err = c.deleteFiber(ctx, row.ID)
	default:
		switch row.State {
		case work.Orphaned:
			outcome = "no method"
		case work.Dead:
			outcome = "dead"
		case work.Recovering:
			outcome = "paused"
		default:
			outcome = "max retries exceeded"
			row.Error = outcome
		}
		err = c.putFiber(ctx, *row)
	}
	if err == nil {
		c.wakeWaiters(row.ID)
		c.obj.Report(ctx, "fiber:interrupted", slog.String("fiber", row.ID), slog.String("name", row.Name), slog.String("outcome", outcome),
			slog.Int("attempt", row.Attempt), slog.Duration("age", now.Sub(time.UnixMilli(before.Updated))))
	}
	return asks, err
}

// fibersWakeup returns when the fibers need the alarm. While one is open that is the next heartbeat at the
// latest, and the start of the host.
func (c *core) fibersWakeup(ctx context.Context, now time.Time, sure bool) (wakeup, error) {
	expires, err := c.firstExpiry(ctx)
	if err != nil || c.fibers.none {
		return expires, err
	}
	beat, more := wakeup{at: now.Add(c.class.options.KeepAlive), atStart: true}, wakeup{at: c.fibers.continueAt}
	if c.fibers.resumed && !c.fibers.hookDelayed {
		c.fibers.resumed = false
		return earliest(expires, beat, more), nil
	}
	first, ok, err := c.firstRow(ctx, &dohost.Query[fiberRow]{Index: "open"})
	c.fibers.none = sure && err == nil && !ok
	if err != nil || !ok {
		return expires, err
	}
	if first.NotBefore == 0 && c.fibers.hookDelayed {
		if first, _, err = c.firstRow(ctx, &dohost.Query[fiberRow]{Index: "open", Start: dohost.KeyOf(int64(1))}); err != nil {
			return wakeup{}, err
		}
	}
	again := timeOf(first.NotBefore)
	if first.NotBefore > 0 && !again.After(now) { // the disk or the task limit was full, or the call is being started
		again = now.Add(time.Second)
	}
	return earliest(expires, beat, more, wakeup{at: again}), nil
}

func (c *core) firstRow(ctx context.Context, q *dohost.Query[fiberRow]) (row fiberRow, ok bool, err error) {
	q.Limit = 1
	rows, err := fiberRows.List(ctx, c.store(), q)
	if err != nil || len(rows) == 0 {
		return row, false, err
	}
	return rows[0].Value, true, nil
}

// firstExpiry returns when the first ended fiber expires. An incarnation reads it once, and each end of a fiber
// updates it: if it is too early, the alarm reads it again. It must not be too late, so code that deletes or
// restarts such a fiber in a Transaction, which may be rolled back, reads it before.
func (c *core) firstExpiry(ctx context.Context) (wakeup, error) {
	if !c.fibers.expiryRead {
		row, _, err := c.firstRow(ctx, &dohost.Query[fiberRow]{Index: "expires"})
		if err != nil {
			return wakeup{}, err
		}
		c.fibers.expiryRead, c.fibers.expiry = true, row.Expires
	}
	return wakeup{at: timeOf(c.fibers.expiry)}, nil
}

// recoverDue resumes interrupted fibers that are due, each in a separate task, and deletes expired ones.
func (c *core) recoverDue(ctx context.Context, now time.Time) error {
	if err := c.expire(ctx, now); err != nil {
		return err
	}
	c.fibers.continueAt = time.Time{}
	if c.fibers.none {
		return nil
	}
	written, asked := 0, false
	err := c.eachRecoverable(ctx, func(row *fiberRow) (bool, error) {
		hookRunning := c.fibers.hookRunning[row.ID]
		c.fibers.hookDelayed = c.fibers.hookDelayed || row.NotBefore > 0 // the constructor may not have reached the row
		switch {
		case c.recoveryEffect(row, now) == work.Wait, hookRunning && row.NotBefore > now.UnixMilli():
			return true, nil
		case !hookRunning && c.asksRecovery(row, now):
			asked = true
			return true, nil
		}
		if written += len(row.Checkpoint); written > recoveryBatch {
			c.deferRecovery() // the alarm's run is one batch
			return false, nil
		}
		if hookRunning {
			eff, err := c.step(row, work.Event{Kind: work.HookRunning}, now)
			if err == nil && eff == work.None { // else its task has not begun
				err = c.putFiber(ctx, *row)
			}
			return c.deferIfFull(ctx, row, err)
		}
		asks, err := c.recoverRow(ctx, row, now)
		if err == nil && asks {
			err = c.startHookTask(ctx, row.ID)
		}
		return c.deferIfFull(ctx, row, err)
	})
	if err == nil && asked {
		err = c.startRecoveryTask(ctx)
	}
	return err
}

// expiryBatch bounds the fibers that one batch deletes.
const expiryBatch = 500

func (c *core) expire(ctx context.Context, now time.Time) error {
	if first := c.fibers.expiry; c.fibers.expiryRead && (first == 0 || first > now.UnixMilli()) {
		return nil
	}
	c.fibers.expiryRead = false
	rows, err := fiberRows.List(ctx, c.store(), &dohost.Query[fiberRow]{
		Index: "expires", End: dohost.KeyOf(now.UnixMilli()).PrefixEnd(), Limit: expiryBatch,
	})
	for _, r := range rows {
		if err == nil {
			_, err = c.deleteFiber(ctx, r.Key)
		}
	}
	return err
}
