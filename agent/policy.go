package agent

import (
	"fmt"
	"time"

	"github.com/dohost/dohost/internal/work"
)

// fiberPolicy returns the policy of a fiber. A fiber of RunFiber cannot be called again, so OnInterrupted decides about
// it.
func (c *core) fiberPolicy(r *fiberRow) *work.Policy {
	p := &work.Policy{Known: c.class.interrupted != nil, RecoveryHook: true, HookDelay: c.class.options.KeepAlive}
	if r.Started {
		k, known := c.class.kinds[r.Name]
		o := k.options
		if !known {
			o = o.withDefaults()
		}
		p.Known, p.Resumable, p.MaxRetries = known, true, r.Retries
		p.RecoveryHook = c.class.recovery != nil && !o.Quiet
		p.EndHook = c.class.ended != nil && (!o.Quiet || r.State == work.Notifying) // Quiet counts when the fiber ends
		p.KeepCompleted, p.KeepFailed = o.KeepCompleted, o.KeepFailed
	}
	return p
}

// callbackPolicy returns the policy of a run of a callback. Its retries after errors are part of one run, so a run that
// returns an error has failed.
func (c *core) callbackPolicy() work.Policy {
	return work.Policy{Known: true, Resumable: true, MaxRetries: c.class.options.MaxInterruptions - 1, Isolate: 1}
}

// schedulePolicy returns the policy of a schedule. One that recurs skips a run that was cut off too often.
func (c *core) schedulePolicy(j *scheduleRow) *work.Policy {
	p := c.callbackPolicy()
	p.GiveUp = !j.Kind.recurs()
	return &p
}

// queuePolicy returns the policy of the items of the queue.
func (c *core) queuePolicy() *work.Policy {
	p := c.callbackPolicy()
	p.GiveUp, p.KeepPlace = true, true
	return &p
}

// nextRun returns the number of a new run.
func (c *core) nextRun() uint64 {
	c.runs++
	return c.runs
}

// stepItem is [work.Step] for an event of this incarnation. An impossible event is an error.
func (c *core) stepItem(id string, it work.Item, ev work.Event, p *work.Policy, now time.Time) (work.Item, work.Effect, error) {
	ev.Owner = c.incarnation
	switch ev.Kind {
	case work.Due, work.Stuck, work.Decided, work.Restart:
		ev.Run = c.nextRun()
	}
	next, eff := work.Step(it, ev, p, now)
	if eff == work.Impossible {
		return it, eff, fmt.Errorf("agent: %q is %v, and the event %v is impossible then", id, it.State, ev.Kind)
	}
	return next, eff, nil
}

// step changes a fiber's row as an event requires, and returns the effect. Nothing is written yet.
func (c *core) step(r *fiberRow, ev work.Event, now time.Time) (work.Effect, error) {
	next, eff, err := c.stepItem(r.ID, r.Item, ev, c.fiberPolicy(r), now)
	switch {
	case err != nil:
		return eff, err
	case eff != work.None && eff != work.Run:
		return eff, nil
	}
	if !concernsHook(r.State, next.State, ev.Kind) {
		r.Updated = now.UnixMilli()
	}
	if r.Item = next; r.Ended == 0 && (r.State == work.Ended || r.State == work.Notifying) {
		r.Ended = r.Updated
	}
	if r.NotBefore > 0 {
		c.fibers.hookDelayed = true
	}
	if r.Expires > 0 && (c.fibers.expiry == 0 || r.Expires < c.fibers.expiry) {
		c.fibers.expiry = r.Expires
	}
	return eff, nil
}

// concernsHook reports whether a step changes only the calls of a hook, which are not part of FiberInfo.
func concernsHook(before, after work.State, k work.EventKind) bool {
	switch k {
	case work.HookCalled, work.HookRunning, work.Retry:
		return true
	case work.Due:
		return before == work.Notifying || after == work.Recovering
	case work.HookReturned:
		return before == work.Notifying
	}
	return false
}

// recoveryEffect returns the effect of recovery on a row, without changing the row.
func (c *core) recoveryEffect(r *fiberRow, now time.Time) work.Effect {
	_, eff := work.Step(r.Item, work.Event{Kind: work.Due, Owner: c.incarnation}, c.fiberPolicy(r), now)
	return eff
}
