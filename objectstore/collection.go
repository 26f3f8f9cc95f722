package objectstore

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/dohost/dohost/internal/errkind"
)

// MaxCollectionName bounds the names of collections, indexes and feeds, in bytes.
const MaxCollectionName = 128

// Collection is a set of rows of an object, kept in SpaceCollection. Each row has a version, and entries in secondary
// indexes. Row, index entries and the feed's entry are written together, in one batch. The zero Feed is none.
type Collection struct {
	Name string
	Feed Feed
}

// IndexEntry is a place of a row in an index. Entries of an index are ordered by
// their keys, then by the keys of their rows. For that to hold between keys of
// different lengths, no key followed by a zero byte may begin another key.
type IndexEntry struct {
	Index string
	Key   []byte
}

// Cursor returns the cursor of a row by the entry: see RowQuery.
func (e *IndexEntry) Cursor(key []byte) []byte {
	return slices.Concat(e.Key, []byte{nameEnd}, key)
}

// CollectionRow is a row. Its slices are the caller's, unless an iterator returned it.
type CollectionRow struct {
	Key, Value []byte
	Version    uint64
	// Cursor is the row's place in the query that found it; empty from GetRow.
	Cursor []byte
}

// RowWrite is a row to be written.
type RowWrite struct {
	Key, Value []byte
	// Entries are the row's places in indexes, in any order. Doubles count once.
	Entries []IndexEntry
	// Expect is the version that the row must have: zero for a row that must not
	// be there, or AnyVersion.
	Expect uint64
	// Blind writes without reading the old row. The old row's index entries would stay, the version becomes 1, and
	// the change an insertion. Blind is for a row without Entries, of any version, of a collection without a feed.
	Blind bool
	// Former, if it is not nil, receives the entries that the row had before. It is nil for a blind write.
	Former *[]IndexEntry
}

// AnyVersion expects nothing of a row's version.
const AnyVersion = math.MaxUint64

// A *RowError wraps these errors.
var (
	// ErrRowExists reports that a row exists that must not.
	ErrRowExists = errkind.New(errkind.ErrConflict, "row exists")
	// ErrNoRow reports that a row does not exist.
	ErrNoRow = errkind.New(errkind.ErrNotFound, "no such row")
	// ErrConflict reports that a row has another version than expected.
	ErrConflict = errkind.New(errkind.ErrConflict, "row has changed")
)

// RowError reports that a row does not have the state that a write expects. Nothing was written.
type RowError struct {
	Collection string
	Key        string
	Expected   uint64 // zero: no row
	Actual     uint64 // zero: no row
	Err        error  // ErrRowExists, ErrNoRow or ErrConflict
}

// Error names the row and both versions.
func (e *RowError) Error() string {
	if e == nil {
		return "dohost: nil *RowError"
	}
	if errors.Is(e.Err, ErrConflict) {
		return fmt.Sprintf("%v: %s %q has version %d, expected %d", e.Err, e.Collection, e.Key, e.Actual, e.Expected)
	}
	return fmt.Sprintf("%v: %s %q", e.Err, e.Collection, e.Key)
}

// Unwrap returns ErrRowExists, ErrNoRow or ErrConflict.
func (e *RowError) Unwrap() error {
	if e == nil {
		return nil
	}
	return e.Err
}

// expect compares a row's version with the one that a write wants. Without insert,
// a row must be there for any version but AnyVersion.
func (c *Collection) expect(key []byte, expected, actual uint64, insert bool) error {
	if expected == AnyVersion || expected == actual && (insert || actual > 0) {
		return nil
	}
	e := &RowError{Collection: c.Name, Key: string(key), Expected: expected, Actual: actual, Err: ErrConflict}
	switch {
	case actual == 0:
		e.Err = ErrNoRow
	case expected == 0 && insert:
		e.Err = ErrRowExists
	}
	return e
}

func (c *Collection) validate(key []byte) error {
	if err := validateName("collection", c.Name, MaxCollectionName); err != nil {
		return err
	}
	if len(key) == 0 {
		return &LimitError{Subject: "key", Limit: MaxKey}
	}
	if c.Feed.Name == "" {
		return nil
	}
	return validateName("feed", c.Feed.Name, MaxCollectionName)
}

// GetRow returns a copy of a row. Errors: *NameError, *LimitError for an empty key, ErrFormat, ErrDamaged, ErrFenced.
func (s *Batch) GetRow(c *Collection, key []byte) (CollectionRow, bool, error) {
	rec, err := s.row(c, key)
	if err != nil || rec.version == 0 {
		return CollectionRow{}, false, err
	}
	return CollectionRow{Key: bytes.Clone(key), Value: rec.value, Version: rec.version}, true, nil
}

// row returns the record of a row; its version is zero if there is none.
func (s *Batch) row(c *Collection, key []byte) (rowRecord, error) {
	if err := c.validate(key); err != nil {
		return rowRecord{}, err
	}
	b, ok, err := s.Get(nil, SpaceCollection, rowKey(c.Name, key)[1:])
	if err != nil || !ok {
		return rowRecord{}, err
	}
	return decodeRow(b)
}

