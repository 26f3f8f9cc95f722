package objectstore

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
)

func writeFile(t *testing.T, name, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestOpenRefusesUnusableDirectories(t *testing.T) {
	for _, c := range []struct {
		name string
		make func(t *testing.T, d string)
		opts Options
		want error
		says string
	}{
		{"a directory of other files", func(t *testing.T, d string) {
			writeFile(t, filepath.Join(d, "thesis.txt"), "text")
		}, Options{}, ErrForeign, "other files"},
		{"somebody's database", func(t *testing.T, d string) {
			db, err := pebble.Open(d, &pebble.Options{})
			if err != nil {
				t.Fatal(err)
			}
			if err := db.Close(); err != nil {
				t.Fatal(err)
			}
		}, Options{}, ErrForeign, "other files"},
		{"somebody's format file", func(t *testing.T, d string) {
			writeFile(t, filepath.Join(d, formatName), "hello")
		}, Options{}, ErrForeign, "was not written by dohost"},
		{"a newer format", func(t *testing.T, d string) {
			writeFile(t, filepath.Join(d, formatName), "dohost store, format 7\n")
		}, Options{}, ErrFormat, "has format 7, this build reads format 2"},
		{"an interrupted backup", func(t *testing.T, d string) {
			writeFile(t, filepath.Join(d, formatTemp), "dohost store, format 2\nstore 01ARZ3NDEKTSV4RRFFQ69G5FAV fork 5f0c3a91\n")
			writeFile(t, filepath.Join(d, dbName, "data"), "x")
		}, Options{}, ErrForeign, "other files"},
		{"a store half made, read-only", func(t *testing.T, d string) {
			writeFile(t, filepath.Join(d, formatNew), "dohost store, format 2\nstore 01ARZ3NDEKTSV4RRFFQ69G5FAV fork 5f0c3a91\n")
			writeFile(t, filepath.Join(d, dbName, "data"), "x")
		}, Options{ReadOnly: true}, ErrAbsent, ""},
		{"nothing, read-only", func(t *testing.T, d string) {}, Options{ReadOnly: true}, ErrAbsent, ""},
		{"a store without its database, read-only", func(t *testing.T, d string) {
			writeFile(t, filepath.Join(d, formatName), "dohost store, format 2\nstore 01ARZ3NDEKTSV4RRFFQ69G5FAV fork 5f0c3a91\n")
		}, Options{ReadOnly: true}, ErrAbsent, ""},
		{"a newer host record", func(t *testing.T, d string) {
			s, err := Open(d, nil)
			if err != nil {
				t.Fatal(err)
			}
			if err := pebbleDB(s).Set([]byte{keyHost}, []byte{9, 9}, pebble.Sync); err != nil {
				t.Fatal(err)
			}
			s.Abandon()
		}, Options{}, ErrFormat, "host record has version 9, this build reads 2"},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := filepath.Join(t.TempDir(), "new", "store")
			c.make(t, d)
			before := listing(t, d)
			s, err := Open(d, &c.opts)
			if err == nil {
				s.Abandon()
			}
			if !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.says) {
				t.Errorf("Open: %v; want %v", err, c.want)
			}
			if c.want == ErrForeign && listing(t, d) != before {
				t.Errorf("the directory has changed: %s, then %s", before, listing(t, d))
			}
		})
	}
}

func listing(t *testing.T, d string) string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(d, "*"))
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(names, " ")
}

