package agent

import (
	"context"
	"log/slog"
	"time"

	"github.com/dohost/dohost/internal/work"
)

// ended calls OnFiberEnded for a fiber that has ended in this task, if the row asks for it.
func (rc *recovery) ended(ctx context.Context, row *fiberRow) error {
	if row.State != work.Notifying || rc.hookRunning[row.ID] { // a hook still has the row from before a restart: the alarm retries
		return nil
	}
	defer rc.markHookRunning(row.ID)()
	_, err := rc.deferIfFull(ctx, row, rc.notify(ctx, row))
	return err
}

// notify calls OnFiberEnded for a row.
func (rc *recovery) notify(ctx context.Context, row *fiberRow) error {
	failed, err := rc.runHook(ctx, []*fiberRow{row}, time.Time{}, func(ctx context.Context) error {
		return rc.class.ended(rc.self, fixedPosition(row.work()+"/end", row.Saved).Context(ctx), infoOf(row))
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
		rc.reportNotify(ctx, row, "hook failed", failed)
		return nil // the row already has the time of the next call
	}
	changed, err := rc.updateAfterHook(ctx, row, work.Event{Kind: work.HookReturned, Failed: failed != nil}, func(*fiberRow) {})
	if err == nil && !changed {
		rc.reportNotify(ctx, row, outcome, failed)
	}
	return err
}

func (rc *recovery) reportNotify(ctx context.Context, row *fiberRow, outcome string, failed error) {
	rc.report(ctx, "fiber:notified", failed, slog.String("fiber", row.ID), slog.String("kind", row.Name), slog.String("outcome", outcome))
}
