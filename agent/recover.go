package agent

import (
	"context"
	"time"
)

// runsWakeup is when the agent has to look after its fibers.
func (c *core) runsWakeup(context.Context, time.Time) (wakeup, error) { return wakeup{}, nil }

// recoverDue goes on with interrupted fibers whose time has come.
func (c *core) recoverDue(context.Context, time.Time) error { return nil }
