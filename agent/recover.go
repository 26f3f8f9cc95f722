package agent

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/dohost/dohost"
)

// recoveryBudget is how long the constructor goes on with the hooks of interrupted fibers before
// it leaves the rest to the alarm.
const recoveryBudget = 10 * time.Second

// Interrupted is a fiber that [RunFiber] ran in an incarnation that ended before the function
// did.
type Interrupted struct {
	ID      string
	Name    string
	Created time.Time // of the first of them, if it was resumed
	// Attempt is how often the hook was called before, and died or failed, or resumed the fiber
	// for nothing: since that has stashed something the last time.
	Attempt int

	c       *core
	row     *fiberRow
	resumed bool
}

// Snapshot decodes what the fiber has last stashed into v, and says whether there is anything.
func (i *Interrupted) Snapshot(v any) (bool, error) { return decode(i.row.Snapshot, v) }

// Resume has fn go on as a new fiber, with the name and the checkpoint of the interrupted one. It
// runs as a task of its own when the hook has returned. The successor comes and the interrupted
// fiber goes in one segment, so that an end at any instant leaves one of them. It may be called
// once.
func (i *Interrupted) Resume(ctx context.Context, fn func(context.Context) error) (id string, err error) {
	if i.resumed {
		return "", ErrFiberDone
	}
	c, now := i.c, time.Now().UnixMilli()
	next := fiberRow{
		ID: ulid.Make().String(), Name: i.Name, Life: c.life, Status: FiberRunning, Snapshot: i.row.Snapshot,
		Number: i.row.Number, Created: i.row.Created, Began: now, Updated: now,
		// Until it has stashed something it is as far as this one was.
		Hooks: i.row.Hooks, Lost: i.row.Lost,
	}
	err = dohost.Transaction(ctx, func(ctx context.Context) error {
		if err := fiberRows.Insert(ctx, c.store(), next); err != nil {
			return err
		}
		if existed, err := fiberRows.Delete(ctx, c.store(), i.ID); err != nil || !existed {
			return errors.Join(err, ErrFiberDone) // somebody has cancelled it
		}
		if err := c.obj.Go(ctx, "fiber "+i.Name, func(ctx context.Context) error {
			if err := c.there(ctx, next.ID); err != nil {
				return err
			}
			_, inner, end := c.enter(ctx, next.ID)
			defer end()
			err := fn(inner)
			return errors.Join(err, c.endRun(ctx, next.ID, err))
		}); err != nil {
			return err
		}
		return c.rearm(ctx)
	})
	i.resumed = err == nil
	return next.ID, err
}

// OnInterrupted is told of each fiber that [RunFiber] ran and that did not come to its end,
// oldest first. When it returns nil the fiber's row goes, in the segment of what the hook has
// written last. When it fails, or its incarnation ends, it is called again, after 30 s doubling to
// 5 min, at most five times and for at most a day; then the fiber is dead: see [DeadFibers]. The
// first call is in the constructor, where it has 10 s (its ctx ends then) before other events
// come; later ones are tasks of their own. Without an OnInterrupted such fibers are reported and
// dropped.
func OnInterrupted[O any](m func(*O, context.Context, *Interrupted) error) Entry[O] {
	return func(c *class) {
		c.once("OnInterrupted", m == nil, c.interrupted != nil)
		c.interrupted = func(self any, ctx context.Context, i *Interrupted) error { return m(self.(*O), ctx, i) }
	}
}

// recover goes on with interrupted fibers when the agent wakes.
func (c *core) recover(ctx context.Context) error {
	begun, written, found := time.Now(), 0, false
	err := c.eachLost(ctx, func(row *fiberRow) (bool, error) {
		found = true
		c.fibers.waits = c.fibers.waits || row.Again > 0
		if time.Since(begun) >= recoveryBudget {
			c.later()
			return false, nil
		}
		if written += len(row.Snapshot); written > recoverySegment {
			written = 0
			if err := c.store().Sync(ctx); err != nil {
				return false, err
			}
		}
		return c.orLater(ctx, row, c.recoverRow(ctx, row, begun.Add(recoveryBudget)))
	})
	if err != nil || !found {
		return err
	}
	return c.rearm(ctx)
}

const (
	// recoverySegment is about how many bytes of rows are written back in one segment.
	recoverySegment = 4 << 20
	lostPage        = 64 // rows that are read at a time
)

