package dohost

import (
	"context"
	"fmt"
	"iter"
	"slices"

	"github.com/dohost/dohost/internal/seal"
	"github.com/dohost/dohost/runtime"
)

// ClassExtension adds items to the objects of a class, for a package that works in objects of any class, such as package
// ledger.
type ClassExtension struct {
	// Kind is the kind of the items. A class has one extension with a kind.
	Kind string
	// Inspect lists the items, after those of OnInspect: see [Handlers].
	Inspect func(context.Context, *Snapshot) iter.Seq2[Resource, error]
	// Admin applies an operator's action to an item, like OnAdmin, which does not get requests for these items.
	Admin func(ctx context.Context, st *State, r *AdminRequest) (bool, error)
}

// ExtendClass returns c with an extension. [Open] returns an error for an extension with an empty field, and for a second one
// with the same kind.
func ExtendClass(c Class, x *ClassExtension) Class {
	c.errs = slices.Clip(c.errs)
	if x == nil || x.Kind == "" || x.Inspect == nil || x.Admin == nil {
		c.addError("ExtendClass without a kind, Inspect or Admin")
		return c
	}
	if slices.Contains(c.extended, x.Kind) {
		c.addError("two extensions with the kind %q", x.Kind)
	}
	c.extended = append(slices.Clip(c.extended), x.Kind)
	of, inspect, admin := *x, c.inspect, c.admin
	c.inspect = func(ctx context.Context, v *Snapshot) iter.Seq2[Resource, error] {
		if inspect == nil {
			return of.Inspect(ctx, v)
		}
		return func(yield func(Resource, error) bool) {
			for _, list := range []iter.Seq2[Resource, error]{inspect(ctx, v), of.Inspect(ctx, v)} {
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
		case r.Kind == of.Kind:
			return of.Admin(ctx, stateOf(runtime.StateOf(ctx, seal.New())), r)
		case admin == nil:
			return false, &ArgumentError{Method: "operate", Err: fmt.Errorf("the object has no items of kind %q", r.Kind)}
		}
		return admin(ctx, instance, r)
	}
	return c
}
