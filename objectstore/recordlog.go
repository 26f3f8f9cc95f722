package objectstore

import (
	"errors"

	"github.com/cockroachdb/pebble/v2"
)

// Outcomes of an Append after which the committer brings the same record again, with
// the same epoch and tail, until the store is abandoned. All that waits for the
// record goes on waiting. The local log has neither.
var (
	// errUnknown says that the record may have been appended. A log that finds the
	// same record again must say whether it was.
	errUnknown = errors.New("dohost: unknown whether the record was appended")
	// errUnavailable says that the record was not appended.
	errUnavailable = errors.New("dohost: log unavailable")
)

// recordLog is where records become history for good. There is one way in, so
// that a log on other machines can take the place of the local one.
type recordLog interface {
	// Append makes a record durable and readable, in this order for whoever looks
	// from outside, and returns the log's new tail. epoch and tail are the
	// committer's: a log shared with other hosts refuses both when they are stale,
	// with ErrFenced: another host has taken over. After errUnknown and errUnavailable
	// the record comes again, after every other error the store fails. Only the
	// committer calls it.
	Append(epoch, tail uint64, r *record) (uint64, error)
	// Valid says whether outputs may leave: that no other host can have taken over.
	// Any goroutine may ask.
	Valid() bool
}

// localLog is the log that is Pebble's own.
type localLog struct{ s *Store }

// Append does not use Apply with Sync, which ends the process when the sync
// fails: the error of SyncWait is the one that can be handled.
func (l localLog) Append(_, tail uint64, r *record) (uint64, error) {
	defer l.s.dieOfPanic()
	if err := l.s.db.ApplyNoSyncWait(r.batch, pebble.Sync); err != nil {
		return tail, err
	}
	l.s.hook(StageSync, r.objects)
	if err := r.batch.SyncWait(); err != nil {
		return tail, err
	}
	return tail + 1, nil
}

// Valid is true until the store is abandoned: the directory's lock keeps other hosts
// out, but a store that stands for the one of a process that has ended lets nothing
// leave.
func (l localLog) Valid() bool { return !l.s.cut.Load() }
