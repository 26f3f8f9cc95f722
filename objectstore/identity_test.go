package objectstore

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// tree returns the files below d with their contents.
func tree(t *testing.T, d string) map[string]string {
	t.Helper()
	files := make(map[string]string)
	err := filepath.WalkDir(d, func(path string, e os.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		b, err := os.ReadFile(path)
		files[path] = string(b)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// made makes a store of one object, with its rows in a table and in the log, and closes
// it. It may take a backup first.
func made(t *testing.T, d, backup string) {
	t.Helper()
	s, err := Open(d, nil)
	if err != nil {
		t.Fatal(err)
	}
	o := s.live("c", "a")
	o.put(t, "n", "1")
	o.commit(t)
	if err := s.db.Flush(); err != nil {
		t.Fatal(err)
	}
	o.put(t, "n", "2")
	o.commit(t)
	if backup != "" {
		if err := s.Backup(t.Context(), backup); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestOpenRefusesAnotherDatabase removes the database of a store, or a part of it, or replaces it by another one.
// Open must report that and leave every file as it was.
func TestOpenRefusesAnotherDatabase(t *testing.T) {
	remove := func(pattern string) func(t *testing.T, base string) {
		return func(t *testing.T, base string) {
			names, err := filepath.Glob(filepath.Join(base, "store", pattern))
			if err != nil || len(names) == 0 {
				t.Fatal(names, err)
			}
			for _, n := range names {
				if err := os.RemoveAll(n); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	swap := func(from string) func(t *testing.T, base string) {
		return func(t *testing.T, base string) {
			remove(dbName)(t, base)
			if err := os.CopyFS(filepath.Join(base, "store", dbName), os.DirFS(filepath.Join(base, from, dbName))); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, c := range []struct {
		name string
		harm func(t *testing.T, base string)
		want error
		says []string
	}{
		{"no database", remove(dbName), ErrAbsent, []string{formatName, dbIdentityName}},
		{"an empty database", remove(dbName + "/*"), ErrAbsent, []string{formatName, dbIdentityName}},
		{"a database without its marker", remove(dbName + "/marker.manifest*"), ErrAbsent, []string{dbName, "marker.manifest"}},
		{"a database without its identity", remove(dbName + "/" + dbIdentityName), ErrAbsent, []string{formatName, dbIdentityName}},
		{"the database of another store", swap("other"), ErrForeign, []string{formatName, dbIdentityName}},
		{"the database of a backup", swap("backup"), ErrForeign, []string{formatName, dbIdentityName, "copy of"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			base := t.TempDir()
			made(t, filepath.Join(base, "store"), filepath.Join(base, "backup"))
			made(t, filepath.Join(base, "other"), "")
			c.harm(t, base)
			before := tree(t, base)
			for _, readOnly := range []bool{false, true} {
				s, err := Open(filepath.Join(base, "store"), &Options{ReadOnly: readOnly})
				if err == nil {
					s.Abandon()
				}
				if !errors.Is(err, c.want) {
					t.Errorf("Open, read-only %v: %v; want %v", readOnly, err, c.want)
					continue
				}
				for _, w := range c.says {
					if !strings.Contains(err.Error(), w) {
						t.Errorf("Open, read-only %v: %v; want it to name %s", readOnly, err, w)
					}
				}
				after := tree(t, base)
				for name, text := range before {
					if got, ok := after[name]; !ok || got != text {
						t.Errorf("%s has changed, or is gone: %v", name, !ok)
					}
				}
				if len(after) != len(before) {
					t.Errorf("there were %d files, there are %d", len(before), len(after))
				}
			}
		})
	}
}

// TestHostRecordDetectsForeignStore gives a database the identity file of another store: the
// host record still differs.
func TestHostRecordDetectsForeignStore(t *testing.T) {
	base := t.TempDir()
	store, other := filepath.Join(base, "store"), filepath.Join(base, "other")
	made(t, store, "")
	made(t, other, "")
	for _, name := range []string{formatName, filepath.Join(dbName, dbIdentityName)} {
		b, err := os.ReadFile(filepath.Join(other, name))
		if err != nil {
			t.Fatal(err)
		}
		writeFile(t, filepath.Join(store, name), string(b))
	}
	s, err := Open(store, nil)
	if err == nil {
		s.Abandon()
	}
	if !errors.Is(err, ErrForeign) || !strings.Contains(err.Error(), "host record") {
		t.Errorf("Open: %v; want ErrForeign", err)
	}
}

// TestBackupGetsItsOwnFork opens two backups of one store, and the store again.
func TestBackupGetsItsOwnFork(t *testing.T) {
	fs := NewMemFS()
	s := open(t, fs, Options{})
	id, epoch := s.Identity(), s.NewEpoch()
	if id.Store == "" || id.Fork == 0 || epoch.Fork != id.Fork {
		t.Fatalf("a new store is %v, its first epoch is %v", id, epoch)
	}
	o := s.live("c", "a")
	o.put(t, "n", "1")
	o.commit(t)
	forks := map[uint32]bool{id.Fork: true}
	for _, backup := range []string{"/one", "/two"} {
		if err := s.Backup(t.Context(), backup); err != nil {
			t.Fatal(err)
		}
		look, err := Open(backup, &Options{FS: fs, ReadOnly: true})
		if err != nil {
			t.Fatal(err)
		}
		if got := look.Identity(); got != id {
			t.Errorf("a backup that is only read is %v; want %v", got, id)
		}
		if err := look.Close(); err != nil {
			t.Fatal(err)
		}
		var first Identity
		for range 2 { // the fork stays once it is drawn
			b, err := Open(backup, &Options{FS: fs})
			if err != nil {
				t.Fatal(err)
			}
			got := b.Identity()
			if first == (Identity{}) {
				first = got
				if forks[got.Fork] {
					t.Errorf("the backup is %v, the fork of another history", got)
				}
				forks[got.Fork] = true
			}
			if got != first || got.Store != id.Store {
				t.Errorf("the backup is %v, it was %v, a copy of %v", got, first, id)
			}
			if e := b.NewEpoch(); e.String() == (Epoch{Fork: id.Fork, Host: e.Host, Incarnation: e.Incarnation}).String() {
				t.Errorf("epoch %v of the backup is also one of the store", e)
			}
			b.live("c", "a").want(t, "n", "1")
			wantConsistent(t, b)
			if err := b.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
	s.Abandon()
	if s = open(t, fs, Options{}); s.Identity() != id {
		t.Errorf("the store is %v after a restart; want %v", s.Identity(), id)
	}
}

// TestCrashWhileOpeningABackup cuts the power before each write of the first Open of a backup. The next Open must
// succeed, with a fork that differs from the store's.
func TestCrashWhileOpeningABackup(t *testing.T) {
	fs := NewMemFS()
	s := open(t, fs, Options{})
	id := s.Identity()
	o := s.live("c", "a")
	o.put(t, "n", "1")
	o.commit(t)
	if err := s.Backup(t.Context(), "/backup"); err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex // Pebble writes from several goroutines
	var images []*FS
	fs.OnWrite(func(_, _ string, _ int64) error {
		mu.Lock()
		defer mu.Unlock()
		// Not a share of the unsynced data: the engine syncs its MANIFEST and the marker that names
		// it with one sync of their directory, so a disk that keeps the younger entry alone loses it.
		images = append(images, fs.Crash(0, 0), fs.Crash(100, 0))
		return nil
	})
	b, err := Open("/backup", &Options{FS: fs})
	if err != nil {
		t.Fatal(err)
	}
	fs.OnWrite(nil)
	b.Abandon()
	drawn := b.Identity()
	for i, im := range images {
		b, err := Open("/backup", &Options{FS: im})
		if err != nil {
			t.Fatalf("image %d of %d: %v", i, len(images), err)
		}
		if got := b.Identity(); got.Store != id.Store || got.Fork == id.Fork {
			t.Errorf("image %d: the backup is %v, the store %v", i, got, id)
		}
		b.live("c", "a").want(t, "n", "1")
		b.Abandon()
	}
	after, err := Open("/backup", &Options{FS: fs.Crash(0, 0)})
	if err != nil {
		t.Fatal(err)
	}
	defer after.Abandon()
	if after.Identity() != drawn {
		t.Errorf("the backup is %v after a crash, it was %v when it had been opened", after.Identity(), drawn)
	}
}

// TestCopyMarkedByHandGetsItsOwnFork marks a plain copy of a store as docs/operations.md says.
func TestCopyMarkedByHandGetsItsOwnFork(t *testing.T) {
	base := t.TempDir()
	store, copied := filepath.Join(base, "store"), filepath.Join(base, "copied")
	made(t, store, "")
	if err := os.CopyFS(copied, os.DirFS(store)); err != nil {
		t.Fatal(err)
	}
	plain, err := Open(copied, nil)
	if err != nil {
		t.Fatal(err)
	}
	plain.Abandon()
	name := filepath.Join(copied, formatName)
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, name, strings.Replace(string(text), "\nstore ", "\ncopy of store ", 1))
	marked, err := Open(copied, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer marked.Abandon()
	if a, b := plain.Identity(), marked.Identity(); a.Store != b.Store || a.Fork == b.Fork {
		t.Errorf("the plain copy is %v, the marked one %v; want one store and two forks", a, b)
	}
}

// TestIdentityFileNamesAStoreAndAFork has the text of an identity file, whole and with parts that are not valid.
func TestIdentityFileNamesAStoreAndAFork(t *testing.T) {
	const id = "01ARZ3NDEKTSV4RRFFQ69G5FAV"
	path := filepath.Join(t.TempDir(), "identity")
	for text, want := range map[string]error{
		"store " + id + " fork 00000001":     nil,
		"store " + id + " fork 00000000":     ErrForeign,
		"store " + id[1:] + " fork 00000001": ErrForeign,
		"store " + id:                        ErrForeign,
		"no store":                           ErrForeign,
		"":                                   ErrForeign,
	} {
		content := fmt.Sprintf(formatLine+"%s\n", formatNumber, text)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		f, err := readIdentity(vfs.Default, path)
		if !errors.Is(err, want) || want == nil && (f.Store != id || f.Fork != 1) {
			t.Errorf("%q: %+v, %v, want %v", text, f, err, want)
		}
	}
}
