package objectstore

import (
	"fmt"
	"strings"
	"testing"
	"unsafe"
)

// arenas returns the memory of an object's rows between two events: of the durable layer, and of the empty
// batch.
func (l live) arenas() (durable, batch int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lastDurable != nil {
		durable = l.lastDurable.set.capacity
	}
	return durable, l.Batch.g.set.capacity
}

// memory returns the memory that an empty batch keeps for the next event.
func (s *Batch) memory() uintptr {
	w := &s.g.set
	return uintptr(w.capacity) + uintptr(cap(w.rows))*unsafe.Sizeof(row{}) + uintptr(cap(w.order))*unsafe.Sizeof(int32(0)) +
		uintptr(cap(s.g.outs))*unsafe.Sizeof(emission{}) + uintptr(cap(s.saves.undo))*unsafe.Sizeof(undo{})
}

// TestObjectMemoryBetweenEventsIsBounded writes large values among small ones, many rows, and many outputs, and checks
// the memory that each object keeps.
func TestObjectMemoryBetweenEventsIsBounded(t *testing.T) {
	s := open(t, NewMemFS(), Options{ReserveBytes: -1})
	os := make([]live, 100)
	for i := range os {
		os[i] = s.live("c", fmt.Sprint(i))
	}
	for round := range 8 {
		for i, o := range os {
			switch (i + round) % 4 {
			case 0:
				o.put(t, "k", strings.Repeat("v", 40<<10))
			case 1:
				for k := range 500 {
					o.put(t, fmt.Sprint(k), "v")
				}
			case 2:
				o.put(t, "k", "small")
				o.Batch.Begin()
				for k := range 100 {
					o.put(t, fmt.Sprint(k), "v")
				}
				for range 5000 {
					o.Emit(newReleased())
				}
			case 3: // each value is longer than the last, so none is in its place
				for n := range 1000 {
					o.put(t, "k", strings.Repeat("v", n))
				}
			}
			o.commit(t)
		}
		another := s.live("c", "another")
		another.put(t, "k", fmt.Sprint(round))
		another.commit(t) // the committer has finished with the records before
		for i, o := range os {
			durable, batch := o.arenas()
			if durable > maxSpareArena || batch > maxSpareArena {
				t.Fatalf("round %d, object %d keeps arenas of %d and %d bytes, want %d at most", round, i, durable, batch, maxSpareArena)
			}
			if n := o.Batch.memory(); n > 16<<10 {
				t.Fatalf("round %d, object %d: an empty batch has %d bytes", round, i, n)
			}
			o.mu.Lock()
			if o.lastDurable != nil && cap(o.lastDurable.outs) > maxSpareOuts {
				t.Fatalf("round %d, object %d keeps room for %d outputs", round, i, cap(o.lastDurable.outs))
			}
			o.mu.Unlock()
		}
	}
}

// TestArenaFreesOverwrittenValues lets a value grow again and again, with a small row after each, which would keep
// the arena of that value.
func TestArenaFreesOverwrittenValues(t *testing.T) {
	s := open(t, NewMemFS(), Options{ReserveBytes: -1})
	o := s.live("c", "a")
	want := func(g *layer) {
		t.Helper()
		if w := &g.set; w.capacity > 2*w.bytes+2*maxArena {
			t.Fatalf("rows of %d bytes are in arenas of %d", w.bytes, w.capacity)
		}
	}
	for i := range 1000 {
		o.put(t, "log", strings.Repeat("v", 20_000+i))
		o.put(t, fmt.Sprint("item", i), "v")
		want(o.Batch.g)
	}
	for i := range 1000 {
		o.want(t, fmt.Sprint("item", i), "v")
	}
	o.want(t, "log", strings.Repeat("v", 20_999))
	o.commit(t)
	for i := range 1000 { // the same in the filling layer
		o.put(t, "log", strings.Repeat("v", 20_000+i))
		o.put(t, fmt.Sprint("item", i), "v")
		if err := o.Commit(o.Batch); err != nil {
			t.Fatal(err)
		}
		o.mu.Lock()
		if o.filling != nil {
			want(o.filling)
		}
		o.mu.Unlock()
	}
}

// A transaction that changes many rows keeps an undo of each.
func TestUndoOfRowIsSmall(t *testing.T) {
	if size := unsafe.Sizeof(undo{}); size > 40 || size+unsafe.Sizeof(row{}) > undoOverhead {
		t.Errorf("an undo has %d bytes, want at most 40, and with an old row no more than the %d that count for the limits", size, undoOverhead)
	}
}
