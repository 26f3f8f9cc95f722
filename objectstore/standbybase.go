package objectstore

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/dohost/dohost/internal/backoff"
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

// firstBase is the first base of a standby while it is replayed. It is kept over failures of reads and while the disk is almost full, so
// the next pass continues with the part that failed. A restart of the process begins again.
type firstBase struct {
	archivedBase
	file     identityFile
	r        *restorer // nil before its database is made
	replayed int       // parts, at the last failure
	tries    int       // failures since the last replayed part
}

// begin makes the state of the newest base, or continues a base that was begun, and opens the store. See the order in the comment of Standby.
func (y *Standby) begin(ctx context.Context, bases []archivedBase) error {
	if b := y.base; b != nil && !slices.ContainsFunc(bases, func(o archivedBase) bool { return slices.Equal(o.parts, b.parts) }) {
		if err := y.dropBase(); err != nil {
			return err
		}
	}
	if y.base == nil {
		y.base = &firstBase{archivedBase: bases[len(bases)-1]}
	}
	b := y.base
	err := y.replay(ctx, b)
	if later, ok := errors.AsType[laterError](err); ok {
		if ctx.Err() == nil {
			err = y.retryBase(later)
		}
		return err
	}
	if err := errors.Join(err, y.dropBase()); err != nil {
		return err
	}
	return y.endBase(b)
}

// dropBase closes the database of the first base.
func (y *Standby) dropBase() error {
	b := y.base
	y.base = nil
	if b == nil || b.r == nil {
		return nil
	}
	return b.r.closeDatabase()
}

// replay replays the parts of the first base that were not replayed. After a laterError it continues.
func (y *Standby) replay(ctx context.Context, b *firstBase) error {
	if b.r == nil {
		if err := y.startBase(ctx, b); err != nil {
			return err
		}
	}
	if err := b.r.replayBase(ctx, b.archivedBase); err != nil {
		return err
	}
	return b.r.complete(b.r.endStandby)
}

// startBase checks the directory and makes the database for a base.
func (y *Standby) startBase(ctx context.Context, b *firstBase) error {
	content, err := y.from.Get(ctx, b.parts[0].String())
	if err != nil {
		return err
	}
	first, err := frame.NewBase(b.number).Next(content)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrDamagedArchive, err)
	}
	b.file = identityFile{Identity: Identity{first.Store.String(), first.Fork}, standby: true}
	if err := y.checkEmpty(); err != nil { // it may have got files while the standby waited for the base
		return err
	}
	if err := y.fs.RemoveAll(y.fs.PathJoin(y.dir, dbName)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("dohost: %w", err)
	}
	if err := writeIdentity(y.fs, y.dir, formatNew, b.file); err != nil {
		return err
	}
	y.opts.Logger.Info("the standby begins with a base", "store", b.file.Identity.String(), "record", b.number)
	r := newRestorer(y.from, y.dir, RestorePoint{}, &y.opts)
	noFlush := func() error { return nil } // a failed flush is an error of the write after it
	space := &spaceGuard{fs: y.fs, dir: y.dir, flush: noFlush, reserve: y.opts.ReserveBytes, since: time.Now(), log: y.opts.Logger}
	r.space = func() error {
		if err := space.recheck(); err != nil {
			return laterError{err}
		}
		return nil
	}
	if err := r.openDatabase(); err != nil {
		return err
	}
	b.r = r
	return nil
}

// retryBase delays the next try of the first base, longer after each failure, until a part of it is replayed.
func (y *Standby) retryBase(cause laterError) error {
	b, replayed := y.base, 0
	if b.r != nil {
		replayed = b.r.part
	}
	if b.replayed < replayed {
		b.replayed, b.tries = replayed, 0
	}
	b.tries++
	y.retry = backoff.Jitter(backoff.Delay(b.tries-1, followEvery, followAtMost), backoff.Share(y.dir, fmt.Sprint(b.tries)))
	return laterError{fmt.Errorf("%d of %d parts of the base of record %d are replayed: %w; failure %d, the next try is at %s",
		replayed, len(b.parts), b.number, cause, b.tries, time.Now().Add(y.retry).UTC().Format(time.RFC3339Nano))}
}

// endBase makes the directory the directory of a standby.
func (y *Standby) endBase(b *firstBase) error {
	if b.r.identity() != b.file.Identity {
		return fmt.Errorf("%w: the base of record %d is of %v, its first part was of %v", ErrForeignArchive, b.number, b.r.identity(), b.file.Identity)
	}
	if err := putIdentity(y.fs, y.fs.PathJoin(y.dir, dbName), dbIdentityName, dbIdentityNew, b.file); err != nil {
		return err
	}
	if err := renameIdentity(y.fs, y.dir, formatNew, formatName); err != nil {
		return err
	}
	lock := y.lock
	y.lock, y.compared = nil, true
	err := lock.Close() // Open locks the directory again
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
