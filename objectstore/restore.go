package objectstore

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/dohost/dohost/internal/errkind"
	"github.com/dohost/dohost/internal/frame"
)

// RestorePoint selects a moment of the history in an archive. The zero RestorePoint is the newest record. If several fields are
// set, each is a bound.
type RestorePoint struct {
	// Bookmark is the bookmark of the last record to restore. The archive must be of its history.
	Bookmark Bookmark
	// Record is the number of the last record to restore. Zero means no bound.
	Record uint64
	// Time excludes the records that were made after it. The zero time means no bound. A clock that ran backward does not
	// change the order: no record has an earlier time than the one before.
	Time time.Time
}

// Restored describes a restored store, or the state of an object in an archive.
type Restored struct {
	Identity Identity // of the store that shipped the records
	Record   uint64   // the last restored record
	Time     time.Time
	Bytes    int64 // of the replayed objects of the archive
}

// Errors of Restore.
var (
	// ErrDamagedArchive reports an archive with a record, or a part of a base, that is damaged, missing, repeated or of
	// another history. The error has its number.
	ErrDamagedArchive = errkind.New(errkind.ErrDamaged, "damaged archive")
	// ErrNotArchived reports a moment that the archive does not have.
	ErrNotArchived = errkind.New(errkind.ErrNotFound, "the archive does not have this moment")
)

// Restore makes a store in dir, which must be absent or empty, with the state that the archive has of a moment: the newest
// complete base that is not after it, with all records up to it. Every frame is verified. The store is marked as
// a copy: the first host that opens it draws a new fork. A restore that was interrupted, or that fails, is no store, and may
// leave files in dir: remove them before the next attempt.
//
// Errors: ErrBookmark, ErrForeignBookmark; ErrDamagedArchive; ErrNotArchived; fs.ErrExist if dir is not empty; ErrLocked; the
// errors of the archive, such as the end of ctx, and of the disk.
func Restore(ctx context.Context, from Archive, dir string, to RestorePoint, o *Options) (done Restored, err error) {
	r := newRestorer(from, dir, to, o)
	if err := r.claim(); err != nil {
		return done, fmt.Errorf("dohost: restore: %w", err)
	}
	plan, err := r.plan(ctx)
	if err == nil {
		err = r.replay(ctx, plan, func() error { return r.store.db.Flush() })
	}
	if err == nil {
		err = r.finish()
	}
	if err = errors.Join(err, r.lock.Close()); err != nil {
		return done, fmt.Errorf("dohost: restore: %w", err)
	}
	return r.restored(), nil
}

func newRestorer(from archiveReader, dir string, to RestorePoint, o *Options) *restorer {
	opts := o.withDefaults()
	opts.unlogged = true
	s := &Store{opts: opts, dir: dir, fs: opts.vfs()}
	s.background.init(opts.Logger)
	s.damages = damages{log: opts.Logger, on: opts.OnDamage}
	return &restorer{from: from, to: to, store: s, fs: s.fs, dir: dir}
}

// restored describes the records that were replayed.
func (r *restorer) restored() Restored {
	return Restored{Identity: r.identity(), Record: r.at.Number, Time: time.Unix(0, r.at.Time).UTC(), Bytes: r.bytes}
}

// claim makes the directory and locks it. It refuses a directory with any other file than a lock.
func (r *restorer) claim() error {
	if names, err := r.fs.List(r.dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	} else if err = onlyLock(r.dir, names); err != nil {
		return err
	}
	if err := makeDir(r.fs, r.dir); err != nil {
		return err
	}
	var err error
	if r.lock, err = lockDir(r.fs, r.dir); err != nil {
		return err
	}
	names, err := r.fs.List(r.dir)
	if err == nil {
		err = onlyLock(r.dir, names)
	}
	if err != nil {
		return errors.Join(err, r.lock.Close())
	}
	return nil
}

func onlyLock(dir string, names []string) error {
	for _, name := range names {
		if name != lockName {
			return fmt.Errorf("%w: %s is not empty", fs.ErrExist, dir)
		}
	}
	return nil
}

