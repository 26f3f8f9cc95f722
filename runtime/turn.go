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
	turnAwaited        // one operation, and the turn's own goroutine waits for its end
)

// signal is what a suspended turn can be woken with.
type signal uint8

const (
	gateOpen   signal = iota // what was handed over is durable
	gateFailed               // it will never be
	granted                  // the turn is held again
)

// turn is the right to be in an object's code: one for an event, and one for
// each Enter. It queues in a lane and travels in a context.
type turn struct {
	ev *event

	// state and busy are for the checks that refuse misuse; who holds the turn is
	// decided by the lane, under the object's lock.
	state atomic.Uint32
	busy  atomic.Uint32
	idle  chan struct{} // made by whoever makes busy turnAwaited; capacity 1

	// Owned by whoever uses the turn.
	transactions int    // nesting depth
	givenUp      uint64 // times

	// Fixed once the turn has been given up for the first time. Room for a gate's
	// signal that comes late, after a fence, and for a grant.
	wake chan signal

	// seen counts grants and hand-overs, for the watchdog.
	seen atomic.Uint64

	// Guarded by the object's lock.
	lane  *lane
	next  *turn
	fresh bool // not yet started: a runner must start it
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
	t.busy.Store(turnUsed) // by the one who waits
	t.idle <- struct{}{}
}

// claim is use for the turn's own goroutine at the end of what was done with the
// turn: it waits for an operation that another goroutine has begun.
func (t *turn) claim() {
	if t.busy.CompareAndSwap(turnFree, turnUsed) {
		return
	}
	t.idle = make(chan struct{}, 1)
	for !t.busy.CompareAndSwap(turnUsed, turnAwaited) {
		if t.busy.CompareAndSwap(turnFree, turnUsed) {
			return
		}
	}
	<-t.idle
}

// end refuses every later operation with this turn, and waits for one that runs:
// a goroutine that the code left behind must not write into the segment while it
// is handed over, nor into that of the next event.
func (t *turn) end() {
	if t.state.Swap(turnOver) != turnOver {
		t.claim()
	}
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
