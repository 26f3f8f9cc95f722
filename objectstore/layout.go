package objectstore

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"slices"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// formatNumber is raised when a store written by this build cannot be read by
// earlier ones.
const formatNumber = 1

// Names in a store's directory. The database has a directory of its own, so that
// one that somebody else put here is not taken for ours.
const (
	formatName = "DOHOST"
	formatTemp = "DOHOST.tmp"
	lockName   = "LOCK"
	dbName     = "db"
)

// formatLine is the content of the format file.
const formatLine = "dohost store, format %d\n"

// claimDir makes sure that dir is a store of a known format, locked for us. It
// makes an empty or absent directory a store.
func claimDir(fsys vfs.FS, dir string, readOnly bool) (lock io.Closer, err error) {
	names, err := fsys.List(dir)
	absent := errors.Is(err, fs.ErrNotExist)
	if err != nil && !absent {
		return nil, fmt.Errorf("objectstore: %w", err)
	}
	isStore := slices.Contains(names, formatName)
	switch {
	case isStore:
		// Before the lock, which would leave a file in somebody else's directory.
		if err := readFormat(fsys, dir); err != nil {
			return nil, err
		}
	case slices.ContainsFunc(names, func(n string) bool { return n != lockName && n != formatTemp }):
		return nil, fmt.Errorf("%w: %s has other files", ErrForeign, dir)
	}
	if readOnly && !(isStore && slices.Contains(names, dbName)) {
		return nil, fmt.Errorf("%w: %s", ErrAbsent, dir)
	}
	if absent {
		if err := makeDir(fsys, dir); err != nil {
			return nil, err
		}
	}
	lock, err = lockDir(fsys, dir)
	if err != nil {
		return nil, err
	}
	if !isStore {
		if err := writeFormat(fsys, dir); err != nil {
			return nil, errors.Join(err, lock.Close())
		}
	}
	return lock, nil
}

func lockDir(fsys vfs.FS, dir string) (io.Closer, error) {
	name := fsys.PathJoin(dir, lockName)
	if fsys == vfs.Default {
		// The lock is known by its name within a process.
		if abs, err := filepath.Abs(name); err == nil {
			name = abs
		}
	}
	lock, err := fsys.Lock(name)
	var path *fs.PathError
	switch {
	case errors.As(err, &path):
		return nil, fmt.Errorf("objectstore: %w", err)
	case err != nil:
		return nil, fmt.Errorf("%w: %s (%v)", ErrLocked, dir, err)
	}
	return lock, nil
}

// makeDir makes dir and what is missing above it, durably.
func makeDir(fsys vfs.FS, dir string) error {
	missing := []string{}
	at := dir
	for {
		if _, err := fsys.Stat(at); !errors.Is(err, fs.ErrNotExist) {
			break
		}
		missing = append(missing, at)
		up := fsys.PathDir(at)
		if up == at {
			break
		}
		at = up
	}
	if err := fsys.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("objectstore: %w", err)
	}
	for _, d := range missing {
		if err := syncDir(fsys, fsys.PathDir(d)); err != nil {
			return err
		}
	}
	return nil
}

func syncDir(fsys vfs.FS, dir string) error {
	d, err := fsys.OpenDir(dir)
	if err != nil {
		return fmt.Errorf("objectstore: %w", err)
	}
	return errors.Join(d.Sync(), d.Close())
}

// writeFormat makes a directory a store: by a rename, so that it is one or not.
func writeFormat(fsys vfs.FS, dir string) error {
	temp := fsys.PathJoin(dir, formatTemp)
	f, err := fsys.Create(temp, vfs.WriteCategoryUnspecified)
	if err != nil {
		return fmt.Errorf("objectstore: %w", err)
	}
	_, err = fmt.Fprintf(f, formatLine, formatNumber)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return fmt.Errorf("objectstore: %w", err)
	}
	if err := fsys.Rename(temp, fsys.PathJoin(dir, formatName)); err != nil {
		return fmt.Errorf("objectstore: %w", err)
	}
	return syncDir(fsys, dir)
}

func readFormat(fsys vfs.FS, dir string) error {
	f, err := fsys.Open(fsys.PathJoin(dir, formatName))
	if err != nil {
		return fmt.Errorf("objectstore: %w", err)
	}
	text, err := io.ReadAll(io.LimitReader(f, 64))
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("objectstore: %w", err)
	}
	var n int
	if _, err := fmt.Sscanf(string(text), formatLine, &n); err != nil {
		return fmt.Errorf("%w: %s/%s is not ours", ErrForeign, dir, formatName)
	}
	if n != formatNumber {
		return fmt.Errorf("%w: %s has format %d, this build reads format %d", ErrFormat, dir, n, formatNumber)
	}
	return nil
}
