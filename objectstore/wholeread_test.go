package objectstore

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2"
)

// wants checks an object's rows, read in each way.
func (l live) wants(t *testing.T, want ...string) {
	t.Helper()
	for _, reverse := range []bool{false, true} {
		got, err := collect(l.Scan(Bounds{Space: SpaceKV, Reverse: reverse}))
		if reverse {
			for i, j := 0, len(got)-1; i < j; i, j = i+1, j-1 {
				got[i], got[j] = got[j], got[i]
			}
		}
		if err != nil || fmt.Sprint(got) != fmt.Sprint(want) {
			t.Fatalf("a scan has %q, %v, want %q", got, err, want)
		}
	}
	for _, row := range want {
		key, value, _ := strings.Cut(row, "=")
		l.want(t, key, value)
	}
}

// small is an object of three rows and an alarm, on the disk alone.
func small(t *testing.T, o Options) live {
	s := open(t, NewMemFS(), o)
	l := s.live("c", "a")
	for _, key := range []string{"x", "y", "z"} {
		l.put(t, key, "1")
	}
	l.SetSlot(Slot{Due: due(1), Generation: 7})
	l.commit(t)
	n := s.live("c", "b") // not by l's range
	n.put(t, "x", "neighbour")
	n.commit(t)
	return s.live("c", "a")
}

// TestWakeReadsSmallObjectIntoMemory changes the disk without the range, which reveals where rows are read, and
// removes the alarm there.
func TestWakeReadsSmallObjectIntoMemory(t *testing.T) {
	l := small(t, Options{})
	l.SetWaking(true)
	l.want(t, "x", "1")
	l.behind(t, "x", "of the disk")
	l.want(t, "x", "of the disk")
	l.behind(t, "x", "later")
	l.behind(t, "zz", "later")
	if err := pebbleDB(l.Range.store).Delete(slotKey(l.id), pebble.Sync); err != nil {
		t.Fatal(err)
	}
	l.wants(t, "x=of the disk", "y=1", "z=1")
	l.absent(t, "zz")
	if slot, ok, err := l.Slot(); err != nil || !ok || slot.Generation != 7 {
		t.Errorf("the slot is %v, %v, %v", slot, ok, err)
	}
	l.SetWaking(false)
	l.wants(t, "x=of the disk", "y=1", "z=1")

	// A durable layer is added each time, and hides the old rows.
	commit := func(key, value string) {
		if value != "" {
			l.put(t, key, value)
		} else if err := l.Delete(SpaceKV, []byte(key), false); err != nil {
			t.Fatal(err)
		}
		l.commit(t)
		l.behind(t, key, "of the disk")
	}
	for i := range 200 {
		y, gone := fmt.Sprint("y=", i), fmt.Sprint(i, strings.Repeat("-", 100))
		commit("y", fmt.Sprint(i))
		commit(gone, "1")
		l.wants(t, gone+"=1", "x=of the disk", y, "z=1")
		commit(gone, "")
		l.wants(t, "x=of the disk", y, "z=1")
		l.absent(t, gone)
		if slot, ok, err := l.Slot(); err != nil || !ok || slot.Generation != 7 {
			t.Fatalf("the slot is %v, %v, %v", slot, ok, err)
		}
	}
	l.ClearSlot()
	l.commit(t)
	if slot, ok, err := l.Slot(); err != nil || ok {
		t.Errorf("the slot is %v, %v, %v", slot, ok, err)
	}
}

// TestWakeMemoryStaysBoundedAsValuesGrow lets a value grow by a byte each time, so that none of them fits in the place
// of the previous one.
func TestWakeMemoryStaysBoundedAsValuesGrow(t *testing.T) {
	l := small(t, Options{})
	l.SetWaking(true)
	l.Prefetch()
	for i := range 200 {
		l.put(t, "x", strings.Repeat("v", 2000+i))
		l.commit(t)
		l.mu.Lock()
		whole, n := l.whole, l.lastDurable.set.capacity
		l.mu.Unlock()
		if !whole || n > 3*maxLastDurable {
			t.Fatalf("after %d: whole %v, in %d bytes", i, whole, n)
		}
	}
	l.wants(t, "x="+strings.Repeat("v", 2199), "y=1", "z=1")
}

