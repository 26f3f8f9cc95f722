package runtime

import "github.com/dohost/dohost/internal/invariants"

// Go cannot kill a goroutine, nor prove that one has stopped. So it is not the
// goroutine that ends but its rights: under the object's lock the life is marked
// dead and the range loses its owner, and from then on every door that was
// handed to the object's code refuses. The code itself unwinds when it likes, one
// event at a time under the dead life's own turn, while the next life runs.

// Style is the way in which an incarnation ends.
type Style uint8

// The styles. StyleNone ends nothing.
const (
	StyleNone    Style = iota
	StyleFence         // what was handed over stays, and leaves when durable
	StyleRestart       // as a restart of the platform: the same, by another name in the account
	StyleCrash         // what was handed over and is in no record yet is lost too
)

// fence ends the life l, if it has not ended, and gets the next one going if
// there is work for it. It is called without locks, by any goroutine.
func (o *object) fence(l *life, why *Fenced, style Style) bool {
	o.mu.Lock()
	if l == nil || l.dead.Load() {
		o.mu.Unlock()
		return false
	}
	o.buryLocked(l, why, style != StyleCrash)
	victims := l.unfinishedLocked()
	o.mu.Unlock()

	if style == StyleCrash && o.rng != nil {
		o.rng.FenceDropping()
	}
	o.host().ended(o, l, why, style) // heard before its consequences
	l.end()
	for _, ev := range victims {
		o.fenced(ev, why)
	}

	o.mu.Lock()
	o.waking = false
	o.releaseLocked(o.wakeLocked())
	return true
}

// buryLocked takes the life's rights and moves its queued events to the next
// life, ahead of what arrives later. The object counts as waking until the
// caller has finished, so that no life begins before a crash has dropped its part.
func (o *object) buryLocked(l *life, why *Fenced, keep bool) {
	invariants.Held(&o.mu)
	l.why = why
	l.dead.Store(true)
	l.stirLocked()
	if keep && o.rng != nil {
		o.rng.Fence()
	}
	l.unwoundLocked()
	o.life = nil
	o.waking = true
	for _, ev := range l.lane.takeFreshLocked() {
		ev.turn.lane = nil
		if ev.only != nil {
			o.unqueueLocked(ev) // a task of this life, and of no other
			continue
		}
		o.waiting.push(&ev.turn)
	}
	if o.alarm != nil && o.alarm.life != nil {
		o.alarm = nil // its delivery ends with the life
	}
}

// unfinishedLocked lists the events of the life that have started and not ended.
// From now on they count for nothing: the object, and Close, go on without them.
func (l *life) unfinishedLocked() []*event {
	invariants.Held(&l.obj.mu)
	o := l.obj
	var evs []*event
	for ev := l.started; ev != nil; ev = ev.succ {
		ev.isZombie = true
		evs = append(evs, ev)
		o.host().zombieBorn(ev)
		if ev.kind != kindConstruct {
			o.count--
			o.host().calmer(&o.host().active)
		}
	}
	for range l.entered {
		o.count--
		o.host().calmer(&o.host().active)
	}
	return evs
}

// fenced tells whoever waits for an unfinished event of an ended life. An event
// whose last segment was handed over is not told here: its result is history,
// and leaves when durable.
func (o *object) fenced(ev *event, why *Fenced) {
	if ev.kind == kindConstruct || ev.handed.Load() {
		return
	}
	if ev.kind == kindAlarm {
		o.alarmFenced(ev, why)
	}
	ev.answer(ev.failure(why, RanUnknown))
}
