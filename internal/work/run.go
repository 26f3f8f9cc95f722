package work

import "github.com/dohost/dohost/internal/backoff"

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
