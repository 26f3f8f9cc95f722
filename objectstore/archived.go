package objectstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// The memory of the engine for the rows of one object, in bytes.
const (
	scratchCache    = 4 << 20
	scratchMemTable = 4 << 20
)

// ExportArchived writes the state of an object at a moment of the history in an archive, as [Snapshot.Export] does. It reads
// and verifies the same frames as [Restore], and replays the operations on the keys of the object, in a database in the
// directory scratch, which must be absent or empty. The directory is removed before ExportArchived returns. The memory does not
// grow with the store or the object.
//
// Errors: ErrNoObject for an object that was absent, or half imported; ErrDamagedArchive, ErrNotArchived, fs.ErrExist if
// scratch is not empty; those of the archive, of the disk and of w.
func ExportArchived(ctx context.Context, from Archive, id ID, to RestorePoint, scratch string, w io.Writer, o *Options) (Restored, error) {
	done, err := readArchived(ctx, from, id, to, scratch, o, func(sn *Snapshot, at Restored) error {
		if err := sn.Export(id, contextWriter{ctx, w}); err != nil {
			return fmt.Errorf("as of record %d: %w", at.Record, err)
		}
		return nil
	})
	if err != nil {
		return done, fmt.Errorf("dohost: export from an archive: %w", err)
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

// readArchived calls read with a snapshot that has the rows of one object at a moment, and no others.
func readArchived(
	ctx context.Context, from Archive, id ID, to RestorePoint, scratch string, o *Options, read func(*Snapshot, Restored) error,
) (done Restored, err error) {
	if err := id.Validate(); err != nil {
		return done, err
	}
	var small Options
	if o != nil {
		small = *o
	}
	small.Cache, small.MemTable = scratchCache, scratchMemTable
	r := newRestorer(from, scratch, to, &small)
	s := r.store
	s.recordLock, s.engine = make(chan struct{}, 1), engineUse{drained: make(chan struct{}, 1)}
	r.spans = []span{spanOf([]byte{keyHost}), spanOf(importingKey(id)), {appendObject(nil, id), pastObject(id)}}
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
			return read(sn, r.restored())
		})
	}
	if err = errors.Join(err, r.lock.Close(), removeScratch(r.fs, scratch)); err != nil {
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
