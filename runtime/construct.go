package runtime

import (
	"fmt"
	"runtime/debug"
	"time"

	"github.com/dohost/dohost/internal/guard"
	"github.com/dohost/dohost/internal/invariants"
	"github.com/dohost/dohost/objectstore"
)

// Constructor back-off: the next life of an object whose constructor failed waits
// this long, doubling; calls fail at once meanwhile.
const (
	backoffFirst = 100 * time.Millisecond
	backoffMost  = 10 * time.Second
)

// construct runs the constructor of l and returns the next turn to run.
func (o *object) construct(l *life, ev *event) (next *turn) {
	o.host().waking(l)
	returned := false
	defer func() {
		if returned {
			return
		}
		p := &PanicError{Value: recover(), Stack: debug.Stack()}
		ev.end()
		next = o.constructed(l, ev, p)
		if p.Value == nil && next != nil {
			o.host().spawn(o, next)
		}
	}()
	o.class.label(ev.op)
	o.at(ev, PlaceConstruct)
	err := l.cause()
	if err == nil {
		l.instance, err = o.class.New((*eventCtx)(ev), (*State)(l))
		ev.end()
	}
	if err == nil {
		o.noteSlot(l)
		err = l.handOver(ev.end())
	}
	returned = true
	return o.constructed(l, ev, err)
}

// constructed ends the constructor's event. After an error, unless a fence was
// first, the queued events fail and the next life waits.
func (o *object) constructed(l *life, ev *event, err error) *turn {
	l.rng.Waking(false)
	if failure := o.host().store.Err(); err != nil && failure != nil {
		drop(l.segment, ErrFenced)
		o.fence(l, &Fenced{Reason: ReasonStore, Err: failure}, StyleFence)
	} else if err != nil {
		drop(l.segment, ErrFenced)
		o.failConstructor(l, &Fenced{Reason: ReasonConstructor, Err: err, by: ev})
	} else {
		o.host().live(l)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if err == nil {
		o.backOff = nil
	}
	l.includeLocked(&ev.turn) // unless its code has ended, and with it the section
	l.unlinkLocked(ev)
	ev.turn.state.Store(turnOver)
	if ev.isZombie {
		o.host().zombieEnded(ev)
	}
	o.last = o.host().now()
	return o.startLocked(l, l.lane.passLocked(), o.last)
}

// failConstructor ends a life whose constructor failed, or took too long, unless
// it has ended already.
func (o *object) failConstructor(l *life, why *Fenced) {
	cause := why.cause()
	text, full := guard.Text(cause), guard.Is(cause, objectstore.ErrNoSpace)
	o.mu.Lock()
	if l.dead.Load() {
		o.mu.Unlock()
		return
	}
	failed := o.failLocked(l, cause, text)
	err := o.backOff.err
	for _, f := range failed {
		// A full disk is no fault of the alarm. Else its run has failed, and the next life
		// begins after that is noted.
		if f.kind == kindAlarm && !full && f.ended.CompareAndSwap(false, true) {
			o.repairs = &slotEdit{delivery: f.delivery, constructor: true, text: text, next: o.repairs}
		}
	}
	o.mu.Unlock()
	o.fence(l, why, StyleFence)
	for _, f := range failed {
		o.refuse(f, err)
	}
}

// failLocked notes a failed constructor and returns the events that fail with it.
func (o *object) failLocked(l *life, cause error, text string) []*event {
	invariants.Held(&o.mu)
	wait := backoffFirst
	if b := o.backOff; b != nil {
		wait = min(2*b.wait, backoffMost)
	}
	o.backOff = &backOff{wait, o.host().now() + wait, &constructorError{wait, cause, text}}
	return l.lane.takeFreshLocked()
}

// backOff keeps calls from a constructor that has failed.
type backOff struct {
	wait  time.Duration
	until time.Duration // on the host's clock
	err   error         // what they get
}

// constructorError is the error of calls to an object whose constructor has failed.
type constructorError struct {
	wait  time.Duration // until the next try
	cause error
	text  string // of cause
}

// Error names the cause.
func (e *constructorError) Error() string {
	return fmt.Sprintf("%v (next try in %v): %s", ErrConstructor, e.wait, e.text)
}

// Unwrap returns ErrConstructor and the cause.
func (e *constructorError) Unwrap() []error { return []error{ErrConstructor, e.cause} }
