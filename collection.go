package dohost

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"reflect"
	"strings"

	"github.com/dohost/dohost/internal/errkind"
	"github.com/dohost/dohost/objectstore"
)

// Collection is a set of rows of one type in an object's storage. Each row has a key, a version, and places in the
// listed indexes. A Collection is a description without data, so one variable serves all objects:
//
//	var orders = dohost.Collection[Order]{
//		Name: "orders",
//		Key:  func(o Order) string { return o.ID },
//		Indexes: []dohost.Index[Order]{
//			{Name: "status", Of: func(o Order) dohost.Key { return dohost.KeyOf(o.Status) }},
//		},
//	}
//
// Its methods need a ctx that holds the turn of the storage's object, as the methods of [Storage] do. In addition to the
// errors that they name they return [ErrMisuse], [ErrFenced], a [*LimitError], a [*NameError] or
// [ErrDamaged]. A write commits row, index entries and feed entry together, as part of the event's writes; a failed
// write has written nothing.
//
// A row's value may encode to almost 2 MiB, including index keys. A key, and each index key together with the row's
// key, has at most 2,048 bytes, including names.
//
// An index that is added later lacks the older rows until they are rewritten.
type Collection[T any] struct {
	// Name is 1 to 128 bytes of text without control characters, and no other
	// collection of the class has it. Names that begin with "dohost." are reserved: a
	// program can read those collections, and a write is [ErrMisuse].
	Name string
	// Key returns a row's key, which is not empty. Rows are in the order of its
	// bytes; string(KeyOf(n)) makes that the order of numbers or times.
	Key func(T) string
	// Indexes are further orders for finding rows, in addition to the order of their keys.
	Indexes []Index[T]
	// Feed records every change. Nil records none. Collections may share one.
	Feed *Feed
	// Blind makes Put write without reading the old row, which suits rows that are written once, such as the rows of
	// a log. Each Put then sets the row's version to 1, so an UpdateIf or DeleteIf of version 1 does not notice the
	// Put. A collection that has Indexes or a Feed, or once had Indexes, cannot be blind.
	Blind bool
}

// Index is an order of a [Collection]'s rows. Of and Each depend on the row alone.
type Index[T any] struct {
	// Name is 1 to 128 bytes, like the name of a collection.
	Name string
	// Of returns the row's place, made with [KeyOf], or "" for a row that is not in the
	// index.
	Of func(T) Key
	// Each returns several places of a row. Equal places count once.
	Each func(T) []Key
}

// Row is a row of a [Collection].
type Row[T any] struct {
	Key   string
	Value T
	// Version is 1 when the row is inserted, and grows by one with every write. A row that is inserted
	// again after a deletion begins at 1.
	Version uint64
	// Cursor is the row's place in the query that found it.
	Cursor Cursor
}

// RowError names a row that is not in the state that a write expects, and both versions. It is [ErrNotFound] if the
// write needs a row and there is none, and otherwise [ErrConflict].
type RowError = objectstore.RowError

// errCollection reports that a program misuses a [Collection] or a [Query].
var errCollection = errkind.New(errkind.ErrMisuse, "collection misused")

func (c *Collection[T]) bytes() objectstore.Collection {
	return objectstore.Collection{Name: c.Name, Feed: c.Feed.bytes()}
}

// write returns the row write for v.
func (c *Collection[T]) write(v T, expect uint64) (w objectstore.RowWrite, err error) {
	if err := c.checkName(); err != nil {
		return w, err
	}
	if c.Key == nil {
		return w, fmt.Errorf("%w: %q has no Key", errCollection, c.Name)
	}
	if c.Blind && (c.Feed != nil || len(c.Indexes) > 0) {
		return w, fmt.Errorf("%w: %q is blind, so it cannot have a feed or indexes", errCollection, c.Name)
	}
	w.Key, w.Expect, w.Blind = []byte(c.Key(v)), expect, c.Blind && expect == objectstore.AnyVersion
	if w.Value, err = encode(v); err != nil {
		return w, err
	}
	for _, x := range c.Indexes {
		for _, k := range x.keys(v) {
			if !k.wholeParts() {
				return w, badKey(c.Name, x.Name, k)
			}
			if k != "" {
				w.Entries = append(w.Entries, objectstore.IndexEntry{Index: x.Name, Key: []byte(k)})
			}
		}
	}
	return w, nil
}

// reservedNames begins the names of collections that only packages of this module write.
const reservedNames = "dohost."

