package runtime

import (
	"context"
	"fmt"
	"runtime/debug"

	"github.com/dohost/dohost/eviction"
)

// HoldTurn takes the turn for one batch, from inside an Await's fn, and returns when that
// batch is durable. It waits in the turn queue like every event.
//
// Errors: fn's (its writes are kept, as a handler's are), ErrNoTurn, ErrFenced.
func HoldTurn(ctx context.Context, fn func(context.Context) error) error {
	t, err := acquireTurn(ctx)
	if err != nil {
		return err
	}
	returned := false
	var last *turn
	defer func() {
		if !returned {
			// As with a handler the batch is dropped. The panic continues.
			value := recover()
			if last == nil {
				last = t.end()
			}
			t.ev.obj.crashed(t.ev, &PanicError{Value: value, Stack: debug.Stack()})
			last.retire()
			if value != nil {
				panic(value)
			}
		}
	}()
	err = fn(&heldCtx{Context: ctx, t: t})
	last = t.end()
	serr := last.commitAll()
	returned = true
	h := t.ev.host()
	h.active.Add(1) // others need not wait for the disk, but Close does
	defer h.decrement(&h.active)
	last.retire()
	if serr == nil {
		serr = last.awaitGate()
		t.ev.obj.at(t.ev, eviction.PlaceAwaited)
	}
	if serr != nil {
		return serr
	}
	return err
}

// acquireTurn takes another turn for the event of an Await, from the context that the Await
// passed to its fn. The Await must not have returned. The turn may outlast the event.
func acquireTurn(ctx context.Context) (*turn, error) {
	released, ok := ctx.Value(turnKey{}).(*releasedCtx)
	if !ok {
		return nil, fmt.Errorf("%w: HoldTurn needs the context that Await passed to its fn", ErrNoTurn)
	}
	ev := released.t.ev
	ev.obj.at(ev, eviction.PlaceHoldTurn)
	t := &turn{ev: ev, wake: make(chan signal, 2)}
	o := ev.obj
	o.mu.Lock()
	if err := ev.incarnation.cause(); err != nil {
		o.mu.Unlock()
		return nil, err
	}
	if released.t.state.Load() != turnReleased {
		o.mu.Unlock()
		return nil, fmt.Errorf("%w: the Await has returned", ErrNoTurn)
	}
	t.queue = released.t.queue
	o.count++
	ev.incarnation.heldTurns++
	o.host().active.Add(1)
	queued := t.queueLocked()
	o.mu.Unlock()
	if queued {
		t.awaitGrant()
	}
	if err := ev.incarnation.cause(); err != nil {
		t.retire()
		return nil, err
	}
	return t, nil
}

// retire ends a turn that is not an event's own.
func (t *turn) retire() {
	o, inc := t.ev.obj, t.ev.incarnation
	o.mu.Lock()
	t.state.Store(turnOver)
	if inc.heldTurns--; !inc.dead.Load() {
		o.count--
		o.host().decrement(&o.host().active)
	}
	next := o.startNextLocked(inc, t.queue)
	o.mu.Unlock()
	if next != nil {
		o.host().spawn(o, next)
	}
}

// Sync commits the batch and returns when everything that the object has committed is
// durable, NoWait writes included. It keeps the turn.
//
// Errors: ErrNoTurn, ErrTurnBusy, ErrInTransaction, ErrFenced.
func Sync(ctx context.Context) error {
	t := turnOf(ctx)
	if t == nil {
		return ErrNoTurn
	}
	if err := t.use(); err != nil {
		return err
	}
	defer t.done()
	if t.tx != nil {
		return ErrInTransaction
	}
	return t.sync()
}

func (t *turn) sync() error {
	if err := t.commitAll(); err != nil {
		return err
	}
	err := t.awaitGate()
	t.ev.obj.at(t.ev, eviction.PlaceResume)
	if err == nil {
		err = t.ev.incarnation.cause()
	}
	return err
}

// commitAll commits the batch; the gate opens when everything that the object has
// committed is durable.
func (t *turn) commitAll() error {
	inc := t.ev.incarnation
	t.prepare()
	inc.batch.Sync((*gate)(t))
	if err := inc.commit(t); err != nil {
		<-t.wake
		return err
	}
	return nil
}

// orFenced returns the reason why the incarnation has ended, or ErrFenced while the fence
// of a failed store has not reached it yet.
func (inc *incarnation) orFenced() error {
	if err := inc.cause(); err != nil {
		return err
	}
	return ErrFenced
}
