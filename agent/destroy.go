package agent

import (
	"context"
	"errors"

	"github.com/dohost/dohost"
)

// ErrDestroyed is the error of calls that the destruction of the agent ended.
var ErrDestroyed = errors.New("agent: destroyed")

// destroyingRow is the row that marks an agent as being destroyed. Its sub-agents are destroyed first.
const destroyingRow = "destroy"

// Destroy removes the agent's whole storage, including its fibers, schedules and alarm, closes its
// connections with code 1000, and ends the incarnation when the removal is durable. To the next event the
// agent never existed. No other event runs in between, so code that still runs in the agent can write nothing
// more. Sub-agents are destroyed first, one by one; if the incarnation ends before that is done, the next
// incarnation continues.
//
// It does not return nil. Errors: one that wraps [ErrDestroyed], which callers of unfinished events get too;
// [dohost.ErrMisuse] in a transaction, and for a ctx without the turn, which leave the agent as it is. After
// any other error the agent still exists; if it had sub-agents, the next heartbeat continues the destruction.
func (a *promoted) Destroy(ctx context.Context) error { return a.core.destroy(ctx) }

func (c *core) destroy(ctx context.Context) error {
	if err := c.store().Sync(ctx); err != nil { // not in a Transaction
		return err
	}
	if err := c.destroySubs(ctx); err != nil {
		return err
	}
	if err := c.store().DeleteAll(ctx); err != nil {
		return err
	}
	for conn := range c.clients.connections("") {
		c.clients.close(ctx, conn, dohost.CloseNormal, "destroyed")
	}
	if err := c.store().Sync(ctx); err != nil {
		return err
	}
	return c.obj.Abort(ctx, ErrDestroyed, &dohost.AbortOptions{DropAlarm: true})
}

// destroySubs destroys the sub-agents, including those that are created during the destruction. It durably
// marks the agent as being destroyed before it destroys the first one.
func (c *core) destroySubs(ctx context.Context) error {
	children := SubAgents{c}
	for {
		subs, err := children.List(ctx, "")
		if err != nil || len(subs) == 0 {
			return err
		}
		if err := numbers.Put(ctx, c.store(), number{Name: destroyingRow}); err != nil {
			return err
		}
		if err := c.rows.change(ctx, func(p *plan) { p.destroying = true }); err != nil {
			return err
		}
		for _, s := range subs {
			if _, err := children.Delete(ctx, s.Class, s.Name); err != nil {
				return err
			}
		}
	}
}

// readDestroying reads whether an earlier incarnation has begun to destroy the agent.
func (c *core) readDestroying(ctx context.Context) error {
	if len(c.class.subs) == 0 {
		return nil
	}
	_, begun, err := numbers.Get(ctx, c.store(), destroyingRow)
	if begun {
		c.rows.continueDestroying()
	}
	return err
}
