package agent

import "context"

// wake runs after the constructor and before the first event.
func (c *core) wake(ctx context.Context) error {
	if err := c.findDoom(ctx); err != nil {
		return err
	}
	if err := c.recover(ctx); err != nil {
		return err
	}
	if err := c.wakeJobs(ctx); err != nil {
		return err
	}
	if c.class.start == nil {
		return nil
	}
	if err := c.class.start(c.self, ctx); err != nil {
		return err
	}
	return c.resumeLeft(ctx)
}
