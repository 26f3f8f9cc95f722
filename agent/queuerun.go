package agent

import (
	"context"
	"log/slog"
	"time"

	"github.com/dohost/dohost/internal/work"
)

// queueWakeup returns when the queue needs the alarm.
func (c *core) queueWakeup(ctx context.Context, now time.Time) (wakeup, error) {
	head, ok, err := c.head(ctx)
	switch {
	case err != nil || !ok:
		return wakeup{}, err
	case head.Owner == c.incarnation:
		return wakeup{now.Add(recheck), true}, nil
	case head.Owner != "":
		at, err := c.restartTime(ctx, now)
		return wakeup{at, true}, err
	}
	return wakeup{c.earliestStart(now), true}, nil
}

// startQueue starts the head of the queue, unless it is running or a suspect.
func (c *core) startQueue(ctx context.Context, now time.Time) error {
	for {
		it, ok, err := c.head(ctx)
		if err != nil || !ok || it.Owner == c.incarnation {
			return err
		}
		next, eff, err := c.stepItem(it.ID, it.Item, work.Event{Kind: work.Due}, c.queuePolicy(), now)
		switch {
		case err != nil:
			return err
		case eff == work.Delete:
			if err := c.removeItem(ctx, it); err != nil {
				return err
			}
		case next.State == work.Dead:
			depth, err := c.addDeadLetter(ctx, it, now, errInterrupted)
			if err != nil {
				return err
			}
			c.reportDeadLetter(ctx, it, errInterrupted, depth)
		case eff == work.Wait:
			return nil // startCrashLoopSuspect starts it
		default:
			it.Item = next
			return c.startItem(ctx, it, now)
		}
	}
}

// startItem starts a run, if a task is free. A task that does not find its run in the row does nothing.
func (c *core) startItem(ctx context.Context, it item, now time.Time) error {
	begun, err := c.begin(ctx, "queue "+it.Callback, now, func(ctx context.Context) error {
		return c.runItem(ctx, it.ID, it.Run)
	})
	if err != nil || !begun {
		return err
	}
	return c.putItem(ctx, it)
}

// runItem runs an item, and starts the next.
func (c *core) runItem(ctx context.Context, id string, number uint64) error {
	row, ok, err := queue.Get(ctx, c.store(), id)
	it := row.Value
	if err != nil || !ok || it.Owner != c.incarnation || it.Run != number {
		return err
	}
	lag := time.Since(it.Enqueued)
	var failed error
	if it.State == work.Running { // else it was cancelled or replaced before it began
		failed = c.attempt(ctx, it.Callback, it.Payload, it.Retry, func(ctx context.Context) bool {
			now, ok, err := queue.Get(ctx, c.store(), id)
			return err == nil && ok && now.Value.Item == it.Item
		})
	}
	if ctx.Err() != nil {
		return failed
	}
	var next work.Item
	var eff work.Effect
	var depth, waiting int
	err = c.recordRun(ctx, func(ctx context.Context) error {
		now := time.Now()
		if waiting, err = c.itemsAfter(ctx, it.Place); err != nil {
			return err
		}
		row, ok, err := queue.Get(ctx, c.store(), id)
		if err != nil {
			return err
		}
		eff = work.Refused
		if ok {
			ev := work.Event{Kind: work.Returned, Run: number, Failed: failed != nil, Final: true}
			if next, eff, err = c.stepItem(id, row.Value.Item, ev, c.queuePolicy(), now); err != nil {
				return err
			}
		}
		switch {
		case eff == work.Refused:
		case next.State == work.Waiting: // it was replaced
			row.Value.Item = next
			err = c.putItem(ctx, row.Value)
		case next.Outcome == work.Failed:
			depth, err = c.addDeadLetter(ctx, row.Value, now, failed)
		default:
			err = c.removeItem(ctx, row.Value)
		}
		if err != nil {
			return err
		}
		return c.startQueue(ctx, now)
	})
	switch {
	case err != nil || eff != work.None:
	case next.Outcome == work.Completed:
		c.obj.Report(ctx, "queue:run", slog.String("callback", it.Callback), slog.String("id", id), slog.Duration("lag", lag),
			slog.Int("behind", waiting))
	case next.Outcome == work.Failed:
		c.reportDeadLetter(ctx, it, failed, depth)
	}
	return err
}

// itemsAfter returns an upper bound of the number of items after a place in the queue; it counts removed ones too.
func (c *core) itemsAfter(ctx context.Context, place uint64) (int, error) {
	last, err := c.lastPlace(ctx)
	return int(max(last, place) - place), err
}

func (c *core) reportDeadLetter(ctx context.Context, it item, err error, depth int) {
	c.obj.Report(ctx, "queue:dead", slog.String("callback", it.Callback), slog.String("id", it.ID),
		slog.Any("err", err), slog.Int("depth", depth))
}
