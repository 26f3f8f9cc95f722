package agent

import (
	"context"
	"time"
)

// jobsWakeup is when the first of the agent's schedules, or of its queue, is due.
func (c *core) jobsWakeup(context.Context, time.Time) (wakeup, error) { return wakeup{}, nil }

// startJobs starts what is due.
func (c *core) startJobs(context.Context, time.Time) error { return nil }
