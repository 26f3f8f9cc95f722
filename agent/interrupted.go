package agent

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/dohost/dohost"
)

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
		if err := c.insertFiber(ctx, next); err != nil {
			return err
		}
		if existed, err := fiberRows.Delete(ctx, c.store(), i.ID); err != nil || !existed {
			return errors.Join(err, ErrFiberDone) // somebody has cancelled it
		}
		if err := c.obj.Go(ctx, "fiber "+i.Name, func(ctx context.Context) error {
			if err := c.there(ctx, next.ID); err != nil {
				return err
			}
			_, inner, end := c.enter(ctx, next.ID, 0)
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
// written last, or in the next if that is full. When it fails, or its incarnation ends, it is
// called again, after 30 s doubling to 5 min, at most five times and for at most a day; then the
// fiber is dead: see [DeadFibers]. The first call is in the constructor, where it has 10 s (its ctx
// ends then) before other events come; later ones are tasks of their own. Without an OnInterrupted
// such fibers are reported and dropped.
func OnInterrupted[O any](m func(*O, context.Context, *Interrupted) error) Entry[O] {
	return func(c *class) {
		c.once("OnInterrupted", m == nil, c.interrupted != nil)
		c.interrupted = func(self any, ctx context.Context, i *Interrupted) error { return m(self.(*O), ctx, i) }
	}
}

// askHook calls OnInterrupted about a row. In the constructor it has until then, else as long as it
// takes.
func (c *core) askHook(ctx context.Context, row *fiberRow, until time.Time) error {
	i := &Interrupted{ID: row.ID, Name: row.Name, Created: time.UnixMilli(row.Created), Attempt: row.Hooks, c: c, row: row}
	failed, err := c.hook(ctx, []*fiberRow{row}, until, func(ctx context.Context) error {
		return c.class.interrupted(c.self, ctx, i)
	})
	i.resumed = true // it is too late now
	if err != nil {
		return err
	}
	outcome := "recovered"
	if failed == nil {
		if err := c.remove(ctx, row.ID); err != nil {
			return err
		}
	} else if outcome, err = c.hookFailed(ctx, row, failed); err != nil || outcome == "" {
		return err // or the hook has resumed it before it failed
	}
	c.recovered(ctx, row, outcome, failed)
	return nil
}

// recovered tells what has become of a row that a hook of recovery had.
func (c *core) recovered(ctx context.Context, row *fiberRow, outcome string, failed error) {
	c.ended(row.ID)
	attrs := []slog.Attr{slog.String("fiber", row.ID), slog.String("name", row.Name), slog.String("outcome", outcome)}
	if failed != nil {
		attrs = append(attrs, slog.Any("err", failed))
	}
	c.report(ctx, "fiber:recovery", attrs...)
}
