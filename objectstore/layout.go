package objectstore

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
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
	formatTemp = "DOHOST.tmp" // the format file of a backup before its last step
	formatNew  = "DOHOST.new" // the format file of a store that is being made
	lockName   = "LOCK"
	dbName     = "db"
)

// formatLine is the content of the format file.
const formatLine = "dohost store, format %d\n"

// claimDir makes sure that dir is a store of a known format, locked for us. An
// empty or absent directory may become one: it is new then, and becomes a store
// with finishDir.
func claimDir(fsys vfs.FS, dir string, readOnly bool) (lock io.Closer, isNew bool, err error) {
	names, err := fsys.List(dir)
	absent := errors.Is(err, fs.ErrNotExist)
	if err != nil && !absent {
		return nil, false, fmt.Errorf("objectstore: %w", err)
	}
	isStore := slices.Contains(names, formatName)
	begun := slices.Contains(names, formatNew)
	switch {
	case isStore:
		// Before the lock, which would leave a file in somebody else's directory.
		if err := readFormat(fsys, dir); err != nil {
			return nil, false, err
		}
	case slices.ContainsFunc(names, func(n string) bool {
		return n != lockName && n != formatNew && !(n == dbName && begun)
	}):
		return nil, false, fmt.Errorf("%w: %s has other files", ErrForeign, dir)
	}
	if readOnly && !(isStore && slices.Contains(names, dbName)) {
		return nil, false, fmt.Errorf("%w: %s", ErrAbsent, dir)
	}
	if absent {
		if err := makeDir(fsys, dir); err != nil {
			return nil, false, err
		}
	}
	lock, err = lockDir(fsys, dir)
	if err != nil {
		return nil, false, err
	}
	if !isStore {
		if err := beginDir(fsys, dir); err != nil {
			return nil, false, errors.Join(err, lock.Close())
		}
	}
	return lock, !isStore, nil
}

// beginDir prepares the making of a store. If that was begun before and cut off,
// what there is of the database goes: nobody was told of it, and Pebble does not
// promise that it can be opened.
func beginDir(fsys vfs.FS, dir string) error {
	if _, err := fsys.Stat(fsys.PathJoin(dir, formatName)); err == nil {
		return fmt.Errorf("%w: %s was made by another host just now", ErrLocked, dir)
	}
	if err := fsys.RemoveAll(fsys.PathJoin(dir, dbName)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("objectstore: %w", err)
	}
	return writeFormat(fsys, dir, formatNew)
}

// finishDir makes the directory a store: by a rename, so that it is one or not.
func finishDir(fsys vfs.FS, dir, from string) error {
	if err := fsys.Rename(fsys.PathJoin(dir, from), fsys.PathJoin(dir, formatName)); err != nil {
		return fmt.Errorf("objectstore: %w", err)
	}
	return syncDir(fsys, dir)
}

// lockDir locks the directory for this host. Error: ErrLocked, or the disk's.
func lockDir(fsys vfs.FS, dir string) (io.Closer, error) {
	lock, err := fsys.Lock(fsys.PathJoin(dir, lockName))
	if err != nil {
		return nil, lockError(dir, err)
	}
	return lock, nil
}

// lockError returns ErrLocked for a lock that another opener holds.
func lockError(dir string, err error) error {
	if errors.Is(err, errInUse) {
		return fmt.Errorf("%w: %s (%w)", ErrLocked, dir, err)
	}
	return fmt.Errorf("objectstore: %w", err)
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

// writeFormat writes a format file under a name that does not make a store yet.
func writeFormat(fsys vfs.FS, dir, name string) error {
	f, err := fsys.Create(fsys.PathJoin(dir, name), vfs.WriteCategoryUnspecified)
	if err != nil {
		return fmt.Errorf("objectstore: %w", err)
	}
	_, err = fmt.Fprintf(f, formatLine, formatNumber)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
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
