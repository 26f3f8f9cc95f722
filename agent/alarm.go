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

// rearm sets the alarm for the current rows and the heartbeat. An update of rows does that itself.
func (c *core) rearm(ctx context.Context) error { return c.arm(ctx, false) }

// arm is rearm. With sure, arm records that there is no open fiber, and the incarnation reads none until it
// writes one. Then no open Transaction may have deleted rows that a rollback restores: the caller needs a
// Transaction of its own, which is refused while another is open, or a turn that no other code has held.
func (c *core) arm(ctx context.Context, sure bool) error {
	now := time.Now()
	jobs, err := c.jobsWakeup(ctx, now)
	if err != nil {
		return err
	}
	runs, err := c.fibersWakeup(ctx, now, sure)
	if err != nil {
		return err
	}
	next := earliest(jobs, runs, c.heartbeat(now))
	if c.destroying {
		next = earliest(next, wakeup{at: now.Add(c.class.options.KeepAlive), atStart: true})
	}
	switch {
	case next.at.IsZero():
		return c.obj.DeleteAlarm(ctx)
	case next.atStart:
		return c.obj.SetStartAlarm(ctx, next.at)
	}
	return c.obj.SetAlarm(ctx, next.at)
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
	if c.destroying {
		return errors.Join(c.obj.Go(ctx, "destroy", c.destroy), c.rearm(ctx))
	}
	now := time.Now()
	err := c.updateAs(ctx, true, func(ctx context.Context) error { // no other code has held this turn
		if err := c.recoverDue(ctx, now); err != nil {
			return err
		}
		return c.startJobs(ctx, now)
	})
	if err != nil {
		c.fibers.expiryRead = false // the rows that were to be deleted are still there
	}
	return err
}
