package engine

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// TestManifestSizeIsBounded makes 500 flushes with keys of 4 KiB: the list would be several times as large as its bound.
func TestManifestSizeIsBounded(t *testing.T) {
	fs := vfs.NewMem()
	o, release := Options(fs, 1<<20, 1<<20)
	defer release()
	db, err := pebble.Open("d", o)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	}()
	const flushes, keyBytes = 500, 4 << 10
	for range flushes {
		for _, key := range []string{"a", "b"} { // tables that overlap, so that few stay
			if err := db.Set([]byte(strings.Repeat(key, keyBytes)), nil, pebble.NoSync); err != nil {
				t.Fatal(err)
			}
		}
		if err := db.Flush(); err != nil {
			t.Fatal(err)
		}
	}
	names, err := fs.List("d")
	if err != nil {
		t.Fatal(err)
	}
	var size int64
	for _, name := range names {
		if strings.HasPrefix(name, "MANIFEST") {
			info, err := fs.Stat(fs.PathJoin("d", name))
			if err != nil {
				t.Fatal(err)
			}
			size += info.Size()
		}
	}
	// The last list, and the one before it, which is removed a little later.
	if size == 0 || size > 3*maxManifest {
		t.Errorf("after %d flushes the lists of tables have %d bytes", flushes, size)
	}
}

// TestBlockCacheKeepsItsSize fills the memtables. The engine takes their memory from the cache. The cache must still hold as
// many bytes of blocks as Options promises.
func TestBlockCacheKeepsItsSize(t *testing.T) {
	const cache, memTable, rows, rowBytes = 4 << 20, 4 << 20, 6000, 4 << 10
	o, release := Options(vfs.NewMem(), cache, memTable)
	defer release()
	db, err := pebble.Open("d", o)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	}()
	random := rand.NewChaCha8([32]byte{1})
	value := make([]byte, rowBytes)
	for i := range rows {
		_, _ = random.Read(value) // so that no block is compressed
		if err := db.Set(fmt.Appendf(nil, "%06d", i), value, pebble.NoSync); err != nil {
			t.Fatal(err)
		}
	}
	if m := db.Metrics().MemTable; m.Size < memTable {
		t.Fatalf("the memtables have %d bytes, want at least %d", m.Size, memTable)
	}
	var size int64
	for pass := 0; pass < 10 && size < cache*9/10; pass++ { // a memtable that is being flushed may take memory of the cache, too
		for i := range rows / 2 { // the rows in tables
			if _, closer, err := db.Get(fmt.Appendf(nil, "%06d", i)); err != nil || closer.Close() != nil {
				t.Fatal(i, err)
			}
		}
		size = db.Metrics().BlockCache.Size
	}
	if size < cache*9/10 || size > cache+MaxMemTables*memTable {
		t.Errorf("the cache has blocks of %d bytes, want %d at least", size, cache)
	}
}
