package objectstore

import (
	"fmt"
	"runtime"
	"testing"
	"testing/synctest"
	"time"
)

// readBytes returns the bytes that a read of the newest frame allocates.
func readBytes(t *testing.T, s *Store) uint64 {
	t.Helper()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if _, ok, err := s.newestFrame(s.db); err != nil || !ok {
		t.Fatalf("the newest frame: %v, %v", ok, err)
	}
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// TestFrameDeletionsCostReadsLittle ships some thousand times with one memtable, and bounds the memory of the first read
// after each deletion of frames.
func TestFrameDeletionsCostReadsLittle(t *testing.T) {
	const shipments, perShipment = 3000, 1000 // bytes of a read for each deletion in the memtable
	synctest.Test(t, func(t *testing.T) {
		s := shipTo(t, NewMemFS(), newMemArchive(), func(sh *Shipping) { sh.Every = time.Millisecond })
		defer s.Abandon()
		for i := range shipments {
			put(t, s, "o", "n", fmt.Sprint(i))
			time.Sleep(2 * time.Millisecond)
			if i%100 != 99 {
				continue
			}
			put(t, s, "o", "n", "deletes frames")
			if n := readBytes(t, s); n > 64<<10+uint64(i)*perShipment {
				t.Fatalf("after %d shipments a read allocates %d bytes", i, n)
			}
		}
		if st := s.Stats().Ship; st.Shipped < shipments {
			t.Errorf("%+v", st)
		}
	})
}
