package objectstore

import (
	"bytes"
	"iter"

	"github.com/cockroachdb/pebble/v2"
)

// Rows yields the durable rows of an object's collection in the order of their keys or, if index is not empty, the
// rows that have an entry in that index, in its order; a row with several entries appears once for each. With
// backward the last row comes first. The slices of a row are valid until the next row.
//
// Errors: *NameError, ErrFormat, ErrFenced.
func (sn *Snapshot) Rows(id ID, collection, index string, backward bool) iter.Seq2[CollectionRow, error] {
	return func(yield func(CollectionRow, error) bool) {
		base := keyBase(kindRow, 0, collection)
		err := validateName("collection", collection, MaxCollectionName)
		if index != "" && err == nil {
			base = keyBase(kindIndex, 0, collection, index)
			err = validateName("index", index, MaxCollectionName)
		}
		if err != nil {
			yield(CollectionRow{}, err)
			return
		}
		prefix := append(appendObject(nil, id), base...)
		past := bytes.Clone(prefix)
		past[len(past)-1] = nameEnd + 1
		w, err := sn.walk(prefix, past)
		if err != nil {
			yield(CollectionRow{}, err)
			return
		}
		defer w.close()
		first, next := (*pebble.Iterator).First, nextRow
		if backward {
			first, next = (*pebble.Iterator).Last, (*pebble.Iterator).Prev
		}
		ok, err := w.step(first, w)
		for ; ok && err == nil; ok, err = w.step(next, w) {
			row, err := sn.rowAt(id, collection, index != "", w.key[len(prefix):], w.value)
			if !yield(row, err) || err != nil {
				return
			}
		}
		if err != nil {
			yield(CollectionRow{}, err)
		}
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
