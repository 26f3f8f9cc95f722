package ledger

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/internal/work"
)

// Get returns an operation of the object. ok is false if the object has no such operation. ctx must hold the turn.
//
// Errors: the errors of [dohost.Collection.Get].
func Get(ctx context.Context, st *dohost.State, id ID) (op Operation, ok bool, err error) {
	r, ok, err := rowOf(ctx, st, id)
	if err != nil || !ok {
		return Operation{}, false, err
	}
	op, err = operationOf(ctx, st, &r.Value)
	return op, err == nil, err
}

// rowOf returns the row of an ID that comes from outside of the ledger. The empty ID is no key of a row.
func rowOf(ctx context.Context, st *dohost.State, id ID) (r dohost.Row[row], ok bool, err error) {
	if id == "" {
		return r, false, nil
	}
	return operations.Get(ctx, st.Storage(), string(id))
}

// operationOf describes a row, with its whole result.
func operationOf(ctx context.Context, st *dohost.State, r *row) (op Operation, err error) {
	if op = r.describe(st.Epoch().String()); op.Result != nil {
		op.Result, err = resultOf(ctx, st, r)
	}
	return op, err
}

// All yields the operations of the object with their results, in the order of their IDs. ctx must hold the turn until the iteration ends.
//
// Errors: the errors of [dohost.Collection.All].
func All(ctx context.Context, st *dohost.State) iter.Seq2[Operation, error] {
	return described(ctx, st, nil)
}

// Unfinished yields the operations of the object that have neither completed nor failed: first those whose call is running, or was
// interrupted since the object last woke, and then the others, each the oldest first. In a constructor all of them are unknown, since
// no call is running. ctx must hold the turn until the iteration ends.
//
// Errors: the errors of [dohost.Collection.All].
func Unfinished(ctx context.Context, st *dohost.State) iter.Seq2[Operation, error] {
	return described(ctx, st, &dohost.Query[row]{Index: "unfinished"})
}

func described(ctx context.Context, st *dohost.State, q *dohost.Query[row]) iter.Seq2[Operation, error] {
	return func(yield func(Operation, error) bool) {
		for r, err := range operations.All(ctx, st.Storage(), q) {
			var op Operation
			if err == nil {
				op, err = operationOf(ctx, st, &r.Value)
			}
			if !yield(op, err) || err != nil {
				return
			}
		}
	}
}

// ResolveDone records that an operation with an unknown outcome took effect, with its result: from now on [Do] returns that
// result. Call it after a check of the other side. ctx must hold the turn.
//
// Errors: [ErrEnded], [ErrRunning], [dohost.ErrNotFound] for an ID that no operation of this object has, [dohost.ErrMisuse]
// for an operation of another kind, one for a result that cannot be stored, such as a [*dohost.LimitError], and the errors of [dohost.Collection.Put].
func ResolveDone[A, R any](ctx context.Context, st *dohost.State, k *Kind[A, R], id ID, result R) error {
	data, err := encodeDecodable(result)
	if err != nil {
		return fmt.Errorf("ledger: operation %s: %w", id, err)
	}
	return k.resolve(ctx, st, id, data)
}

// ResolveNotDone records that an operation with an unknown outcome had no effect: the next [Do] calls again. The caller must
// know that the interrupted call cannot take effect later. ctx must hold the turn.
//
// Errors: the errors of [ResolveDone].
func ResolveNotDone[A, R any](ctx context.Context, st *dohost.State, k *Kind[A, R], id ID) error {
	return k.resolve(ctx, st, id, nil)
}

// resolve ends an unknown operation of the kind. Without a result, the operation had no effect.
func (k *Kind[A, R]) resolve(ctx context.Context, st *dohost.State, id ID, result json.RawMessage) error {
	if k == nil || st == nil {
		return fmt.Errorf("ledger: a kind or a State is nil: %w", dohost.ErrMisuse)
	}
	found, ok, err := rowOf(ctx, st, id)
	switch {
	case err != nil:
		return err
	case !ok:
		return fmt.Errorf("ledger: object %v has no operation %.64q: %w", st.ID(), string(id), dohost.ErrNotFound)
	case found.Value.Kind != k.Name:
		return fmt.Errorf("ledger: operation %s is of kind %q, not %q: %w", id, found.Value.Kind, k.Name, dohost.ErrMisuse)
	}
	counts := resolved(result != nil)
	r, p, now := found.Value, k.policy(), time.Now()
	if _, running := progressOf(st.Epoch().String(), id); running {
		return fmt.Errorf("ledger: operation %s: %w", id, ErrRunning)
	}
	if r.Open() { // no Do has seen the interruption yet
		r.Item, _ = work.Step(r.Item, work.Event{Kind: work.Due, Owner: newOwner(st), Final: true}, p, now)
		counts.unknown = 1
	}
	outcome := work.Failed
	if result != nil {
		outcome = work.Completed
	}
	var eff work.Effect
	if r.Item, eff = work.Step(r.Item, work.Event{Kind: work.Resolve, Outcome: outcome}, p, now); eff != work.None {
		return fmt.Errorf("ledger: operation %s: %w", id, ErrEnded)
	}
	r.Doubt, r.TookEffect, r.Changed = false, false, now.UnixMilli()
	err = dohost.Transaction(ctx, func(ctx context.Context) error {
		if err := storeResult(ctx, st, &r, result); err != nil {
			return err
		}
		if err := count(ctx, st, k.Name, k.Policy, counts); err != nil {
			return err
		}
		return putRow(ctx, st, r)
	})
	if err != nil {
		return err
	}
	if counts.unknown > 0 {
		reportUnknown(ctx, st, k.Name, id, k.Policy, fmt.Errorf("%w: the call of %s was interrupted", ErrUnknown, id))
	}
	reportResolved(ctx, st, k.Name, id, k.Policy, result != nil)
	return nil
}
