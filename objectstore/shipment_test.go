package objectstore

import (
	"context"
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
}

func (a *slicesArchive) Put(ctx context.Context, name string, content []byte) error {
	if !strings.Contains(name, ".base.") {
		a.first = append(a.first, unsafe.SliceData(content))
	}
	return a.memArchive.Put(ctx, name, content)
}

// TestShipmentsUseOneSlice ships many shipments of records. The slice of a Put that failed is not used again, nor a slice that a large
// record has grown.
func TestShipmentsUseOneSlice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &slicesArchive{memArchive: newMemArchive()}
		s := shipTo(t, NewMemFS(), a, func(sh *Shipping) { sh.shipment = 2000 })
		defer s.Abandon()
		time.Sleep(2 * time.Second) // the first base is complete
		ship := func(size int) {
			put(t, s, "o", "n", strings.Repeat("x", size))
			time.Sleep(5 * time.Second)
			synctest.Wait()
		}
		for range 5 {
			ship(1500)
		}
		a.set(func(a *memArchive) { a.lost = 1 })
		ship(1500)
		ship(1500)
		if len(a.first) != 8 {
			t.Fatalf("%d puts, want 7 and a repeated one", len(a.first))
		}
		for i, p := range a.first {
			if reused := p == a.first[0]; reused != (i < 7) {
				t.Errorf("put %d has the slice of the first one: %v", i, reused)
			}
		}
		ship(50_000)
		if n := cap(s.ship.spare); n > 0 {
			t.Errorf("a slice of %d bytes is kept after a record of 50 kB", n)
		}
		ship(1500)
		wantShipped(t, s, a.memArchive)
	})
}
