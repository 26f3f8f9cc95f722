package agent

import (
	"context"
	"errors"
	"log/slog"
	"time"
)

// OnFiberEnded is told of each fiber of [StartFiber] that has completed, or has failed, however it
// came to that: by its method, in recovery, or by [ResolveFiber]. FiberInfo says which, with the
// result or the error and the last checkpoint. It is told of failures since nobody else is there to
// hear of them. It is not told of a fiber that was cancelled, which whoever has cancelled it knows,
// nor of an end after which the fiber is restarted before.
//
// It is called, in a task, once it is durable how the fiber has ended, and at least once: that it
// was told is one segment with what it has written last. Until then the fiber can be neither
// deleted nor forgotten. When it fails, or its incarnation ends, it is called again, after 30 s
// doubling to 5 min, at most five times and for at most a day; then it is not told any more, which
// is reported as "fiber:told", and the fiber stays as it has ended. It may restart the fiber, with
// [RestartFiber].
//
// On a disk that is full the row of a fiber that has ended comes back when there is room; if the
// incarnation ends before, nobody is told.
func OnFiberEnded[O any](m func(*O, context.Context, FiberInfo) error) Entry[O] {
	return func(c *class) {
		c.once("OnFiberEnded", m == nil, c.ended != nil)
		c.ended = func(self any, ctx context.Context, info FiberInfo) error { return m(self.(*O), ctx, info) }
	}
}

// told tells of a fiber that has ended in this task.
func (c *core) told(ctx context.Context, row *fiberRow, failed error) error {
	c.ended(row.ID)
	attrs := []slog.Attr{slog.String("fiber", row.ID), slog.String("kind", row.Name), slog.String("status", string(row.Status)),
		slog.Int("attempt", row.Attempt)}
	if failed != nil {
		attrs = append(attrs, slog.Any("err", failed))
	}
	c.report(ctx, "fiber:ended", attrs...)
	if !row.Tell || c.fibers.hooking[row.ID] { // the hook still has what was restarted: the alarm sees to it
		return c.rearm(ctx)
	}
	defer c.hooked(row.ID)()
	_, err := c.orLater(ctx, row, c.tell(ctx, row))
	return errors.Join(err, c.rearm(ctx))
}

// tell calls OnFiberEnded about a row.
func (c *core) tell(ctx context.Context, row *fiberRow) error {
	failed, err := c.hook(ctx, []*fiberRow{row}, time.Time{}, func(ctx context.Context) error {
		return c.class.ended(c.self, ctx, infoOf(row))
	})
	if err != nil {
		return err
	}
	outcome := "told"
	switch {
	case failed == nil:
	case row.Hooks >= maxHooks:
		outcome = untold.String()
	default:
		c.tellReport(ctx, row, "hook failed", failed)
		return nil // the row says already when it is called again
	}
	moved, err := c.after(ctx, row, func(r *fiberRow, now int64) error {
		if !r.Tell || r.Restarts != row.Restarts {
			return errMoved
		}
		c.keep(r, now)
		return nil
	})
	if err == nil && !moved {
		c.tellReport(ctx, row, outcome, failed)
	}
	return err
}

func (c *core) tellReport(ctx context.Context, row *fiberRow, outcome string, failed error) {
	attrs := []slog.Attr{slog.String("fiber", row.ID), slog.String("kind", row.Name), slog.String("outcome", outcome)}
	if failed != nil {
		attrs = append(attrs, slog.Any("err", failed))
	}
	c.report(ctx, "fiber:told", attrs...)
}
