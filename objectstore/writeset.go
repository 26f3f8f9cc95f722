package objectstore

import (
	"bytes"
	"slices"
)

const (
	// linearRows is how many rows are searched one by one; a map costs more below it.
	linearRows = 8
	// rowOverhead is the size of a row in addition to its key and value.
	rowOverhead = 32
	// Beyond these a layer's memory is too large to be kept for reuse: every busy
	// object has an empty layer.
	maxSpareRows  = 64
	maxSpareOuts  = 64
	maxSpareArena = 2 * maxLastDurable
	// maxArena is where arenas stop doubling, in bytes.
	maxArena = 64 << 10
)

// row is the last write to a key. Its key begins with the space.
type row struct {
	key     []byte
	value   []byte
	deleted bool
	saved   uint32 // of a batch's row: see savepoints
}

// rowSize returns the size of a row with a value of valueLen bytes.
func rowSize(key []byte, valueLen int) int { return len(key) + valueLen + rowOverhead }

// writeSet has the last write to each key, with copies of keys and values in an arena. The lock or the owner of its layer guards it.
type writeSet struct {
	rows     []row            // in the order of the first write
	index    map[string]int32 // key to row; nil up to linearRows rows
	order    []int32          // rows by key, as far as scans have needed it: the rows below len(order)
	arena    []byte           // the chunk that copies go to; older chunks live through the rows
	bytes    int              // size of the rows
	capacity int              // the capacity of the arenas that the rows may refer to
}

func (w *writeSet) find(key []byte) int {
	if w.index != nil {
		if i, ok := w.index[string(key)]; ok {
			return int(i)
		}
		return -1
	}
	for i := range w.rows {
		if bytes.Equal(w.rows[i].key, key) {
			return i
		}
	}
	return -1
}

// set writes a row. It returns the row's place and, if the row was there already, its old
// state. The old state shares no memory with the row if the row had not been saved by the savepoint
// since, or by a later one; else the new value may be in the place of the old one.
func (w *writeSet) set(key, value []byte, deleted bool, since uint32) (at int, old row, had bool) {
	at = w.find(key)
	if at < 0 {
		w.rows = append(w.rows, row{key: w.copy(key), value: w.copy(value), deleted: deleted, saved: since})
		at = len(w.rows) - 1
		w.bytes += rowSize(key, len(value))
		w.addToIndex(at)
		return at, row{}, false
	}
	r := &w.rows[at]
	old = *r
	w.bytes += len(value) - len(r.value)
	if old.saved >= since && len(value) <= cap(r.value) {
		r.value = append(r.value[:0], value...)
	} else {
		r.value = w.copy(value)
	}
	r.deleted, r.saved = deleted, max(old.saved, since)
	if w.capacity > 2*w.bytes+2*maxArena {
		w.compact(0)
	}
	return at, old, true
}

// compact copies all rows to an arena of the right size plus extra bytes, without overwritten values.
func (w *writeSet) compact(extra int) {
	for i := range w.rows {
		extra += len(w.rows[i].key) + len(w.rows[i].value)
	}
	w.arena, w.capacity = make([]byte, 0, extra), extra
	for i := range w.rows {
		r := &w.rows[i]
		r.key, r.value = w.copy(r.key), w.copy(r.value)
	}
}

// sizeWith returns the size of the set after a write.
func (w *writeSet) sizeWith(key []byte, valueLen int) int {
	if at := w.find(key); at >= 0 {
		return w.bytes + valueLen - len(w.rows[at].value)
	}
	return w.bytes + rowSize(key, valueLen)
}

func (w *writeSet) addToIndex(at int) {
	if w.index == nil {
		if len(w.rows) <= linearRows {
			return
		}
		w.index = make(map[string]int32, 4*linearRows)
		for i := range w.rows {
			w.index[string(w.rows[i].key)] = int32(i)
		}
		return
	}
	w.index[string(w.rows[at].key)] = int32(at)
}

// restore undoes the last write to the row at. The row was old before it; nil means that it is new.
func (w *writeSet) restore(at int, old *row) {
	r := &w.rows[at]
	if old != nil {
		w.bytes += len(old.value) - len(r.value)
		*r = *old
		return
	}
	// Undone in reverse order, so a new row is the last one.
	w.bytes -= rowSize(r.key, len(r.value))
	if w.index != nil {
		delete(w.index, string(r.key))
	}
	w.rows[at] = row{}
	w.rows = w.rows[:at]
	if len(w.order) > at {
		w.order = w.order[:0]
	}
}

// copy puts b into the arena. The result has no room to grow into its neighbour.
func (w *writeSet) copy(b []byte) []byte {
	if len(b) == 0 {
		return []byte{}
	}
	if cap(w.arena)-len(w.arena) < len(b) {
		w.arena = make([]byte, 0, max(256, len(b), min(2*cap(w.arena), maxArena)))
		w.capacity += cap(w.arena)
	}
	n := len(w.arena)
	w.arena = append(w.arena, b...)
	return w.arena[n:len(w.arena):len(w.arena)]
}

// sorted returns the places of the rows in the order of their keys. It inserts a few new rows into the previous order, and
// sorts many.
func (w *writeSet) sorted() []int32 {
	fresh := len(w.rows) - len(w.order)
	byKey := func(a, b int32) int { return bytes.Compare(w.rows[a].key, w.rows[b].key) }
	if fresh > linearRows {
		for i := len(w.order); i < len(w.rows); i++ {
			w.order = append(w.order, int32(i))
		}
		slices.SortFunc(w.order, byKey)
		return w.order
	}
	for i := int32(len(w.order)); int(i) < len(w.rows); i++ {
		at, _ := slices.BinarySearchFunc(w.order, i, byKey)
		w.order = slices.Insert(w.order, at, i)
	}
	return w.order
}

// reset empties the set, keeping memory worth keeping.
func (w *writeSet) reset() {
	var empty writeSet
	if cap(w.rows) <= maxSpareRows {
		clear(w.rows)
		empty.rows, empty.order = w.rows[:0], w.order[:0]
	}
	if cap(w.arena) <= maxSpareArena {
		empty.arena, empty.capacity = w.arena[:0], cap(w.arena)
	}
	*w = empty
}
