package objectstore

import (
	"bytes"

	"github.com/dohost/dohost/internal/invariants"
)

// Iterator walks over rows. It is not for concurrent use.
type Iterator struct {
	store   *Store
	reverse bool
	left    int // rows that may still be returned; negative: all

	rows []row // the rows of memory, in the order of the walk

	base       *cursor // Pebble's part; nil if there is none or no more
	started    bool    // base has a position
	walk       emptyWalk
	pending    bool   // baseKey and baseValue have not been returned yet
	skip       int    // bytes of Pebble's keys before the row's
	baseKey    []byte // with the space; reused
	baseValue  []byte
	key, value []byte // the current row
	err        error
}

// Scan iterates over the rows within b in the order of their keys, as they are now: it ignores later writes of the
// batch. The caller closes the iterator.
func (s *Batch) Scan(b Bounds) *Iterator {
	it := &Iterator{store: s.r.store, reverse: b.Reverse, left: b.Limit, skip: len(s.r.prefix)}
	if b.Limit == 0 {
		it.left = -1
	}
	lower, upper, ok, err := b.span()
	if err != nil {
		it.err = err
		return it
	}
	if !ok {
		return it
	}
	if it.err = s.r.store.refusal(); it.err != nil {
		return it
	}
	// Memory first: a layer that leaves memory in between is readable in Pebble by then.
	var from []byte
	var records uint64
	it.rows, from, records = s.overlay(lower, upper, &b)
	if from != nil && s.r.Prefetch() {
		it.rows, from, records = s.overlay(lower, upper, &b)
	}
	if from != nil {
		p := s.r.prefix
		it.base, it.err = s.r.store.cursor(s.r.store.db, append(p[:len(p):len(p)], from...), append(p[:len(p):len(p)], upper...))
		if !b.Reverse && !s.r.store.opts.ReadOnly {
			it.walk = emptyWalk{s.r, lower, upper, records}
		}
	}
	return it
}

// Next moves to the next row, the first time to the first. It returns false at
// the end and on an error.
func (it *Iterator) Next() bool {
	it.forget()
	if it.err != nil || it.left == 0 {
		return false
	}
	for {
		if it.base != nil && !it.pending {
			if !it.fill() && it.err != nil {
				return false
			}
		}
		if len(it.rows) == 0 && !it.pending {
			return false
		}
		if it.merge() {
			it.left--
			return true
		}
	}
}

// merge takes the next row of memory and Pebble. Memory's row hides Pebble's of the same key. merge returns false if
// the row is deleted.
func (it *Iterator) merge() bool {
	c := -1
	if len(it.rows) == 0 {
		c = 1
	} else if it.pending {
		c = bytes.Compare(it.rows[0].key, it.baseKey)
		if it.reverse {
			c = -c
		}
	}
	if c > 0 {
		it.key, it.value = it.baseKey, it.baseValue
		it.pending = false
		return true
	}
	if c == 0 {
		it.pending = false
	}
	r := it.rows[0]
	it.rows = it.rows[1:]
	it.key, it.value = r.key, r.value
	return !r.deleted
}

// fill copies Pebble's next row. The copy stays valid when the store closes the engine.
func (it *Iterator) fill() bool {
	move := nextRow
	switch {
	case !it.started && it.reverse:
		move = engineIterator.Last
	case !it.started:
		move = engineIterator.First
	case it.reverse:
		move = engineIterator.Prev
	}
	first := !it.started
	it.started = true
	it.pending, it.err = it.base.step(move, it)
	if first && it.err == nil {
		it.walk.ended(it.base, it.baseKey)
	}
	if !it.pending {
		it.drop()
	}
	return it.pending
}

// add implements rowSink.
func (it *Iterator) add(key, value []byte) {
	it.baseKey = append(it.baseKey[:0], key[it.skip:]...)
	it.baseValue = append(it.baseValue[:0], value...)
}

// forget invalidates the slices that Key and Value returned.
func (it *Iterator) forget() {
	if invariants.Enabled {
		invariants.Mangle(it.key)
		invariants.Mangle(it.value)
		if !it.pending {
			it.baseKey, it.baseValue = nil, nil
		}
	}
	it.key, it.value = nil, nil
}

// Key returns the row's key, valid until the next call of Next or Close.
func (it *Iterator) Key() []byte {
	if len(it.key) == 0 {
		return nil
	}
	return it.key[1:]
}

// Value returns the row's value, valid until the next call of Next or Close.
func (it *Iterator) Value() []byte { return it.value }

// Err returns the error that ended the iteration, if one did: ErrFenced if the store was closed during it.
func (it *Iterator) Err() error { return it.err }

// Close ends the iteration and returns Err. Closing twice is allowed.
func (it *Iterator) Close() error {
	it.forget()
	it.left, it.rows, it.pending = 0, nil, false
	it.drop()
	return it.err
}

func (it *Iterator) drop() {
	if it.base == nil {
		return
	}
	if err := it.base.close(); it.err == nil {
		it.err = err
	}
	it.base = nil
}
