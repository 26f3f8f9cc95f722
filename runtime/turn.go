package runtime

import (
	"fmt"
	"sync/atomic"
)

// turnState says what may be done with a turn.
type turnState = uint32

const (
	turnQueued turnState = iota // waits to be granted for the first time
	turnHeld                    // its goroutine is in the object's code
	turnAway                    // given up inside an Await
	turnOver                    // the code that it was given to has ended
)

// Who uses a turn.
const (
	turnFree    uint32 = iota
	turnUsed           // one operation
	turnAwaited        // one operation, and somebody waits for its end
)

// signal is what a suspended turn can be woken with.
type signal uint8

const (
	gateOpen   signal = iota // what was handed over is durable
	gateFailed               // it will never be
	granted                  // the turn is held again, or over: it is not to be waited for
)

// turn is the right to be in an object's code: one for an event, and one for
// each Enter. It queues in a lane and travels in a context.
type turn struct {
	ev *event

	// state and busy are for the checks that refuse misuse; who holds the turn is
	// decided by the lane, under the object's lock.
	state atomic.Uint32
	busy  atomic.Uint32

	// Owned by whoever uses the turn.
	givenUp uint32 // times
	opened  bool   // an Exclusive section; written with obj.mu

	fresh bool // not yet started: a runner must start it; guarded by the object's lock

	tx *transaction // innermost of those that are open; owned by whoever uses the turn

	// Fixed once the turn has been given up for the first time. Room for a gate's
	// signal that comes late, after a fence, and for a grant.
	wake chan signal

	// seen counts grants and hand-overs, for the watchdog.
	seen atomic.Uint64

	// Guarded by the object's lock.
	lane *lane
	next *turn
}

// use claims the turn for one operation of this life. Done gives it back.
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
	idle := t.ev.obj.host().idle
	idle.L.Lock()
	defer idle.L.Unlock()
	t.busy.Store(turnFree)
	idle.Broadcast()
}

// claim is use for the end of what was done with the turn: it waits for an
// operation that another goroutine has begun.
func (t *turn) claim() {
	if t.busy.CompareAndSwap(turnFree, turnUsed) {
		return
	}
	idle := t.ev.obj.host().idle
	idle.L.Lock()
	defer idle.L.Unlock()
	for !t.busy.CompareAndSwap(turnFree, turnUsed) {
		if t.busy.CompareAndSwap(turnUsed, turnAwaited) || t.busy.Load() == turnAwaited {
			idle.Wait()
		}
	}
}

// end is for the end of the code that had the turn, which may have left
// goroutines behind that use it still. It refuses every later operation with the
// turn and waits for one that runs, so that none writes into the segment while it
// is handed over, nor into that of the next event. It takes back a transaction and
// closes an Exclusive section that are open. If the turn is away, in an Await, it
// queues for another in its place. It returns the turn that is held.
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
		rollBack(t.ev.life.segment, t.tx.save)
	}
	if t.opened {
		o := t.ev.obj
		o.mu.Lock()
		defer o.mu.Unlock()
		t.ev.life.includeLocked(t) // held is its holder: there is no next
	}
	return held
}

// replace ends a turn that is away and returns another, held, for its event; nil
// if the turn has come back meanwhile.
func (t *turn) replace() *turn {
	o := t.ev.obj
	o.mu.Lock()
	if t.state.Load() != turnAway {
		o.mu.Unlock()
		return nil
	}
	t.state.Store(turnOver) // if it is queued, the lane passes over it
	r := &turn{ev: t.ev, lane: t.lane, wake: make(chan signal, 2)}
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
	case turnAway:
		return fmt.Errorf("%w: an Await is running on this turn; use the context that it passed to fn", ErrNoTurn)
	case turnOver:
		return fmt.Errorf("%w: the event has ended", ErrNoTurn)
	}
	if l := t.ev.life; l.dead.Load() {
		return l.cause()
	}
	return nil
}
