package objectstore

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
)

// Backup writes a copy of the durable state to dir, which must be absent or
// empty and on the same file system as the store. Records wait meanwhile; most
// of the copy is hard links. The copy is a store, and one that was interrupted is
// none. A clean end is not part of it.
func (s *Store) Backup(ctx context.Context, dir string) error {
	names, err := s.fs.List(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		err = makeDir(s.fs, dir)
	case err == nil && len(names) > 0:
		err = fmt.Errorf("%w: %s", fs.ErrExist, dir)
	}
	if err != nil {
		return fmt.Errorf("objectstore: backup: %w", err)
	}
	if err := s.checkpoint(ctx, s.fs.PathJoin(dir, dbName)); err != nil {
		return fmt.Errorf("objectstore: backup: %w", err)
	}
	if err := writeFormat(s.fs, dir, formatTemp); err != nil {
		return err
	}
	return finishDir(s.fs, dir, formatTemp)
}

// checkpoint copies the database between two records. All that was applied is
// synced then, so it need not ask Pebble for a sync, which ends the process if it
// fails.
func (s *Store) checkpoint(ctx context.Context, dir string) error {
	if err := s.acquire(ctx); err != nil {
		return err
	}
	defer s.release()
	if !s.door.enter() {
		return s.refusal()
	}
	defer s.door.leave()
	return s.db.Checkpoint(dir)
}
