package agent

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"time"

	"github.com/dohost/dohost"
)

// recoveryBudget is how long the constructor calls hooks of interrupted fibers. The alarm does the rest.
const recoveryBudget = 10 * time.Second

// recover resumes interrupted fibers when the agent wakes.
func (c *core) recover(ctx context.Context) error {
	begun, written, found, handed, full := time.Now(), 0, false, false, false
	err := c.eachLost(ctx, func(row *fiberRow) (bool, error) {
		if err := c.findJobs(ctx); err != nil {
			return false, err
		}
		found = true
		c.fibers.waits = c.fibers.waits || row.Again > 0
		if time.Since(begun) >= recoveryBudget {
			c.later()
			return false, nil
		}
		switch v := c.judge(row, time.Now()); {
		case v == hand:
			handed = true
			return true, nil
		case v == resume && c.class.start != nil:
			c.fibers.left = true
			return true, nil
		}
		if written += len(row.Checkpoint); written > recoveryBatch {
			written = 0
			if err := c.store().Sync(ctx); err != nil {
				return false, err
			}
		}
		more, err := c.orLater(ctx, row, c.recoverRow(ctx, row, begun.Add(recoveryBudget)))
		full = !more
		return more, err
	})
	if err == nil && handed && !full { // else the alarm continues
		err = c.handOver(ctx, begun.Add(recoveryBudget))
	}
	if err != nil || !found {
		return err
	}
	return dohost.Transaction(ctx, func(ctx context.Context) error { return c.arm(ctx, true) })
}

// resumeLeft resumes the fibers that recover has left until OnStart has succeeded. Otherwise a failing
// constructor would count as an interruption, although they had not resumed.
func (c *core) resumeLeft(ctx context.Context) error {
	if !c.fibers.left {
		return nil
	}
	c.fibers.left = false
	written := 0
	err := c.eachLost(ctx, func(row *fiberRow) (bool, error) {
		if c.judge(row, time.Now()) != resume {
			return true, nil
		}
		if written += len(row.Checkpoint); written > recoveryBatch {
			written = 0
			if err := c.store().Sync(ctx); err != nil {
				return false, err
			}
		}
		_, err := c.dispose(ctx, row)
		return c.orLater(ctx, row, err)
	})
	if err != nil {
		return err
	}
	return dohost.Transaction(ctx, func(ctx context.Context) error { return c.arm(ctx, true) })
}

const (
	// recoveryBatch is about how many bytes of rows are written back in one batch.
	recoveryBatch = 4 << 20
	lostPage      = 64 // rows that are read at a time
)

// orLater handles an error about a row. If the disk or the task limit has no room, it leaves this row and the
// following ones to the alarm.
func (c *core) orLater(ctx context.Context, row *fiberRow, err error) (more bool, _ error) {
	_, full := errors.AsType[*dohost.LimitError](err)
	switch {
	case err == nil:
		return true, nil
	case full, errors.Is(err, dohost.ErrNoSpace):
		c.obj.Report(ctx, "fiber:waiting", slog.String("fiber", row.ID), slog.Any("err", err))
	case !errors.Is(err, dohost.ErrOverloaded):
		return false, err
	}
	c.later()
	return false, nil
}

// later makes the alarm continue recovery in a second.
func (c *core) later() {
	if c.fibers.moreAt.IsZero() {
		c.fibers.moreAt = time.Now().Add(time.Second)
	}
}

// eachLost calls do with the rows on which this incarnation does not work, though something is to
// be done about them, until it returns false: those that wait for nothing first, oldest first. do may
// give up the turn.
func (c *core) eachLost(ctx context.Context, do func(*fiberRow) (more bool, err error)) error {
	q := &dohost.Query[fiberRow]{Index: "open", Limit: lostPage, Where: func(r fiberRow) bool { return r.Life != c.life }}
	for {
		rows, err := fiberRows.List(ctx, c.store(), q)
		if err != nil {
			return err
		}
		for i := range rows {
			if more, err := do(&rows[i].Value); err != nil || !more {
				return err
			}
		}
		if len(rows) < lostPage {
			return nil
		}
		q.After = rows[len(rows)-1].Cursor
	}
}

// recoverRow handles a row in the constructor.
func (c *core) recoverRow(ctx context.Context, row *fiberRow, until time.Time) error {
	if row.Hooks > 0 && c.judge(row, time.Now()) == ask {
		c.later() // retries do not hold up the first event
		return nil
	}
	asks, err := c.dispose(ctx, row)
	if err != nil || !asks {
		return err
	}
	return c.askHook(ctx, row, until)
}

func (c *core) judge(row *fiberRow, now time.Time) verdict {
	known, handed := c.class.interrupted != nil, c.class.recovery != nil
	switch {
	case row.Tell:
		known = c.class.ended != nil
	case row.Started:
		var k kind
		k, known = c.class.kinds[row.Name]
		handed = handed && !k.options.Quiet
	}
	return judge(row, known, handed, now)
}

// takeUp starts a task that resumes an interrupted fiber: immediately with atOnce, else when the interruption is
// durably counted. atOnce must not be used in a Transaction that may be rolled back: the task would still run.
func (c *core) takeUp(ctx context.Context, row *fiberRow, now int64, atOnce bool) error {
	row.interrupted()
	row.Hooks, row.Lost, row.Again = 0, 0, 0
	row.Life, row.Status, row.Began, row.Updated = c.life, FiberRunning, now, now
	err := dohost.Transaction(ctx, func(ctx context.Context) error {
		if err := c.putFiber(ctx, *row); err != nil {
			return err
		}
		return c.launch(ctx, row, atOnce)
	})
	c.fibers.taken = c.fibers.taken || err == nil
	return err
}

