package agent

import "github.com/dohost/dohost/internal/work"

// fiberPolicy returns the policy of a fiber.
func (c *core) fiberPolicy(r *fiberRow) *work.Policy {
	p := &work.Policy{
		Known: c.class.interrupted != nil, RecoveryHook: true, HookDelay: c.class.options.KeepAlive,
	}
	if r.Started {
		k, known := c.class.kinds[r.Name]
		o := k.options
		if !known {
			o = o.withDefaults()
		}
		p.Known, p.Resumable, p.MaxRetries = known, true, r.Retries
		p.RecoveryHook = c.class.recovery != nil && !o.Quiet
		p.EndHook = c.class.ended != nil && !o.Quiet
		p.KeepCompleted, p.KeepFailed = o.KeepCompleted, o.KeepFailed
	}
	return p
}
