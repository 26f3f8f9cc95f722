package runtime

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"
)

// turnState says what may be done with a turn.
type turnState = uint32

const (
	turnQueued turnState = iota // waits to be granted for the first time
	turnHeld                    // its goroutine is in the object's code
	turnAway                    // given up inside an Await
	turnOver                    // the event has ended
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
	busy  atomic.Bool

	// Owned by the goroutine that holds the turn.
	transactions int    // nesting depth
	segment      uint64 // counts the segments of this turn; read by the watchdog through seen

	// Fixed once the turn has been given up for the first time. Room for a gate's
	// signal that comes late, after a fence, and for a grant.
	wake chan signal

	// Guarded by the object's lock.
	lane  *lane
	next  *turn
	seen  atomic.Uint64 // segment, as the watchdog may read it
	fresh bool          // not yet started: a runner must start it
}

// lane is a queue for the turn: the life's own, or that inside an Exclusive
// section. Guarded by the object's lock.
type lane struct {
	holder     *turn
	head, tail *turn
}

func (l *lane) push(t *turn) {
	t.next = nil
	if l.tail == nil {
		l.head = t
	} else {
		l.tail.next = t
	}
	l.tail = t
}

func (l *lane) pop() *turn {
	t := l.head
	if t == nil {
		return nil
	}
	l.head = t.next
	if l.head == nil {
		l.tail = nil
	}
	t.next = nil
	return t
}

// passLocked gives the lane to the next turn in order. It wakes a returning
// Await by itself and returns a fresh turn for the caller to run.
func (l *lane) passLocked() *turn {
	l.holder = nil
	for {
		t := l.pop()
		if t == nil {
			return nil
		}
		if t.fresh && t.ev.left {
			continue // its caller has gone; it was uncounted then
		}
		l.grantLocked(t)
		if t.fresh {
			return t
		}
		t.wake <- granted
		return nil
	}
}

func (l *lane) grantLocked(t *turn) {
	l.holder = t
	t.seen.Add(1)
	t.state.Store(turnHeld)
}

// turnKey is the context key under which a turn, or an awayCtx, is found.
type turnKey struct{}

// awayCtx is the context of an Await's fn: it has no turn, and remembers whose it was.
type awayCtx struct {
	context.Context
	t *turn
}

func (c *awayCtx) Value(key any) any {
	if _, ok := key.(turnKey); ok {
		return c
	}
	return c.Context.Value(key)
}

// heldCtx is the context of an Enter's fn.
type heldCtx struct {
	context.Context
	t *turn
}

func (c *heldCtx) Value(key any) any {
	if _, ok := key.(turnKey); ok {
		return c.t
	}
	return c.Context.Value(key)
}

// turnOf returns the turn that ctx carries, or nil.
func turnOf(ctx context.Context) *turn {
	t, _ := ctx.Value(turnKey{}).(*turn)
	return t
}

// eventOf returns the event on whose behalf ctx runs, with or without the turn.
func eventOf(ctx context.Context) *event {
	switch v := ctx.Value(turnKey{}).(type) {
	case *turn:
		return v.ev
	case *awayCtx:
		return v.t.ev
	}
	return nil
}

// use claims the turn for one operation of this life. Done gives it back.
func (t *turn) use() error {
	if err := t.heldErr(); err != nil {
		return err
	}
	if !t.busy.CompareAndSwap(false, true) {
		return ErrTurnBusy
	}
	if err := t.heldErr(); err != nil { // given up or fenced in between
		t.busy.Store(false)
		return err
	}
	return nil
}

func (t *turn) done() { t.busy.Store(false) }

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

// eventCtx is the context of a handler: it ends with the life, never with the
// caller, and carries the turn.
type eventCtx event

// Deadline reports none: an event's context has no time of its own.
func (c *eventCtx) Deadline() (time.Time, bool) { return time.Time{}, false }

// Done is closed when the life ends.
func (c *eventCtx) Done() <-chan struct{} { return c.life.context().Done() }

// Err is nil until the life has ended.
func (c *eventCtx) Err() error {
	if !c.life.dead.Load() {
		return nil
	}
	return c.life.context().Err()
}

// Value finds the turn, and the life's context for context.Cause.
func (c *eventCtx) Value(key any) any {
	if _, ok := key.(turnKey); ok {
		return &c.turn
	}
	return c.life.context().Value(key)
}
