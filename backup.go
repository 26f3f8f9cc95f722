package dohost

import (
	"context"

	"github.com/dohost/dohost/objectstore"
)

// Identity names a store, and one of its histories: see [Host.Backup].
type Identity = objectstore.Identity

// Identity names the host's store. It is the same after each restart.
func (h *Host) Identity() Identity { return h.rt.Store().Identity() }

// Backup copies the store, as of now, to dir, which must be absent or empty. The first [Open] of
// the copy draws another fork, so epochs and feed positions of the two histories differ. A backup
// that returns an error or was interrupted leaves no store, but perhaps a directory: remove it
// before the next try.
func (h *Host) Backup(ctx context.Context, dir string) error { return h.rt.Store().Backup(ctx, dir) }
