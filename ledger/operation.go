package ledger

import (
	"context"
	"encoding/json"
	"iter"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/internal/work"
)

// Status is the state of an operation.
type Status string

// The states of operations.
const (
	StatusRunning   Status = "running"   // a Do is in progress in the present incarnation
	StatusUnknown   Status = "unknown"   // the outcome is unknown
	StatusCompleted Status = "completed" // the result is stored
	StatusFailed    Status = "failed"    // it certainly had no effect
)

// Operation describes an operation.
type Operation struct {
	ID   ID
	Kind string
	// Position is the name of the durable work that the operation belongs to, the number of the place in it, and the ordinal
	// among equal operations, such as "fiber/01JD…/2/0": see [dohost.WorkPosition]. It has at most 4 KiB, and is empty for an operation of the object.
	Position string
	Scope    string // the names of its scopes, joined with slashes, at most 4 KiB; empty without a scope
	Args     string // the first 4 KiB of the JSON of its arguments
	Status   Status
	Calls    int             // since it began or last failed
	Result   json.RawMessage // of a completed operation
	Error    string          // of the last call, or of Find, at most 4 KiB; empty if the last call was interrupted
	// Started is when the operation first began, and Changed when its state last changed.
	Started, Changed time.Time
}

// describe describes a row for a reader in an incarnation, or in none.
func (r *row) describe(epoch string) Operation {
	op := Operation{
		ID: r.ID, Kind: r.Kind, Position: r.Position, Scope: r.Scope, Args: r.Args, Error: r.Error, Calls: r.Begun, Status: StatusUnknown,
		Started: time.UnixMilli(r.Started), Changed: time.UnixMilli(r.Changed),
	}
	_, running := progressOf(epoch, r.ID)
	switch {
	case running:
		op.Status = StatusRunning
	case r.State == work.Ended && r.Outcome == work.Completed:
		op.Status, op.Result = StatusCompleted, r.Result
	case r.State == work.Ended:
		op.Status = StatusFailed
	}
	return op
}

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

// Unfinished yields the operations of the object that have neither completed nor failed: first the operations with a call that is running, or
// has an interruption that the ledger has not reported yet ([Declare]), and then the others, each the oldest first. In a constructor all of
// them are unknown, since no call is running. ctx must hold the turn until the iteration ends.
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