// orLater leaves a row for which there is no room, on the disk or among the tasks, to the alarm, and
// those after it.
func (c *core) orLater(ctx context.Context, row *fiberRow, err error) (more bool, _ error) {
	_, full := errors.AsType[*dohost.LimitError](err)
	switch {
	case err == nil:
		return true, nil
	case full, errors.Is(err, dohost.ErrNoSpace):
		c.report(ctx, "fiber:waiting", slog.String("fiber", row.ID), slog.Any("err", err))
	case !errors.Is(err, dohost.ErrOverloaded):
		return false, err
	}
	c.later()
	return false, nil
}

// later has the alarm go on with recovery in a second.
func (c *core) later() {
	if c.fibers.moreAt.IsZero() {
		c.fibers.moreAt = time.Now().Add(time.Second)
	}
}

// eachLost calls do with the rows that another incarnation has worked on, oldest first, until it
// returns false. do may give up the turn.
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

// recoverRow does what is to be done about a row in the constructor.
func (c *core) recoverRow(ctx context.Context, row *fiberRow, until time.Time) error {
	if row.Hooks > 0 && judge(row, c.knows(row), time.Now()) == ask {
		c.later() // the gate is not for one that has failed before
		return nil
	}
	asks, err := c.dispose(ctx, row)
	if err != nil || !asks {
		return err
	}
	ctx, cancel := context.WithDeadline(ctx, until)
	defer cancel()
	return c.askHook(ctx, row)
}

func (c *core) knows(row *fiberRow) bool {
	if row.Started {
		_, ok := c.class.kinds[row.Name]
		return ok
	}
	return c.class.interrupted != nil
}

// dispose does what is to be done about a row at once, and says whether the hook is to be asked
// besides.
func (c *core) dispose(ctx context.Context, row *fiberRow) (asks bool, err error) {
	now := time.Now()
	v, age := judge(row, c.knows(row), now), now.Sub(time.UnixMilli(row.Updated))
	switch v {
	case resume:
		row.Attempt++
		row.Life, row.Status, row.Began, row.Updated = c.life, FiberRunning, now.UnixMilli(), now.UnixMilli()
		err = dohost.Transaction(ctx, func(ctx context.Context) error {
			if err := fiberRows.Put(ctx, c.store(), *row); err != nil {
				return err
			}
			return c.launch(ctx, row)
		})
	case giveUp:
		row.Attempt++
		row.Error = "max retries exceeded"
		c.close(row, FiberFailed, now.UnixMilli())
		err = fiberRows.Put(ctx, c.store(), *row)
	case strand:
		row.Status, row.Updated = FiberInterrupted, now.UnixMilli()
		err = fiberRows.Put(ctx, c.store(), *row)
	case bury:
		row.Dead, row.Updated = true, now.UnixMilli()
		err = fiberRows.Put(ctx, c.store(), *row)
	case forget:
		_, err = fiberRows.Delete(ctx, c.store(), row.ID)
	case ask:
		asks = true
	case postpone:
		return false, nil
	}
	if err == nil {
		c.ended(row.ID)
		c.report(ctx, "fiber:interrupted", slog.String("fiber", row.ID), slog.String("name", row.Name), slog.String("outcome", v.String()),
			slog.Int("attempt", row.Attempt), slog.Duration("age", age))
	}
	return asks, err
}

// askHook counts a call of the hook, durably, and calls it.
func (c *core) askHook(ctx context.Context, row *fiberRow) error {
	now := time.Now()
	row.Hooks++
	if row.Lost == 0 {
		row.Lost = now.UnixMilli()
	}
	c.fibers.waits = true
	row.Again = now.Add(hookDelay(row.Hooks, c.class.options.KeepAlive)).UnixMilli()
	if err := fiberRows.Put(ctx, c.store(), *row); err != nil {
		return err
	}
	if err := c.rearm(ctx); err != nil {
		return err
	}
	if err := c.store().Sync(ctx); err != nil {
		return err
	}
	i := &Interrupted{
		ID: row.ID, Name: row.Name, Created: time.UnixMilli(row.Created), Attempt: row.Hooks - 1, c: c, row: row,
	}
	failed := c.class.interrupted(c.self, ctx, i)
	i.resumed = true // it is too late now
	return c.hookEnded(ctx, row, failed)
}

