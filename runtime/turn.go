package runtime

import (
	"fmt"
	"sync/atomic"
)

// turnState is the state of a turn.
type turnState = uint32

const (
	turnQueued   turnState = iota // waits to be granted for the first time
	turnHeld                      // its goroutine is in the object's code
	turnReleased                  // released inside an Await
	turnOver                      // the code that had it has ended
)

// The values of turn.busy.
const (
	turnFree    uint32 = iota
	turnUsed           // one operation
	turnAwaited        // one operation, and a goroutine waits for its end
)

// signal is the reason why a suspended turn is woken.
type signal uint8

const (
	gateOpen   signal = iota // the committed writes are durable
	gateFailed               // they never will be
	granted                  // the turn is held again, or over: stop waiting
)

// turn is the right to run an object's code: one for an event, and one for each HoldTurn. It
// waits in a turn queue and is carried by a context.
type turn struct {
	ev *event

	// state and busy are for the checks that refuse misuse; the turn queue decides which turn is
	// the holder, under the object's lock.
	state atomic.Uint32
	busy  atomic.Uint32

	// Owned by the user of the turn.
	releases uint32 // how often it was released
	opened   bool   // an Exclusive section; written with obj.mu

	unstarted bool // not yet started: a runner must start it; guarded by the object's lock

	tx *transaction // the innermost open one; owned by the user of the turn

	// Fixed once the turn has been released for the first time. It has room for a gate's
	// signal that arrives late, after a fence, and for a grant.
	wake chan signal

	// progress counts grants and commits, for the check of long turns.
	progress atomic.Uint64

	// Guarded by the object's lock.
	queue *turnQueue
	next  *turn
}

// use claims the turn for one operation of this incarnation. done releases the claim.
func (t *turn) use() error {
	if err := t.heldErr(); err != nil {
		return err
	}
	if !t.busy.CompareAndSwap(turnFree, turnUsed) {
		return ErrTurnBusy
	}
	if err := t.heldErr(); err != nil { // given up or fenced in between
		t.done()
		return err
	}
	return nil
}

func (t *turn) done() {
	if t.busy.CompareAndSwap(turnUsed, turnFree) {
		return
	}
	idle := t.ev.host().idle
	idle.L.Lock()
	defer idle.L.Unlock()
	t.busy.Store(turnFree)
	idle.Broadcast()
}

// claim is use for the end of the turn's code: it waits for an operation that another
// goroutine has begun.
func (t *turn) claim() {
	if t.busy.CompareAndSwap(turnFree, turnUsed) {
		return
	}
	idle := t.ev.host().idle
	idle.L.Lock()
	defer idle.L.Unlock()
	for !t.busy.CompareAndSwap(turnFree, turnUsed) {
		if t.busy.CompareAndSwap(turnUsed, turnAwaited) || t.busy.Load() == turnAwaited {
			idle.Wait()
		}
	}
}

// end ends the turn when its code has ended. Goroutines that outlived the code may still
// use the turn: end refuses their later operations and waits for a running one, so that
// none writes into the batch during the commit, nor into the batch of the next event.
// It rolls back open transactions and closes an open Exclusive section. If the turn is
// released, in an Await, end queues for a replacement. It returns the turn that is held.
func (t *turn) end() *turn {
	held := t
	for !t.state.CompareAndSwap(turnHeld, turnOver) {
		if t.state.Load() == turnOver {
			return t
		}
		if r := t.replace(); r != nil {
			held = r
			break
		}
	}
	t.claim()
	defer t.done()
	for ; t.tx != nil; t.tx = t.tx.outer {
		rollBack(t.ev.incarnation.batch, t.tx.save)
	}
	if t.opened {
		o := t.ev.obj
		o.mu.Lock()
		defer o.mu.Unlock()
		t.ev.incarnation.endExclusiveLocked(t) // held is its holder: there is no next
	}
	return held
}

// replace ends a released turn, and returns another one, held, for its event. It
// returns nil if the turn has come back since.
func (t *turn) replace() *turn {
	o := t.ev.obj
	o.mu.Lock()
	if t.state.Load() != turnReleased {
		o.mu.Unlock()
		return nil
	}
	t.state.Store(turnOver) // if it is queued, the turn queue skips it
	r := &turn{ev: t.ev, queue: t.queue, wake: make(chan signal, 2)}
	queued := r.queueLocked()
	o.mu.Unlock()
	if queued {
		r.awaitGrant()
	}
	r.state.Store(turnOver)
	return r
}

func (t *turn) heldErr() error {
	switch t.state.Load() {
	case turnReleased:
		return fmt.Errorf("%w: an Await is running on this turn; use the context that it passed to fn", ErrNoTurn)
	case turnOver:
		return fmt.Errorf("%w: the event has ended", ErrNoTurn)
	}
	if inc := t.ev.incarnation; inc.dead.Load() {
		return inc.cause()
	}
	return nil
}
