package objectstore

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"github.com/cockroachdb/pebble/v2"

	"github.com/dohost/dohost/internal/frame"
)

// claim locks a directory without a store, and makes it if it is absent.
func (y *Standby) claim() (err error) {
	if err := makeDir(y.fs, y.dir); err != nil {
		return err
	}
	if y.lock, err = lockDir(y.fs, y.dir); err != nil {
		return err
	}
	if err := y.checkEmpty(); err != nil {
		return errors.Join(err, y.lock.Close())
	}
	return nil
}

// checkEmpty checks that the directory has nothing but a lock and a part of a standby. The file DOHOST.new of a standby is synced before
// the database is made, so a database without it is of another origin.
func (y *Standby) checkEmpty() error {
	names, err := y.fs.List(y.dir)
	if err != nil {
		return fmt.Errorf("dohost: %w", err)
	}
	begun := false
	if slices.Contains(names, formatNew) {
		f, err := readIdentity(y.fs, y.fs.PathJoin(y.dir, formatNew))
		begun = err == nil && f.standby
	}
	for _, name := range names {
		if name != lockName && name != formatNew && !(begun && name == dbName) {
			return fmt.Errorf("%w: %s contains other files", ErrForeign, y.dir)
		}
	}
	return nil
}

// begin makes the state of a base, and opens the store. See the order in the comment of Standby.
func (y *Standby) begin(ctx context.Context, base archivedBase) error {
	content, err := y.from.Get(ctx, base.parts[0].String())
	if err != nil {
		return err
	}
	first, err := frame.NewBase(base.number).Next(content)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrDamagedArchive, err)
	}
	f := identityFile{Identity: Identity{first.Store.String(), first.Fork}, standby: true}
	if err := y.checkEmpty(); err != nil { // it may have got files while the standby waited for the base
		return err
	}
	if err := y.fs.RemoveAll(y.fs.PathJoin(y.dir, dbName)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("dohost: %w", err)
	}
	if err := writeIdentity(y.fs, y.dir, formatNew, f); err != nil {
		return err
	}
	y.opts.Logger.Info("the standby begins with a base", "store", f.Identity.String(), "record", base.number)
	r := newRestorer(y.from, y.dir, RestorePoint{}, &y.opts)
	if err := r.replay(ctx, restorePlan{base: base}, r.endStandby); err != nil {
		return err
	}
	if r.identity() != f.Identity {
		return fmt.Errorf("%w: the base of record %d is of %v, its first part was of %v", ErrForeignArchive, base.number, r.identity(), f.Identity)
	}
	if err := putIdentity(y.fs, y.fs.PathJoin(y.dir, dbName), dbIdentityName, dbIdentityNew, f); err != nil {
		return err
	}
	if err := renameIdentity(y.fs, y.dir, formatNew, formatName); err != nil {
		return err
	}
	lock := y.lock
	y.lock, y.compared = nil, true
	err = lock.Close() // Open locks the directory again
	if err == nil {
		err = y.open()
	}
	y.closed = err != nil // without a lock
	return err
}

// endStandby writes the row that names the record of the base, and makes all rows durable.
func (r *restorer) endStandby() error {
	row := appliedRow{at: r.at}
	if err := pebbleDB(r.store).Set([]byte{keyApplied}, row.encode(), pebble.NoSync); err != nil {
		return err
	}
	return r.store.db.Flush()
}