// restorePlan is the objects that a restore reads.
type restorePlan struct {
	base    archivedBase
	records []archivedRecords // the records after the base, until the last one
	next    uint64            // the record of the next base, if that is after the requested time; or zero
}

// bound makes the bookmark of the moment a bound of its record.
func (p *RestorePoint) bound() error {
	if p.Bookmark == "" {
		return nil
	}
	_, record, err := p.Bookmark.Parse()
	if err == nil && (p.Record == 0 || record < p.Record) {
		p.Record = record
	}
	return err
}

// plan chooses the newest complete base that is not after the moment, and the records that follow it.
func (r *restorer) plan(ctx context.Context) (p restorePlan, err error) {
	if err := r.to.bound(); err != nil {
		return p, err
	}
	objects, err := r.from.List(ctx)
	if err != nil {
		return p, err
	}
	list := parseObjects(objects)
	if len(list.bases) == 0 {
		return p, fmt.Errorf("%w: it has no complete base", ErrNotArchived)
	}
	i := len(list.bases) - 1
	for ; i >= 0; i-- {
		b := list.bases[i]
		if r.to.Record > 0 && b.number > r.to.Record {
			continue
		}
		at, err := r.timeOf(ctx, b)
		if err != nil {
			return p, err
		}
		if r.to.Time.IsZero() || at <= r.to.Time.UnixNano() {
			break
		}
	}
	if i < 0 {
		first := list.bases[0]
		at, err := r.timeOf(ctx, first)
		if err != nil {
			return p, err
		}
		return p, fmt.Errorf("%w: its first base is of record %d, made at %s", ErrNotArchived, first.number,
			time.Unix(0, at).UTC().Format(time.RFC3339Nano))
	}
	p.base = list.bases[i]
	for _, o := range list.records {
		if o.Last > p.base.number && (r.to.Record == 0 || o.First <= r.to.Record) {
			p.records = append(p.records, o)
		}
	}
	if !r.to.Time.IsZero() { // replay checks the records up to that time
		if i+1 < len(list.bases) && (r.to.Record == 0 || list.bases[i+1].number <= r.to.Record) {
			p.next = list.bases[i+1].number
		}
		return p, nil
	}
	return p, r.checkRun(p)
}

// timeOf returns the time of a base.
func (r *restorer) timeOf(ctx context.Context, b archivedBase) (int64, error) {
	if r.to.Time.IsZero() {
		return 0, nil
	}
	content, err := r.from.Get(ctx, b.parts[0].String())
	if err != nil {
		return 0, err
	}
	f, err := frame.NewBase(b.number).Next(content)
	if err != nil {
		return 0, fmt.Errorf("%w: %w", ErrDamagedArchive, err)
	}
	return f.Time, nil
}

// checkRun checks by the names of the objects, before anything is written, that the archive has all records up to the requested
// one.
func (r *restorer) checkRun(p restorePlan) error {
	at := p.base.number
	for _, o := range p.records {
		if err := follows(o, at); err != nil {
			return err
		}
		at = o.Last
	}
	if r.to.Record > at {
		return fmt.Errorf("%w: its newest record is %d", ErrNotArchived, at)
	}
	return nil
}

// follows checks that an object has the record after at, or only earlier ones. Two hosts, or a Put whose answer was lost, may
// leave objects with the same records: replay verifies that the records are the same.
func follows(o archivedRecords, at uint64) error {
	if o.First > at+1 {
		return fmt.Errorf("%w: records %d to %d are missing", ErrDamagedArchive, at+1, o.First-1)
	}
	return nil
}

// identity returns the identity of the store that shipped the records.
func (r *restorer) identity() Identity { return Identity{Store: r.at.Store.String(), Fork: r.at.Fork} }

// finish makes the directory a store, which is marked as a copy.
func (r *restorer) finish() error {
	f := identityFile{Identity: r.identity(), copied: true}
	if err := putIdentity(r.fs, r.fs.PathJoin(r.dir, dbName), dbIdentityName, dbIdentityNew, f); err != nil {
		return err
	}
	return putIdentity(r.fs, r.dir, formatName, formatTemp, f)
}
