package dohost

import (
	"context"
	"errors"
	"io"
	"os"

	"github.com/dohost/dohost/objectstore"
)

// Export writes the object's durable state to w. It does not wake it.
func (h *Host) Export(ctx context.Context, id ID, w io.Writer) error {
	return h.inspection().export(ctx, id, w)
}

// ExportDir is [Host.Export] from a store that no host is using.
func ExportDir(ctx context.Context, dir string, id ID, w io.Writer) error {
	if err := id.Validate(); err != nil {
		return err
	}
	return readDir(dir, func(s *objectstore.Store) error {
		sn, err := s.Snapshot(ctx)
		if err != nil {
			return err
		}
		defer sn.Close()
		return sn.Export(id, w)
	})
}

// ExportArchived writes the state of one object at a moment of the history in an archive, in the format of [Host.Export]:
// [Host.Import] creates an object from it. It reads and verifies the same records as [RestoreDir], and keeps the object's records
// in a temporary directory of the system, which it removes.
//
// Errors: [ErrDamaged] and [ErrNotFound] as of RestoreDir; ErrNotFound also for an object that was absent, or half imported;
// the errors of the archive, of the disk and of w.
func ExportArchived(ctx context.Context, from Archive, id ID, to RestorePoint, w io.Writer) (done Restored, err error) {
	dir, err := os.MkdirTemp("", "dohost-restore-*")
	if err != nil {
		return done, err
	}
	done, err = objectstore.ExportArchived(ctx, from, id, to, dir, w, nil)
	return done, errors.Join(err, os.RemoveAll(dir))
}

// Import creates the object from an export of [Host.Export], with its alarm. The exported object may have had another
// name. Events for the object wait until Import returns. A failed Import leaves nothing, unless the host cannot remove
// the partial object from the disk: then calls of the object return an error until another Import succeeds.
//
// Errors: [ErrConflict] for an object that has durable data or is in use (it remains in use until shortly after its last
// call returns); [ErrDamaged] for a stream that is not a whole export or has an unknown format; [ErrNotFound] for a
// class that is not bound.
func (h *Host) Import(ctx context.Context, id ID, r io.Reader) error {
	return h.rt.Import(ctx, id, r)
}
