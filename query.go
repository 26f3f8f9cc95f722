package dohost

import (
	"encoding/base64"
	"fmt"

	"github.com/dohost/dohost/objectstore"
)

// Query selects the rows that satisfy all of its fields. The zero Query, and nil,
// select all, in the order of their keys.
type Query[T any] struct {
	// Index names the index that orders the rows; the next four fields are keys of it. If it is empty they are row
	// keys, as [Collection.Key] returns them.
	Index  string
	Equal  Key // this key, of whole parts; excludes the other three
	Prefix Key // keys that begin so: with these parts, or with a [KeyPrefix]
	Start  Key // the first key, and those it begins
	End    Key // the key after the last; see [Key.PrefixEnd]
	// After is the cursor of the row before the first.
	After Cursor
	// Reverse walks from the last row to the first. Start and End keep their meaning.
	Reverse bool
	// Limit bounds the number of rows. Zero means no bound.
	Limit int
	// Where filters rows: if it returns false, the row was read, but is neither returned nor counted for Limit.
	Where func(T) bool
}

// query returns the store's form of q, which has no Limit if q has a Where.
func (c *Collection[T]) query(q *Query[T]) (objectstore.RowQuery, error) {
	if q == nil {
		return objectstore.RowQuery{}, nil
	}
	rq := objectstore.RowQuery{
		Index: q.Index, Equal: []byte(q.Equal), Prefix: []byte(q.Prefix), Start: []byte(q.Start), End: []byte(q.End),
		After: []byte(q.After), Reverse: q.Reverse, Limit: q.Limit,
	}
	indexed := false
	for i := range c.Indexes {
		indexed = indexed || c.Indexes[i].Name == q.Index
	}
	err := checkQuery(c.Name, &rq, indexed)
	if q.Where != nil {
		rq.Limit = 0
	}
	return rq, err
}

// checkQuery returns an error for a query that a collection cannot answer. indexed is set if it has the query's index.
func checkQuery(collection string, q *objectstore.RowQuery, indexed bool) error {
	switch {
	case q.Limit < 0 || len(q.Equal) > 0 && len(q.Prefix)+len(q.Start)+len(q.End) > 0:
		return fmt.Errorf("%w: query of %q has a negative Limit, or Equal together with Prefix, Start or End", errCollection, collection)
	case indexed && !Key(q.Equal).wholeParts():
		return badKey(collection, q.Index, Key(q.Equal))
	case !indexed && q.Index != "":
		return fmt.Errorf("%w: %q has no index %q", errCollection, collection, q.Index)
	}
	return nil
}

// badKey is the error of an index key that was not made by [KeyOf].
func badKey(collection, index string, k Key) error {
	return fmt.Errorf("%w: %q, index %q: the key %.64q is not made of whole KeyOf parts", errCollection, collection, index, k)
}

// keyAndCursor returns the key of a row and its cursor, which share their memory.
func keyAndCursor(r objectstore.CollectionRow) (key string, at Cursor) {
	at = Cursor(r.Cursor)
	return string(at[len(at)-len(r.Key):]), at
}

// Cursor is a row's place in the order of a query: the same query with After set to the cursor continues after that
// row, even if the row has changed or is gone. As text, and so in JSON, it is base64.
type Cursor string

// MarshalText encodes the cursor.
func (c Cursor) MarshalText() ([]byte, error) {
	return base64.RawURLEncoding.AppendEncode(nil, []byte(c)), nil
}

// UnmarshalText decodes a cursor that MarshalText encoded.
func (c *Cursor) UnmarshalText(text []byte) error {
	b, err := base64.RawURLEncoding.AppendDecode(nil, text)
	if err != nil {
		return fmt.Errorf("dohost: cursor: %w", err)
	}
	*c = Cursor(b)
	return nil
}
