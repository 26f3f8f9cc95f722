package objectstore

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/dohost/dohost/internal/frame"
)

// TestRestoreWritesBatchesOfHalfAMemtable has a base of several memtables. The engine makes a table of a batch of half a memtable without a
// memtable; smaller batches are written twice, and larger ones need more memory.
func TestRestoreWritesBatchesOfHalfAMemtable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const memTable = 128 << 10
		a := largeArchive(t)
		r := newRestorer(a, restoredDir, RestorePoint{}, &Options{FS: NewMemFS(), MemTable: memTable})
		if err := r.claim(); err != nil {
			t.Fatal(err)
		}
		var held []int64 // bytes of frames at each write
		r.space = func() error {
			held = append(held, r.held)
			return nil
		}
		plan, err := r.plan(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		largest := 0
		for _, part := range plan.base.parts {
			largest = max(largest, len(a.objects[part.String()]))
		}
		if err := r.replay(t.Context(), plan, func() error { return nil }); err != nil {
			t.Fatal(err)
		}
		if err := r.lock.Close(); err != nil {
			t.Error(err)
		}
		if len(held) < 4 {
			t.Fatalf("%d batches: %d", len(held), held)
		}
		for i, n := range held[:len(held)-1] {
			if n < memTable/2 || n >= memTable/2+int64(largest) {
				t.Errorf("batch %d has %d bytes, want %d or up to a frame of %d more", i, n, memTable/2, largest)
			}
		}
	})
}

// TestRestoreCompactsFromFourLayers writes layers of tables with the same keys. A compaction writes all rows again, so there is none for the
// first three. Without any the first reads of the restored store would search each layer.
func TestRestoreCompactsFromFourLayers(t *testing.T) {
	for layers := 1; layers <= 6; layers++ {
		synctest.Test(t, func(t *testing.T) {
			r := newRestorer(newMemArchive(), restoredDir, RestorePoint{}, &Options{FS: NewMemFS(), MemTable: 64 << 10})
			if err := r.claim(); err != nil {
				t.Fatal(err)
			}
			if err := r.openDatabase(); err != nil {
				t.Fatal(err)
			}
			for range layers {
				for i := range 10 {
					r.batch.add(&frame.Op{Kind: frame.OpSet, Key: fmt.Appendf(nil, "%c%d", keyObject, i), Value: []byte(strings.Repeat("v", 1000))})
				}
				if err := r.write(); err != nil {
					t.Fatal(err)
				}
				if err := r.store.db.Flush(); err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
			}
			n := pebbleDB(r.store).Metrics().Compact.Count
			if want := layers >= 4; (n > 0) != want {
				t.Errorf("%d compactions of %d layers", n, layers)
			}
			if err := r.closeDatabase(); err != nil {
				t.Error(err)
			}
			if err := r.lock.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}