// checkName returns the error of a write to a collection of a reserved name, unless the type of its rows belongs to this module.
func (c *Collection[T]) checkName() error {
	if !strings.HasPrefix(c.Name, reservedNames) || isOurs(reflect.TypeFor[T]()) {
		return nil
	}
	return fmt.Errorf("%w: %q: names of collections that begin with %q are reserved", errCollection, c.Name, reservedNames)
}

// isOurs reports whether a package of this module declares a type, or a test of the root package.
func isOurs(t reflect.Type) bool {
	below, ok := strings.CutPrefix(t.PkgPath(), reflect.TypeFor[State]().PkgPath())
	return ok && (below == "" || below == "_test" || below[0] == '/')
}

// keys returns the places of a row. It drops empty and duplicate places.
func (x *Index[T]) keys(v T) (keys []Key) {
	if x.Each != nil {
		keys = x.Each(v)
	}
	if x.Of != nil {
		keys = append(keys[:len(keys):len(keys)], x.Of(v))
	}
	return keys
}

func (c *Collection[T]) put(ctx context.Context, s *Storage, v T, expect uint64) (version uint64, err error) {
	w, err := c.write(v, expect)
	if err != nil {
		return 0, err
	}
	b := c.bytes()
	return s.rt().PutRow(ctx, &b, w)
}

// Insert writes a new row. Errors: [ErrConflict].
func (c *Collection[T]) Insert(ctx context.Context, s *Storage, v T) error {
	_, err := c.put(ctx, s, v, 0)
	return err
}

// Ensure inserts a row unless an equal one is stored, and reports whether it did. So a repeated Ensure has no effect.
// Rows are equal if their encoded values are equal, or their decoded values are deeply equal.
//
// Errors: [ErrConflict] if a different row is stored under the key; the errors of Insert and Get; an error for a
// stored row that does not decode.
func (c *Collection[T]) Ensure(ctx context.Context, s *Storage, v T) (inserted bool, err error) {
	conflict := c.Insert(ctx, s, v)
	if !errors.Is(conflict, ErrConflict) {
		return conflict == nil, conflict
	}
	key, b := c.Key(v), c.bytes()
	stored, ok, err := s.rt().GetRow(ctx, &b, []byte(key))
	if err != nil {
		return false, err
	}
	data, err := encode(v)
	if err != nil || bytes.Equal(data, stored.Value) { // also a NaN, which is not equal to itself
		return false, err
	}
	if !ok {
		return false, conflict
	}
	row, err := c.decode(key, stored.Value)
	if err != nil {
		return false, err
	}
	if again, err := decode[T](data); err != nil || reflect.DeepEqual(again, row) {
		return false, err
	}
	return false, conflict
}

// Put writes a row, and replaces the row with the same key if there is one.
func (c *Collection[T]) Put(ctx context.Context, s *Storage, v T) error {
	_, err := c.put(ctx, s, v, objectstore.AnyVersion)
	return err
}

// Update calls change with the row, writes the result, and returns it. If change returns an error, nothing is
// written. change must not alter the key, and must not use ctx to give up the turn: a write of the row by another
// event is a conflict.
//
// Errors: change's, [ErrNotFound], [ErrConflict], [ErrMisuse].
func (c *Collection[T]) Update(ctx context.Context, s *Storage, key string, change func(*T) error) (Row[T], error) {
	return c.update(ctx, s, key, objectstore.AnyVersion, change)
}

// UpdateIf is Update of a row that still has the version that the caller saw.
//
// Errors: the errors of Update.
func (c *Collection[T]) UpdateIf(ctx context.Context, s *Storage, key string, version uint64, change func(*T) error) (Row[T], error) {
	return c.update(ctx, s, key, version, change)
}

func (c *Collection[T]) update(ctx context.Context, s *Storage, key string, version uint64, change func(*T) error) (Row[T], error) {
	row, ok, err := c.Get(ctx, s, key)
	if err != nil {
		return Row[T]{}, err
	}
	if err := refuse(c.Name, key, version, row.Version, ok); err != nil {
		return Row[T]{}, err
	}
	if err := change(&row.Value); err != nil {
		return Row[T]{}, err
	}
	if c.Key != nil && c.Key(row.Value) != key {
		return Row[T]{}, fmt.Errorf("%w: an update of %s %q changes its key to %q", errCollection, c.Name, key, c.Key(row.Value))
	}
	row.Version, err = c.put(ctx, s, row.Value, row.Version)
	if err != nil {
		return Row[T]{}, err
	}
	return row, nil
}

