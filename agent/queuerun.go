package agent

import (
	"context"
	"log/slog"
	"time"

	"github.com/dohost/dohost/internal/work"
)

// queueWakeup returns when the queue needs the alarm.
func (js *jobs) queueWakeup(ctx context.Context, now time.Time) (wakeup, error) {
	head, ok, err := js.head(ctx)
	switch {
	case err != nil || !ok:
		return wakeup{}, err
	case head.Owner == js.owner:
		return wakeup{now.Add(recheck), true}, nil
	case head.Owner != "":
		at, err := js.restartTime(ctx, now)
		return wakeup{at, true}, err
	}
	return wakeup{js.earliestStart(now), true}, nil
}

// startQueue starts the head of the queue, unless it is running or a suspect.
func (js *jobs) startQueue(ctx context.Context, now time.Time) error {
	for {
		it, ok, err := js.head(ctx)
		if err != nil || !ok || it.Owner == js.owner {
			return err
		}
		next, eff, err := js.step(it.ID, it.Item, work.Event{Kind: work.Due}, js.queuePolicy(), now)
		switch {
		case err != nil:
			return err
		case eff == work.Delete:
			if err := js.removeItem(ctx, it); err != nil {
				return err
			}
		case next.State == work.Dead:
			depth, err := js.addDeadLetter(ctx, it, now, errInterrupted)
			if err != nil {
				return err
			}
			js.reportDeadLetter(ctx, it, errInterrupted, depth)
		case eff == work.Wait:
			return nil // startCrashLoopSuspect starts it
		default:
			it.Item = next
			return js.startItem(ctx, it, now)
		}
	}
}

// startItem starts a run, if a task is free. A task that does not find its run in the row does nothing.
func (js *jobs) startItem(ctx context.Context, it item, now time.Time) error {
	id, run := it.ID, it.Run
	begun, err := js.startTask(ctx, "queue "+it.Callback, now, func(ctx context.Context) error { return js.runItem(ctx, id, run) })
	if err != nil || !begun {
		return err
	}
	return put(ctx, js.rows, &queue, &it)
}

// runItem runs an item, and starts the next.
func (js *jobs) runItem(ctx context.Context, id string, number uint64) error {
	it, ok, err := get(ctx, js.rows, &queue, id)
	if err != nil || !ok || it.Owner != js.owner || it.Run != number {
		return err
	}
	lag := time.Since(it.Enqueued)
	var failed error
	if it.State == work.Running { // else it was cancelled or replaced before it began
		failed = js.attempt(ctx, it.Callback, it.Payload, it.Retry, it.position, func(ctx context.Context) bool {
			now, ok, err := get(ctx, js.rows, &queue, id)
			return err == nil && ok && now.Item == it.Item
		})
	}
	if ctx.Err() != nil {
		return failed
	}
	var next work.Item
	var eff work.Effect
	var depth, waiting int
	err = js.rows.record(ctx, "schedule", func(ctx context.Context) error {
		now := time.Now()
		last, err := js.lastPlace(ctx)
		if err != nil {
			return err
		}
		waiting = int(max(last, it.Place) - it.Place) // an upper bound: it counts removed items too
		current, ok, err := get(ctx, js.rows, &queue, id)
		if err != nil {
			return err
		}
		eff = work.Refused
		if ok {
			ev := work.Event{Kind: work.Returned, Run: number, Failed: failed != nil, Final: true}
			if next, eff, err = js.step(id, current.Item, ev, js.queuePolicy(), now); err != nil {
				return err
			}
		}
		switch {
		case eff == work.Refused:
		case next.State == work.Waiting: // it was replaced
			current.Item = next
			err = put(ctx, js.rows, &queue, &current)
		case next.Outcome == work.Failed:
			depth, err = js.addDeadLetter(ctx, current, now, failed)
		default:
			err = js.removeItem(ctx, current)
		}
		if err != nil {
			return err
		}
		return js.startQueue(ctx, now)
	})
	switch {
	case err != nil || eff != work.None:
	case next.Outcome == work.Completed:
		js.obj.Report(ctx, "queue:run", slog.String("callback", it.Callback), slog.String("id", id), slog.Duration("lag", lag),
			slog.Int("waiting", waiting))
	case next.Outcome == work.Failed:
		js.reportDeadLetter(ctx, it, failed, depth)
	}
	return err
}

func (js *jobs) reportDeadLetter(ctx context.Context, it item, err error, depth int) {
	js.obj.Report(ctx, "queue:dead", slog.String("callback", it.Callback), slog.String("id", it.ID),
		slog.Any("err", err), slog.Int("depth", depth))
}
