package objectstore

import (
	"bytes"
	"slices"
)

// scanLayer is the part of a write set within a scan's bounds.
type scanLayer struct {
	set   *writeSet
	order []int32 // of the rows within the scan's bounds, by key
}

// within returns the rows of w from lower to before upper, by key.
func (w *writeSet) within(lower, upper []byte) []int32 {
	order := w.sorted()
	find := func(key []byte) int {
		at, _ := slices.BinarySearchFunc(order, key, func(i int32, key []byte) int {
			return bytes.Compare(w.rows[i].key, key)
		})
		return at
	}
	return order[find(lower):find(upper)]
}

// first returns the layer's next row in the scan's direction.
func (l *scanLayer) first(reverse bool) *row {
	i := l.order[0]
	if reverse {
		i = l.order[len(l.order)-1]
	}
	return &l.set.rows[i]
}

func (l *scanLayer) drop(reverse bool) {
	if reverse {
		l.order = l.order[:len(l.order)-1]
		return
	}
	l.order = l.order[1:]
}

// mergeLayers copies the rows of all layers, newest layer first, in the scan's direction. Of rows with the same key
// it copies the newest. It copies deleted rows too, since they hide rows of Pebble. limit bounds the rows that are
// not deleted; zero means no bound.
func mergeLayers(layers []scanLayer, reverse bool, limit int) []row {
	layers = slices.DeleteFunc(layers, func(l scanLayer) bool { return len(l.order) == 0 })
	var merged []row
	var memory writeSet
	for live := 0; len(layers) > 0 && (limit == 0 || live < limit); {
		best := layers[0].first(reverse)
		for i := range layers[1:] {
			r := layers[1+i].first(reverse)
			if c := bytes.Compare(r.key, best.key); c < 0 && !reverse || c > 0 && reverse {
				best = r
			}
		}
		merged = append(merged, row{key: memory.copy(best.key), value: memory.copy(best.value), deleted: best.deleted})
		if !best.deleted {
			live++
		}
		key := merged[len(merged)-1].key
		for i := range layers {
			if bytes.Equal(layers[i].first(reverse).key, key) {
				layers[i].drop(reverse)
			}
		}
		layers = slices.DeleteFunc(layers, func(l scanLayer) bool { return len(l.order) == 0 })
	}
	return merged
}

// overlay copies the rows that a scan of the batch finds in memory. Pebble must be read as well if from, the first key that it may have, is
// not nil. records is the number of records at that time.
func (s *Batch) overlay(lower, upper []byte, b *Bounds) (rows []row, from []byte, records uint64) {
	layers := make([]scanLayer, 0, 4)
	add := func(g *layer) (below bool) {
		layers = append(layers, scanLayer{set: &g.set, order: g.set.within(lower, upper)})
		return !g.cleared
	}
	if below := add(s.g); below {
		s.r.mu.Lock()
		defer s.r.mu.Unlock()
		for _, g := range [...]*layer{s.r.filling, s.r.inflight} {
			if g != nil && below {
				below = add(g)
			}
		}
		if g := s.r.lastDurable; g != nil && g.cleared && below { // else Pebble has it, with further rows
			below = add(g)
		}
		records = s.r.records
		if at := s.r.afterEmptyLocked(lower); below && bytes.Compare(at, upper) < 0 {
			from = at
		}
	}
	return mergeLayers(layers, b.Reverse, b.Limit), from, records
}