// refuse returns the error of an update that expects a version of a row, if it is not the actual one.
func refuse(collection, key string, expected, actual uint64, exists bool) error {
	refused := &RowError{Collection: collection, Key: key, Expected: expected, Actual: actual}
	switch {
	case !exists:
		refused.Err = objectstore.ErrNoRow
	case expected != objectstore.AnyVersion && expected != actual:
		refused.Err = objectstore.ErrConflict
	default:
		return nil
	}
	return refused
}

// Delete removes a row and reports whether it existed.
func (c *Collection[T]) Delete(ctx context.Context, s *Storage, key string) (existed bool, err error) {
	if err := c.checkName(); err != nil {
		return false, err
	}
	b := c.bytes()
	return s.rt().DeleteRow(ctx, &b, []byte(key), objectstore.AnyVersion)
}

// DeleteIf removes a row if it still has the version that the caller saw.
//
// Errors: [ErrNotFound], [ErrConflict].
func (c *Collection[T]) DeleteIf(ctx context.Context, s *Storage, key string, version uint64) error {
	if err := c.checkName(); err != nil {
		return err
	}
	b := c.bytes()
	_, err := s.rt().DeleteRow(ctx, &b, []byte(key), version)
	return err
}

// Get returns the row of a key.
func (c *Collection[T]) Get(ctx context.Context, s *Storage, key string) (row Row[T], ok bool, err error) {
	b := c.bytes()
	r, ok, err := s.rt().GetRow(ctx, &b, []byte(key))
	if err != nil || !ok {
		return Row[T]{}, false, err
	}
	row = Row[T]{Key: key, Version: r.Version, Cursor: Cursor(key)}
	row.Value, err = c.decode(key, r.Value)
	return row, err == nil, err
}

// decode returns the value of a row, or an error that names the row.
func (c *Collection[T]) decode(key string, data []byte) (v T, err error) {
	if v, err = decode[T](data); err != nil {
		err = errkind.About(fmt.Sprintf("collection %q, row %.64q", c.Name, key), err)
	}
	return v, err
}

// All yields the rows that q selects, in order. It reads each row only when the loop asks for it, plus the rows
// that q.Where rejects: by an index, one entry and one row each. A row with several places in the index appears
// once for each place.
//
// The loop must not give up the turn: the step after an Await or Call yields [ErrMisuse]. It may write. In the order
// of keys, All yields the rows as they were when the loop began. By an index, it yields a row that the loop has
// changed in its new state, and omits the row if it has lost that place in the index.
//
// Errors: [ErrMisuse].
func (c *Collection[T]) All(ctx context.Context, s *Storage, q *Query[T]) iter.Seq2[Row[T], error] {
	return func(yield func(Row[T], error) bool) { c.all(ctx, s, q, yield) }
}

// all is the loop of All. The compiler copies the function that All returns into each caller, so that function only calls this one.
func (c *Collection[T]) all(ctx context.Context, s *Storage, q *Query[T], yield func(Row[T], error) bool) {
	rq, err := c.query(q)
	if err != nil {
		yield(Row[T]{}, err)
		return
	}
	b, n := c.bytes(), 0
	for r, err := range s.rt().Rows(ctx, &b, rq) {
		var row Row[T]
		if err == nil {
			row, err = c.row(r)
		}
		if err == nil && q != nil && q.Where != nil && !q.Where(row.Value) {
			continue
		}
		n++
		if !yield(row, err) || err != nil || q != nil && n == q.Limit {
			return
		}
	}
}

// row decodes a row.
func (c *Collection[T]) row(r objectstore.CollectionRow) (row Row[T], err error) {
	row.Key, row.Cursor = keyAndCursor(r)
	row.Version = r.Version
	row.Value, err = c.decode(row.Key, r.Value)
	return row, err
}

// List returns the rows that q selects, as they are at one moment.
//
// Errors: [ErrMisuse].
func (c *Collection[T]) List(ctx context.Context, s *Storage, q *Query[T]) ([]Row[T], error) {
	var rows []Row[T]
	for row, err := range c.All(ctx, s, q) {
		if err != nil {
			return nil, err
		}
		rows = append(rows, row)
	}
	return rows, nil
}

// Count counts the rows that q selects. By an index it reads only the entries, unless q has a
// Where.
//
// Errors: [ErrMisuse].
func (c *Collection[T]) Count(ctx context.Context, s *Storage, q *Query[T]) (n int, err error) {
	rq, err := c.query(q)
	if err != nil {
		return 0, err
	}
	if q == nil || q.Where == nil {
		b := c.bytes()
		return s.rt().CountRows(ctx, &b, rq)
	}
	for _, err := range c.All(ctx, s, q) {
		if err != nil {
			return 0, err
		}
		n++
	}
	return n, nil
}
