package objectstore

import (
	"fmt"
	"testing"
)

// TestSavepointKeepsOneUndoForEachRow writes two rows and the alarm slot many times, after a
// savepoint that has ended, inside one, and inside savepoints that end within another.
func TestSavepointKeepsOneUndoForEachRow(t *testing.T) {
	s := open(t, NewMemFS(), Options{})
	write := func(o live) {
		for i := range 100 {
			o.put(t, "a", fmt.Sprint(i))
			o.put(t, "b", fmt.Sprint(i))
			o.SetSlot(Slot{Due: due(int64(i)), Generation: uint64(i)})
		}
	}
	wants := func(o live, undos int) {
		t.Helper()
		if n := len(o.saves.undo); n != undos {
			t.Errorf("%d undos, want %d", n, undos)
		}
		if o.saves.bytes > undos*(undoOverhead+10) {
			t.Errorf("%d undos count %d bytes", undos, o.saves.bytes)
		}
	}
	for _, before := range []string{"none", "before"} {
		t.Run(before, func(t *testing.T) {
			o := s.live("c", before)
			if before != "none" {
				write(o)
			}
			o.End(o.Batch.Begin())
			write(o)
			wants(o, 0)
			outer := o.Batch.Begin()
			write(o)
			wants(o, 3)
			for range 100 {
				inner := o.Batch.Begin()
				write(o)
				wants(o, 6)
				o.End(inner)
				wants(o, 3)
			}
			o.Rollback(outer)
			wants(o, 0)
			o.want(t, "a", "99")
			outer = o.Batch.Begin()
			for range 100 {
				inner := o.Batch.Begin()
				o.put(t, "a", "inner")
				o.End(inner)
			}
			wants(o, 1)
			o.Rollback(outer)
			o.want(t, "a", "99")
			outer = o.Batch.Begin()
			write(o)
			o.End(outer)
			wants(o, 0)
			if o.Rollback(outer) != nil || len(o.saves.open) > 0 {
				t.Error("a savepoint outlived its end")
			}
			write(o)
			wants(o, 0)
		})
	}
}

// TestSavepointEndReleasesItsUndos ends a savepoint within another one: its undos, with the old values, can be collected.
func TestSavepointEndReleasesItsUndos(t *testing.T) {
	o := open(t, NewMemFS(), Options{}).live("c", "a")
	o.Batch.Begin()
	o.put(t, "a", "1")
	inner := o.Batch.Begin()
	o.put(t, "a", "2")
	o.End(inner)
	if list := o.saves.undo; len(list) != 1 || list[:2][1] != (undo{}) {
		t.Errorf("there are %d undos, and the ended savepoint keeps %+v", len(list), list[:2][1])
	}
}
