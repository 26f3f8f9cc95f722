package runtime

import (
	"fmt"
	"runtime/debug"
	"time"

	"github.com/dohost/dohost/eviction"
	"github.com/dohost/dohost/internal/backoff"
	"github.com/dohost/dohost/internal/guard"
	"github.com/dohost/dohost/internal/invariants"
	"github.com/dohost/dohost/objectstore"
)

// Constructor back-off: after a failed constructor no incarnation begins for this long, and
// calls fail immediately. The delay doubles with each failure.
const (
	backoffFirst = 100 * time.Millisecond
	backoffMost  = 10 * time.Second
)

// construct runs the constructor of inc and returns the next turn to run.
func (o *object) construct(inc *incarnation, ev *event) (next *turn) {
	o.host().waking(inc)
	returned := false
	defer func() {
		if returned {
			return
		}
		p := &PanicError{Value: recover(), Stack: debug.Stack()}
		ev.end()
		next = o.constructed(inc, ev, p)
		if p.Value == nil && next != nil {
			o.host().spawn(o, next)
		}
	}()
	o.class.label(ev.op)
	o.at(ev, eviction.PlaceConstruct)
	err := inc.cause()
	if err == nil {
		inc.instance, err = o.class.New((*eventCtx)(ev), (*State)(inc))
		ev.end()
	}
	if err == nil {
		o.rememberSlot(inc)
		err = inc.commit(ev.end())
	}
	returned = true
	return o.constructed(inc, ev, err)
}

// constructed ends the constructor's event. After an error, unless a fence was first, the
// queued events fail and the next incarnation waits.
func (o *object) constructed(inc *incarnation, ev *event, err error) *turn {
	inc.rng.SetWaking(false)
	if failure := o.host().store.Err(); err != nil && failure != nil {
		drop(inc.batch, ErrFenced)
		o.fence(inc, &Fenced{Reason: ReasonStore, Err: failure}, eviction.EndFence)
	} else if err != nil {
		drop(inc.batch, ErrFenced)
		o.failConstructor(inc, &Fenced{Reason: ReasonConstructor, Err: err, by: ev})
	} else {
		o.host().live(inc)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if err == nil {
		o.backOff = nil
	}
	inc.endExclusiveLocked(&ev.turn) // unless its code, and the section with it, has ended
	inc.unlinkLocked(ev)
	ev.turn.state.Store(turnOver)
	if ev.isZombie {
		o.host().removeZombie(ev)
	}
	o.last = o.host().now()
	return o.startLocked(inc, inc.queue.passLocked(), o.last)
}

// failConstructor ends an incarnation that has not ended yet: its constructor failed, or
// took too long.
func (o *object) failConstructor(inc *incarnation, why *Fenced) {
	cause := why.cause()
	text, full := guard.Text(cause), guard.Is(cause, objectstore.ErrNoSpace)
	o.mu.Lock()
	if inc.dead.Load() {
		o.mu.Unlock()
		return
	}
	failed := o.failLocked(inc, cause, text)
	err := o.backOff.err
	for _, f := range failed {
		// A full disk is not the alarm's fault. Any other error is a failed run, which the
		// runner writes before the next incarnation begins.
		if f.kind == kindAlarm && !full && f.ended.CompareAndSwap(false, true) {
			o.deferredSlots = &slotEdit{delivery: f.delivery, constructor: true, text: text, next: o.deferredSlots}
		}
	}
	o.mu.Unlock()
	o.fence(inc, why, eviction.EndFence)
	for _, f := range failed {
		o.refuse(f, err)
	}
}

// failLocked starts the back-off, and returns the events that fail with the constructor.
func (o *object) failLocked(inc *incarnation, cause error, text string) []*event {
	invariants.Held(&o.mu)
	failures := 0
	if b := o.backOff; b != nil {
		failures = b.failures
	}
	wait := backoff.Delay(failures, backoffFirst, backoffMost)
	o.backOff = &backOff{failures + 1, o.host().now() + wait, &constructorError{wait, cause, text}}
	return inc.queue.takeFreshLocked()
}

// backOff is the delay after a failed constructor. Calls fail until it is over.
type backOff struct {
	failures int           // of constructors in a row
	until    time.Duration // on the host's clock
	err      error         // the error of these calls
}

// constructorError is the error of calls to an object after its constructor has failed.
type constructorError struct {
	wait  time.Duration // until the next try
	cause error
	text  string // of cause
}

// Error names the cause.
func (e *constructorError) Error() string {
	return fmt.Sprintf("%v (next attempt in %v): %s", ErrConstructor, e.wait, e.text)
}

// Unwrap returns ErrConstructor and the cause.
func (e *constructorError) Unwrap() []error { return []error{ErrConstructor, e.cause} }