// PutRow writes a row with its index entries, and appends to the collection's
// feed. It returns the row's new version: 1, or one more than it had, unless the
// write is blind. All is written or nothing.
//
// Errors: *RowError, *NameError, *LimitError (for the sizes of records: index entries count toward a row's value, names
// toward its keys), ErrNoSpace, ErrFormat, ErrDamaged, ErrReadOnlyStore, ErrFull, ErrFenced after the end of the store.
func (s *Batch) PutRow(c *Collection, w RowWrite) (version uint64, err error) {
	var old rowRecord
	if w.Blind {
		err = c.validate(w.Key)
	} else {
		old, err = s.row(c, w.Key)
	}
	if err != nil {
		return 0, err
	}
	if err := c.expect(w.Key, w.Expect, old.version, true); err != nil {
		return 0, err
	}
	if err := s.r.store.space.check(); err != nil {
		return 0, err
	}
	if w.Former != nil {
		*w.Former = old.entries
	}
	rec := rowRecord{version: old.version + 1, entries: sortedEntries(w.Entries), value: w.Value}
	p := plan{{key: rowKey(c.Name, w.Key), value: rec.encode()}}
	if err := p.index(c.Name, w.Key, old.entries, rec.entries); err != nil {
		return 0, err
	}
	op := OpUpdate
	if old.version == 0 {
		op = OpInsert
	}
	return rec.version, s.writeWithFeed(p, c, Change{
		Op: op, Collection: c.Name, Key: w.Key, Version: rec.version, Value: w.Value, Before: old.value,
	})
}

// DeleteRow removes a row and its index entries, which it returns, and appends to the collection's
// feed. Unless AnyVersion is expected, a row that is not there is ErrNoRow. Errors: the
// errors of PutRow, without ErrNoSpace.
func (s *Batch) DeleteRow(c *Collection, key []byte, expect uint64) (former []IndexEntry, existed bool, err error) {
	old, err := s.row(c, key)
	if err != nil {
		return nil, false, err
	}
	if err := c.expect(key, expect, old.version, false); err != nil || old.version == 0 {
		return nil, false, err
	}
	p := plan{{key: rowKey(c.Name, key), deleted: true}}
	if err := p.index(c.Name, key, old.entries, nil); err != nil {
		return nil, false, err
	}
	err = s.writeWithFeed(p, c, Change{Op: OpDelete, Collection: c.Name, Key: key, Version: old.version, Before: old.value})
	return old.entries, err == nil, err
}

// writeWithFeed appends the feed's writes to a plan and writes it.
func (s *Batch) writeWithFeed(p plan, c *Collection, ch Change) error {
	if c.Feed.Name == "" {
		return s.writeAll(p)
	}
	f, err := s.feed(c.Feed.Name)
	if err != nil {
		return err
	}
	ch.At = time.Now().UTC().Truncate(time.Millisecond)
	after := *f
	if err := p.append(s, &c.Feed, &after, ch); err != nil {
		return err
	}
	if err := s.writeAll(p); err != nil {
		return err
	}
	*f = after
	return nil
}

func compareEntries(a, b IndexEntry) int {
	return cmp.Or(cmp.Compare(a.Index, b.Index), bytes.Compare(a.Key, b.Key))
}

func sortedEntries(es []IndexEntry) []IndexEntry {
	es = slices.Clone(es)
	slices.SortFunc(es, compareEntries)
	return slices.CompactFunc(es, func(a, b IndexEntry) bool { return compareEntries(a, b) == 0 })
}

// plan is a list of writes to different keys, which are applied together.
type plan []row

// index adds the writes that replace a row's index entries old by now; both are sorted.
func (p *plan) index(collection string, key []byte, old, now []IndexEntry) error {
	for len(old) > 0 || len(now) > 0 {
		c := 0
		switch {
		case len(old) == 0:
			c = 1
		case len(now) == 0:
			c = -1
		default:
			c = compareEntries(old[0], now[0])
		}
		switch {
		case c < 0:
			*p = append(*p, row{key: indexKey(collection, old[0], key), deleted: true})
		case c > 0:
			if err := validateName("index", now[0].Index, MaxCollectionName); err != nil {
				return err
			}
			*p = append(*p, row{key: indexKey(collection, now[0], key), value: encodeEntry(key)})
		}
		if c <= 0 {
			old = old[1:]
		}
		if c >= 0 {
			now = now[1:]
		}
	}
	return nil
}

// writeAll applies all writes of a plan, or none.
func (s *Batch) writeAll(p plan) error {
	if s.r.store.opts.ReadOnly {
		return ErrReadOnlyStore
	}
	size := s.g.set.bytes
	for i := range p {
		if n := len(p[i].key) - 1; n > MaxKey {
			return &LimitError{Subject: "key", Size: n, Limit: MaxKey}
		}
		if n := len(p[i].value); n > MaxValue {
			return &LimitError{Subject: "value", Size: n, Limit: MaxValue}
		}
		size += rowSize(p[i].key, len(p[i].value))
	}
	// As for single writes, the exact sum is computed only if it matters.
	if size > MaxBatchBytes {
		size = s.g.set.bytes
		for i := range p {
			size += s.g.set.sizeWith(p[i].key, len(p[i].value)) - s.g.set.bytes
		}
		if size > MaxBatchBytes {
			return &LimitError{Subject: "batch", Size: size, Limit: MaxBatchBytes}
		}
	}
	cost := 0
	for i := range p {
		cost += s.cost(p[i].key, len(p[i].value))
	}
	if err := s.reserve(cost); err != nil {
		return err
	}
	for i := range p {
		s.set(p[i].key, p[i].value, p[i].deleted, false)
	}
	return nil
}
