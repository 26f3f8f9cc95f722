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
	case head.Run.Life == c.life:
		return wakeup{now.Add(recheck), true}, nil
	case head.Run.Life != "":
		at, err := c.afterLost(ctx, now)
		return wakeup{at, true}, err
	}
	return wakeup{c.soon(now), true}, nil
}

// startQueue starts the head of the queue, unless it is running or a suspect.
func (c *core) startQueue(ctx context.Context, now time.Time) error {
	for {
		it, ok, err := c.head(ctx)
		if err != nil || !ok || it.Run.Life == c.life {
			return err
		}
		switch {
		case it.Gone:
			if err := c.dropItem(ctx, it); err != nil {
				return err
			}
		case it.Run.hopeless(c.life, c.class.options.MaxInterruptions):
			depth, err := c.bury(ctx, it, now, errCutOff)
			if err != nil {
				return err
			}
			c.itemDied(ctx, it, errCutOff, depth)
		case it.Run.suspect(c.life):
			return nil // startSuspect starts it
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
	if err != nil || !ok || !row.Value.Run.is(c.life, number) {
		return err
	}
	it := row.Value
	lag := time.Since(it.Enqueued)
	var failed error
	if !it.Gone {
		failed = c.attempt(ctx, it.Callback, it.Payload, it.Retry, func(ctx context.Context) bool {
			now, ok, err := queue.Get(ctx, c.store(), id)
			return err == nil && ok && now.Value.fate(it, nil) == itemDone
		})
	}
	if ctx.Err() != nil {
		return failed
	}
	var was fate
	var depth, behind int
	err = c.conclude(ctx, func(ctx context.Context) error {
		now := time.Now()
		if behind, err = c.behind(ctx, it.Place); err != nil {
			return err
		}
		row, ok, err := queue.Get(ctx, c.store(), id)
		if err != nil {
			return err
		}
		was = itemLost
		if ok {
			was = row.Value.fate(it, failed)
		}
		if depth, err = c.endItem(ctx, row.Value, was, now, failed); err != nil {
			return err
		}
		return c.goOn(ctx, now)
	})
	switch {
	case err != nil:
	case was == itemDone:
		c.obj.Report(ctx, "queue:run", slog.String("callback", it.Callback), slog.String("id", id), slog.Duration("lag", lag),
			slog.Int("behind", behind))
	case was == itemDead:
		c.itemDied(ctx, it, failed, depth)
	}
	return err
}

// behind returns an upper bound of the number of items after a place in the queue; it counts removed ones too.
func (c *core) behind(ctx context.Context, place uint64) (int, error) {
	last, err := c.last(ctx)
	return int(max(last, place) - place), err
}

func (c *core) itemDied(ctx context.Context, it item, err error, depth int) {
	c.obj.Report(ctx, "queue:dead", slog.String("callback", it.Callback), slog.String("id", it.ID),
		slog.Any("err", err), slog.Int("depth", depth))
}

// fate is the new state of an item after a run.
type fate int

const (
	itemLost  fate = iota // the row belongs to a newer run, or is gone
	itemGone              // it was removed during the run
	itemAgain             // it has another payload, which must run
	itemDone
	itemDead
)

// fate returns the new state of the current row after a run of was.
func (it item) fate(was item, failed error) fate {
	switch {
	case !it.Run.is(was.Run.Life, was.Run.Number):
		return itemLost
	case it.Gone:
		return itemGone
	case it.Version != was.Version:
		return itemAgain
	case failed != nil:
		return itemDead
	}
	return itemDone
}

// endItem writes an item's fate. For a dead letter it returns the number of dead letters.
func (c *core) endItem(ctx context.Context, it item, f fate, now time.Time, failed error) (depth int, err error) {
	switch f {
	case itemGone, itemDone:
		return 0, c.dropItem(ctx, it)
	case itemAgain:
		it.Run = run{}
		return 0, queue.Put(ctx, c.store(), it)
	case itemDead:
		return c.bury(ctx, it, now, failed)
	}
	return 0, nil
}
