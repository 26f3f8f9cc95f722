package objectstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/dohost/dohost/internal/errkind"
)

// The memory of the engine for the rows of one object, in bytes.
const (
	scratchCache    = 4 << 20
	scratchMemTable = 4 << 20
)

// ExportArchived writes the state of an object at a moment of the history in an archive, as [Snapshot.Export] does. It reads
// and verifies the same frames as [Restore], and replays the operations on the keys of the object, in a database in the
// directory scratch, which must be absent or empty. The directory is removed before ExportArchived returns, unless it was not empty.
// The memory does not grow with the store or the object.
//
// Errors: ErrNoObject for an object that was absent, or half imported; *NameError for an ID that is not allowed; ErrBookmark,
// ErrForeignBookmark; ErrDamagedArchive; ErrNotArchived; fs.ErrExist if scratch is not empty; the cause of ctx; the errors of the
// archive, of the disk and of w.
func ExportArchived(ctx context.Context, from Archive, id ID, to RestorePoint, scratch string, w io.Writer, o *Options) (Restored, error) {
	read := archivedRead{from: from, id: id, to: to, scratch: scratch, options: o}
	done, err := read.run(ctx, func(sn *Snapshot, at Restored) error {
		if err := sn.Export(id, contextWriter{ctx, w}); err != nil {
			return fmt.Errorf("as of record %d: %w", at.Record, err)
		}
		return nil
	})
	if err != nil {
		return done, errkind.About("export from an archive", err)
	}
	return done, nil
}

// contextWriter refuses writes once ctx has ended.
type contextWriter struct {
	ctx context.Context
	w   io.Writer
}

// Write writes.
func (c contextWriter) Write(p []byte) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, context.Cause(c.ctx)
	}
	return c.w.Write(p)
}

// archivedRead reads one object from an archive.
type archivedRead struct {
	from    Archive
	id      ID
	to      RestorePoint
	scratch string
	options *Options
	space   func() error // called before each write to the disk, unless it is nil
}

// run calls use with a snapshot that has the rows of the object at the moment, and no others.
func (a *archivedRead) run(ctx context.Context, use func(*Snapshot, Restored) error) (done Restored, err error) {
	if err := a.id.Validate(); err != nil {
		return done, err
	}
	var small Options
	if a.options != nil {
		small = *a.options
	}
	small.Cache, small.MemTable = scratchCache, scratchMemTable
	r := newRestorer(a.from, a.scratch, a.to, &small)
	r.space = a.space
	s := r.store
	s.recordLock, s.engine = make(chan struct{}, 1), engineUse{drained: make(chan struct{}, 1)}
	r.spans = []span{spanOf([]byte{keyHost}), spanOf(importingKey(a.id)), {appendObject(nil, a.id), pastObject(a.id)}}
	if err := r.claim(); err != nil {
		return done, err
	}
	plan, err := r.plan(ctx)
	if err == nil {
		err = r.replay(ctx, plan, func() error {
			if err := s.importing.load(s); err != nil {
				return err
			}
			sn, err := s.Snapshot(ctx)
			if err != nil {
				return err
			}
			defer sn.Close()
			return use(sn, r.restored())
		})
	}
	if err = errors.Join(err, r.lock.Close(), removeScratch(r.fs, a.scratch)); err != nil {
		return done, err
	}
	return r.restored(), nil
}

// removeScratch removes a directory with its files. It may be absent.
func removeScratch(fsys vfs.FS, dir string) error {
	if err := fsys.RemoveAll(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("removing %s: %w", dir, err)
	}
	return nil
}
