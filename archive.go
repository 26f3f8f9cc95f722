package dohost

import (
	"context"
	"errors"
	"io"
	"os"

	"github.com/dohost/dohost/objectstore"
)

// Archive keeps the history of a store outside of the store. A host with [Options].Ship puts its durable records into its
// archive, about a second's records in one object, and from time to time a base, which is the whole state.
//
// Shipping is asynchronous: no call waits for it, and an unavailable archive only lags. At any time the archive has a prefix
// of the history, and never a record that the store could still lose. [RestoreDir] makes a store from it, as of any record or
// time since the first base. If more than 1 GiB of records wait, the host drops them and ships a new base later; the moments
// in between cannot be restored.
//
// An implementation for a bucket must put an object only if none of that name exists. A bucket has no lock: the
// caller must ensure that no second host ships to the same archive. [DirArchive] is an archive in a folder.
type Archive = objectstore.Archive

// ArchiveObject is an object of an archive.
type ArchiveObject = objectstore.ArchiveObject

// DirArchive is an archive in a folder.
type DirArchive = objectstore.DirArchive

// OpenDirArchive opens the archive in dir for a host that ships to it, and makes dir if it is absent. It locks dir against
// other processes. Errors: [ErrConflict] if another process has it open, the disk's.
func OpenDirArchive(dir string) (*DirArchive, error) { return objectstore.OpenDirArchive(nil, dir) }

// ReadDirArchive returns the archive in dir for [RestoreDir], also while a host ships to it.
func ReadDirArchive(dir string) *DirArchive { return objectstore.ReadDirArchive(nil, dir) }

// RestorePoint selects a moment of the history in an archive. The zero RestorePoint is the newest record.
type RestorePoint = objectstore.RestorePoint

// Bookmark names a moment of a store's history: the state after a record. Bookmarks of one store compare, as strings, in the
// order of the history. A store made from a backup or by a restore has its own history, and refuses bookmarks of other
// histories.
type Bookmark = objectstore.Bookmark

// Restored describes a restored store, or the state of an object in an archive.
type Restored = objectstore.Restored

// ShipStats describes the shipping of records to an archive.
type ShipStats = objectstore.ShipStats

// SharedLogStats describes the bases of the log of [Options].Lease.
type SharedLogStats = objectstore.SharedStats

// RestoreDir makes a store in dir, which must be absent or empty, as of a moment of the history in an archive. It verifies
// each record, and the link to the record before it. The first [Open] of the store draws another fork, as for a backup, so
// its host needs its own archive. A restore that returns an error or was interrupted leaves no store, but perhaps a
// directory: remove it before the next try.
//
// Errors: [ErrDamaged] for a record that is damaged, missing or repeated, with its number; [ErrNotFound] if the archive does
// not have the moment; fs.ErrExist if dir is not empty; the errors of the archive and of the disk.
func RestoreDir(ctx context.Context, from Archive, dir string, to RestorePoint) (Restored, error) {
	return objectstore.Restore(ctx, from, dir, to, nil)
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

// Bookmark returns the bookmark of the newest durable record. Error: [ErrMisuse] without [Options].Ship.
func (h *Host) Bookmark() (Bookmark, error) { return h.rt.Store().Bookmark() }

// RestoreObject replaces the state of an object, all of its rows and its alarm, by its state of an earlier moment, while the host
// runs. The moment is a [RestorePoint] with a bookmark, a time or a record; the host must have [Options].Ship. RestoreObject
// waits until the archive has the moment, reads the state, ends the incarnation, and then replaces the state in one record: after
// a crash the object has either the earlier or the restored state. An object that was absent at the moment becomes absent.
//
// Queued events wait and run on the restored state; callers of events that have begun get [ErrFenced]. A restored alarm that is
// due fires. Sockets stay connected. Feed readers that have read entries which the restored feed lacks get a [*FeedError] with
// Reset. Rows have the versions of the earlier moment, and later writes assign these versions again. Effects outside of the
// object are not undone.
//
// The state before the replacement can be restored, too: undo is its bookmark, which the host also logs.
//
// Errors: [ErrNotFound] for a moment that the archive does not have or that has not come, and for a class that is not bound;
// [ErrConflict] for a bookmark of another history; a [*LimitError] for a state of more than 16 MiB; [ErrDamaged]; [ErrNoSpace];
// [ErrMisuse] without an archive, and for a text that is no bookmark; ctx's. With these the rows and the alarm are as before.
// After ErrNoSpace, and if ctx ends while the replacement waits for the object, the incarnation may have ended. After [ErrFenced]
// the host has failed or is closing. Up to four restores of a host run concurrently; others wait.
func (h *Host) RestoreObject(ctx context.Context, id ID, to RestorePoint) (undo Bookmark, err error) {
	return h.rt.RestoreObject(ctx, id, to)
}

// Bookmark commits the writes of the event and, when they are durable, returns a bookmark. The moment includes everything
// that the object has committed before, and nothing that it writes later. Bookmark holds the turn until it returns. A
// moment before the first base of the archive, or in a gap of the archive, cannot be restored.
//
// Errors: [ErrMisuse] in a [Transaction], and without [Options].Ship.
func (s *State) Bookmark(ctx context.Context) (Bookmark, error) { return s.rt().Bookmark(ctx) }

// RestoreTo is [Host.RestoreObject] of the object itself. It commits the writes of the event, and gives up the turn until the
// archive has been read. Writes of other events until then are replaced, too; the host logs the bookmark that undoes the
// restore. Then the incarnation ends, and the object starts over with the state of the moment: RestoreTo returns the
// [*Fenced] that the handler should return. After any other error the event continues with the turn, and the object is
// unchanged.
//
// A handler or a constructor that restores unconditionally may run again on the restored state, without end: a restored alarm
// that is due fires, and queued events wake the object. In an [Exclusive] section, the section's time limit includes the time to
// read the archive.
//
// Errors: the errors of RestoreObject; [ErrMisuse] in a [Transaction].
func (s *State) RestoreTo(ctx context.Context, to RestorePoint) error {
	return s.rt().RestoreTo(ctx, to)
}
