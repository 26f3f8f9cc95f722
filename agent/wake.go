package agent

import "context"

// wake runs after the constructor and before the first event.
func (c *core) wake(ctx context.Context) error {
	if err := c.readDestroying(ctx); err != nil {
		return err
	}
	if err := c.recoverFibers(ctx); err != nil {
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
	return c.resumeDeferred(ctx)
}
