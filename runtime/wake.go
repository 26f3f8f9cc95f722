package runtime

import "github.com/dohost/dohost/internal/invariants"

// wake is the work of a runner between incarnations: deferred writes, then a new
// incarnation if an event waits. It returns the first turn of that incarnation to run.
func (o *object) wake() *turn {
	growStack(false, 0)
	o.mu.Lock()
	if o.rng == nil {
		o.rng = o.host().store.Range(o.id())
	}
	o.rng.SetWaking(true)
	o.mu.Unlock()
	for {
		o.mu.Lock()
		edits, delivery := o.deferredSlots, o.alarm
		o.deferredSlots = nil
		o.mu.Unlock()
		o.writeDeferred(edits)
		if delivery != nil {
			o.admit(delivery)
		}
		o.mu.Lock()
		if o.deferredSlots != nil || o.alarm != nil && o.alarm != delivery { // either may have arrived since
			o.mu.Unlock()
			continue
		}
		head := o.headLocked()
		if head == nil {
			o.rng.SetWaking(false) // from here on the range may have another owner, or be gone
			o.transitionLocked(objectCold)
			o.mu.Unlock()
			return nil
		}
		if err := o.wakeRefusalLocked(); err != nil {
			evs := o.waiting.takeFreshLocked()
			o.mu.Unlock()
			for _, ev := range evs {
				o.refuse(ev, err)
			}
			continue
		}
		inc, ev := o.beginLocked(head.ev)
		o.mu.Unlock()
		return o.construct(inc, ev)
	}
}

// headLocked returns the first queued event that its caller has not abandoned.
func (o *object) headLocked() *turn {
	invariants.Held(&o.mu)
	for {
		head := o.waiting.head
		if head == nil || !head.ev.abandoned {
			return head
		}
		o.waiting.pop()
	}
}

// wakeRefusalLocked returns the reason why no incarnation may begin now, or nil.
func (o *object) wakeRefusalLocked() error {
	invariants.Held(&o.mu)
	if o.host().phase.Load() == phaseClosed {
		return ErrClosed
	}
	// The host closes itself soon. Until then the store would refuse each constructor.
	if o.host().store.Err() != nil {
		return ErrClosed // without the reason, which decides about repetitions and statuses when it is wrapped
	}
	if o.host().store.Importing(o.id()) {
		return ErrHalfImported
	}
	if b := o.backOff; b != nil && o.host().now() < b.until {
		return b.err
	}
	return nil
}

// refuse answers a queued event that will not start.
func (o *object) refuse(ev *event, err error) {
	if !o.takeOut(ev) {
		return
	}
	if ev.kind == kindAlarm {
		ev.endDelivery(true)
	}
	ev.answer(ev.failure(err, OutcomeNotRun))
}

// takeOut uncounts a queued event, unless it has started or left.
func (o *object) takeOut(ev *event) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if ev.abandoned || ev.incarnation != nil {
		return false
	}
	o.unqueueLocked(ev)
	if o.alarm == ev {
		o.alarm = nil
	}
	return true
}

// beginLocked starts the next incarnation, with all queued events in its turn queue and its
// constructor in an exclusive section.
func (o *object) beginLocked(first *event) (*incarnation, *event) {
	invariants.Held(&o.mu)
	inc := &o.first
	if inc.obj != nil {
		inc = new(incarnation)
	}
	h := o.host()
	inc.obj, inc.number, inc.began = o, h.store.NewEpoch().Incarnation, h.now()
	inc.ensureActivityLocked()
	inc.rng = o.rng
	inc.batch = inc.rng.NewBatch(inc.epoch())
	o.rng.Begin(inc.epoch())
	o.incarnation = inc
	o.transitionLocked(objectLive)
	inc.queue.turnList, o.waiting = o.waiting, turnList{}
	for t := inc.queue.head; t != nil; t = t.next {
		t.queue = &inc.queue
	}
	ev := &event{op: "constructor", kind: kindConstruct, obj: o, parent: first.parent, depth: first.depth, incarnation: inc}
	ev.turn.ev = ev
	ev.begun = h.now()
	h.count(ev)
	ev.turn.queue = &inc.queue
	inc.queue.grantLocked(&ev.turn)
	inc.beginExclusiveLocked(&ev.turn)
	inc.linkLocked(ev)
	return inc, ev
}
