package agent

import (
	"context"
	"errors"

	"github.com/dohost/dohost"
)

// ErrDestroyed says that the agent was destroyed.
var ErrDestroyed = errors.New("agent: destroyed")

// Destroy removes everything that the agent has stored, its fibers, schedules and alarm included,
// closes its connections with code 1000, and ends the incarnation when that is durable. The next
// event finds an agent that has never been. Nothing else comes in between, so whatever still
// runs in the agent can write nothing more.
//
// It does not return nil. Errors: one for which errors.Is(err, [ErrDestroyed]) holds, which is
// also what callers of the events that have not ended get; any other says that the agent is as it
// was.
func (c *core) Destroy(ctx context.Context) error {
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
