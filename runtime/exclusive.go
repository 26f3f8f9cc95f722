package runtime

import (
	"context"
	"errors"

	"github.com/dohost/dohost/internal/invariants"
	"github.com/dohost/dohost/objectstore"
)

// Exclusive keeps every other event out while fn runs, inside fn's Awaits too;
// only an Enter of this event gets in. It nests. It is blockConcurrencyWhile of
// workerd (api/actor-state.c++), with one difference: an error of fn is only
// returned and does not end the incarnation. Longer than Limits.Exclusive (30 s),
// and the incarnation is fenced.
//
// Errors: fn's, ErrNoTurn, ErrTurnBusy, ErrInTransaction, ErrFenced.
func Exclusive(ctx context.Context, fn func(context.Context) error) error {
	t := turnOf(ctx)
	if t == nil {
		return ErrNoTurn
	}
	if err := t.use(); err != nil {
		return err
	}
	if t.transactions > 0 {
		t.done()
		return ErrInTransaction
	}
	o, l := t.ev.obj, t.ev.life
	o.mu.Lock()
	nested := l.exclusive != nil
	if !nested {
		l.excludeLocked(t)
	}
	o.mu.Unlock()
	t.done()
	if !nested {
		defer l.closeExclusive(t)
	}
	return fn(ctx)
}

// excludeLocked opens an exclusive section for the event of t, which holds the turn:
// from now on its Awaits pass the turn on only to turns of its own.
func (l *life) excludeLocked(t *turn) {
	invariants.Held(&l.obj.mu)
	l.exclusive, l.opener = t.ev, t
	l.exclusives = l.obj.host.now()
	t.lane = &lane{holder: t}
}

func (l *life) closeExclusive(t *turn) {
	l.obj.mu.Lock()
	defer l.obj.mu.Unlock()
	l.includeLocked(t, t)
}

// includeLocked closes the exclusive section that t has opened, unless it is closed
// already. held is t, or the turn in its place: it goes on with the life's lane.
func (l *life) includeLocked(t, held *turn) {
	invariants.Held(&l.obj.mu)
	if l.underway == nil || l.opener != t {
		return
	}
	l.exclusive, l.opener = nil, nil
	inner := held.lane
	held.lane = &l.lane
	l.lane.holder = held
	inner.closeLocked(&l.lane)
}

// errRolledBack is what the outputs of a transaction get that did not happen.
var errRolledBack = errors.New("dohost: transaction rolled back")

// Transaction runs fn and, if fn returns an error or panics, takes back all that
// it did: writes, the alarm, and effects. It nests. Nothing that would give up
// the turn is possible inside (ErrInTransaction).
//
// Errors: fn's, ErrNoTurn, ErrTurnBusy, ErrFenced.
func Transaction(ctx context.Context, fn func(context.Context) error) (err error) {
	t := turnOf(ctx)
	if t == nil {
		return ErrNoTurn
	}
	if err := t.use(); err != nil {
		return err
	}
	seg := t.ev.life.segment
	save := seg.Begin()
	if t.transactions++; t.transactions == 1 {
		t.outermost = save
	}
	t.done()
	kept := false
	defer func() {
		t.claim()
		defer t.done()
		if t.state.Load() == turnOver {
			err = t.heldErr() // its handler has returned, and with that took it back
			return
		}
		t.transactions--
		if !kept {
			rollBack(seg, save)
		}
	}()
	if err := fn(ctx); err != nil {
		return err
	}
	t.ev.obj.at(t.ev, PlaceTransaction)
	if err := t.heldErr(); err != nil {
		return err
	}
	kept = true
	return nil
}

func rollBack(seg *objectstore.Segment, save objectstore.Savepoint) {
	for _, o := range seg.Rollback(save) {
		o.Release(errRolledBack)
	}
}
