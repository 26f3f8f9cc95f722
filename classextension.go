package dohost

import (
	"context"
	"fmt"
	"iter"
	"slices"

	"github.com/dohost/dohost/internal/seal"
	"github.com/dohost/dohost/runtime"
)

// ClassExtension adds items to the objects of a class, and code that runs when an object wakes. It is for packages that work in
// objects of any class, such as package ledger: see Extensions in [Handlers].
type ClassExtension struct {
	// Kinds are the kinds of the items, each one once. Two extensions of a class must not share a kind.
	Kinds []string
	// Inspect lists the items, after the items of OnInspect: see [Handlers].
	Inspect func(context.Context, *Snapshot) iter.Seq2[Resource, error]
	// Admin applies an operator's action to an item, like OnAdmin, which does not get requests for these items. object is
	// the pointer that the constructor returned.
	Admin func(ctx context.Context, st *State, object any, r *AdminRequest) (bool, error)
	// Start, if it is not nil, runs with the object's turn when the object wakes, before the constructor and before any event,
	// in the batch of the constructor. If it fails, the constructor fails with its error: see [Bind].
	Start func(ctx context.Context, st *State) error
	// Err is an error in the declaration of the extension, which [Open] returns. Nil means that there is none.
	Err error
}

// extend adds extensions to a class.
func (c *Class) extend(list []ClassExtension) {
	var kinds []string
	var starts []func(context.Context, *State) error
	for _, x := range list {
		if x.Err != nil {
			c.addError("%w", x.Err)
		}
		if len(x.Kinds) == 0 || slices.Contains(x.Kinds, "") || x.Inspect == nil || x.Admin == nil {
			c.addError("an extension without a kind, Inspect or Admin")
			continue
		}
		for i, kind := range x.Kinds {
			if slices.Contains(kinds, kind) {
				c.addError("two extensions with the kind %q", kind)
			} else if slices.Contains(x.Kinds[:i], kind) {
				c.addError("an extension with the kind %q twice", kind)
			}
		}
		kinds = append(kinds, x.Kinds...)
		x.Kinds = slices.Clone(x.Kinds)
		c.inspect, c.admin = x.inspectAfter(c.inspect), x.adminBefore(c.admin)
		if x.Start != nil {
			starts = append(starts, x.Start)
		}
	}
	if len(starts) == 0 {
		return
	}
	construct := c.rt.New
	c.rt.New = func(ctx context.Context, rt *runtime.State) (any, error) {
		for _, start := range starts {
			if err := start(ctx, stateOf(rt)); err != nil {
				return nil, err
			}
		}
		return construct(ctx, rt)
	}
}

// inspectAfter returns a function that lists the items of another function, which may be nil, and then the items of the extension.
func (x ClassExtension) inspectAfter(inspect listFunc) listFunc {
	own := guardedList("Inspect of an extension", x.Kinds, x.Inspect)
	return func(ctx context.Context, v *Snapshot) iter.Seq2[Resource, error] {
		var lists []iter.Seq2[Resource, error]
		ours := slices.Contains(x.Kinds, v.query.Kind)
		if inspect != nil && !ours {
			lists = append(lists, inspect(ctx, v))
		}
		if ours || v.query.Kind == "" {
			lists = append(lists, own(ctx, v))
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
}

// adminBefore returns a function that applies actions to the items of the extension, and calls another function, which may be
// nil, for all other items.
func (x ClassExtension) adminBefore(
	admin func(context.Context, any, *AdminRequest) (bool, error),
) func(context.Context, any, *AdminRequest) (bool, error) {
	return func(ctx context.Context, instance any, r *AdminRequest) (bool, error) {
		switch {
		case slices.Contains(x.Kinds, r.Kind):
			return x.Admin(ctx, stateOf(runtime.StateOf(ctx, seal.New())), instance, r)
		case admin == nil:
			return false, &ArgumentError{Method: "operate", Err: fmt.Errorf("the object has no items of kind %q", r.Kind)}
		}
		return admin(ctx, instance, r)
	}
}
