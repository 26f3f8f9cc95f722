package objectstore

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// formatNumber increases when a store written by this build cannot be read by
// earlier ones.
const formatNumber = 2

// Names in a store's directory. The database has a directory of its own, so that a
// database of another program is not taken for one of ours.
const (
	formatName = "DOHOST"
	formatTemp = "DOHOST.tmp" // the file DOHOST of a backup before its last step
	formatNew  = "DOHOST.new" // the next file DOHOST; the only one while a store is being made
	lockName   = "LOCK"
	dbName     = "db"
	// scratchName is a directory that exists while the state of an object is read from the archive. Open removes one that a crash
	// has left.
	scratchName = "restore.tmp"

	dbIdentityName = "STORE" // in db, with the content of DOHOST
	dbIdentityNew  = "STORE.new"
)

// claim is a directory that is locked for this host.
type claim struct {
	lock  io.Closer
	isNew bool // it becomes a store with finish
	identityFile
}

// claimDir locks dir and checks that it is a store of a known format and has its database. An empty or absent
// directory may become a store: it is new then.
func claimDir(fsys vfs.FS, dir string, o *Options) (c claim, err error) {
	names, err := fsys.List(dir)
	absent := errors.Is(err, fs.ErrNotExist)
	if err != nil && !absent {
		return c, fmt.Errorf("dohost: %w", err)
	}
	c.isNew = !slices.Contains(names, formatName)
	begun := slices.Contains(names, formatNew)
	switch {
	case !c.isNew:
		// Before the lock, which would leave a file in a directory that is not ours.
		if c.identityFile, err = readIdentity(fsys, fsys.PathJoin(dir, formatName)); err == nil {
			err = wantDatabase(fsys, dir, c.identityFile)
		}
		if err != nil {
			return c, err
		}
	case slices.ContainsFunc(names, func(n string) bool {
		return n != lockName && n != formatNew && !(n == dbName && begun)
	}):
		return c, fmt.Errorf("%w: %s contains other files", ErrForeign, dir)
	case o.ReadOnly:
		return c, fmt.Errorf("%w: %s", ErrAbsent, dir)
	}
	if absent {
		if err := makeDir(fsys, dir); err != nil {
			return c, err
		}
	}
	if c.lock, err = lockDir(fsys, dir); err != nil {
		return c, err
	}
	if c.isNew {
		c.Identity, err = beginDir(fsys, dir, o.Entropy)
	} else if err = c.reread(fsys, dir); err == nil {
		err = c.checkStandby(dir, o)
	}
	if err == nil && !o.ReadOnly && slices.Contains(names, scratchName) {
		err = removeScratch(fsys, fsys.PathJoin(dir, scratchName))
	}
	if err != nil {
		return c, errors.Join(err, c.lock.Close())
	}
	return c, nil
}

// reread repeats under the lock the reads of files that another host may have changed before.
func (c *claim) reread(fsys vfs.FS, dir string) (err error) {
	if c.identityFile, err = readIdentity(fsys, fsys.PathJoin(dir, formatName)); err != nil {
		return err
	}
	return wantManifest(fsys, dir)
}

// checkStandby keeps hosts from a standby, and a standby from other stores.
func (c *claim) checkStandby(dir string, o *Options) error {
	switch {
	case o.standby && !c.standby:
		return fmt.Errorf("%w: %s has %v", ErrNotStandby, dir, c.identityFile)
	case c.standby && !o.ReadOnly:
		return fmt.Errorf("%w: %s has %v", ErrStandby, dir, c.identityFile)
	}
	return nil
}

// beginDir prepares the making of a store. If that was begun before and cut off, it
// removes the part of the database that is there: it never held anything, and Pebble
// does not promise that it can be opened.
func beginDir(fsys vfs.FS, dir string, entropy io.Reader) (id Identity, err error) {
	if _, err := fsys.Stat(fsys.PathJoin(dir, formatName)); err == nil {
		return id, fmt.Errorf("%w: another host has just created the store in %s", ErrLocked, dir)
	}
	if f, err := readIdentity(fsys, fsys.PathJoin(dir, formatNew)); err == nil && f.standby {
		return id, fmt.Errorf("%w: %s has a part of %v", ErrStandby, dir, f)
	}
	if err := fsys.RemoveAll(fsys.PathJoin(dir, dbName)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return id, fmt.Errorf("dohost: %w", err)
	}
	if id, err = drawIdentity(entropy); err != nil {
		return id, err
	}
	return id, writeIdentity(fsys, dir, formatNew, identityFile{Identity: id})
}

// finish makes the directory a store with the identity id, which its database has. The rename of DOHOST is the atomic
// step.
func (c *claim) finish(fsys vfs.FS, dir string, id Identity) error {
	f := identityFile{Identity: id}
	if !c.isNew && f == c.identityFile {
		return nil
	}
	if err := putIdentity(fsys, fsys.PathJoin(dir, dbName), dbIdentityName, dbIdentityNew, f); err != nil {
		return err
	}
	return putIdentity(fsys, dir, formatName, formatNew, f)
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
	return fmt.Errorf("dohost: %w", err)
}

// makeDir makes dir and its missing parents, durably.
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
	if err := fsys.MkdirAll(dir, privateDir); err != nil {
		return fmt.Errorf("dohost: %w", err)
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
		return fmt.Errorf("dohost: %w", err)
	}
	return errors.Join(d.Sync(), d.Close())
}
