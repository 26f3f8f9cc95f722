package objectstore

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
)

// behind writes a row to Pebble directly, without the range.
func (l live) behind(t *testing.T, key, value string) {
	t.Helper()
	k := append(append([]byte(nil), l.prefix...), byte(SpaceKV))
	if err := pebbleDB(l.Range.store).Set(append(k, key...), []byte(value), pebble.Sync); err != nil {
		t.Fatal(err)
	}
}

// TestReadUsesLastDurableBatchInMemory changes the disk without the range, which reveals where a row is read.
func TestReadUsesLastDurableBatchInMemory(t *testing.T) {
	s := open(t, NewMemFS(), Options{})
	l := s.live("c", "a")
	l.put(t, "n", "1")
	l.commit(t)
	l.behind(t, "n", "of the disk")
	l.behind(t, "m", "of the disk")
	l.want(t, "n", "1")
	l.want(t, "m", "of the disk")

	// The next incarnation on the range reads it too, a newer row hides it, and a newer durable one replaces it.
	l = l.next()
	l.want(t, "n", "1")
	l.put(t, "n", "2")
	if err := l.Commit(l.Batch); err != nil {
		t.Fatal(err)
	}
	l.want(t, "n", "2")
	l.commit(t)
	l.behind(t, "n", "of the disk")
	l.want(t, "n", "2")
	l.put(t, "m", "3")
	l.commit(t)
	l.want(t, "n", "of the disk")

	// The alarm slot is kept together with the durable rows.
	l.SetSlot(Slot{Due: time.UnixMilli(1000), Generation: 7})
	l.commit(t)
	if err := pebbleDB(l.Range.store).Delete(slotKey(l.id), pebble.Sync); err != nil {
		t.Fatal(err)
	}
	if slot, ok, err := l.Slot(); err != nil || !ok || slot.Generation != 7 {
		t.Errorf("the slot is %v, %v, %v", slot, ok, err)
	}

	// After a DeleteAll no layer returns older rows.
	if err := l.DeleteAll(); err != nil {
		t.Fatal(err)
	}
	l.commit(t)
	l.behind(t, "n", "of the disk")
	l.absent(t, "n")

	// A large layer is not kept.
	for i := range 100 {
		l.put(t, fmt.Sprint(i), strings.Repeat("x", maxLastDurable/100))
	}
	l.commit(t)
	l.behind(t, "7", "of the disk")
	l.want(t, "7", "of the disk")
}
