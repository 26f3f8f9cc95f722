package work

import (
	"time"

	"github.com/dohost/dohost/internal/backoff"
)

// due decides about an item that is interrupted or due.
func (it *Item) due(ev Event, p *Policy, now int64) Effect {
	switch {
	case it.State == Notifying:
		return it.notifyDue(p, now)
	case it.State == Cancelling && it.Interrupted(ev.Owner):
		return Delete
	case it.State == Replaced && it.Interrupted(ev.Owner): // a run of the new payload has nothing to charge
		return it.start(ev)
	case it.State == Waiting && it.Owner == "":
		if now < it.NotBefore {
			return Wait
		}
		return it.start(ev)
	case !it.Open() || !it.Interrupted(ev.Owner):
		return Impossible
	case !p.Known:
		return it.unknown(p)
	case p.Resumable && (ev.Final || it.exhausted(1, p) || it.OutOfTime(p, time.UnixMilli(now))):
		it.Attempt++
		it.Stalls++
		if p.GiveUp {
			it.State = Dead
			return None
		}
		it.end(Failed, p, now)
		return None
	case p.RecoveryHook:
		return it.recoveryDue(ev, p, now)
	case !p.Resumable:
		return Delete
	case it.Suspect(ev.Owner, p) && !ev.Alone:
		return Wait
	}
	return it.resume(ev, p, now)
}

// unknown decides about an interrupted item without code.
func (it *Item) unknown(p *Policy) Effect {
	if !p.Resumable {
		return Delete
	}
	it.State = Orphaned
	it.clearHook()
	return None
}

// recoveryDue decides about an interrupted item with a hook for recovery.
func (it *Item) recoveryDue(ev Event, p *Policy, now int64) Effect {
	switch {
	case it.outOfCalls(now):
		it.State = Dead
		return None
	case now < it.NotBefore:
		return Wait
	case it.State == Running && it.Calls > 1: // its hook has resumed it more than once without progress
		it.State, it.NotBefore = Recovering, now+hookDelay(it.Calls-1, p, ev.Jitter)
		return None
	}
	return CallHook
}

// notifyDue decides about an ended item with an end hook.
func (it *Item) notifyDue(p *Policy, now int64) Effect {
	switch {
	case !p.EndHook || it.outOfCalls(now):
		it.expire(p, now)
		return None
	case now < it.NotBefore:
		return Wait
	}
	return CallHook
}

// outOfCalls reports whether the hook may not be called again.
func (it *Item) outOfCalls(now int64) bool {
	return it.Calls >= MaxCalls || it.FirstCall > 0 && now-it.FirstCall >= maxCallsTime.Milliseconds()
}

// hookDelay returns the delay before the next call of a hook after n calls, in milliseconds.
func hookDelay(n int, p *Policy, jitter float64) int64 {
	return backoff.Jitter(backoff.Delay(n-1, p.HookDelay, maxHookDelay), jitter).Milliseconds()
}

// callHook charges a call of the hook.
func (it *Item) callHook(ev Event, p *Policy, now int64) Effect {
	switch {
	case it.State == Cancelling, it.State == Replaced:
		return Impossible
	case it.State == Notifying:
	case !it.Open() || !it.Interrupted(ev.Owner):
		return Refused
	default:
		it.State = Recovering
	}
	it.Calls++
	if it.FirstCall == 0 {
		it.FirstCall = now
	}
	it.NotBefore = now + hookDelay(it.Calls, p, ev.Jitter)
	return None
}

// hookReturned ends a call of the hook.
func (it *Item) hookReturned(ev Event, p *Policy, now int64) Effect {
	switch {
	case it.State == Notifying:
		if !ev.Failed || it.Calls >= MaxCalls {
			it.expire(p, now)
		}
		return None
	case it.State != Recovering:
		return Refused
	case ev.Failed:
		if ev.Final || it.Calls >= MaxCalls {
			it.State = Dead
		}
		return None
	case !p.Resumable:
		return Delete
	}
	it.Attempt++ // the hook has not decided about it
	it.Stalls++
	it.end(Failed, p, now)
	return None
}

// decided carries out the decision of the hook for recovery.
func (it *Item) decided(ev Event, p *Policy, now int64) Effect {
	if it.State != Recovering {
		return Refused
	}
	if ev.Outcome == 0 {
		return it.resume(ev, p, now)
	}
	it.Attempt++
	it.Stalls++
	it.end(ev.Outcome, p, now)
	return None
}
