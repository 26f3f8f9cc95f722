package runtime

import (
	"context"
	"time"

	"github.com/dohost/dohost/eviction"
	"github.com/dohost/dohost/internal/invariants"
	"github.com/dohost/dohost/internal/seal"
	"github.com/dohost/dohost/objectstore"
)

// gate is the output that starts an Await's fn, or ends a Sync: it wakes the goroutine that
// committed the batch.
type gate turn

// Release wakes the goroutine that waits at the gate. Its channel has room.
func (g *gate) Release(err error) {
	s := gateOpen
	if err != nil || g.ev.outlived() {
		// Committed before the fence, so it is history, but its event is dead: the next
		// incarnation may do it again.
		s = gateFailed
	}
	g.wake <- s
}

// Await gives up the turn while fn runs. It first commits the object's writes so far. Once
// they are durable, it calls fn on this goroutine, with a context that has no turn. Await
// returns with the turn held again, or with an error that errors.Is matches with ErrFenced;
// the end of ctx does not shorten the wait for the turn. If ctx never had a turn, Await
// only calls fn.
//
// Errors: fn's, ErrNoTurn, ErrTurnBusy, ErrInTransaction, ErrFenced.
func Await(ctx context.Context, fn func(context.Context) error) error {
	t := turnOf(ctx)
	if t == nil {
		return awaitWithoutTurn(ctx, fn)
	}
	return t.runWithoutTurn(eviction.PlaceAwait, true, func() error {
		return fn(&releasedCtx{Context: ctx, t: t})
	})
}

// Wait is an Await that does not wait for the disk, for an fn without outside effects: it
// sleeps, or receives from a channel.
func Wait(ctx context.Context, fn func(context.Context) error) error {
	t := turnOf(ctx)
	if t == nil {
		return awaitWithoutTurn(ctx, fn)
	}
	return t.runWithoutTurn(eviction.PlaceAwait, false, func() error {
		return fn(&releasedCtx{Context: ctx, t: t})
	})
}

// awaitWithoutTurn is an Await that has no turn to give up: inside the fn of another Await, or
// outside of any object.
func awaitWithoutTurn(ctx context.Context, fn func(context.Context) error) error {
	if err := endedOf(ctx); err != nil {
		return err
	}
	return fn(ctx)
}

// runWithoutTurn runs fn without the turn. If gated is set, fn waits for the disk.
func (t *turn) runWithoutTurn(p eviction.Place, gated bool, fn func() error) (err error) {
	inc := t.ev.incarnation
	var out objectstore.Output
	if gated {
		out = (*gate)(t)
	}
	how, err := t.commitAndRelease(out)
	if err != nil {
		if how == releaseRefused && gated {
			<-t.wake // the refused gate sends its signal
		}
		return err
	}
	// reacquireTurn runs after any end of fn, so that a handler that recovers from a panic of fn
	// holds the turn.
	defer func() {
		if back := t.reacquireTurn(); back != nil {
			err = back
		}
	}()
	defer inc.obj.at(t.ev, eviction.PlaceAwaited)
	if gated {
		if err := t.awaitGate(); err != nil {
			return err
		}
	}
	inc.obj.at(t.ev, p)
	if err := inc.cause(); err != nil {
		return err // the next incarnation may do it again
	}
	return fn()
}

// prepare makes the channel that wakes this turn, once.
func (t *turn) prepare() {
	if t.wake == nil {
		t.wake = make(chan signal, 2)
	}
}

// awaitGate waits until the gate opens. A fence does not wait for the disk: the gate's
// signal then arrives late, and reacquireTurn skips it.
func (t *turn) awaitGate() error {
	inc := t.ev.incarnation
	select {
	case s := <-t.wake:
		if s == gateOpen {
			return inc.cause() // if the incarnation ends as the gate opens, its end counts
		}
	case <-inc.context().Done():
	}
	return inc.orFenced()
}

