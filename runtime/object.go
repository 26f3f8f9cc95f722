package runtime

import (
	"sync"
	"time"

	"github.com/dohost/dohost/internal/invariants"
	"github.com/dohost/dohost/objectstore"
)

// object is the table entry of an object in memory. It also exists between incarnations, as
// long as the object has queued events or undurable writes.
type object struct {
	// Fixed.
	class *class
	name  string

	// rng holds the undurable writes of all incarnations. Nil at rest. Guarded by mu; the goroutine
	// that has a claim reads it without mu, and code of an incarnation has its own pointer.
	rng *objectstore.Range

	// mu guards the rest, and the fields that incarnation.go names. Order: object.mu, then the
	// range's lock. No goroutine holds the locks of two objects, nor mu while user code
	// runs, during I/O, or while it sends to a channel that may be full.
	mu          sync.Mutex
	incarnation *incarnation // nil unless the state is objectLive
	waiting     turnList     // events for the next incarnation
	state       objectState  // see transitionLocked
	prompt      bool         // the last event was answered when it ended
	toSweep     bool         // in the sweeper's list
	filed       uint32       // its second in the sweeper's wheel; zero if it is not there
	count       int          // events queued, running and suspended
	bytes       int          // encoded payloads of queued events
	events      uint64       // started so far

	alarm         *event    // a delivery that is queued or runs
	deferredSlots *slotEdit // slot writes, and replacements, that the next runner makes before it begins an incarnation
	backOff       *backOff  // nil unless the constructor failed last

	last time.Duration // when the last event ended, on the host's clock

	// first is the first incarnation since the object came into memory, and usually the only one:
	// it needs no allocation of its own. It is not reused.
	first incarnation
}

func (o *object) host() *Host { return o.class.host }

func (o *object) policy() *Policy { return &o.host().opts.Policy }

func (o *object) limits() *Limits { return &o.host().opts.Limits }

func (o *object) id() ID { return ID{Class: o.class.Name, Name: o.name} }

// enqueue adds a new event. inside is set for events that come from an object's own code or
// from the runtime, which a closing host still accepts.
func (o *object) enqueue(ev *event, inside bool) error {
	now := o.host().now()
	if now < 0 || now > never/10 {
		return errForeignTime
	}
	// Before the phase is read. Close sets the phase first, and then reads this counter, so
	// that one of the two sees the other.
	o.host().active.Add(1)
	o.mu.Lock()
	if o.state == objectRemoved {
		o.mu.Unlock()
		o.host().decrement(&o.host().active)
		if ev.only != nil {
			return ErrFenced // as below: the incarnation has ended, and the event belongs to no other
		}
		return errGone
	}
	if err := o.admitLocked(ev, inside); err != nil {
		o.releaseLocked(runnerRequest{}) // the object may have come into memory for this event
		o.host().decrement(&o.host().active)
		return err
	}
	ev.obj = o
	ev.sent.Store(o)
	if ev.answered.Load() { // its caller has given up; see abandon
		ev.abandoned = true
		o.releaseLocked(runnerRequest{})
		o.host().decrement(&o.host().active)
		return nil
	}
	ev.queued = now
	o.count++
	o.bytes += ev.size
	if ev.kind == kindAlarm {
		o.alarm = ev
	}
	run := o.queueLocked(&ev.turn)
	ev.prompt = o.prompt && run.wanted
	o.releaseLocked(run)
	return nil
}

// releaseLocked releases the lock, makes the sweeper check the object, and starts the
// runner that queueLocked or wakeLocked asked for.
func (o *object) releaseLocked(run runnerRequest) {
	invariants.Held(&o.mu)
	enqueue := !o.toSweep
	o.toSweep = true
	o.mu.Unlock()
	if enqueue {
		o.host().sweeper.enqueueForSweep(o)
	}
	run.begin(o)
}

// runnerRequest is a request for a runner, or none.
type runnerRequest struct {
	wanted bool
	turn   *turn // granted; nil: begin between incarnations
}

// begin starts the object's runner, without the lock.
func (l runnerRequest) begin(o *object) {
	if l.wanted {
		o.host().spawn(o, l.turn)
	}
}

// admitLocked returns the reason why an event may not enter the queue, or nil.
func (o *object) admitLocked(ev *event, inside bool) error {
	invariants.Held(&o.mu)
	h := o.host()
	if ev.only != nil && ev.only != o.incarnation {
		return ErrFenced
	}
	switch h.phase.Load() {
	case phaseClosing:
		if !inside {
			return ErrClosed
		}
	case phaseClosed:
		return ErrClosed
	}
	if ev.depth > maxDepth {
		return ErrDeadlock
	}
	if inc := o.incarnation; inc != nil && inc.activity != nil && inc.exclusive != nil {
		for p := ev.parent; p != nil; p = p.parent {
			if p == inc.exclusive {
				return ErrDeadlock
			}
		}
	}
	if ev.kind != kindCall {
		return nil // there is one delivery at a time; State.Go bounds tasks
	}
	if limit := h.opts.MaxEvents; o.count >= limit && o.count-o.endingLocked() >= limit || o.bytes+ev.size > h.opts.MaxBytes {
		return ErrOverloaded
	}
	return nil
}

// endingLocked returns 1 if an event has committed its last batch and still has the turn, else 0. The event is counted until
// it passes the turn, and its caller may have the answer before.
func (o *object) endingLocked() int {
	invariants.Held(&o.mu)
	inc := o.incarnation
	if inc == nil || inc.activity == nil || inc.queue.holder == nil {
		return 0
	}
	if t := inc.queue.holder; t.ev.committed.Load() && t == t.ev.last {
		return 1
	}
	return 0
}

// queueLocked queues a new turn. The caller must begin the returned runnerRequest without the
// lock.
func (o *object) queueLocked(t *turn) runnerRequest {
	invariants.Held(&o.mu)
	t.unstarted = true
	if inc := o.incarnation; inc != nil {
		inc.ensureActivityLocked()
		t.queue = &inc.queue
		if inc.queue.holder == nil {
			inc.queue.grantLocked(t)
			o.startLocked(inc, t, t.ev.queued)
			return runnerRequest{wanted: true, turn: t}
		}
		inc.queue.push(t)
		return runnerRequest{}
	}
	o.waiting.push(t)
	return o.wakeLocked()
}

// withdraw takes ev out of the queue if it has not started, and reports whether it had.
func (o *object) withdraw(ev *event) (started bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if ev.incarnation != nil {
		return true
	}
	if !ev.abandoned {
		o.unqueueLocked(ev)
	}
	return false
}

// unqueueLocked marks a queued event as left; the turn queue skips it.
func (o *object) unqueueLocked(ev *event) {
	invariants.Held(&o.mu)
	ev.abandoned = true
	o.count--
	o.bytes -= ev.size
	o.host().decrement(&o.host().active)
	ev.handler = nil
}

// rangeLocked returns the range of the object. It makes one if the object was at rest.
func (o *object) rangeLocked(e objectstore.Epoch) *objectstore.Range {
	invariants.Held(&o.mu)
	if o.rng == nil {
		o.rng = o.host().store.Range(o.id())
		o.rng.Begin(e)
	}
	return o.rng
}
