package agent

import (
	"context"
	"log/slog"
	"time"
)

// queueWakeup returns when the queue needs the alarm.
func (c *core) queueWakeup(ctx context.Context, now time.Time) (wakeup, error) {
	head, ok, err := c.head(ctx)
	switch {
	case err != nil || !ok:
		return wakeup{}, err
	case head.Run.Incarnation == c.incarnation:
		return wakeup{now.Add(recheck), true}, nil
	case head.Run.Incarnation != "":
		at, err := c.restartTime(ctx, now)
		return wakeup{at, true}, err
	}
	return wakeup{c.earliestStart(now), true}, nil
}

// startQueue starts the head of the queue, unless it is running or a suspect.
func (c *core) startQueue(ctx context.Context, now time.Time) error {
	for {
		it, ok, err := c.head(ctx)
		if err != nil || !ok || it.Run.Incarnation == c.incarnation {
			return err
		}
		switch {
		case it.Gone:
			if err := c.deleteItem(ctx, it); err != nil {
				return err
			}
		case it.Run.exhausted(c.incarnation, c.class.options.MaxInterruptions):
			depth, err := c.addDeadLetter(ctx, it, now, errInterrupted)
			if err != nil {
				return err
			}
			c.reportDeadLetter(ctx, it, errInterrupted, depth)
		case it.Run.crashLoopSuspect(c.incarnation):
			return nil // startCrashLoopSuspect starts it
		default:
			return c.startItem(ctx, it, now)
		}
	}
}

func (c *core) startItem(ctx context.Context, it item, now time.Time) error {
	it.Run = c.nextRun(it.Run, now)
	begun, err := c.begin(ctx, "queue "+it.Callback, now, func(ctx context.Context) error {
		return c.runItem(ctx, it.ID, it.Run.Number)
	})
	if err != nil || !begun {
		return err
	}
	return queue.Put(ctx, c.store(), it)
}

// runItem runs an item, and starts the next.
func (c *core) runItem(ctx context.Context, id string, number uint64) error {
	row, ok, err := queue.Get(ctx, c.store(), id)
	if err != nil || !ok || !row.Value.Run.is(c.incarnation, number) {
		return err
	}
	it := row.Value
	lag := time.Since(it.Enqueued)
	var failed error
	if !it.Gone {
		failed = c.attempt(ctx, it.Callback, it.Payload, it.Retry, func(ctx context.Context) bool {
			now, ok, err := queue.Get(ctx, c.store(), id)
			return err == nil && ok && now.Value.outcome(it, nil) == itemDone
		})
	}
	if ctx.Err() != nil {
		return failed
	}
	var outcome itemOutcome
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
		outcome = itemSuperseded
		if ok {
			outcome = row.Value.outcome(it, failed)
		}
		if depth, err = c.endItem(ctx, row.Value, outcome, now, failed); err != nil {
			return err
		}
		return c.advanceQueue(ctx, now)
	})
	switch {
	case err != nil:
	case outcome == itemDone:
		c.obj.Report(ctx, "queue:run", slog.String("callback", it.Callback), slog.String("id", id), slog.Duration("lag", lag),
			slog.Int("behind", waiting))
	case outcome == itemDead:
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

// itemOutcome is the new state of an item after a run.
type itemOutcome int

const (
	itemSuperseded itemOutcome = iota // the row belongs to a newer run, or is gone
	itemCancelled                     // it was removed during the run
	itemReplaced                      // it has another payload, which must run
	itemDone
	itemDead
)

// outcome returns the new state of the current row after a run of was.
func (it item) outcome(was item, failed error) itemOutcome {
	switch {
	case !it.Run.is(was.Run.Incarnation, was.Run.Number):
		return itemSuperseded
	case it.Gone:
		return itemCancelled
	case it.Version != was.Version:
		return itemReplaced
	case failed != nil:
		return itemDead
	}
	return itemDone
}

// endItem writes the end of an item. For a dead letter it returns the number of dead letters.
func (c *core) endItem(ctx context.Context, it item, f itemOutcome, now time.Time, failed error) (depth int, err error) {
	switch f {
	case itemCancelled, itemDone:
		return 0, c.deleteItem(ctx, it)
	case itemReplaced:
		it.Run = run{}
		return 0, queue.Put(ctx, c.store(), it)
	case itemDead:
		return c.addDeadLetter(ctx, it, now, failed)
	}
	return 0, nil
}
