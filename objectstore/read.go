package objectstore

import (
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2"
)

// get reads a row below the segment: filling, in flight, landed, then Pebble. Pebble
// comes last, since a generation leaves memory after it is readable there. Landed is
// what a busy object reads again and again; nothing older can hide it, and everything
// newer is looked at before.
func (r *Range) get(dst, key []byte) ([]byte, bool, error) {
	if err := r.store.refusal(); err != nil {
		return dst, false, err
	}
	inRange := key[len(r.prefix):]
	r.mu.Lock()
	for _, g := range [...]*generation{r.filling, r.inflight, r.landed} {
		if g == nil {
			continue
		}
		w, below := g.lookup(inRange)
		if w == nil && below {
			continue
		}
		defer r.mu.Unlock()
		if w == nil {
			return dst, false, nil
		}
		return w.appendTo(dst)
	}
	r.mu.Unlock()
	return r.store.load(dst, key)
}

// slot reads the alarm slot below the segment.
func (r *Range) slot() (Slot, bool, error) {
	if err := r.store.refusal(); err != nil {
		return Slot{}, false, err
	}
	r.mu.Lock()
	for _, g := range [...]*generation{r.filling, r.inflight, r.landed} {
		if g != nil && g.slot.changed {
			defer r.mu.Unlock()
			return g.slot.slot, g.slot.set, nil
		}
	}
	r.mu.Unlock()
	v, ok, err := r.store.load(nil, append(r.prefix[:len(r.prefix):len(r.prefix)], slotRow...))
	if !ok || err != nil {
		return Slot{}, false, err
	}
	s, err := decodeSlot(v)
	return s, err == nil, err
}

// load reads what Pebble has, which may not be durable yet.
func (s *Store) load(dst, key []byte) ([]byte, bool, error) {
	if !s.door.enter() {
		return dst, false, s.refusal()
	}
	defer s.door.leave()
	return s.appendGet(dst, s.db, key)
}

// appendGet appends to dst the value of a key of a database or snapshot.
func (s *Store) appendGet(dst []byte, from pebble.Reader, key []byte) ([]byte, bool, error) {
	s.opts.Reads.got()
	v, closer, err := from.Get(key)
	if errors.Is(err, pebble.ErrNotFound) {
		return dst, false, nil
	}
	if err != nil {
		return dst, false, fmt.Errorf("objectstore: reading: %w", err)
	}
	return append(dst, v...), true, closer.Close()
}