// hookEnded takes the row of a hook that has succeeded away, or notes that it has not.
func (c *core) hookEnded(ctx context.Context, row *fiberRow, failed error) error {
	outcome := "recovered"
	if failed == nil {
		if _, err := fiberRows.Delete(ctx, c.store(), row.ID); err != nil {
			return err
		}
	} else {
		_, err := fiberRows.Update(ctx, c.store(), row.ID, func(r *fiberRow) error {
			r.Error, r.Updated = text(failed), time.Now().UnixMilli()
			r.Dead = r.Hooks >= maxHooks
			*row = *r
			return nil
		})
		if errors.Is(err, dohost.ErrNoRow) {
			return nil // the hook has resumed it before it failed
		}
		if err != nil {
			return err
		}
		outcome = "hook failed"
		if row.Dead {
			outcome = bury.String()
		}
	}
	c.ended(row.ID)
	attrs := []slog.Attr{slog.String("fiber", row.ID), slog.String("name", row.Name), slog.String("outcome", outcome)}
	if failed != nil {
		attrs = append(attrs, slog.Any("err", failed))
	}
	c.report(ctx, "fiber:recovery", attrs...)
	return nil
}

// runsWakeup is when the agent has to look after its fibers. While one is open that is at the
// next heartbeat at the latest, and when the host starts.
func (c *core) runsWakeup(ctx context.Context, now time.Time) (wakeup, error) {
	expires, err := c.firstExpiry(ctx)
	if err != nil {
		return wakeup{}, err
	}
	first, ok, err := c.firstRow(ctx, &dohost.Query[fiberRow]{Index: "open"})
	if err != nil || !ok {
		return expires, err
	}
	beat := wakeup{at: now.Add(c.class.options.KeepAlive), boot: true}
	more := wakeup{at: c.fibers.moreAt}
	if first.Again == 0 && c.fibers.waits {
		if first, _, err = c.firstRow(ctx, &dohost.Query[fiberRow]{Index: "open", Start: dohost.KeyOf(int64(1))}); err != nil {
			return wakeup{}, err
		}
	}
	again := timeOf(first.Again)
	if first.Again > 0 && !again.After(now) { // there was no room for it, or it is on its way
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

// firstExpiry is when the first ended fiber is forgotten. It is read once in an incarnation, and
// then kept up by whoever ends one: if it is too early, the alarm reads it anew.
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

// recoverDue goes on with interrupted fibers whose time has come, each in a task of its own, and
// forgets ended ones.
func (c *core) recoverDue(ctx context.Context, now time.Time) error {
	if err := c.expire(ctx, now); err != nil {
		return err
	}
	c.fibers.moreAt = time.Time{}
	written := 0
	return c.eachLost(ctx, func(row *fiberRow) (bool, error) {
		if written += len(row.Snapshot); written > recoverySegment {
			c.later() // this is one segment
			return false, nil
		}
		if c.fibers.hooking[row.ID] {
			if row.Again > now.UnixMilli() {
				return true, nil
			}
			row.Again = now.Add(c.class.options.KeepAlive).UnixMilli()
			return c.orLater(ctx, row, fiberRows.Put(ctx, c.store(), *row))
		}
		asks, err := c.dispose(ctx, row)
		if err == nil && asks {
			err = c.hookLater(ctx, row.ID)
		}
		return c.orLater(ctx, row, err)
	})
}

// hookLater has a task ask the hook about a row.
func (c *core) hookLater(ctx context.Context, id string) error {
	err := c.obj.Go(ctx, "recovery", func(ctx context.Context) error {
		defer delete(c.fibers.hooking, id)
		row, ok, err := fiberRows.Get(ctx, c.store(), id)
		if err != nil || !ok || !row.Value.open() {
			return err
		}
		_, err = c.orLater(ctx, &row.Value, c.askHook(ctx, &row.Value))
		return errors.Join(err, c.rearm(ctx))
	})
	if err == nil {
		if c.fibers.hooking == nil {
			c.fibers.hooking = map[string]bool{}
		}
		c.fibers.hooking[id] = true
	}
	return err
}

// expireAtOnce is how many ended fibers are forgotten in one segment.
const expireAtOnce = 500

func (c *core) expire(ctx context.Context, now time.Time) error {
	if first := c.fibers.expiry; c.fibers.expiryRead && (first == 0 || first > now.UnixMilli()) {
		return nil
	}
	c.fibers.expiryRead = false
	rows, err := fiberRows.List(ctx, c.store(), &dohost.Query[fiberRow]{
		Index: "expires", End: dohost.KeyOf(now.UnixMilli()).Past(), Limit: expireAtOnce,
	})
	for _, r := range rows {
		if err == nil {
			_, err = fiberRows.Delete(ctx, c.store(), r.Key)
		}
	}
	return err
}