// TestWakeRowsAreDroppedWhenObjectGrows lets an object grow beyond the limit, in two steps that are small enough
// each, or in one, and shrink.
func TestWakeRowsAreDroppedWhenObjectGrows(t *testing.T) {
	for _, size := range []int{maxLastDurable * 3 / 4, maxLastDurable * 2} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			l := small(t, Options{})
			l.SetWaking(true)
			l.Prefetch()
			for _, key := range []string{"a", "b", "c"} {
				l.put(t, key, strings.Repeat("v", size))
				l.commit(t)
			}
			l.behind(t, "x", "of the disk")
			l.want(t, "x", "of the disk")
			for _, key := range []string{"a", "b", "c"} {
				if err := l.Delete(SpaceKV, []byte(key), false); err != nil {
					t.Fatal(err)
				}
			}
			l.commit(t)
			l.want(t, "x", "of the disk")
			l.SetWaking(true)
			l.Prefetch()
			l.behind(t, "x", "later")
			l.wants(t, "x=of the disk", "y=1", "z=1")
		})
	}
}

// TestWakeReadDuringOutputRelease reads an object after a record is durable and before the release of its
// outputs, which are in the durable layer.
func TestWakeReadDuringOutputRelease(t *testing.T) {
	var l live
	o := Options{OnAlarms: func([]AlarmChange) {
		if l.Range != nil {
			l.SetWaking(true)
			l.Prefetch()
			if !l.Range.whole {
				t.Error("it was not read")
			}
		}
	}}
	l = small(t, o)
	for i := range 3 {
		l.SetWaking(false)
		l.put(t, "x", fmt.Sprint(i))
		l.SetSlot(Slot{Due: due(1), Generation: uint64(i)})
		l.commit(t)
		l.wants(t, fmt.Sprint("x=", i), "y=1", "z=1")
	}
}

// TestDeleteAllHidesRowsReadAtWake writes much or little after the deletion.
func TestDeleteAllHidesRowsReadAtWake(t *testing.T) {
	for _, size := range []int{1, maxLastDurable * 2} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			l := small(t, Options{})
			l.SetWaking(true)
			l.Prefetch()
			if err := l.DeleteAll(); err != nil {
				t.Fatal(err)
			}
			l.put(t, "a", strings.Repeat("v", size))
			l.commit(t)
			l.put(t, "b", "1")
			l.commit(t)
			l.wants(t, "a="+strings.Repeat("v", size), "b=1")
			if slot, ok, err := l.Slot(); err != nil || ok {
				t.Errorf("the slot is %v, %v, %v", slot, ok, err)
			}
		})
	}
}

// TestWakeReadsObjectWholeAtFirstScan counts the reads of the engine for each order of the reads of a constructor.
func TestWakeReadsObjectWholeAtFirstScan(t *testing.T) {
	for _, c := range []struct {
		first       string
		gets, walks int64
	}{{"scan", 0, 1}, {"look-up", 1, 0}, {"look-up, scan", 1, 1}, {"look-up, look-up", 1, 1}, {"scan, look-up, scan", 0, 1}} {
		var reads Reads
		l := small(t, Options{Reads: &reads})
		l.SetWaking(true)
		gets, walks := reads.Gets.Load(), reads.Walks.Load()
		for _, read := range strings.Split(c.first, ", ") {
			if read == "scan" {
				if rows, err := collect(l.Scan(Bounds{Space: SpaceKV})); err != nil || len(rows) != 3 {
					t.Fatalf("the rows are %q, %v", rows, err)
				}
				continue
			}
			l.want(t, "y", "1")
		}
		if gets, walks := reads.Gets.Load()-gets, reads.Walks.Load()-walks; gets != c.gets || walks != c.walks {
			t.Errorf("%s: %d look-ups and %d iterators, want %d and %d", c.first, gets, walks, c.gets, c.walks)
		}
	}
}

