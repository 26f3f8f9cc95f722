package dohost

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/dohost/dohost/objectstore"
)

// RowWrite is a row that an object has put into a collection, or deleted: see [Handlers].
type RowWrite struct {
	// Collection is the name of the collection, and Key the key of the row.
	Collection, Key string
	// Deleted is set if the row was deleted. Then it has no places.
	Deleted bool

	entries, former []objectstore.IndexEntry
}

// Places yields the keys that the row has in an index, and with each the cursor that a query by the index returns for it.
func (w *RowWrite) Places(index string) iter.Seq2[Key, Cursor] { return w.places(w.entries, index) }

// FormerPlaces yields the keys that the row had in an index before the write, as Places does. A new row had none.
func (w *RowWrite) FormerPlaces(index string) iter.Seq2[Key, Cursor] {
	return w.places(w.former, index)
}

func (w *RowWrite) places(entries []objectstore.IndexEntry, index string) iter.Seq2[Key, Cursor] {
	return func(yield func(Key, Cursor) bool) {
		for _, e := range entries {
			if e.Index == index && !yield(Key(e.Key), Cursor(e.Cursor([]byte(w.Key)))) {
				return
			}
		}
	}
}

// Keys yields the keys, versions and cursors of the rows that q selects, like All, but does not decode the rows: it also yields a row
// that does not decode into a T. q must have no Where.
//
// Errors: [ErrMisuse].
func (c *Collection[T]) Keys(ctx context.Context, s *Storage, q *Query[T]) iter.Seq2[Row[struct{}], error] {
	rq, err := c.query(q)
	if err == nil && q != nil && q.Where != nil {
		err = fmt.Errorf("%w: Keys of %q with a query that has a Where", errCollection, c.Name)
	}
	return keysOf(ctx, s, c.bytes(), rq, err)
}

// keysOf yields the error, or the rows of a query without their values.
func keysOf(ctx context.Context, s *Storage, c objectstore.Collection, q objectstore.RowQuery, err error) iter.Seq2[Row[struct{}], error] {
	return func(yield func(Row[struct{}], error) bool) { eachKey(ctx, s, c, q, err, yield) }
}

// eachKey is the loop of keysOf. The compiler copies the function that keysOf returns into each caller, so that function only calls this one.
func eachKey(ctx context.Context, s *Storage, c objectstore.Collection, q objectstore.RowQuery, err error, yield func(Row[struct{}], error) bool) {
	if err != nil {
		yield(Row[struct{}]{}, err)
		return
	}
	n := 0
	for r, err := range s.rt().Rows(ctx, &c, q) {
		row := Row[struct{}]{Version: r.Version}
		row.Key, row.Cursor = keyAndCursor(r)
		n++
		if !yield(row, err) || err != nil || n == q.Limit {
			return
		}
	}
}

// InIndex reports whether a row with the value v is in an index under a key that begins with prefix; an empty prefix matches all
// keys. It is false for an index that the collection does not have. It reads no storage.
func (c *Collection[T]) InIndex(v T, index string, prefix Key) bool {
	at := slices.IndexFunc(c.Indexes, func(x Index[T]) bool { return x.Name == index })
	return at >= 0 && slices.ContainsFunc(c.Indexes[at].keys(v), func(k Key) bool { return k != "" && strings.HasPrefix(string(k), string(prefix)) })
}
