package ledger

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/internal/work"
)

// ResolveDone records that an operation with an unknown outcome took effect, with its result: from now on [Do] returns that
// result. Call it after a check of the other side. ctx must hold the turn.
//
// Errors: [ErrEnded], [ErrRunning], [dohost.ErrNotFound] for an ID that no operation of this object has, [dohost.ErrMisuse]
// for a nil Kind or State and for an operation of another kind, a [*dohost.LimitError] for a result of more than 8 MiB of JSON, an error for
// a result that JSON cannot encode and decode, and the errors of [dohost.Collection.Put].
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
