package dohost

import (
	"context"
	"fmt"
	"iter"
	"slices"

	"github.com/dohost/dohost/internal/seal"
	"github.com/dohost/dohost/runtime"
)

// ClassExtension adds items to the objects of a class, and code that runs when an object wakes, for a package that works in objects of
// any class, such as package ledger.
type ClassExtension struct {
	// Kinds are the kinds of the items. Two extensions of a class must not share a kind.
	Kinds []string
	// Inspect lists the items, after the items of OnInspect: see [Handlers].
	Inspect func(context.Context, *Snapshot) iter.Seq2[Resource, error]
	// Admin applies an operator's action to an item, like OnAdmin, which does not get requests for these items. object is
	// the pointer that the constructor returned.
	Admin func(ctx context.Context, st *State, object any, r *AdminRequest) (bool, error)
	// Start, if it is not nil, runs with the object's turn when the object wakes, before the constructor and before any event,
	// in the batch of the constructor. If it fails, the constructor fails with its error: see [Bind].
	Start func(ctx context.Context, st *State) error
}

// ExtendClass returns c with an extension. [Open] returns an error for an extension with an empty field, and for a second one
// with the same kind.
func ExtendClass(c Class, x *ClassExtension) Class {
	c.errs = slices.Clip(c.errs)
	if x == nil || len(x.Kinds) == 0 || slices.Contains(x.Kinds, "") || x.Inspect == nil || x.Admin == nil {
		c.addError("ExtendClass without a kind, Inspect or Admin")
		return c
	}
	for _, kind := range x.Kinds {
		if slices.Contains(c.extended, kind) {
			c.addError("two extensions with the kind %q", kind)
		}
	}
	c.extended = append(slices.Clip(c.extended), x.Kinds...)
	of, inspect, admin, construct := *x, c.inspect, c.admin, c.rt.New
	of.Kinds = slices.Clone(x.Kinds)
	if of.Start != nil {
		c.rt.New = func(ctx context.Context, rt *runtime.State) (any, error) {
			if err := of.Start(ctx, stateOf(rt)); err != nil {
				return nil, err
			}
			return construct(ctx, rt)
		}
	}
	c.inspect = func(ctx context.Context, v *Snapshot) iter.Seq2[Resource, error] {
		var lists []iter.Seq2[Resource, error]
		ours := slices.Contains(of.Kinds, v.query.Kind)
		if inspect != nil && !ours {
			lists = append(lists, inspect(ctx, v))
		}
		if ours || v.query.Kind == "" {
			lists = append(lists, of.Inspect(ctx, v))
		}
		return func(yield func(Resource, error) bool) {
			for _, list := range lists {
				for r, err := range list {
					if !yield(r, err) || err != nil {
						return
					}
				}
			}
		}
	}
	c.admin = func(ctx context.Context, instance any, r *AdminRequest) (bool, error) {
		switch {
		case slices.Contains(of.Kinds, r.Kind):
			return of.Admin(ctx, stateOf(runtime.StateOf(ctx, seal.New())), instance, r)
		case admin == nil:
			return false, &ArgumentError{Method: "operate", Err: fmt.Errorf("the object has no items of kind %q", r.Kind)}
		}
		return admin(ctx, instance, r)
	}
	return c
}
