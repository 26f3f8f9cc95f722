package objectstore

import (
	"errors"

	"github.com/cockroachdb/pebble/v2"
)

// recordLog is the log that makes records durable: the log of the engine, or a shared log.
type recordLog interface {
	// Append makes a record durable and readable, and returns the log's new tail. A snapshot has the record only after Append has
	// returned. epoch is the generation of the host, and tail the number of the last record. A log that is shared with other hosts
	// returns ErrFenced if another host has taken over. After sharedlog.ErrUnknown and sharedlog.ErrUnavailable the committer appends
	// the same record again, with the same epoch and tail, until the store is abandoned or the lease is lost; the record's
	// outputs wait until then. After every other error the store fails. Only the committer calls Append.
	Append(epoch, tail uint64, r *record) (uint64, error)
	// Valid reports whether outputs may leave: no other host can have taken over. Any goroutine may call it.
	Valid() bool
	// Lost is closed when another host may have taken over, and the store must fail. It is nil if that cannot happen.
	Lost() <-chan struct{}
	// Stop makes Append return soon, with this cause: the store is abandoned, or Open or Close no longer waits for the log. Any
	// goroutine may call it.
	Stop(cause error)
	// Release ends the right to append, after the last record.
	Release() error
}

// localLog is Pebble's own log.
type localLog struct{ s *Store }

// Append does not use Apply with Sync, which ends the process when the sync fails. Failures of
// the log are hidden from the engine (see engineFS), so its success alone means nothing.
func (l localLog) Append(_, tail uint64, r *record) (uint64, error) {
	defer l.s.exitOnPanic()
	if err := pebbleDB(l.s).ApplyNoSyncWait(pebbleBatch(r), pebble.Sync); err != nil {
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

// Lost is nil: the lock of the directory lasts as long as the process.
func (l localLog) Lost() <-chan struct{} { return nil }

// Stop has no effect: the disk answers.
func (l localLog) Stop(error) {}

// Release has no effect: the store releases the lock when the database is closed.
func (l localLog) Release() error { return nil }
