package runtime

import (
	"context"
	"time"

	"github.com/dohost/dohost/internal/invariants"
	"github.com/dohost/dohost/objectstore"
)

// gate is the output that starts an Await's fn, or ends a Sync: it wakes the turn
// that handed it over.
type gate turn

// Release wakes the goroutine that waits at the gate. Its channel has room.
func (g *gate) Release(err error) {
	s := gateOpen
	if err != nil || g.ev.life.dead.Load() {
		// Handed over before the fence, so it is history, but its event is dead:
		// the next life may do it again.
		s = gateFailed
	}
	g.wake <- s
}

// Await gives up the turn while fn runs. What the object has written so far is
// handed over first, and fn starts once all of it is durable, on this goroutine,
// with a context that has no turn. Await returns with the turn held again, or
// with an error for which errors.Is(err, ErrFenced) holds; the end of ctx does
// not shorten that. With a context that never had a turn, fn just runs.
//
// Errors: fn's, ErrNoTurn, ErrTurnBusy, ErrInTransaction, ErrFenced.
func Await(ctx context.Context, fn func(context.Context) error) error {
	t := turnOf(ctx)
	if t == nil {
		return without(ctx, fn)
	}
	return t.away(PlaceAwait, true, func() error {
		return fn(&awayCtx{Context: ctx, t: t})
	})
}

// Wait is an Await that does not wait for the disk, for fn lets nothing leave:
// it sleeps, or receives from a channel.
func Wait(ctx context.Context, fn func(context.Context) error) error {
	t := turnOf(ctx)
	if t == nil {
		return without(ctx, fn)
	}
	return t.away(PlaceAwait, false, func() error {
		return fn(&awayCtx{Context: ctx, t: t})
	})
}

// without is an Await that has no turn to give up: inside another's fn, or outside
// of any object.
func without(ctx context.Context, fn func(context.Context) error) error {
	if err := endedOf(ctx); err != nil {
		return err
	}
	return fn(ctx)
}

// away runs fn without the turn. gated says that fn waits for the disk.
func (t *turn) away(p Place, gated bool, fn func() error) (err error) {
	l := t.ev.life
	var out objectstore.Output
	if gated {
		out = (*gate)(t)
	}
	how, err := t.depart(out)
	if err != nil {
		if how == departRefused && gated {
			<-t.wake // the gate was told that it will not open
		}
		return err
	}
	// The turn comes back however fn ends, so that a handler that recovers from a
	// panic of fn finds itself in order.
	defer func() {
		if back := t.takeBack(); back != nil {
			err = back
		}
	}()
	defer l.obj.at(t.ev, PlaceAwaited)
	if gated {
		if err := t.awaitGate(); err != nil {
			return err
		}
	}
	l.obj.at(t.ev, p)
	if err := l.cause(); err != nil {
		return err // the next life may do it again
	}
	return fn()
}

// prepare makes the channel that wakes this turn, once.
func (t *turn) prepare() {
	if t.wake == nil {
		t.wake = make(chan signal, 2)
	}
}

// awaitGate waits until the gate opens. A fence does not wait for the disk: the
// gate's signal then comes late, and takeBack passes over it.
func (t *turn) awaitGate() error {
	l := t.ev.life
	select {
	case s := <-t.wake:
		if s == gateOpen {
			return l.cause() // of a gate that opens and a life that ends it is the end that counts
		}
	case <-l.context().Done():
	}
	return l.orFenced()
}

// departed is how far depart has come.
type departed uint8

const (
	departNot     departed = iota // nothing has happened
	departRefused                 // the hand-over was refused, and the output released with an error
	departHanded                  // the segment was handed over
)

// depart hands the segment over, with out as its last output, and passes the turn
// on. If it returns an error the turn is not passed on: it is still held, or, after
// departHanded, its code has ended meanwhile.
func (t *turn) depart(out objectstore.Output) (departed, error) {
	if err := t.use(); err != nil {
		return departNot, err
	}
	defer t.done()
	if t.tx != nil {
		return departNot, ErrInTransaction
	}
	t.prepare()
	l := t.ev.life
	if out != nil {
		l.segment.Emit(out)
	}
	if err := l.handOver(t); err != nil {
		return departRefused, err
	}
	return departHanded, t.giveUp()
}

// giveUp passes the turn on, unless its code has ended meanwhile.
func (t *turn) giveUp() error {
	if h, ok := t.ev.handler.(AwayHandler); ok && t == &t.ev.turn && t.givenUp == 0 {
		h.Away()
	}
	o := t.ev.obj
	o.mu.Lock()
	if !t.state.CompareAndSwap(turnHeld, turnAway) {
		o.mu.Unlock()
		return t.heldErr()
	}
	t.givenUp++
	next := o.startNextLocked(t.ev.life, t.lane)
	o.mu.Unlock()
	if next != nil {
		o.host().spawn(o, next)
	}
	if t.ev.kind == kindAlarm && !t.ev.waited {
		t.ev.waited = true
		o.host().scheduler.Waits(t.ev.alarm)
	}
	return nil
}

// takeBack queues for the turn and returns when it is held, with the reason if
// the life has ended meanwhile: then it is the dead life's turn, and storage
// refuses, but no other event of that life runs. It does not come back to code
// that was left behind by a handler which has returned.
func (t *turn) takeBack() error {
	o := t.ev.obj
	o.mu.Lock()
	over := t.state.Load() == turnOver
	queued := !over && t.queueLocked()
	o.mu.Unlock()
	if queued {
		t.awaitGrant()
	}
	o.at(t.ev, PlaceResume)
	return t.heldErr()
}

// queueLocked takes the turn if nobody holds it, else queues for it and says so.
func (t *turn) queueLocked() (queued bool) {
	invariants.Held(&t.ev.obj.mu)
	t.lane = t.lane.openLocked()
	if t.lane.holder == nil {
		t.lane.grantLocked(t)
		return false
	}
	t.lane.push(t)
	return true
}

// awaitGrant passes over a gate's signal that comes late, after a fence.
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
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	})
}
