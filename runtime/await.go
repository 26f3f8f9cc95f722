package runtime

import (
	"context"
	"fmt"
	"time"

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
		return fn(ctx)
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
		return fn(ctx)
	}
	return t.away(PlaceAwait, false, func() error {
		return fn(&awayCtx{Context: ctx, t: t})
	})
}

// away runs fn without the turn. gated says that fn waits for the disk.
func (t *turn) away(p Place, gated bool, fn func() error) (err error) {
	l := t.ev.life
	var out objectstore.Output
	if gated {
		out = (*gate)(t)
	}
	refused, err := t.depart(out)
	if err != nil {
		if refused && gated {
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
	if gated {
		if err := t.awaitGate(); err != nil {
			return err
		}
	}
	l.obj.at(t.ev, p)
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
			return nil
		}
	case <-l.context().Done():
	}
	if err := l.cause(); err != nil {
		return err
	}
	return ErrFenced // the store has failed, and the fence is on its way
}

// depart hands the segment over, with out as its last output, and passes the turn
// on. If it returns an error the turn is still held, and refused says whether out
// was released with an error.
func (t *turn) depart(out objectstore.Output) (refused bool, err error) {
	if err := t.use(); err != nil {
		return false, err
	}
	defer t.done()
	if t.transactions > 0 {
		return false, ErrInTransaction
	}
	t.prepare()
	l := t.ev.life
	if out != nil {
		l.segment.Emit(out)
	}
	if err := l.handOver(t); err != nil {
		return true, err
	}
	t.giveUp()
	return false, nil
}

// giveUp passes the turn on.
func (t *turn) giveUp() {
	o := t.ev.obj
	o.mu.Lock()
	t.state.Store(turnAway)
	next := o.startLocked(t.ev.life, t.lane.passLocked())
	o.mu.Unlock()
	if next != nil {
		o.host.spawn(o, next)
	}
}

// takeBack queues for the turn and returns when it is held, with the reason if
// the life has ended meanwhile: then it is the dead life's turn, and storage
// refuses, but no other event of that life runs.
func (t *turn) takeBack() error {
	o := t.ev.obj
	o.mu.Lock()
	if t.lane.holder == nil {
		t.lane.grantLocked(t)
		o.mu.Unlock()
	} else {
		t.lane.push(t)
		o.mu.Unlock()
		for s := range t.wake {
			if s == granted {
				break
			}
		}
	}
	return t.ev.life.cause()
}

// Enter takes the turn for one segment, from inside an Await's fn, and returns
// when that segment is durable. It queues like everybody else.
//
// Errors: fn's (its writes are kept, as a handler's are), ErrNoTurn, ErrFenced.
func Enter(ctx context.Context, fn func(context.Context) error) error {
	away, ok := ctx.Value(turnKey{}).(*awayCtx)
	if !ok {
		return fmt.Errorf("%w: Enter wants the context that Await passed to its fn", ErrNoTurn)
	}
	ev := away.t.ev
	t := &turn{ev: ev, wake: make(chan signal, 2)}
	ev.obj.mu.Lock()
	t.lane = away.t.lane
	ev.obj.mu.Unlock()
	if err := t.takeBack(); err != nil {
		t.retire()
		return err
	}
	defer t.retire()
	err := fn(&heldCtx{Context: ctx, t: t})
	if serr := t.sync(); serr != nil {
		return serr
	}
	return err
}

// retire ends a turn that is not an event's own.
func (t *turn) retire() {
	o := t.ev.obj
	o.mu.Lock()
	t.state.Store(turnOver)
	next := o.startLocked(t.ev.life, t.lane.passLocked())
	o.mu.Unlock()
	if next != nil {
		o.host.spawn(o, next)
	}
}

// Sync hands the segment over and returns when all that the object has handed
// over is durable, NoWait writes included. The turn is held meanwhile.
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
	if t.transactions > 0 {
		return ErrInTransaction
	}
	return t.sync()
}

func (t *turn) sync() error {
	l := t.ev.life
	t.prepare()
	l.segment.Sync((*gate)(t))
	if err := l.handOver(t); err != nil {
		<-t.wake
		return err
	}
	select {
	case s := <-t.wake:
		if s == gateOpen {
			return nil
		}
		return l.orFenced()
	case <-l.context().Done():
		return l.orFenced()
	}
}

// orFenced is why the life has ended, or ErrFenced while the fence that a failed
// store brings is still on its way.
func (l *life) orFenced() error {
	if err := l.cause(); err != nil {
		return err
	}
	return ErrFenced
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
