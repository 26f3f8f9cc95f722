package runtime

import (
	"context"
	"fmt"
	goruntime "runtime"
	"time"
)

// Call is a call to an object: what Host.Do needs to know of it.
type Call struct {
	// Op names the operation in errors, metrics and stacks.
	Op string
	// Size is the number of bytes of the encoded payload, zero if it is not encoded.
	Size int
	// Handler runs while the object's turn is held. It may run to its end after the
	// caller has gone.
	Handler Handler
}

// Handler is what an event does with its object. An interface, so that a call can keep
// its argument, its result and what runs in one place.
type Handler interface {
	// Handle runs with the instance, holding the turn.
	Handle(ctx context.Context, instance any) error
}

// LimitedHandler is a Handler that may take so long, Awaits included: beyond that the
// incarnation is ended. It is looked at every second.
type LimitedHandler interface {
	Handler
	// Limit is that time, always the same. Zero means none.
	Limit() time.Duration
}

// AwayHandler is a Handler that wants to know when its event gives up the turn.
type AwayHandler interface {
	Handler
	// Away is called on the event's goroutine when the event gives up the turn for the first
	// time, before another event gets it.
	Away()
}

// Func is a function as a Handler.
type Func func(ctx context.Context, instance any) error

// Handle calls the function.
func (f Func) Handle(ctx context.Context, instance any) error { return f(ctx, instance) }

// Do delivers a call to the object id and returns when its answer may leave: when
// everything that the object wrote before is durable. Inside a turn it is an
// Await: the turn is passed on, and the call is sent once what the caller's
// object wrote is durable.
//
// The error is nil or an *Error, which says whether the Handler ran.
func (h *Host) Do(ctx context.Context, id ID, c Call) error {
	ev := h.newCall(ctx, c)
	if t := turnOf(ctx); t != nil {
		return h.callFrom(ctx, t, id, ev)
	}
	if err := endedOf(ctx); err != nil {
		return refusal(id, c.Op, err)
	}
	h.callAt(ctx, id, c.Op, PlaceSend)
	if err := h.send(id, ev); err != nil {
		return refusal(id, c.Op, err)
	}
	if ev.prompt {
		// Who yields is spared to be put to sleep and woken for an answer that comes at once.
		goruntime.Gosched()
	}
	err, came := ev.wait(ctx, id)
	if came {
		h.answers.Put(ev.done)
	}
	h.callAt(ctx, id, c.Op, PlaceAnswer)
	return err
}

// newCall makes the event of a call that somebody waits for.
func (h *Host) newCall(ctx context.Context, c Call) *event {
	done, ok := h.answers.Get().(chan error)
	if !ok {
		done = make(chan error, 1)
	}
	ev := &event{op: c.Op, size: c.Size, handler: c.Handler, done: done}
	ev.turn.ev = ev
	ev.parent = eventOf(ctx)
	if ev.parent != nil {
		ev.depth = ev.parent.depth + 1
	}
	return ev
}

// send enqueues ev at the object id, which it brings into memory if need be.
func (h *Host) send(id ID, ev *event) error {
	class, ok := h.classes[id.Class]
	if !ok {
		return fmt.Errorf("%w: %q", ErrNoClass, id.Class)
	}
	for {
		o := class.lookup(id.Name)
		if o == nil {
			if err := id.Validate(); err != nil {
				return err
			}
			o = class.objectOf(id.Name)
		}
		err := o.enqueue(ev, ev.parent != nil || ev.kind != kindCall)
		if err != errGone {
			return err
		}
		class.forget(o)
	}
}

// callOut is the output by which a call from inside a turn enters the callee's queue.
type callOut struct {
	host *Host
	from *life
	id   ID
	ev   *event
}

// Release enqueues the call at the callee, or answers it with why it cannot be.
func (c *callOut) Release(err error) {
	if err == nil {
		err = c.from.cause() // a call of an ended life no longer starts
	}
	if c.ev.answered.Load() {
		return // its caller has gone
	}
	if err == nil {
		err = c.host.send(c.id, c.ev)
	}
	if err != nil {
		if c.ev.answered.CompareAndSwap(false, true) {
			c.ev.done <- refusal(c.id, c.ev.op, err)
		}
	}
}

// callFrom is Do for a caller that holds a turn.
func (h *Host) callFrom(ctx context.Context, t *turn, id ID, ev *event) (err error) {
	how, err := t.depart(&callOut{host: h, from: t.ev.life, id: id, ev: ev})
	switch {
	case how == departHanded && err != nil: // it goes out, though the caller's handler has returned
		err, _ := ev.wait(ctx, id)
		return err
	case err != nil:
		return refusal(id, ev.op, err)
	}
	defer func() {
		if back := t.takeBack(); back != nil {
			err = &Error{Op: ev.op, ID: id, Err: back, Reset: true}
		}
	}()
	defer t.ev.obj.at(t.ev, PlaceAwaited)
	t.ev.obj.at(t.ev, PlaceAwait)
	select {
	case err := <-ev.done:
		return err
	case <-ctx.Done():
		return ev.abandon(ctx, id)
	}
}
