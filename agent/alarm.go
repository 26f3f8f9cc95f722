package agent

import (
	"context"
	"errors"
	"time"

	"github.com/dohost/dohost"
)

// wakeup is when an agent has something to do by itself. The zero wakeup is never.
type wakeup struct {
	at time.Time
	// boot asks for one when the host starts as well: there is work that its end interrupts.
	boot bool
}

// earliest is the one alarm that many uses share.
func earliest(all ...wakeup) (first wakeup) {
	for _, w := range all {
		if w.at.IsZero() {
			continue
		}
		if first.at.IsZero() || w.at.Before(first.at) {
			first.at = w.at
		}
		first.boot = first.boot || w.boot
	}
	return first
}

// rearm sets the alarm to what the rows and the heartbeat want by now. Whoever changes one of
// them calls it in the same segment, so that no row is ever without its alarm.
func (c *core) rearm(ctx context.Context) error { return c.arm(ctx, false) }

// arm is rearm. If it is sure, it remembers when there is no fiber to look after, and the incarnation
// reads none until it writes one. It is where no Transaction is open that may have deleted what comes
// back when it fails: inside one of its own, which is refused while there is another, or in a turn that
// nobody else has had.
func (c *core) arm(ctx context.Context, sure bool) error {
	now := time.Now()
	jobs, err := c.jobsWakeup(ctx, now)
	if err != nil {
		return err
	}
	runs, err := c.runsWakeup(ctx, now, sure)
	if err != nil {
		return err
	}
	next := earliest(jobs, runs, c.heartbeat(now))
	if c.doom {
		next = earliest(next, wakeup{at: now.Add(c.class.options.KeepAlive), boot: true})
	}
	switch {
	case next.at.IsZero():
		return c.obj.DeleteAlarm(ctx)
	case next.boot:
		return c.obj.SetBootAlarm(ctx, next.at)
	}
	return c.obj.SetAlarm(ctx, next.at)
}

// ring is the alarm's handler. If its last run fails, the alarm is parked, and ring also ends
// the incarnation: when the next event wakes the agent, the new incarnation sets the alarm for
// its rows. Otherwise an agent that stays in memory would have no alarm until an operator acts.
func (c *core) ring(ctx context.Context, info dohost.AlarmInfo) error {
	err := c.startDue(ctx)
	if err == nil || errors.Is(err, dohost.ErrNoSpace) || info.Attempt+1 < dohost.AlarmRuns {
		return err
	}
	return c.obj.Abort(ctx, err, nil)
}

// startDue starts what is due as tasks of their own and returns: all it
// does is one segment, in which the alarm is set anew. So nothing long runs on the alarm, and a
// crash repeats all of it or nothing.
func (c *core) startDue(ctx context.Context) error {
	if c.doom {
		return errors.Join(c.obj.Go(ctx, "destroy", c.Destroy), c.rearm(ctx))
	}
	now := time.Now()
	if err := c.recoverDue(ctx, now); err != nil {
		return err
	}
	if err := c.startJobs(ctx, now); err != nil {
		return err
	}
	return c.arm(ctx, true) // nobody else has had this turn
}
