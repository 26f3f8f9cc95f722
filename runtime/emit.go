package runtime

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/dohost/dohost/eviction"
	"github.com/dohost/dohost/internal/guard"
	"github.com/dohost/dohost/objectstore"
)

// Emit adds f to the outputs of the batch. The runtime calls f with nil, in order with
// the object's other outputs, once everything committed before is durable, or with an error
// if the output must not leave.
//
// f runs on a goroutine of its own. The object's later outputs wait for it; the outputs of
// other objects do not. If f panics, calls runtime.Goexit or takes longer than
// Limits.Output, the incarnation ends, and the later outputs leave without f.
//
// Without the turn, with a context of this incarnation, f waits for everything committed so
// far. With the turn, Emit first waits for an operation that another goroutine has begun
// with the same turn.
//
// Errors: ErrNoTurn, ErrFenced.
func (s *State) Emit(ctx context.Context, f func(error)) error {
	return s.emit(ctx, 0, func(ev *event) objectstore.Output { return &callback{ev: ev, f: f} })
}

// EmitOutput is Emit for a function that is constant work, does not block, does not panic
// and calls no code of users: it runs on the goroutine that releases the output, which may
// be the committer. f holds size bytes in memory until then. They count as undurable bytes:
// EmitOutput waits as Put does, unless size is zero.
//
// Errors: the errors of Emit; ErrOverloaded and ctx's cause, as Put.
func (s *State) EmitOutput(ctx context.Context, size int, f func(error)) error {
	return s.emit(ctx, size, func(ev *event) objectstore.Output {
		if ev.points != nil {
			return &emissionPoint{ev, f}
		}
		return emission(f)
	})
}

// emit makes an output and commits it, or adds it to the batch of the turn.
func (s *State) emit(ctx context.Context, size int, output func(*event) objectstore.Output) error {
	ev := eventOf(ctx)
	if ev == nil || ev.incarnation != s.incarnation() {
		if err := s.incarnation().cause(); err != nil {
			return err
		}
		return ErrNoTurn
	}
	out := output(ev)
	if t := turnOf(ctx); t != nil {
		t.claim()
		held := t.heldErr() == nil
		var err error
		if held {
			err = s.write(ctx, func(batch *objectstore.Batch) error { return batch.EmitSized(out, size) })
		}
		t.done()
		if held {
			return err
		}
	}
	return s.emitAlone(ctx, out, size)
}

// emission is the output of an EmitOutput.
type emission func(error)

// Release calls the function.
func (e emission) Release(err error) { e(err) }

// emissionPoint is an emission that is a point of the policy.
type emissionPoint struct {
	ev *event
	f  func(error)
}

// Release is a point, and calls the function.
func (e *emissionPoint) Release(err error) {
	if err == nil {
		e.ev.obj.guardedAt(e.ev, eviction.PlaceRelease)
	}
	e.f(err)
}

// callback is the output of an Emit.
type callback struct {
	ev *event // the event that called Emit
	f  func(error)
	// left is set when the later outputs no longer wait for f, or f has ended.
	left atomic.Bool
}

// Release calls f with the error. No output waits for that call.
func (c *callback) Release(err error) {
	h := c.ev.host()
	h.emitting.Add(1)
	go func() {
		defer h.decrement(&h.emitting)
		c.await(c.start(err))
	}()
}

// ReleaseAsync calls f with nil. It calls done when f has ended, or when the runtime stops
// waiting for it.
func (c *callback) ReleaseAsync(done func()) {
	h := c.ev.host()
	h.emitting.Add(1)
	go func() {
		defer h.decrement(&h.emitting)
		defer done()
		c.ev.obj.guardedAt(c.ev, eviction.PlaceRelease)
		c.await(c.start(nil))
	}()
}

// start calls f on a goroutine of its own.
func (c *callback) start(err error) <-chan *guard.Failure {
	return guard.Start(func() {
		defer func() {
			if !c.left.CompareAndSwap(false, true) {
				c.ev.host().removeZombie(c)
			}
		}()
		c.f(err)
	})
}

// await returns when f has ended, or after Limits.Output; once the incarnation has ended,
// after at most unwindTime.
func (c *callback) await(ended <-chan *guard.Failure) {
	o, inc := c.ev.obj, c.ev.incarnation
	limit := o.limits().Output
	if limit < 0 {
		limit = never
	}
	timer := time.NewTimer(limit)
	defer timer.Stop()
	dead := inc.context().Done()
	for {
		select {
		case failure := <-ended:
			if failure != nil {
				p := &PanicError{Value: failure.Value, Stack: failure.Stack}
				o.fence(inc, &Fenced{Reason: ReasonPanic, Err: p}, eviction.EndFence)
			}
			return
		case <-dead:
			dead = nil
			timer.Reset(unwindTime)
		case <-timer.C:
			o.fence(inc, &Fenced{Reason: ReasonOutput}, eviction.EndFence)
			o.host().addZombie(c)
			if !c.left.CompareAndSwap(false, true) { // f has just ended
				o.host().removeZombie(c)
			}
			return
		}
	}
}

func (c *callback) zombie() string { return c.ev.zombie() + " (Emit)" }
