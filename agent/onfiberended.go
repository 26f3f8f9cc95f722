package agent

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/dohost/dohost/internal/work"
)

// reportEnd reports the end of a fiber in this task, and calls OnFiberEnded if the row asks for it.
func (c *core) reportEnd(ctx context.Context, row *fiberRow, failed error) error {
	c.wakeWaiters(row.ID)
	attrs := []slog.Attr{slog.String("fiber", row.ID), slog.String("kind", row.Name), slog.String("status", string(row.status())),
		slog.Int("attempt", row.Attempt)}
	if failed != nil {
		attrs = append(attrs, slog.Any("err", failed))
	}
	c.obj.Report(ctx, "fiber:ended", attrs...)
	if row.State != work.Notifying || c.fibers.hookRunning[row.ID] { // a hook still has the row from before a restart: the alarm retries
		return nil
	}
	defer c.markHookRunning(row.ID)()
	_, err := c.deferIfFull(ctx, row, c.notify(ctx, row))
	return errors.Join(err, c.rearm(ctx)) // recovery may have been deferred
}

// notify calls OnFiberEnded for a row.
func (c *core) notify(ctx context.Context, row *fiberRow) error {
	failed, err := c.runHook(ctx, []*fiberRow{row}, time.Time{}, func(ctx context.Context) error {
		return c.class.ended(c.self, ctx, infoOf(row))
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
		c.reportNotify(ctx, row, "hook failed", failed)
		return nil // the row already has the time of the next call
	}
	changed, err := c.updateAfterHook(ctx, row, work.Event{Kind: work.HookReturned, Failed: failed != nil}, func(*fiberRow) {})
	if err == nil && !changed {
		c.reportNotify(ctx, row, outcome, failed)
	}
	return err
}

func (c *core) reportNotify(ctx context.Context, row *fiberRow, outcome string, failed error) {
	attrs := []slog.Attr{slog.String("fiber", row.ID), slog.String("kind", row.Name), slog.String("outcome", outcome)}
	if failed != nil {
		attrs = append(attrs, slog.Any("err", failed))
	}
	c.obj.Report(ctx, "fiber:notified", attrs...)
}
