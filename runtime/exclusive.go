package runtime

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/dohost/dohost/eviction"
	"github.com/dohost/dohost/internal/invariants"
	"github.com/dohost/dohost/objectstore"
)

// Exclusive keeps every other event out while fn runs, inside fn's Awaits too; only a
// HoldTurn of this event gets in. It nests. It corresponds to blockConcurrencyWhile of workerd
// (api/actor-state.c++), with one difference: Exclusive returns an error of fn, and does
// not end the incarnation for it. After Limits.Exclusive (30 s) the host fences the
// incarnation.
//
// A call from the section that leads back into it gets ErrDeadlock. A deadlock between two
// chains of calls is not detected: if two objects, each in a section that another caller
// has begun, call each other, both wait until the limit of the first section ends its
// incarnation. A constructor is such a section, too.
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
	o, inc := t.ev.obj, t.ev.incarnation
	o.mu.Lock()
	nested := inc.exclusive != nil
	if !nested {
		inc.beginExclusiveLocked(t)
	}
	o.mu.Unlock()
	t.done()
	if !nested {
		defer inc.closeExclusive(t)
	}
	return fn(ctx)
}

// beginExclusiveLocked opens an exclusive section for the event of t, which holds the turn: until
// the section ends, its Awaits pass the turn only to other turns of the same event.
func (inc *incarnation) beginExclusiveLocked(t *turn) {
	invariants.Held(&inc.obj.mu)
	inc.exclusive, inc.opener, t.opened = t.ev, t, true
	inc.exclusiveSince = inc.obj.host().now()
	t.queue = &turnQueue{holder: t}
}

func (inc *incarnation) closeExclusive(t *turn) {
	o := inc.obj
	o.mu.Lock()
	next := inc.endExclusiveLocked(t)
	o.mu.Unlock()
	if next != nil {
		o.host().spawn(o, next)
	}
}

// endExclusiveLocked closes the exclusive section that t has opened, unless it is closed
// already. The holder of the turn inside keeps the turn of the incarnation. There is no
// holder if t is released, in an Await that outlived the section's code: then the next in order
// gets the turn, and endExclusiveLocked returns it if it needs a goroutine.
func (inc *incarnation) endExclusiveLocked(t *turn) (next *turn) {
	invariants.Held(&inc.obj.mu)
	if inc.activity == nil || inc.opener != t {
		return nil
	}
	inc.exclusive, inc.opener = nil, nil
	inner := t.queue
	t.queue = &inc.queue
	inc.queue.holder = inner.holder
	inner.closeLocked(&inc.queue)
	if inc.queue.holder == nil {
		return inc.obj.startNextLocked(inc, &inc.queue)
	}
	inc.queue.holder.queue = &inc.queue
	return nil
}

// errRolledBack is the error for the outputs of a transaction that was rolled back.
var errRolledBack = errors.New("dohost: transaction rolled back")

// transaction is a Transaction that is open on a turn.
type transaction struct {
	outer *transaction
	save  objectstore.Savepoint
}

// transactionKey is the context key of a transaction.
type transactionKey struct{}

// Transaction runs fn. If fn returns an error or panics, Transaction rolls back everything
// that fn did: its writes, its change of the alarm, and its effects. It nests, with the
// context that fn gets. Operations that would give up the turn fail (ErrInTransaction).
//
// Errors: fn's, ErrNoTurn, ErrTurnBusy (also while another transaction is open that ctx
// does not belong to), ErrFenced.
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
		return fmt.Errorf("%w: another transaction is open on this turn", ErrTurnBusy)
	}
	batch := t.ev.incarnation.batch
	tx := &transaction{t.tx, batch.Begin()}
	t.tx = tx
	t.done()
	kept := false
	defer func() {
		t.claim()
		defer t.done()
		inner, open := t.innermost(tx)
		switch {
		case !open: // the enclosing code has returned and rolled this back
			err = cmp.Or(t.heldErr(), error(ErrTurnBusy))
			return
		case !kept:
			rollBack(batch, tx.save)
		case inner != nil: // an inner one is still open
			rollBack(batch, inner.save)
		}
		batch.End(tx.save)
		t.tx = tx.outer
	}()
	if err := fn(context.WithValue(ctx, transactionKey{}, tx)); err != nil {
		return err
	}
	t.ev.obj.at(t.ev, eviction.PlaceTransaction)
	if err := t.heldErr(); err != nil {
		return err
	}
	kept = true
	return nil
}

// innermost reports whether tx is open, and returns the open transaction directly inside it.
func (t *turn) innermost(tx *transaction) (inner *transaction, open bool) {
	for at := t.tx; at != nil; inner, at = at, at.outer {
		if at == tx {
			return inner, true
		}
	}
	return nil, false
}

func rollBack(batch *objectstore.Batch, save objectstore.Savepoint) {
	for _, o := range batch.Rollback(save) {
		o.Release(errRolledBack)
	}
}
