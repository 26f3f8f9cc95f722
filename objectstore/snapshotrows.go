package objectstore

import (
	"errors"
	"iter"
)

// Rows yields the durable rows that q selects, in its order. A row with several places in an index appears once for each.
// It reads each row when the loop asks for it, and no others: by an index, an entry and a row each. The slices of a row are
// valid until the next row.
//
// Errors: *NameError, ErrFormat, ErrDamaged, ErrFenced, and the error of a query that RowQuery excludes.
func (sn *Snapshot) Rows(id ID, collection string, q RowQuery) iter.Seq2[CollectionRow, error] {
	return func(yield func(CollectionRow, error) bool) { sn.rows(id, collection, q, yield) }
}

// rows is the loop of Rows. The compiler copies the function that Rows returns into each caller, so that function only calls this one.
func (sn *Snapshot) rows(id ID, collection string, q RowQuery, yield func(CollectionRow, error) bool) {
	base := keyBase(kindRow, 0, collection)
	err := validateName("collection", collection, MaxCollectionName)
	if q.Index != "" && err == nil {
		base = keyBase(kindIndex, 0, collection, q.Index)
		err = validateName("index", q.Index, MaxCollectionName)
	}
	b, wrong := q.bounds(base[1:])
	lower, upper, ok, outside := b.span()
	if err = errors.Join(err, wrong, outside); err != nil {
		yield(CollectionRow{}, err)
		return
	}
	if !ok {
		return
	}
	object := appendObject(nil, id)
	w, err := sn.walk(append(object[:len(object):len(object)], lower...), append(object[:len(object):len(object)], upper...))
	if err != nil {
		yield(CollectionRow{}, err)
		return
	}
	defer w.close()
	first, next := engineIterator.First, nextRow
	if q.Reverse {
		first, next = engineIterator.Last, engineIterator.Prev
	}
	n := 0
	ok, err = w.step(first, w)
	for ; ok && err == nil; ok, err = w.step(next, w) {
		row, err := sn.rowAt(id, collection, q.Index != "", w.key[len(object)+len(base):], w.value)
		n++
		if !yield(row, err) || err != nil || n == q.Limit {
			return
		}
	}
	if err != nil {
		yield(CollectionRow{}, err)
	}
}

// rowAt is the row of a key, or of an index entry.
func (sn *Snapshot) rowAt(id ID, collection string, entry bool, key, value []byte) (CollectionRow, error) {
	cursor := key
	if entry {
		_, of, err := splitEntry(cursor, value)
		if err != nil {
			return CollectionRow{}, err
		}
		key = of
		if value, _, err = sn.get(append(appendObject(nil, id), rowKey(collection, key)...)); err != nil {
			return CollectionRow{}, err
		}
	}
	rec, err := decodeRow(value)
	return CollectionRow{Key: key, Value: rec.value, Version: rec.version, Cursor: cursor}, err
}
