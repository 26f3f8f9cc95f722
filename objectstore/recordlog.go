package objectstore

import (
	"errors"

	"github.com/cockroachdb/pebble/v2"
)

// Outcomes of an Append after which the committer appends the same record again, with the same epoch and tail, until
// the store is abandoned. The record's outputs wait until then. The local log has neither.
var (
	// errUnknown: the record may have been appended. A log that gets the same record again must report whether it
	// was.
	errUnknown = errors.New("dohost: unknown whether the record was appended")
	// errUnavailable: the record was not appended.
	errUnavailable = errors.New("dohost: log unavailable")
)

// recordLog makes records history for good. Its narrow interface permits a log on other machines in place of the
// local one.
type recordLog interface {
	// Append makes a record first durable and then readable, as seen from outside, and returns the log's new tail.
	// epoch and tail are the committer's: a log shared with other hosts refuses both when they are stale, with
	// ErrFenced: another host has taken over. After errUnknown and errUnavailable the committer appends the record
	// again; after every other error the store fails. Only the committer calls Append.
	Append(epoch, tail uint64, r *record) (uint64, error)
	// Valid reports whether outputs may leave: that no other host can have taken over. Any goroutine may call it.
	Valid() bool
}

// localLog is Pebble's own log.
type localLog struct{ s *Store }

// Append does not use Apply with Sync, which ends the process when the sync fails. Failures of
// the log are hidden from the engine (see engineFS), so its success alone means nothing.
func (l localLog) Append(_, tail uint64, r *record) (uint64, error) {
	defer l.s.dieOfPanic()
	if err := l.s.db.ApplyNoSyncWait(r.batch, pebble.Sync); err != nil {
		return tail, err
	}
	l.s.hook(StageSync, r.objects)
	if err := errors.Join(r.batch.SyncWait(), l.s.background.failure()); err != nil {
		return tail, err
	}
	return tail + 1, nil
}

// Valid is true until the store is abandoned. The directory's lock excludes other hosts, but no output may leave an
// abandoned store, which simulates the end of its process.
func (l localLog) Valid() bool { return !l.s.abandoned.Load() }