func TestLockAllowsOneHostAtATime(t *testing.T) {
	d := t.TempDir()
	t.Chdir(filepath.Dir(d))
	s, err := Open(d, nil)
	if err != nil {
		t.Fatal(err)
	}
	// The same directory by another name.
	for _, name := range []string{d, filepath.Base(d), "." + string(filepath.Separator) + filepath.Base(d)} {
		if _, err := Open(name, nil); !errors.Is(err, ErrLocked) {
			t.Errorf("second host at %s: %v", name, err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s, err = Open(d, nil)
	if err != nil {
		t.Fatal(err)
	}
	s.Abandon()
}

func TestStoreThatIsReadOnlyRefusesWrites(t *testing.T) {
	fs := NewMemFS()
	s := open(t, fs, Options{})
	o := s.live("c", "a")
	o.put(t, "n", "1")
	o.commit(t)
	s.Abandon()

	s = open(t, fs, Options{ReadOnly: true})
	o = s.live("c", "a")
	o.want(t, "n", "1")
	if err := o.Put(SpaceKV, []byte("n"), nil, false); !errors.Is(err, ErrReadOnlyStore) {
		t.Errorf("Put: %v", err)
	}
	if err := o.Delete(SpaceKV, []byte("n"), false); !errors.Is(err, ErrReadOnlyStore) {
		t.Errorf("Delete: %v", err)
	}
	if err := o.DeleteAll(); !errors.Is(err, ErrReadOnlyStore) {
		t.Errorf("DeleteAll: %v", err)
	}
	o.ClearSlot()
	if err := o.Commit(o.Batch); !errors.Is(err, ErrReadOnlyStore) {
		t.Errorf("Commit: %v", err)
	}
	if err := s.Import(t.Context(), ID{"c", "b"}, strings.NewReader("")); !errors.Is(err, ErrReadOnlyStore) {
		t.Errorf("Import: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	// A read-only open is no host: neither a generation nor a clean end.
	s = open(t, fs, Options{})
	if s.Generation() != 2 || s.Clean() {
		t.Errorf("after a read-only open: generation %d, clean %v", s.Generation(), s.Clean())
	}
}

// TestCrashWhileCreatingStore cuts the power before each write of the first Open. The next one must find a store or make
// it.
func TestCrashWhileCreatingStore(t *testing.T) {
	fs := NewMemFS()
	var mu sync.Mutex // Pebble writes from several goroutines
	var images []*FS
	fs.OnWrite(func(_, _ string, k int64) error {
		mu.Lock()
		defer mu.Unlock()
		images = append(images, fs.Crash(0, 0), fs.Crash(100, 0))
		for seed := range uint64(5) {
			images = append(images, fs.Crash(50, seed))
		}
		return nil
	})
	s, err := Open("/a/new/store", &Options{FS: fs})
	if err != nil {
		t.Fatal(err)
	}
	s.Abandon()
	fs.OnWrite(nil)
	for i, im := range images {
		s, err := Open("/a/new/store", &Options{FS: im})
		if err != nil {
			t.Fatalf("image %d: %v", i, err)
		}
		s.Abandon()
	}
	// A new store survives as soon as it is open.
	after := fs.Crash(0, 0)
	if _, err := after.base.Stat("/a/new/store/" + formatName); err != nil {
		t.Error(err)
	}
}

func TestEngineOptions(t *testing.T) {
	o := (&Options{}).withDefaults()
	p, release := engineOptions(&o, vfs.Default)
	defer release()
	if p.FormatMajorVersion < pebble.FormatColumnarBlocks {
		t.Errorf("format %v", p.FormatMajorVersion)
	}
	if p.MemTableSize != 64<<20 {
		t.Errorf("memtable of %d bytes", p.MemTableSize)
	}
}

// TestOpenMakesDirectoriesDurably fails the sync of each parent of a new directory.
func TestOpenMakesDirectoriesDurably(t *testing.T) {
	for _, parent := range []string{"/", "/parent", "/parent/of"} {
		fs := NewMemFS()
		synced := 0
		fs.OnWrite(func(op, path string, _ int64) error {
			if op == "sync" && path == parent {
				synced++
				return errDisk
			}
			return nil
		})
		s, err := Open("/parent/of/store", &Options{FS: fs})
		if err == nil {
			s.Abandon()
		}
		if !errors.Is(err, errDisk) || synced != 1 {
			t.Errorf("opened with %v after %d syncs of %s", err, synced, parent)
		}
	}
}
