//go:build unix

package objectstore

import (
	"io/fs"
	"path/filepath"
	"testing"
)

// TestStoreFilesArePrivate looks at the modes of all that a store and a backup of it create, with any umask.
func TestStoreFilesArePrivate(t *testing.T) {
	for name, fsys := range map[string]*FS{"disk": nil, "disk with counters": DiskFS()} {
		dir := filepath.Join(t.TempDir(), "above", "data")
		copied := filepath.Join(t.TempDir(), "backups", "today")
		for range 2 {
			s, err := Open(dir, &Options{FS: fsys, MemTable: 1 << 20})
			if err != nil {
				t.Fatal(err)
			}
			if copied != "" {
				if err := s.Backup(t.Context(), copied); err != nil {
					t.Fatal(err)
				}
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			for _, root := range []string{filepath.Dir(dir), filepath.Dir(copied)} {
				err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
					if err != nil {
						return err
					}
					info, err := d.Info()
					want := privateFile
					if d.IsDir() {
						want = privateDir
					}
					if err == nil && info.Mode().Perm() != want {
						t.Errorf("%s: %s has mode %v, want %v", name, path, info.Mode(), want)
					}
					return err
				})
				if err != nil {
					t.Fatal(err)
				}
			}
			copied = filepath.Join(filepath.Dir(copied), "tomorrow")
		}
	}
}
