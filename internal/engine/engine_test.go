package engine

import (
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// TestManifestSizeIsBounded makes so many flushes, with such long keys, that the list would be several times as
// large as its bound.
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