// releaseResult is the progress of a commitAndRelease.
type releaseResult uint8

const (
	releaseNone      releaseResult = iota // nothing has happened
	releaseRefused                        // the range refused the batch, and the output was released with an error
	releaseCommitted                      // the batch is committed
)

// commitAndRelease commits the batch, with out as its last output, and gives up the turn. If it
// returns an error it has not given up the turn: the event still holds it, or, after
// releaseCommitted, the event's code has ended.
func (t *turn) commitAndRelease(out objectstore.Output) (releaseResult, error) {
	if err := t.use(); err != nil {
		return releaseNone, err
	}
	defer t.done()
	if t.tx != nil {
		return releaseNone, ErrInTransaction
	}
	t.prepare()
	inc := t.ev.incarnation
	if out != nil {
		inc.batch.Emit(out)
	}
	if err := inc.commit(t); err != nil {
		return releaseRefused, err
	}
	return releaseCommitted, t.releaseTurn()
}

// releaseTurn passes the turn to the next in order. It fails if the event's code has ended.
func (t *turn) releaseTurn() error {
	if h, ok := t.ev.handler.(ReleaseHandler); ok && t == &t.ev.turn && t.releases == 0 {
		h.TurnReleased()
	}
	o := t.ev.obj
	o.mu.Lock()
	if !t.state.CompareAndSwap(turnHeld, turnReleased) {
		o.mu.Unlock()
		return t.heldErr()
	}
	t.releases++
	next := o.startNextLocked(t.ev.incarnation, t.queue)
	o.mu.Unlock()
	if next != nil {
		o.host().spawn(o, next)
	}
	if t.ev.kind == kindAlarm && !t.ev.waited {
		t.ev.waited = true
		o.host().scheduler.MarkSuspended(t.ev.alarm)
	}
	return nil
}

// reacquireTurn waits until the turn is held again. If the incarnation has ended by then,
// reacquireTurn returns the reason: the turn belongs to the ended incarnation, which runs
// no other event, and storage refuses. A goroutine that outlived its handler does not get the
// turn back.
func (t *turn) reacquireTurn() error {
	o := t.ev.obj
	o.mu.Lock()
	over := t.state.Load() == turnOver
	queued := !over && t.queueLocked()
	o.mu.Unlock()
	if queued {
		t.awaitGrant()
	}
	o.at(t.ev, eviction.PlaceResume)
	return t.heldErr()
}

// queueLocked grants the turn if it is free; otherwise it queues for it and reports true.
func (t *turn) queueLocked() (queued bool) {
	invariants.Held(&t.ev.obj.mu)
	t.queue = t.queue.openLocked()
	if t.queue.holder == nil {
		t.queue.grantLocked(t)
		return false
	}
	t.queue.push(t)
	return true
}

// awaitGrant waits for a grant, and skips a gate's signal that arrives late, after a fence.
func (t *turn) awaitGrant() {
	for s := range t.wake {
		if s == granted {
			return
		}
	}
}

// Sleep is a Wait of at least d.
func Sleep(ctx context.Context, d time.Duration) error {
	return Wait(ctx, func(ctx context.Context) error {
		timer := time.NewTimer(d)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
		}
		slept(ctx)
		return context.Cause(ctx) // its deadline may be the same moment
	})
}

// sleepKey is the context key of OnSlept's function.
type sleepKey struct{}

// OnSlept returns a context whose Sleeps call f before they return, outside of any event. A simulation orders there the
// goroutines that wake at the same moment.
func OnSlept(ctx context.Context, k seal.Key, f func()) context.Context {
	k.Check()
	return context.WithValue(ctx, sleepKey{}, f)
}

// slept is the point after a Sleep.
func slept(ctx context.Context) {
	if ev := eventOf(ctx); ev != nil {
		ev.obj.at(ev, eviction.PlaceSlept)
	} else if f, ok := ctx.Value(sleepKey{}).(func()); ok {
		f()
	}
}
