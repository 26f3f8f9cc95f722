package objectstore

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"
)

// slicesArchive notes the slice of each put of records.
type slicesArchive struct {
	*memArchive
	first []*byte
	caps  []int
}

func (a *slicesArchive) Put(ctx context.Context, name string, content []byte) error {
	if !strings.Contains(name, ".base.") {
		a.first, a.caps = append(a.first, unsafe.SliceData(content)), append(a.caps, cap(content))
	}
	return a.memArchive.Put(ctx, name, content)
}

// TestShipmentsUseOneSlice ships many shipments of records, and one of a record that is much larger, with an archive that fails now
// and then.
func TestShipmentsUseOneSlice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &slicesArchive{memArchive: newMemArchive()}
		s := shipTo(t, NewMemFS(), a, func(sh *Shipping) { sh.shipment = 2000 })
		defer s.Abandon()
		time.Sleep(2 * time.Second) // the first base is complete
		ship := func(n, size int) {
			for i := range n {
				if i%4 == 3 {
					a.set(func(a *memArchive) { a.lost = 1 })
				}
				put(t, s, "o", "n", strings.Repeat(fmt.Sprint(i), size))
				time.Sleep(5 * time.Second)
			}
		}
		ship(9, 1500)
		if puts := len(a.first); puts != 11 {
			t.Fatalf("%d puts, want 9 and 2 that are repeated", puts)
		}
		for i, p := range a.first[1:] {
			if p != a.first[0] {
				t.Errorf("put %d has a new slice", i+1)
			}
		}
		ship(1, 50_000)
		ship(1, 1500)
		if n := a.caps[len(a.caps)-1]; n > 4000 {
			t.Errorf("after a record of 50 kB the slice has a capacity of %d bytes", n)
		}
		wantShipped(t, s, a.memArchive)
	})
}
