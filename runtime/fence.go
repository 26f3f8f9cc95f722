package runtime

import (
	"github.com/dohost/dohost/eviction"
	"github.com/dohost/dohost/internal/invariants"
)

// Go cannot kill a goroutine, nor prove that one has stopped. So a fence ends not the
// goroutines of an incarnation but their rights: under the object's lock the incarnation is
// marked dead and the range loses its owner, and from then on every method of State
// refuses. The code itself unwinds in its own time, one event at a time under the turn of
// the dead incarnation, while the next incarnation runs.

// fence ends the incarnation, if it has not ended, and starts the next one if there is
// work for it. Any goroutine may call it, without locks.
func (o *object) fence(inc *incarnation, why *Fenced, mode eviction.EndMode) bool {
	o.mu.Lock()
	if inc == nil || inc.dead.Load() {
		o.mu.Unlock()
		return false
	}
	o.retireLocked(inc, why, mode != eviction.EndCrash)
	victims := inc.unfinishedLocked()
	o.mu.Unlock()

	if mode == eviction.EndCrash && o.rng != nil {
		o.rng.FenceDropping()
	}
	o.host().ended(o, inc, why, mode) // the host reports the end to the Listener before its consequences
	inc.end()
	for _, ev := range victims {
		o.fenced(ev, why)
	}

	o.endClaim()
	return true
}

// retireLocked ends the rights of the incarnation and moves its queued events to the next
// one, ahead of later events. The caller ends the claim when it has reported the end, so
// that no incarnation begins before a crash has dropped its writes.
func (o *object) retireLocked(inc *incarnation, why *Fenced, keep bool) {
	invariants.Held(&o.mu)
	inc.why = why
	inc.dead.Store(true)
	inc.ensureActivityLocked()
	if keep && o.rng != nil {
		o.rng.Fence()
	}
	inc.dropInstanceLocked()
	o.incarnation = nil
	o.transitionLocked(objectEnding)
	for _, ev := range inc.queue.takeFreshLocked() {
		ev.turn.queue = nil
		if ev.only != nil {
			o.unqueueLocked(ev) // a task of this incarnation, and of no other
			continue
		}
		o.waiting.push(&ev.turn)
	}
	if o.alarm != nil && o.alarm.incarnation != nil {
		o.alarm = nil // its delivery ends with the incarnation
	}
}

// unfinishedLocked lists the events of the incarnation that have started and not ended. It
// uncounts them: neither the object nor Close waits for them any more.
func (inc *incarnation) unfinishedLocked() []*event {
	invariants.Held(&inc.obj.mu)
	o := inc.obj
	var evs []*event
	for ev := inc.running; ev != nil; ev = ev.succ {
		ev.isZombie = true
		evs = append(evs, ev)
		o.host().addZombie(ev)
		if ev.kind != kindConstruct {
			o.count--
			o.host().decrement(&o.host().active)
		}
	}
	for range inc.heldTurns {
		o.count--
		o.host().decrement(&o.host().active)
	}
	return evs
}

// fenced answers the caller of an unfinished event of an ended incarnation. An event that
// has committed its last batch is not answered here: its result is history, and leaves
// when durable.
func (o *object) fenced(ev *event, why *Fenced) {
	if ev.kind == kindConstruct || ev.committed.Load() {
		return
	}
	if ev.kind == kindAlarm {
		o.alarmFenced(ev, why)
	}
	ev.answer(ev.failure(why, OutcomeUnknown))
}
