package objectstore

import (
	"bytes"
	"slices"

	"github.com/dohost/dohost/internal/invariants"
)

const (
	// maxWholeRows bounds the rows of an object that is read whole, and maxLastDurable its bytes. From a larger object that many
	// rows or bytes are read for nothing.
	maxWholeRows = 32
	// maxMerged bounds the bytes of rows that were overwritten or deleted after an object was read whole. Beyond it
	// the kept rows are compacted.
	maxMerged = maxLastDurable
)

// wholeAt is the number of the look-up of a waking object, among the reads that find nothing in memory, that reads it whole:
// the second, since most constructors read one row, and reading the whole object would cost more. A scan needs an
// iterator in any case, so also the first one reads the object whole.
const wholeAt = 2

// SetWaking declares that the object wakes or, with false, that it is awake. An object reads much while it wakes, so a small object
// is then read whole, and kept in memory from then on.
func (r *Range) SetWaking(on bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.waking, r.misses = on, 0
}

// Prefetch reads the object whole now, if it wakes and no read has tried that yet. It reports whether the object is in memory now.
func (r *Range) Prefetch() bool { return r.prefetch(true) }

// prefetch is called by a read that has found nothing in memory. It reads the object whole if the read is a scan, or the second
// look-up, and reports whether the object is in memory now.
func (r *Range) prefetch(scan bool) bool {
	r.mu.Lock()
	if !r.waking || r.whole || r.misses >= wholeAt {
		r.mu.Unlock()
		return false
	}
	if r.misses++; r.misses < wholeAt && !scan {
		r.mu.Unlock()
		return false
	}
	r.misses = wholeAt
	w := r.readWholeLocked()
	r.mu.Unlock()
	return r.keepWhole(w, w.read(r))
}

func (r *Range) readWholeLocked() *wholeReader {
	invariants.Held(&r.mu)
	r.reading = r.store.queue.emptyLayer()
	return &wholeReader{g: r.reading, skip: len(r.prefix)}
}

// keepWhole keeps the rows if the whole object was read and no layer has become durable since, since the read may have
// missed it. The previous lastDurable is not reused: its outputs may be leaving.
func (r *Range) keepWhole(w *wholeReader, all bool) bool {
	r.mu.Lock()
	kept := all && r.reading == w.g
	if kept {
		r.lastDurable, r.whole = w.g, true
	}
	if r.reading == w.g {
		r.reading = nil
	}
	r.mu.Unlock()
	if !kept {
		r.store.queue.recycle([]*layer{w.g})
	}
	return kept
}

// wholeReader reads an object into a layer that hides Pebble's rows.
type wholeReader struct {
	g    *layer
	skip int // bytes of a key before the row's
	bad  bool
}

// read reports whether the layer has the whole object.
func (w *wholeReader) read(r *Range) bool {
	c, err := r.store.cursor(r.store.db, r.prefix, prefixEnd(r.prefix))
	if err != nil {
		return false
	}
	w.g.cleared, w.g.slot.changed = true, true
	more, err := c.step(engineIterator.First, w)
	for more && w.fits() {
		more, err = c.step(nextRow, w)
	}
	_ = c.close() // it was only read
	return err == nil && !more
}

func (w *wholeReader) fits() bool {
	return !w.bad && len(w.g.set.rows) <= maxWholeRows && w.g.set.bytes <= maxLastDurable
}

// add implements rowSink.
func (w *wholeReader) add(key, value []byte) {
	if !bytes.Equal(key[w.skip:], slotRow) {
		w.g.set.set(key[w.skip:], value, false, 0)
		return
	}
	slot, err := decodeSlot(value)
	w.g.slot.set, w.g.slot.slot, w.bad = true, slot, err != nil
}

// mergeDurableLocked adds a durable layer to the object's rows in memory. If the arena has no room for it, the rows are
// first compacted, without the deleted ones.
func (r *Range) mergeDurableLocked(g *layer) {
	invariants.Held(&r.mu)
	if w := &r.lastDurable.set; cap(w.arena)-len(w.arena) < g.set.bytes {
		w.dropDeleted()
		w.compact(max(g.set.bytes, maxMerged))
	}
	r.lastDurable.merge(g)
}

// dropDeleted removes the rows that mark deleted keys.
func (w *writeSet) dropDeleted() {
	rows := slices.DeleteFunc(w.rows, func(r row) bool { return r.deleted })
	*w = writeSet{rows: make([]row, len(rows)), arena: w.arena, capacity: w.capacity}
	copy(w.rows, rows)
	for i := range w.rows {
		w.bytes += rowSize(w.rows[i].key, len(w.rows[i].value))
		w.addToIndex(i)
	}
}
