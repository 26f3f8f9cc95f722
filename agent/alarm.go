package agent

import (
	"context"
	"errors"
	"time"

	"github.com/dohost/dohost"
)

// wakeup is the time of an agent's next work without an event. The zero wakeup means never.
type wakeup struct {
	at time.Time
	// atStart requests an alarm when the host starts as well, for work that the host's end interrupts.
	atStart bool
}

// earliest merges wakeups into one alarm.
func earliest(all ...wakeup) (first wakeup) {
	for _, w := range all {
		if w.at.IsZero() {
			continue
		}
		if first.at.IsZero() || w.at.Before(first.at) {
			first.at = w.at
		}
		first.atStart = first.atStart || w.atStart
	}
	return first
}

// nextWakeup returns the time of the agent's next work, for the current rows and the heartbeat.
func (c *core) nextWakeup(ctx context.Context, now time.Time, sure bool) (wakeup, error) {
	if c.rows.plan.destroying { // no other work begins
		return wakeup{at: now.Add(c.class.options.KeepAlive), atStart: true}, nil
	}
	jobs, err := c.jobs.wakeup(ctx, now)
	if err != nil {
		return wakeup{}, err
	}
	fibers, err := c.fibers.wakeup(ctx, now, sure)
	if err != nil {
		return wakeup{}, err
	}
	rows, err := c.rowWork.wakeup(ctx, now)
	if err != nil {
		return wakeup{}, err
	}
	next := earliest(jobs, fibers, rows, c.heartbeat(now))
	if full := c.fibers.fullUntil; !next.at.IsZero() && next.at.Before(full) { // otherwise due rows would set it to the past, for ever
		next.at = full
	}
	return next, nil
}

// onAlarm is the alarm's handler. If its last run fails, the alarm is parked, and onAlarm also ends
// the incarnation: when the next event wakes the agent, the new incarnation sets the alarm for
// its rows. Otherwise an agent that stays in memory would have no alarm until an operator acts.
func (c *core) onAlarm(ctx context.Context, info dohost.AlarmInfo) error {
	err := c.startDue(ctx)
	if err == nil || errors.Is(err, dohost.ErrNoSpace) || info.Attempt+1 < dohost.AlarmRuns {
		return err
	}
	return c.obj.Abort(ctx, err, nil)
}

// startDue starts due work as separate tasks and returns. All its writes are one batch, which also sets the
// alarm again. So no long work runs in the alarm's handler, and a crash repeats all of it or nothing.
func (c *core) startDue(ctx context.Context) error {
	now := time.Now()
	return c.rows.batch(ctx, true, func(ctx context.Context) error { // no other code has held this turn
		if c.rows.plan.destroying {
			_, err := c.startTask(ctx, "destroy", now, c.destroy)
			return err
		}
		if err := c.recovery.recoverDue(ctx, now); err != nil {
			return err
		}
		if err := c.jobs.start(ctx, now); err != nil {
			return err
		}
		return c.rowWork.start(ctx, now)
	})
}
