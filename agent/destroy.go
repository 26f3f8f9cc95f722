package agent

import (
	"context"
	"errors"

	"github.com/dohost/dohost"
)

// ErrDestroyed says that the agent was destroyed.
var ErrDestroyed = errors.New("agent: destroyed")

// destroying is a row that says that an agent is being destroyed, whose sub-agents come first.
const destroying = "destroy"

// Destroy removes everything that the agent has stored, its fibers, schedules and alarm included,
// closes its connections with code 1000, and ends the incarnation when that is durable. The next
// event finds an agent that has never been. Nothing else comes in between, so whatever still
// runs in the agent can write nothing more. Sub-agents are destroyed first, one by one; if the
// incarnation ends meanwhile the next one goes on with that.
//
// It does not return nil. Errors: one for which errors.Is(err, [ErrDestroyed]) holds, which is
// also what callers of the events that have not ended get; [dohost.ErrInTransaction], and those that
// say that ctx does not hold the turn, which leave the agent as it is. With any other the agent is
// still there, and goes on being destroyed at the next heartbeat if it had sub-agents.
func (c *core) Destroy(ctx context.Context) error {
	if err := c.store().Sync(ctx); err != nil { // not in a Transaction
		return err
	}
	if err := c.destroySubs(ctx); err != nil {
		return err
	}
	if err := c.store().DeleteAll(ctx); err != nil {
		return err
	}
	for conn := range c.Connections("") {
		c.hangUp(ctx, conn, dohost.CloseNormal, "destroyed")
	}
	if err := c.store().Sync(ctx); err != nil {
		return err
	}
	return c.obj.Abort(ctx, ErrDestroyed, &dohost.AbortOptions{DropAlarm: true})
}

// destroySubs destroys the sub-agents, those that come meanwhile included. Before the first of them
// goes it is noted, durably, that all will, and the agent with them.
func (c *core) destroySubs(ctx context.Context) error {
	for {
		subs, err := ListSubAgents(ctx, c, "")
		if err != nil || len(subs) == 0 {
			return err
		}
		if err := numbers.Put(ctx, c.store(), number{Name: destroying}); err != nil {
			return err
		}
		c.doom = true
		if err := c.rearm(ctx); err != nil {
			return err
		}
		for _, s := range subs {
			if _, err := DeleteSubAgent(ctx, c, s.Class, s.Name); err != nil {
				return err
			}
		}
	}
}

// findDoom finds out whether an earlier incarnation has begun to destroy the agent.
func (c *core) findDoom(ctx context.Context) (err error) {
	if len(c.class.subs) > 0 {
		_, c.doom, err = numbers.Get(ctx, c.store(), destroying)
	}
	return err
}
