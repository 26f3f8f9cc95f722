package runtime

import (
	"fmt"
	"runtime/debug"
	"time"

	"github.com/dohost/dohost/alarm"
	"github.com/dohost/dohost/objectstore"
)

// Constructor back-off: the next life of an object whose constructor failed waits
// this long, doubling; calls fail at once meanwhile.
const (
	backoffFirst = 100 * time.Millisecond
	backoffMost  = 10 * time.Second
)

// slotEdit is a write of the alarm slot that is due between two lives: the
// outcome of a delivery whose life ended by its own fault.
type slotEdit struct {
	delivered objectstore.Alarm
	drop      bool
}

// wake is what a runner does between lives: pending slot writes, then a new life
// if an event wants one. It returns the first turn of that life to run.
func (o *object) wake() *turn {
	for {
		o.mu.Lock()
		if o.rng == nil {
			o.rng = o.host.store.Range(o.id)
		}
		edits, delivery := o.repairs, o.alarm
		o.repairs = nil
		o.mu.Unlock()
		for _, e := range edits {
			o.repair(e)
		}
		if delivery != nil && !delivery.verified && !o.verify(delivery) {
			o.refuse(delivery, nil)
		}
		o.mu.Lock()
		if len(o.repairs) > 0 {
			o.mu.Unlock()
			continue
		}
		head := o.headLocked()
		if head == nil {
			o.waking = false
			o.mu.Unlock()
			return nil
		}
		if err := o.heldBackLocked(); err != nil {
			evs := o.emptyLocked(&o.waiting)
			o.mu.Unlock()
			for _, ev := range evs {
				o.refuse(ev, err)
			}
			continue
		}
		l, ev := o.beginLocked(head.ev)
		o.mu.Unlock()
		return o.construct(l, ev)
	}
}

// headLocked returns the first queued event whose caller still waits.
func (o *object) headLocked() *turn {
	for o.waiting.head != nil && o.waiting.head.ev.left {
		o.waiting.pop()
	}
	return o.waiting.head
}

// heldBackLocked says why no life may begin now.
func (o *object) heldBackLocked() error {
	if o.host.phase.Load() == phaseClosed {
		return ErrClosed
	}
	if o.failed != nil && o.host.now() < o.notBefore {
		return o.failed
	}
	return nil
}

// emptyLocked takes the fresh events out of a lane.
func (o *object) emptyLocked(q *lane) []*event {
	var evs []*event
	var rest lane
	for t := q.pop(); t != nil; t = q.pop() {
		switch {
		case !t.fresh:
			rest.push(t)
		case !t.ev.left:
			evs = append(evs, t.ev)
		}
	}
	q.head, q.tail = rest.head, rest.tail
	return evs
}

// refuse answers a queued event that will not start. A nil err is for a delivery
// that was overtaken.
func (o *object) refuse(ev *event, err error) {
	o.mu.Lock()
	if ev.left || ev.life != nil {
		o.mu.Unlock()
		return
	}
	o.unqueueLocked(ev)
	if o.alarm == ev {
		o.alarm = nil
	}
	o.mu.Unlock()
	if ev.kind == kindAlarm {
		ev.endDelivery(err != nil)
	}
	ev.answer(ev.failure(err, RanNo))
}

// beginLocked starts the next life, with all queued events in its lane and its
// constructor in an exclusive section.
func (o *object) beginLocked(first *event) (*life, *event) {
	l := &life{obj: o, epoch: o.host.store.NewEpoch(), born: o.host.now()}
	l.segment = o.rng.NewSegment(l.epoch)
	l.state.life = l
	o.rng.Begin(l.epoch)
	o.life = l
	o.waking = false
	l.lane.head, l.lane.tail = o.waiting.head, o.waiting.tail
	o.waiting = lane{}
	for t := l.lane.head; t != nil; t = t.next {
		t.lane = &l.lane
	}
	ev := &event{op: "constructor", kind: kindConstruct, obj: o, parent: first.parent, depth: first.depth, life: l}
	ev.turn.ev = ev
	ev.begun = o.host.now()
	o.host.count(ev)
	ev.turn.lane = &l.lane
	l.lane.grantLocked(&ev.turn)
	l.openLocked(&ev.turn)
	l.linkLocked(ev)
	return l, ev
}

