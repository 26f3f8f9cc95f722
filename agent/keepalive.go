package agent

import (
	"context"
	"errors"
	"time"

	"github.com/dohost/dohost"
)

// KeepAlive keeps the agent in memory until release is called. A persistent heartbeat wakes the agent if its
// incarnation ends earlier, but only new calls of KeepAlive keep the next incarnation alive. KeepAlive may be
// called several times; the last release lets the host evict the agent. release needs a context that holds the
// turn, may be called again, and does nothing after the end of the incarnation. A rollback of a
// [dohost.Transaction] does not undo KeepAlive or release.
func (a *promoted) KeepAlive(ctx context.Context) (release func(context.Context) error, err error) {
	return a.core.keepAlive(ctx)
}

func (c *core) keepAlive(ctx context.Context) (release func(context.Context) error, err error) {
	if _, _, err := c.obj.GetAlarm(ctx); err != nil { // needs the turn
		return nil, err
	}
	if err := c.rows.change(ctx, func(p *plan) { p.keepAlives++ }); err != nil {
		_ = c.rows.change(c.rows.keepAlarm(ctx), func(p *plan) { p.keepAlives-- }) // the alarm may be too early
		return nil, err
	}
	if c.unpin == nil {
		c.unpin = c.obj.Pin("kept alive")
	}
	released := false
	return func(ctx context.Context) error {
		_, _, err := c.obj.GetAlarm(ctx) // needs the turn
		if err == nil && !released {
			released = true
			err = c.releaseKeepAlive(ctx)
		}
		if errors.Is(err, dohost.ErrFenced) {
			return nil
		}
		return err
	}, nil
}

// KeepAliveWhile keeps the agent alive while fn runs.
//
// Errors: fn's, and the errors of [Agent.KeepAlive].
func KeepAliveWhile(ctx context.Context, a Ref, fn func(context.Context) error) (err error) {
	release, err := a.base().keepAlive(ctx)
	if err != nil {
		return err
	}
	defer func() {
		if gone := release(ctx); err == nil {
			err = gone
		}
	}()
	return fn(ctx)
}

// releaseKeepAlive ends a call of KeepAlive.
func (c *core) releaseKeepAlive(ctx context.Context) error {
	if c.rows.plan.keepAlives == 1 {
		c.unpin()
		c.unpin = nil
	} else {
		ctx = c.rows.keepAlarm(ctx) // the heartbeat stays
	}
	return c.rows.change(ctx, func(p *plan) { p.keepAlives-- })
}

// heartbeat returns the next heartbeat of an agent that is kept alive.
func (c *core) heartbeat(now time.Time) wakeup {
	if c.rows.plan.keepAlives == 0 {
		return wakeup{}
	}
	return wakeup{at: now.Add(c.class.options.KeepAlive)}
}
