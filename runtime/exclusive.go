package runtime

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/dohost/dohost/internal/invariants"
	"github.com/dohost/dohost/objectstore"
)

// Exclusive keeps every other event out while fn runs, inside fn's Awaits too;
// only an Enter of this event gets in. It nests. It is blockConcurrencyWhile of
// workerd (api/actor-state.c++), with one difference: an error of fn is only
// returned and does not end the incarnation. Longer than Limits.Exclusive (30 s),
// and the incarnation is fenced.
//
// A call from the section that leads back into it gets ErrDeadlock. Two chains of calls
// are not found: if two objects, each in a section that another caller has begun, call
// each other, both wait until the first section's limit ends its incarnation. A
// constructor is such a section, too.
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
	if t.tx != nil {
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
	l.exclusive, l.opener, t.opened = t.ev, t, true
	l.exclusives = l.obj.host().now()
	t.lane = &lane{holder: t}
}

func (l *life) closeExclusive(t *turn) {
	o := l.obj
	o.mu.Lock()
	next := l.includeLocked(t)
	o.mu.Unlock()
	if next != nil {
		o.host().spawn(o, next)
	}
}

// includeLocked closes the exclusive section that t has opened, unless it is closed
// already. Whoever holds the turn inside goes on with the life's lane. That is nobody
// if t is away, in an Await that the section's code left behind: then the next in
// order has the turn, and is returned if it needs a goroutine.
func (l *life) includeLocked(t *turn) (next *turn) {
	invariants.Held(&l.obj.mu)
	if l.underway == nil || l.opener != t {
		return nil
	}
	l.exclusive, l.opener = nil, nil
	inner := t.lane
	t.lane = &l.lane
	l.lane.holder = inner.holder
	inner.closeLocked(&l.lane)
	if l.lane.holder == nil {
		return l.obj.startNextLocked(l, &l.lane)
	}
	l.lane.holder.lane = &l.lane
	return nil
}

// errRolledBack is what the outputs of a transaction get that did not happen.
var errRolledBack = errors.New("dohost: transaction rolled back")

// transaction is a Transaction that is open on a turn.
type transaction struct {
	outer *transaction
	save  objectstore.Savepoint
}

// transactionKey is the context key under which a transaction is found.
type transactionKey struct{}

// Transaction runs fn and, if fn returns an error or panics, takes back all that
// it did: writes, the alarm, and effects. It nests, with the context that fn is given.
// Nothing that would give up the turn is possible inside (ErrInTransaction).
//
// Errors: fn's, ErrNoTurn, ErrTurnBusy (also while another transaction is open that
// ctx is not of), ErrFenced.
func Transaction(ctx context.Context, fn func(context.Context) error) (err error) {
	t := turnOf(ctx)
	if t == nil {
		return ErrNoTurn
	}
	if err := t.use(); err != nil {
		return err
	}
	if outer, _ := ctx.Value(transactionKey{}).(*transaction); t.tx != nil && outer != t.tx {
		t.done()
		return fmt.Errorf("%w: a transaction is open that this one is not part of", ErrTurnBusy)
	}
	seg := t.ev.life.segment
	tx := &transaction{t.tx, seg.Begin()}
	t.tx = tx
	t.done()
	kept := false
	defer func() {
		t.claim()
		defer t.done()
		inner, open := t.innermost(tx)
		switch {
		case !open: // what it was in has returned, and with that took it back
			err = cmp.Or(t.heldErr(), error(ErrTurnBusy))
			return
		case !kept:
			rollBack(seg, tx.save)
		case inner != nil: // left behind
			rollBack(seg, inner.save)
		}
		seg.End(tx.save)
		t.tx = tx.outer
	}()
	if err := fn(context.WithValue(ctx, transactionKey{}, tx)); err != nil {
		return err
	}
	t.ev.obj.at(t.ev, PlaceTransaction)
	if err := t.heldErr(); err != nil {
		return err
	}
	kept = true
	return nil
}

// innermost says whether tx is open, and which open one is right inside it.
func (t *turn) innermost(tx *transaction) (inner *transaction, open bool) {
	for at := t.tx; at != nil; inner, at = at, at.outer {
		if at == tx {
			return inner, true
		}
	}
	return nil, false
}

func rollBack(seg *objectstore.Segment, save objectstore.Savepoint) {
	for _, o := range seg.Rollback(save) {
		o.Release(errRolledBack)
	}
}