// TestWakeDoesNotReadAllOfLargeObject has one object with a row too many, and one with a byte too many.
func TestWakeDoesNotReadAllOfLargeObject(t *testing.T) {
	for name, add := range map[string]func(l live){
		"rows": func(l live) {
			for i := range maxWholeRows {
				l.put(t, fmt.Sprint(i), "")
			}
		},
		"bytes": func(l live) { l.put(t, "v", strings.Repeat("v", maxLastDurable)) },
	} {
		t.Run(name, func(t *testing.T) {
			var reads Reads
			l := small(t, Options{Reads: &reads})
			add(l)
			l.commit(t)
			l = l.Range.store.live("c", "a")
			l.SetWaking(true)
			before := reads.Walks.Load()
			l.Prefetch()
			for range 5 {
				l.want(t, "x", "1")
			}
			if n := reads.Walks.Load() - before; n != 1 {
				t.Errorf("%d iterators were opened, want 1", n)
			}
			l.behind(t, "x", "of the disk")
			l.want(t, "x", "of the disk")
		})
	}
}

// TestWakeReadIsDiscardedAfterConcurrentCommit commits a record during the read.
func TestWakeReadIsDiscardedAfterConcurrentCommit(t *testing.T) {
	for name, before := range map[string]bool{"before": true, "after": false} {
		t.Run(name, func(t *testing.T) {
			l := small(t, Options{})
			l.Range.mu.Lock()
			w := l.Range.readWholeLocked()
			l.Range.mu.Unlock()
			change := func() {
				l.put(t, "x", "2")
				l.commit(t)
				l.put(t, "y", "2") // the layer that was lastDurable then is no longer
				l.commit(t)
			}
			if before {
				change()
			}
			if !w.read(l.Range) {
				t.Fatal("it was not read")
			}
			if !before {
				change()
			}
			if l.Range.keepWhole(w, true) {
				t.Error("what may be out of date is kept")
			}
			l.wants(t, "x=2", "y=2", "z=1")
		})
	}
}

// TestWakeReadOfDamagedObjectIsDiscarded damages the last row of an object whose first row is in another block.
func TestWakeReadOfDamagedObjectIsDiscarded(t *testing.T) {
	fs := NewMemFS()
	s := open(t, fs, Options{})
	before, o := s.live("c", "0"), s.live("c", "a")
	before.put(t, "x", noise(3000, 1))
	before.commit(t)
	for i, key := range []string{"x", "y", "z"} {
		o.put(t, key, noise(1200, uint64(2+i)))
	}
	o.commit(t)
	s.Abandon()
	open(t, fs, Options{}).Abandon() // flushes the log into a table
	flip(t, fs, damagedAt(t, noise(1200, 4)[:100]))
	s = open(t, fs, Options{})
	o = s.live("c", "a")
	o.SetWaking(true)
	o.Prefetch()
	o.want(t, "x", noise(1200, 2))
	if v, ok, err := o.Get(nil, SpaceKV, []byte("z")); !errors.Is(err, ErrDamaged) {
		t.Errorf("the damaged row has %d bytes, %v, %v", len(v), ok, err)
	}
}

// TestWakeReadOfAClosedStore reads an object after the store was closed.
func TestWakeReadOfAClosedStore(t *testing.T) {
	l := small(t, Options{})
	l.SetWaking(true)
	l.Range.store.Abandon()
	l.Prefetch()
	if _, _, err := l.Get(nil, SpaceKV, []byte("x")); !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
}

// TestWakeReadOfABadSlotIsDiscarded gives an object an alarm that no build has written.
func TestWakeReadOfABadSlotIsDiscarded(t *testing.T) {
	l := small(t, Options{})
	if err := pebbleDB(l.Range.store).Set(slotKey(l.id), []byte{255}, pebble.Sync); err != nil {
		t.Fatal(err)
	}
	l.SetWaking(true)
	l.Prefetch()
	if slot, ok, err := l.Slot(); !errors.Is(err, ErrFormat) {
		t.Errorf("the slot is %v, %v, %v", slot, ok, err)
	}
	l.wants(t, "x=1", "y=1", "z=1")
}