// construct runs the constructor of l and returns the next turn to run.
func (o *object) construct(l *life, ev *event) (next *turn) {
	o.host.waking(l)
	returned := false
	defer func() {
		if returned {
			return
		}
		p := &PanicError{Value: recover(), Stack: debug.Stack()}
		next = o.constructed(l, ev, p)
		if p.Value == nil && next != nil {
			o.host.spawn(o, next)
		}
	}()
	o.at(ev, PlaceConstruct)
	instance, err := o.class.New((*eventCtx)(ev), &l.state)
	l.instance = instance
	if err == nil {
		err = l.handOver(&ev.turn)
	}
	returned = true
	return o.constructed(l, ev, err)
}

// constructed ends the constructor's event. After an error, unless a fence was
// first, the queued events fail and the next life waits.
func (o *object) constructed(l *life, ev *event, err error) *turn {
	var failed []*event
	if err != nil {
		drop(l.segment, ErrFenced)
		o.mu.Lock()
		if !l.dead.Load() {
			failed = o.failLocked(l, err)
		}
		why := o.failed
		o.mu.Unlock()
		o.fence(l, &Fenced{Reason: ReasonConstructor, Err: err}, StyleFence)
		for _, f := range failed {
			if f.kind == kindAlarm && f.ended.CompareAndSwap(false, true) {
				o.spoil(slotEdit{delivered: f.alarm})
			}
			o.refuse(f, why)
		}
	} else {
		o.host.live(l)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if err == nil {
		o.failures, o.failed = 0, nil
	}
	l.exclusive = nil
	l.unlinkLocked(ev)
	ev.turn.state.Store(turnOver)
	if ev.zombie {
		o.host.zombieEnded(ev)
	}
	return o.startLocked(l, l.lane.passLocked())
}

// failLocked notes a failed constructor and returns the events that fail with it.
func (o *object) failLocked(l *life, err error) []*event {
	o.failures++
	wait := backoffMost
	if o.failures < 8 {
		wait = min(wait, backoffFirst<<(o.failures-1))
	}
	o.notBefore = o.host.now() + wait
	o.failed = fmt.Errorf("%w (next try in %v): %w", ErrConstructor, wait, err)
	return o.emptyLocked(&l.lane)
}

// verify compares a delivery's generation with the slot, before any constructor
// could move the alarm.
func (o *object) verify(ev *event) bool {
	slot, ok, err := o.rng.NewSegment(objectstore.Epoch{}).Slot()
	ev.verified = err == nil && ok && slot.Generation == ev.alarm.Generation
	return ev.verified || err != nil
}

// spoil notes a slot write for the time between two lives.
func (o *object) spoil(e slotEdit) {
	o.mu.Lock()
	o.repairs = append(o.repairs, e)
	o.mu.Unlock()
}

// repaired tells the scheduler how a slot write ended: if it was lost, the slot
// is as it was, and the delivery comes again.
type repaired struct {
	host  *Host
	alarm objectstore.Alarm
}

// Release ends the delivery.
func (r *repaired) Release(err error) { r.host.scheduler.Done(r.alarm, err != nil) }

// repair writes the outcome of a delivery whose life ended by its own fault: a
// counted failure, or a dropped alarm. It runs between lives, in an epoch of its own.
func (o *object) repair(e slotEdit) {
	epoch := o.host.store.NewEpoch()
	o.rng.Begin(epoch)
	seg := o.rng.NewSegment(epoch)
	slot, ok, err := seg.Slot()
	out := &repaired{o.host, e.delivered}
	if err != nil {
		out.Release(err)
		return
	}
	if ok && slot.Generation == e.delivered.Generation {
		o.host.settle(seg, slot, e.drop)
	}
	seg.Emit(out)
	if err := o.rng.HandOver(seg); err != nil {
		drop(seg, err)
	}
}

// settle writes a failed run into the slot: the next attempt, or the end of it.
func (h *Host) settle(seg *objectstore.Segment, slot objectstore.Slot, drop bool) {
	next, again := alarm.Failed(slot, time.Now(), h.jitter(), h.store.NewAlarmGeneration())
	if again && !drop {
		seg.SetSlot(next)
	} else {
		seg.ClearSlot()
	}
}
