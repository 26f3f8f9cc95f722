package agent

import "context"

// wake runs after the constructor and before the first event.
func (c *core) wake(ctx context.Context) error {
	if err := c.readDestroying(ctx); err != nil {
		return err
	}
	if err := c.recovery.begin(ctx, c.jobs.find); err != nil {
		return err
	}
	if err := c.rows.refresh(ctx, c.jobs.alarmIsLate); err != nil {
		return err
	}
	if err := c.rows.refresh(ctx, c.rowWork.alarmIsLate); err != nil {
		return err
	}
	if err := c.extendedWake(ctx); err != nil {
		return err
	}
	if c.class.start == nil {
		return nil
	}
	if err := c.class.start(c.self, ctx); err != nil {
		return err
	}
	return c.recovery.resumeDeferred(ctx)
}
