package runtime

import (
	"context"
	goruntime "runtime"
	"time"

	"github.com/dohost/dohost/eviction"
)

// Call is a call to an object, as Host.Do takes it.
type Call struct {
	// Op names the operation in errors, metrics and stacks.
	Op string
	// Size is the number of bytes of the encoded payload, zero if it is not encoded.
	Size int
	// Depth is the result of DepthOf on the host that the call has arrived from, or 0.
	Depth int
	// Handler runs while the object's turn is held. It may continue after the caller has
	// gone.
	Handler Handler
}

// Handler is the work of an event. It is an interface so that one allocation can hold the
// argument, the result and the code of a call.
type Handler interface {
	// Handle runs with the instance, holding the turn.
	Handle(ctx context.Context, instance any) error
}

// LimitedHandler is a Handler with a time limit, Awaits included. The sweeper checks the
// limit every second, and ends the incarnation of an event that has exceeded it.
type LimitedHandler interface {
	Handler
	// Limit returns the time limit, always the same. Zero means none.
	Limit() time.Duration
}

// ReleaseHandler is a Handler that is notified when its event gives up the turn.
type ReleaseHandler interface {
	Handler
	// TurnReleased is called on the event's goroutine when the event gives up the turn for the first
	// time, before another event gets it.
	TurnReleased()
}

// Func is a function as a Handler.
type Func func(ctx context.Context, instance any) error

// Handle calls the function.
func (f Func) Handle(ctx context.Context, instance any) error { return f(ctx, instance) }

// Do delivers a call to the object id. It returns when the answer may leave: when all
// earlier writes of the object are durable. Inside a turn Do is an Await: it gives up the
// turn, and the call is sent once the writes of the caller's object are durable.
//
// The error is nil or an *Error, which reports whether the Handler ran.
func (h *Host) Do(ctx context.Context, id ID, c Call) error {
	ev := h.newCall(ctx, c)
	if t := turnOf(ctx); t != nil {
		return h.callFrom(ctx, t, id, ev)
	}
	if err := endedOf(ctx); err != nil {
		return refusal(id, c.Op, err)
	}
	h.callAt(ctx, id, c.Op, eviction.PlaceSend)
	if err := h.send(id, ev); err != nil {
		return refusal(id, c.Op, err)
	}
	if ev.prompt {
		// The answer is near: yielding is cheaper than sleeping until it arrives.
		goruntime.Gosched()
	}
	answered, err := ev.wait(ctx, id)
	if answered {
		h.answers.Put(ev.done)
	}
	h.callAt(ctx, id, c.Op, eviction.PlaceAnswer)
	return err
}

// newCall makes the event of a call, with the channel for its answer.
func (h *Host) newCall(ctx context.Context, c Call) *event {
	done, ok := h.answers.Get().(chan error)
	if !ok {
		done = make(chan error, 1)
	}
	ev := &event{op: c.Op, size: c.Size, handler: c.Handler, done: done}
	ev.turn.ev = ev
	ev.parent = eventOf(ctx)
	ev.depth = uint8(min(max(ev.parent.callDepth(), c.Depth), maxDepth+1))
	return ev
}

// DepthOf returns the depth of a call with this context: the number of calls, from event to event, that lead to it. It is 0 outside
// of events.
func DepthOf(ctx context.Context) int { return eventOf(ctx).callDepth() }

// callDepth is the depth of a call by this event, which may be nil.
func (ev *event) callDepth() int {
	if ev == nil {
		return 0
	}
	return int(ev.depth) + 1
}

// send enqueues ev at the object id, and brings the object into memory if necessary.
func (h *Host) send(id ID, ev *event) error {
	class, err := h.classOf(id)
	if err != nil {
		return err
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

// callOut is the output of a call from inside a turn: it enters the callee's queue.
type callOut struct {
	host *Host
	from *incarnation
	id   ID
	ev   *event
}

// Release enqueues the call at the callee, or answers it with the error.
func (c *callOut) Release(err error) {
	if err == nil {
		err = c.from.cause() // an ended incarnation starts no more calls
	}
	if c.ev.answered.Load() {
		return // its caller has given up
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
	how, err := t.commitAndRelease(&callOut{host: h, from: t.ev.incarnation, id: id, ev: ev})
	switch {
	case how == releaseCommitted && err != nil: // the call leaves, although the caller's handler has returned
		_, err := ev.wait(ctx, id)
		return err
	case err != nil:
		return refusal(id, ev.op, err)
	}
	defer func() {
		if back := t.reacquireTurn(); back != nil {
			err = &Error{Op: ev.op, ID: id, Err: back}
		}
	}()
	defer t.ev.obj.at(t.ev, eviction.PlaceAwaited)
	t.ev.obj.at(t.ev, eviction.PlaceAwait)
	select {
	case err := <-ev.done:
		return err
	case <-ctx.Done():
		return ev.abandon(ctx, id)
	}
}
