package agent

import (
	"context"
	"errors"
	"log/slog"
	"time"
)

// OnFiberEnded is called for each fiber of [StartFiber] that has completed or failed: in its method, in
// recovery, or by [Fibers.SetStatus]. FiberInfo has the status, the result or the error, and the last checkpoint.
// It is called for failures too, since no caller waits for them. It is not called for a cancelled fiber, since
// the caller of [Fibers.Cancel] knows, nor for an end after which the fiber was restarted before the call.
//
// It is called in a task, once the fiber's end is durable, and at least once: the record of the call is one
// batch with the hook's last writes. Until then the fiber can be neither deleted nor expired. If it fails, or
// its incarnation ends, it is called again, after 30 s doubling to 5 min, at most five times and for at most a
// day. After that the agent gives up and reports "fiber:told" with the outcome "not told"; the fiber keeps its
// status. The hook may restart the fiber with [Fibers.Restart].
//
// If the disk is full, the row of an ended fiber is deleted and written again when there is space. If the
// incarnation ends before that, the hook is not called.
func OnFiberEnded[O any](m func(*O, context.Context, FiberInfo) error) Entry[O] {
	return func(c *class) {
		c.once("OnFiberEnded", m == nil, c.ended != nil)
		c.ended = func(self any, ctx context.Context, info FiberInfo) error { return m(self.(*O), ctx, info) }
	}
}

// told reports the end of a fiber in this task, and calls OnFiberEnded if the row asks for it.
func (c *core) told(ctx context.Context, row *fiberRow, failed error) error {
	c.ended(row.ID)
	attrs := []slog.Attr{slog.String("fiber", row.ID), slog.String("kind", row.Name), slog.String("status", string(row.Status)),
		slog.Int("attempt", row.Attempt)}
	if failed != nil {
		attrs = append(attrs, slog.Any("err", failed))
	}
	c.obj.Report(ctx, "fiber:ended", attrs...)
	if !row.Tell || c.fibers.hooking[row.ID] { // a hook still has the row from before a restart: the alarm retries
		return c.rearm(ctx)
	}
	defer c.hooked(row.ID)()
	_, err := c.orLater(ctx, row, c.tell(ctx, row))
	return errors.Join(err, c.rearm(ctx))
}

// tell calls OnFiberEnded for a row.
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
		return nil // the row already has the time of the next call
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
	c.obj.Report(ctx, "fiber:told", attrs...)
}