// dispose executes the verdict about a row, and reports whether the caller has to call OnInterrupted.
func (c *core) dispose(ctx context.Context, row *fiberRow) (asks bool, err error) {
	now := time.Now()
	v, age := c.judge(row, now), now.Sub(time.UnixMilli(row.Updated))
	switch v {
	case tell:
		return false, c.hookLater(ctx, row.ID)
	case untold:
		c.keep(row, now.UnixMilli())
		c.tellReport(ctx, row, v.String(), nil)
		return false, c.putFiber(ctx, *row)
	case resume:
		// A fiber that this process has worked on does not wait for the disk: if the fiber kills the process,
		// the next process counts that durably, so it cannot repeat forever.
		err = c.takeUp(ctx, row, now.UnixMilli(), strings.HasPrefix(row.Life, c.process()))
	case giveUp:
		row.interrupted()
		row.Error = "max retries exceeded"
		c.close(row, FiberFailed, now.UnixMilli())
		err = c.putFiber(ctx, *row)
	case strand:
		row.Status, row.Updated = FiberInterrupted, now.UnixMilli()
		err = c.putFiber(ctx, *row)
	case bury:
		row.Dead, row.Updated = true, now.UnixMilli()
		err = c.putFiber(ctx, *row)
	case forget:
		_, err = fiberRows.Delete(ctx, c.store(), row.ID)
	case ask:
		asks = true
	case pause:
		c.fibers.waits = true
		row.Again = now.Add(hookDelay(row.Hooks-1, c.class.options.KeepAlive)).UnixMilli()
		err = c.putFiber(ctx, *row)
	case postpone:
		return false, nil
	}
	if err == nil {
		c.ended(row.ID)
		c.obj.Report(ctx, "fiber:interrupted", slog.String("fiber", row.ID), slog.String("name", row.Name), slog.String("outcome", v.String()),
			slog.Int("attempt", row.Attempt), slog.Duration("age", age))
	}
	return asks, err
}

// runsWakeup returns when the fibers need the alarm. While one is open that is the next heartbeat at the
// latest, and the start of the host.
func (c *core) runsWakeup(ctx context.Context, now time.Time, sure bool) (wakeup, error) {
	expires, err := c.firstExpiry(ctx)
	if err != nil || c.fibers.none {
		return expires, err
	}
	beat, more := wakeup{at: now.Add(c.class.options.KeepAlive), boot: true}, wakeup{at: c.fibers.moreAt}
	if c.fibers.taken && !c.fibers.waits {
		c.fibers.taken = false
		return earliest(expires, beat, more), nil
	}
	first, ok, err := c.firstRow(ctx, &dohost.Query[fiberRow]{Index: "open"})
	c.fibers.none = sure && err == nil && !ok
	if err != nil || !ok {
		return expires, err
	}
	if first.Again == 0 && c.fibers.waits {
		if first, _, err = c.firstRow(ctx, &dohost.Query[fiberRow]{Index: "open", Start: dohost.KeyOf(int64(1))}); err != nil {
			return wakeup{}, err
		}
	}
	again := timeOf(first.Again)
	if first.Again > 0 && !again.After(now) { // there was no room for it, or it is being started
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
	c.fibers.moreAt = time.Time{}
	if c.fibers.none {
		return nil
	}
	written, handed := 0, false
	err := c.eachLost(ctx, func(row *fiberRow) (bool, error) {
		v, hooking := c.judge(row, now), c.fibers.hooking[row.ID]
		c.fibers.waits = c.fibers.waits || row.Again > 0 // the constructor may not have reached it
		switch {
		case v == postpone, hooking && row.Again > now.UnixMilli():
			return true, nil
		case v == hand && !hooking:
			handed = true
			return true, nil
		}
		if written += len(row.Checkpoint); written > recoveryBatch {
			c.later() // the alarm's run is one batch
			return false, nil
		}
		if hooking {
			row.Again = now.Add(c.class.options.KeepAlive).UnixMilli()
			return c.orLater(ctx, row, c.putFiber(ctx, *row))
		}
		asks, err := c.dispose(ctx, row)
		if err == nil && asks {
			err = c.hookLater(ctx, row.ID)
		}
		return c.orLater(ctx, row, err)
	})
	if err == nil && handed {
		err = c.handLater(ctx)
	}
	return err
}

// expireAtOnce bounds the fibers that one batch deletes.
const expireAtOnce = 500

func (c *core) expire(ctx context.Context, now time.Time) error {
	if first := c.fibers.expiry; c.fibers.expiryRead && (first == 0 || first > now.UnixMilli()) {
		return nil
	}
	c.fibers.expiryRead = false
	rows, err := fiberRows.List(ctx, c.store(), &dohost.Query[fiberRow]{
		Index: "expires", End: dohost.KeyOf(now.UnixMilli()).PrefixEnd(), Limit: expireAtOnce,
	})
	for _, r := range rows {
		if err == nil {
			_, err = fiberRows.Delete(ctx, c.store(), r.Key)
		}
	}
	return err
}
