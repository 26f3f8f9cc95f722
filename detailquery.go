package dohost

import (
	"context"
	"errors"
	"iter"
	"maps"
	"slices"
)

// DetailQuery selects the items of an object that satisfy all of its fields. Nil, and the zero DetailQuery, select all.
type DetailQuery struct {
	// Kind, ID and State must equal the fields of the item. An empty one selects any.
	Kind, ID, State string
	// Can is an action that the items allow. Empty selects any.
	Can Action
	// Fields are fields that the items have, with these values.
	Fields map[string]string
	// After is the Cursor of the item before the first: the same query continues after that item, even if the item has changed
	// or is gone. It needs items with a Cursor.
	After string
}

// selects reports whether an item satisfies the fields apart from After.
func (q *DetailQuery) selects(d *Resource) bool {
	if q.Kind != "" && d.Kind != q.Kind || q.ID != "" && d.ID != q.ID || q.State != "" && d.State != q.State {
		return false
	}
	for name, want := range q.Fields {
		if got, ok := d.Fields[name]; !ok || got != want {
			return false
		}
	}
	return q.Can == "" || slices.Contains(d.Can, q.Can)
}

// clone returns a copy that the caller cannot change.
func (q *DetailQuery) clone() DetailQuery {
	if q == nil {
		return DetailQuery{}
	}
	c := *q
	c.Fields = maps.Clone(q.Fields)
	return c
}

var errNoCursor = &ArgumentError{Method: "details", Err: errors.New("a list of these items cannot be continued")}

// FindDetails is [Host.Details] of the items that a query selects. The host drops the other items, so each class supports all
// fields but After. An OnInspect function that considers [Snapshot.Query] need not read the other items.
//
// Errors: the errors of Details; an [*ArgumentError] for After if an item has no Cursor.
func (h *Host) FindDetails(ctx context.Context, id ID, q *DetailQuery) iter.Seq2[Resource, error] {
	return h.inspection().findDetails(ctx, id, q)
}
