package dohost

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/dohost/dohost/objectstore"
)

// deltas returns the deltas of a change, without their positions.
//
// Errors: errReset for an entry that lacks a value, since the feed did not store both when it was written; one that wraps
// errReset and names the row for a value that does not decode. The row may have another value by now, or none. If it
// still does not decode, the list of the rows has the error.
func (w *watcher) deltas(ch *objectstore.Change) ([]Delta[any], error) {
	if ch.Collection != w.rows.Name {
		return nil, nil
	}
	var before, after []Row[any]
	var err error
	if ch.Op != OpInsert {
		if !ch.HasBefore {
			return nil, errReset
		}
		version := ch.Version
		if ch.Op == OpUpdate {
			version--
		}
		if before, err = w.places(string(ch.Key), ch.Before, version); err != nil {
			return nil, err
		}
	}
	if ch.Op != OpDelete {
		if !ch.Stored {
			return nil, errReset
		}
		if after, err = w.places(string(ch.Key), ch.Value, ch.Version); err != nil {
			return nil, err
		}
	}
	return deltasOf(before, after), nil
}

// places returns a row once for each of its places that the watch covers, in their order.
func (w *watcher) places(key string, data []byte, version uint64) ([]Row[any], error) {
	v, err := w.rows.decode(key, data)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errReset, err)
	}
	if w.rows.where != nil && !w.rows.where(v) {
		return nil, nil
	}
	var rows []Row[any]
	for _, at := range w.cursors(key, v) {
		if w.covers(at) {
			rows = append(rows, Row[any]{Key: key, Value: v, Version: version, Cursor: at})
		}
	}
	slices.SortFunc(rows, func(a, b Row[any]) int { return cmp.Compare(a.Cursor, b.Cursor) })
	return slices.CompactFunc(rows, func(a, b Row[any]) bool { return a.Cursor == b.Cursor }), nil
}

// cursors returns the places of a row in the order of the query.
func (w *watcher) cursors(key string, v any) (at []Cursor) {
	if w.rows.keys == nil {
		return []Cursor{Cursor(key)}
	}
	for _, k := range w.rows.keys(v) {
		if k != "" {
			e := objectstore.IndexEntry{Key: []byte(k)}
			at = append(at, Cursor(e.Cursor([]byte(key))))
		}
	}
	return at
}

// covers reports whether the consumer has the row at a place, if there is one.
func (w *watcher) covers(at Cursor) bool {
	switch {
	case !w.selects(string(at)):
		return false
	case !w.listing:
		return true
	case w.frontier == "":
		return false
	case w.rows.query.Reverse:
		return at >= w.frontier
	}
	return at <= w.frontier
}

// deltasOf returns the deltas between the places of a row before and after a change, both in order. A removed place and
// a new place are a move.
func deltasOf(before, after []Row[any]) (deltas []Delta[any]) {
	var gone, fresh []Row[any]
	for len(before) > 0 || len(after) > 0 {
		switch {
		case len(after) == 0 || len(before) > 0 && before[0].Cursor < after[0].Cursor:
			gone, before = append(gone, before[0]), before[1:]
		case len(before) == 0 || before[0].Cursor > after[0].Cursor:
			fresh, after = append(fresh, after[0]), after[1:]
		default:
			deltas = append(deltas, Delta[any]{Kind: DeltaUpdate, Row: after[0], Was: before[0].Cursor})
			before, after = before[1:], after[1:]
		}
	}
	for len(gone) > 0 && len(fresh) > 0 {
		deltas = append(deltas, Delta[any]{Kind: DeltaUpdate, Row: fresh[0], Was: gone[0].Cursor})
		gone, fresh = gone[1:], fresh[1:]
	}
	for _, row := range gone {
		deltas = append(deltas, Delta[any]{Kind: DeltaExit, Row: row})
	}
	for _, row := range fresh {
		deltas = append(deltas, Delta[any]{Kind: DeltaEnter, Row: row})
	}
	return deltas
}
