package work

import (
	"time"

	"github.com/dohost/dohost/internal/backoff"
)

func (it *Item) begin(ev Event) Effect {
	switch {
	case it.State == Waiting && it.Owner == ev.Owner:
		it.State = Running
		return None
	case it.State == Running && it.Owner == ev.Owner, it.State == Cancelling, it.State == Replaced:
		return Impossible
	}
	return Refused
}

// progress records a new checkpoint, or new chunks.
func (it *Item) progress(ev Event) Effect {
	if it.State != Waiting && it.State != Running || it.Owner != ev.Owner || it.Run != ev.Run {
		return Refused
	}
	it.Stalls, it.FirstStall, it.Calls, it.FirstCall = 0, 0, 0, 0
	return None
}

// returned ends a run.
func (it *Item) returned(ev Event, p *Policy, now int64) Effect {
	if it.Owner != ev.Owner || it.Run != ev.Run {
		return Refused
	}
	switch it.State {
	case Waiting:
		return Impossible
	case Cancelling:
		return Delete
	case Replaced:
		it.State, it.Owner, it.Attempt, it.Failures, it.Stalls, it.FirstStall = Waiting, "", 0, 0, 0, 0
		return None
	case Running:
	default:
		return Refused
	}
	if !ev.Failed && ev.Delay > 0 {
		it.State, it.Owner, it.NotBefore = Waiting, "", now+max(1, ev.Delay.Milliseconds())
		it.Stalls, it.FirstStall = 0, 0 // the run has not ended its process
		return None
	}
	if !ev.Failed {
		it.end(Completed, p, now)
		return None
	}
	it.Attempt++
	it.Failures++
	if ev.Final || it.exhausted(0, p) {
		it.end(Failed, p, now)
		return None
	}
	if p.RetryDelay > 0 {
		delay := backoff.Delay(it.Failures-1, p.RetryDelay, p.MaxRetryDelay)
		it.State, it.Owner, it.NotBefore = Waiting, "", now+backoff.Jitter(delay, -ev.Jitter).Milliseconds()
		return None
	}
	return Run
}

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

// start gives the item the run of an event.
func (it *Item) start(ev Event) Effect {
	it.State, it.Owner, it.Run, it.NotBefore = Running, ev.Owner, ev.Run, 0
	return Run
}

// resume is start after an interruption, which it charges.
func (it *Item) resume(ev Event, p *Policy, now int64) Effect {
	it.Attempt++
	if ev.Failed {
		it.Failures++
	} else {
		it.Stalls++
	}
	if p.MaxStallTime > 0 && it.FirstStall == 0 {
		it.FirstStall = now
	}
	it.clearHook()
	return it.start(ev)
}

// exhausted reports whether the item may not run again after that many more interruptions.
func (it *Item) exhausted(more int, p *Policy) bool {
	return p.MaxRetries >= 0 && (it.Failures+it.Stalls+more > p.MaxRetries ||
		p.CountAllAttempts && it.Attempt+more > p.MaxRetries || it.Attempt+more > max(p.MaxRetries, maxAttempts))
}

// OutOfTime reports whether the item has made no progress for longer than its policy allows.
func (it *Item) OutOfTime(p *Policy, now time.Time) bool {
	return p.MaxStallTime > 0 && it.FirstStall > 0 && now.UnixMilli()-it.FirstStall > p.MaxStallTime.Milliseconds()
}

// Suspect reports whether the item may be the one that ends its process.
func (it *Item) Suspect(owner string, p *Policy) bool {
	return p.Isolate > 0 && it.Interrupted(owner) && it.Stalls >= p.Isolate
}

// Isolated reports whether the item is a suspect that owner runs.
func (it *Item) Isolated(owner string, p *Policy) bool {
	return p.Isolate > 0 && it.Owner == owner && it.Stalls > p.Isolate
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

// end ends the item.
func (it *Item) end(o Outcome, p *Policy, now int64) {
	notify := p.EndHook && (o != Cancelled && o != Skipped || p.EndHookAfterCancel && it.State != Waiting)
	it.State, it.Outcome = Ended, o
	it.clearHook()
	if notify {
		it.State, it.Owner, it.NotBefore = Notifying, "", now
		return
	}
	it.expire(p, now)
}

// expire starts the retention period.
func (it *Item) expire(p *Policy, now int64) {
	it.State = Ended
	it.clearHook()
	keep := p.KeepCompleted
	if it.Outcome == Failed {
		keep = p.KeepFailed
	}
	if keep > 0 {
		it.Expires = now + keep.Milliseconds()
	}
}

// clearHook clears the charges of a hook.
func (it *Item) clearHook() { it.Calls, it.FirstCall, it.NotBefore = 0, 0, 0 }

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

// cancel ends the item for a user.
func (it *Item) cancel(ev Event, p *Policy, now int64) Effect {
	switch {
	case p.KeepPlace && (it.State == Running || it.State == Replaced) && it.Owner == ev.Owner:
		it.State = Cancelling
		return None
	case !it.Open() && it.State != Dead && it.State != Replaced:
		return Refused
	case p.KeepPlace || !p.Resumable:
		return Delete
	}
	if ev.Outcome == 0 {
		ev.Outcome = Cancelled
	}
	it.end(ev.Outcome, p, now)
	return None
}

// restart starts an item again that has ended without completing.
func (it *Item) restart(ev Event, p *Policy) Effect {
	switch it.State {
	case Notifying, Ended:
		if it.Outcome == Completed {
			return Refused
		}
	case Orphaned, Dead:
	default:
		return Refused
	}
	if !p.Resumable {
		return Refused
	}
	*it = Item{State: Waiting, Owner: ev.Owner, Run: ev.Run}
	return Run
}

// replace gives the item another payload.
func (it *Item) replace(ev Event) Effect {
	switch {
	case (it.State == Running || it.State == Cancelling || it.State == Replaced) && it.Owner == ev.Owner:
		it.State = Replaced
	case it.State == Waiting, it.State == Running, it.State == Cancelling, it.State == Replaced:
		*it = Item{}
	default:
		return Impossible
	}
	it.Attempt, it.Failures, it.Stalls, it.FirstStall = 0, 0, 0, 0
	return None
}
