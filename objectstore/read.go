package objectstore

import (
	"errors"

	"github.com/cockroachdb/pebble/v2"
)

// get reads a row below the batch: in memory, then in Pebble. Pebble comes last,
// since a layer leaves memory after it is readable there.
func (r *Range) get(dst, key []byte) ([]byte, bool, error) {
	if err := r.store.refusal(); err != nil {
		return dst, false, err
	}
	for {
		v, ok, found := r.getInMemory(dst, key[len(r.prefix):])
		if found {
			return v, ok, nil
		}
		if !r.prefetch(false) {
			return r.store.load(dst, key)
		}
	}
}

// getInMemory looks for a row in filling, in flight and lastDurable. found reports that one of them has the row, or that
// it does not exist. A busy object reads mostly durable rows; nothing older can hide them, and everything newer is
// looked at before.
func (r *Range) getInMemory(dst, key []byte) (v []byte, ok, found bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, g := range [...]*layer{r.filling, r.inflight, r.lastDurable} {
		if g == nil {
			continue
		}
		w, below := g.lookup(key)
		switch {
		case w != nil:
			v, ok = w.appendTo(dst)
			return v, ok, true
		case !below:
			return dst, false, true
		}
	}
	return dst, false, false
}

// slot reads the alarm slot below the batch.
func (r *Range) slot() (Slot, bool, error) {
	if err := r.store.refusal(); err != nil {
		return Slot{}, false, err
	}
	for {
		if c := r.slotInMemory(); c.changed {
			return c.slot, c.set, nil
		}
		if r.prefetch(false) {
			continue
		}
		v, ok, err := r.store.load(nil, append(r.prefix[:len(r.prefix):len(r.prefix)], slotRow...))
		if !ok || err != nil {
			return Slot{}, false, err
		}
		s, err := decodeSlot(v)
		return s, err == nil, err
	}
}

// slotInMemory returns the last change of the slot that is in memory, if any.
func (r *Range) slotInMemory() slotChange {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, g := range [...]*layer{r.filling, r.inflight, r.lastDurable} {
		if g != nil && g.slot.changed {
			return g.slot
		}
	}
	return slotChange{}
}

// load reads a key from Pebble. The value may not be durable yet.
func (s *Store) load(dst, key []byte) ([]byte, bool, error) {
	if !s.engine.acquire() {
		return dst, false, s.refusal()
	}
	defer s.engine.release()
	return s.appendGet(dst, s.db, key)
}

// appendGet appends to dst the value of a key of a database or snapshot.
func (s *Store) appendGet(dst []byte, from engineReader, key []byte) ([]byte, bool, error) {
	s.opts.Reads.got()
	v, closer, err := from.Get(key)
	if errors.Is(err, pebble.ErrNotFound) {
		return dst, false, nil
	}
	if err != nil {
		return dst, false, readError(key, err)
	}
	return append(dst, v...), true, closer.Close()
}
