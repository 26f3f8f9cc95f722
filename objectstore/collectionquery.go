package objectstore

import (
	"bytes"
	"errors"
)

// RowQuery selects the rows of a collection that satisfy all of its fields. Its keys are
// keys of Index, or without an index the keys of the rows. Equal together with Prefix,
// Start or End, and a negative Limit, are errors.
type RowQuery struct {
	Index  string
	Equal  []byte // this key
	Prefix []byte // keys that begin so
	Start  []byte // the first key
	End    []byte // the key after the last
	// After is the Cursor of the row before the first, in the query's direction.
	After   []byte
	Reverse bool // from the last to the first
	Limit   int  // the largest number of rows; zero means all
}

var errQuery = errors.New("dohost: query has Equal together with Prefix, Start or End, or a negative Limit")

// bounds returns the bounds of the query's keys below base.
func (q *RowQuery) bounds(base []byte) (Bounds, error) {
	if q.Limit < 0 || len(q.Equal) > 0 && (len(q.Prefix) > 0 || len(q.Start) > 0 || len(q.End) > 0) {
		return Bounds{}, errQuery
	}
	key := func(k []byte) []byte { return append(base[:len(base):len(base)], k...) }
	b := Bounds{Space: SpaceCollection, Prefix: key(q.Prefix), Reverse: q.Reverse, Limit: q.Limit}
	switch {
	case len(q.Equal) > 0 && q.Index != "":
		b.Prefix = append(key(q.Equal), nameEnd)
	case len(q.Equal) > 0:
		b.Start = key(q.Equal)
		b.End = append(key(q.Equal), 0)
	}
	if len(q.Start) > 0 {
		b.Start = key(q.Start)
	}
	if len(q.End) > 0 {
		b.End = key(q.End)
	}
	switch after := key(q.After); {
	case len(q.After) == 0:
	case q.Reverse:
		if b.End == nil || bytes.Compare(after, b.End) < 0 {
			b.End = after
		}
	case bytes.Compare(after, b.Start) >= 0:
		b.Start, b.After = nil, after
	}
	return b, nil
}

// Selects returns a function that reports whether q selects a row at a cursor, if there is one. It does not consider
// Limit. Errors: the errors of a query that QueryRows refuses.
func (q *RowQuery) Selects() (func(cursor string) bool, error) {
	b, err := q.bounds(nil)
	if err != nil {
		return nil, err
	}
	lower, upper, ok, err := b.span()
	if err != nil {
		return nil, err
	}
	from, to := string(lower[1:]), string(upper[1:])
	bounded := upper[0] == byte(SpaceCollection) // otherwise upper is the end of the space
	return func(cursor string) bool { return ok && cursor >= from && (!bounded || cursor < to) }, nil
}

// RowIterator walks over the rows that a query selects. It is not for concurrent
// use.
type RowIterator struct {
	s    *Batch
	c    Collection
	it   *Iterator
	base int    // bytes before the cursor in the iterator's keys
	from string // the index, or empty
	keys bool   // rows need not be read
	row  CollectionRow
	read int
	err  error
}

// QueryRows iterates over the rows that q selects, in the order of its index and
// then of their keys. It reads no other: with a limit of n, n index entries and n
// rows at most.
//
// In the order of their own keys, the rows are those of this moment. By an index, the entries are: a row that the
// batch changes before the iterator reaches it is left out if it has lost that entry, and otherwise returned in its
// new state.
func (s *Batch) QueryRows(c *Collection, q RowQuery) *RowIterator {
	it := &RowIterator{s: s, c: *c, from: q.Index}
	base := keyBase(kindRow, 0, c.Name)
	it.err = validateName("collection", c.Name, MaxCollectionName)
	if q.Index != "" {
		base = keyBase(kindIndex, 0, c.Name, q.Index)
		it.err = errors.Join(it.err, validateName("index", q.Index, MaxCollectionName))
	}
	base = base[1:]
	it.base = len(base)
	b, err := q.bounds(base)
	if it.err = errors.Join(it.err, err); it.err == nil {
		it.it = s.Scan(b)
	}
	return it
}

// CountRows counts the rows that q selects. By an index it reads the entries and no
// rows. A row with several entries that q selects counts as often.
func (s *Batch) CountRows(c *Collection, q RowQuery) (n int, err error) {
	it := s.QueryRows(c, q)
	it.keys = true
	for it.Next() {
		n++
	}
	return n, it.Close()
}

// Next moves to the next row, the first time to the first. It returns false at
// the end and on an error.
func (it *RowIterator) Next() bool {
	it.row = CollectionRow{}
	for it.err == nil && it.it.Next() {
		it.read++
		cursor := it.it.Key()[it.base:]
		if it.from == "" {
			return it.take(cursor, cursor, it.it.Value())
		}
		index, key, err := splitEntry(cursor, it.it.Value())
		if err != nil {
			it.err = err
			return false
		}
		if it.keys {
			return true
		}
		rec, err := it.s.row(&it.c, key)
		if err != nil {
			it.err = err
			return false
		}
		it.read++
		if rec.has(IndexEntry{Index: it.from, Key: index}) {
			it.row = CollectionRow{Key: key, Value: rec.value, Version: rec.version, Cursor: cursor}
			return true
		}
	}
	if it.err == nil {
		it.err = it.it.Err()
	}
	return false
}

// take makes a stored record the current row.
func (it *RowIterator) take(cursor, key, record []byte) bool {
	rec, err := decodeRow(record)
	if err != nil {
		it.err = err
		return false
	}
	it.row = CollectionRow{Key: key, Value: rec.value, Version: rec.version, Cursor: cursor}
	return true
}

// Row returns the current row. Its slices are valid until the next call of Next or Close.
func (it *RowIterator) Row() CollectionRow { return it.row }

// Reads returns how many index entries and rows have been read so far.
func (it *RowIterator) Reads() int { return it.read }

// Err returns the error that ended the iteration, if one did.
func (it *RowIterator) Err() error { return it.err }

// Close ends the iteration and returns Err. Closing twice is allowed.
func (it *RowIterator) Close() error {
	it.row = CollectionRow{}
	if it.it != nil {
		if err := it.it.Close(); it.err == nil {
			it.err = err
		}
	}
	return it.err
}
