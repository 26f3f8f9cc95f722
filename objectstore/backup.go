package objectstore

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"github.com/cockroachdb/pebble/v2"
)

// Backup writes a copy of the durable state to dir, which must be absent or empty. No record is made while the database is copied.
// On the file system of the store most of the copy is hard links; on another one all files are copied. The copy is a
// store that is marked as a copy: the first host that opens it draws a new fork for it. A backup that was interrupted is
// no store. The mark of a clean end is not part of it.
//
// Errors: fs.ErrExist if dir is not empty, the error of ctx, ErrFenced, the errors of the disk.
func (s *Store) Backup(ctx context.Context, dir string) error {
	names, err := s.fs.List(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		err = makeDir(s.fs, dir)
	case err == nil && len(names) > 0:
		err = fmt.Errorf("%w: %s", fs.ErrExist, dir)
	}
	if err != nil {
		return fmt.Errorf("dohost: backup: %w", err)
	}
	if err := s.checkpoint(ctx, s.fs.PathJoin(dir, dbName)); err != nil {
		return fmt.Errorf("dohost: backup: %w", err)
	}
	copied := identityFile{Identity: s.identity, copied: true}
	if err := writeIdentity(s.fs, s.fs.PathJoin(dir, dbName), dbIdentityName, copied); err != nil {
		return err
	}
	return putIdentity(s.fs, dir, formatName, formatTemp, copied)
}

// checkpoint copies the database between two records. All applied records are synced by then, so it asks Pebble for
// no sync: a failed one would end the process. With a shared log they are not, and are synced first.
func (s *Store) checkpoint(ctx context.Context, dir string) error {
	if err := s.acquire(ctx); err != nil {
		return err
	}
	defer s.release()
	if !s.engine.acquire() {
		return s.refusal()
	}
	defer s.engine.release()
	if s.opts.Shared != nil {
		if err := s.syncEngine(); err != nil {
			return err
		}
	}
	// If the log has failed, parts of the copy may not exist.
	return errors.Join(pebbleDB(s).Checkpoint(dir), s.background.failure())
}

// syncEngine syncs the records that were applied to the engine without a sync, by a synced write without content. The caller holds
// recordLock.
func (s *Store) syncEngine() error {
	defer s.exitOnPanic()
	b := pebbleDB(s).NewBatch()
	if err := b.LogData(nil, nil); err != nil {
		return err
	}
	if err := pebbleDB(s).ApplyNoSyncWait(b, pebble.Sync); err != nil {
		return err
	}
	return errors.Join(b.SyncWait(), s.background.failure(), b.Close())
}
