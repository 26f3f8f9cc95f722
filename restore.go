package dohost

import (
	"context"

	"github.com/dohost/dohost/objectstore"
)

// RestorePoint selects a moment of the history in an archive. The zero RestorePoint is the newest record.
type RestorePoint = objectstore.RestorePoint

// Restored describes a restored store, or the state of an object in an archive.
type Restored = objectstore.Restored

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
