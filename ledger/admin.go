package ledger

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"time"

	"github.com/dohost/dohost"
)

// ResourceKind is the kind of operations among the items of an object that operators see.
const ResourceKind = "operation"

// inspect lists for operators the counts of the unknown outcomes of an object, and then its operations: those that have not ended, in
// the order of Unfinished, and then the others.
func inspect(_ context.Context, v *dohost.Snapshot) iter.Seq2[dohost.Resource, error] {
	return func(yield func(dohost.Resource, error) bool) {
		for r, err := range inspectOutcomes(v) {
			if !yield(r, err) || err != nil {
				return
			}
		}
		if v.Query().Kind == ResourceOutcomes {
			return
		}
		for _, index := range []string{"unfinished", ""} {
			for r, err := range operations.Scan(v, &dohost.Query[row]{Index: index}) {
				if err != nil {
					yield(dohost.Resource{}, err)
					return
				}
				if index == "" && r.Value.unfinished() {
					continue
				}
				if !yield(r.Value.resource(), nil) {
					return
				}
			}
		}
	}
}

// resource describes a row for operators.
func (r *row) resource() dohost.Resource {
	op := r.describe(epochOf(r.Owner))
	fields := map[string]string{"kind": op.Kind, "args": op.Args, "since": op.Started.UTC().Format(time.RFC3339)}
	parts := []string{fmt.Sprintf("%q %s", op.Kind, op.Args), "begun " + op.Started.UTC().Format(time.RFC3339)}
	if op.Position != "" {
		parts = append(parts, "position "+op.Position)
	}
	if op.Scope != "" {
		parts = append(parts, "scope "+op.Scope)
		fields["scope"] = op.Scope
	}
	if op.Calls > 1 {
		parts = append(parts, fmt.Sprintf("%d calls", op.Calls))
	}
	if op.Error != "" {
		parts = append(parts, fmt.Sprintf("%q", op.Error))
		fields["error"] = op.Error
	}
	if op.Result != nil {
		fields["result"] = clip(string(op.Result), maxArgs)
		if r.Size > 0 {
			parts = append(parts, fmt.Sprintf("result of %d bytes", r.Size))
		} else {
			parts = append(parts, "result "+fields["result"])
		}
	}
	of := dohost.Resource{
		Kind: ResourceKind, ID: string(op.ID), State: string(op.Status), Text: strings.Join(parts, ", "), Fields: fields,
	}
	if r.Size > 0 {
		of.Counts = map[string]int64{"result_bytes": int64(r.Size)}
	}
	if op.Status == StatusUnknown {
		of.Can = []dohost.Action{dohost.ActionDone, dohost.ActionNotDone}
	}
	return of
}

// operate resolves an operation for an operator.
func operate(ctx context.Context, st *dohost.State, kinds map[string]AnyKind, req *dohost.AdminRequest) (bool, error) {
	wrong := func(err error) error { return &dohost.ArgumentError{Method: "operate", Err: err} }
	if req.Kind == ResourceOutcomes {
		return false, wrong(errors.New("the counts of unknown outcomes allow no action"))
	}
	if req.Action != dohost.ActionDone && req.Action != dohost.ActionNotDone {
		return false, wrong(fmt.Errorf("operations do not allow the action %s", req.Action))
	}
	id := ID(req.ID)
	op, ok, err := Get(ctx, st, id)
	if err != nil || !ok {
		return false, err
	}
	k := kinds[op.Kind]
	if k == nil {
		return false, wrong(fmt.Errorf("the operation is of kind %q, which the class does not declare", op.Kind))
	}
	if req.Action == dohost.ActionNotDone {
		err = k.resolve(ctx, st, id, nil)
	} else {
		result, decodeErr := k.decode(req.Result)
		if decodeErr != nil {
			return false, wrong(fmt.Errorf("the result does not suit the kind %q: %w", op.Kind, decodeErr))
		}
		err = k.resolve(ctx, st, id, result)
	}
	if errors.Is(err, ErrEnded) || errors.Is(err, ErrRunning) {
		err = wrong(err)
	}
	return err == nil, err
}
