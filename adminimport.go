package dohost

import (
	"context"
	"io"

	"github.com/dohost/dohost/objectstore"
)

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
