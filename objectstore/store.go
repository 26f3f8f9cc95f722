package objectstore

import (
	"context"
	"errors"
	"time"
)

// Errors of Open. ErrFormat also marks a value of an unknown version.
var (
	// ErrLocked says that another host has the store open.
	ErrLocked = errors.New("objectstore: locked by another host")
	// ErrFormat says that the store was written in a format this build does not read.
	ErrFormat = errors.New("objectstore: unknown format")
	// ErrForeign says that the directory holds something that is not a store.
	ErrForeign = errors.New("objectstore: not a store")
	// ErrAbsent says that there is no store to open read-only.
	ErrAbsent = errors.New("objectstore: no store there")
)

// Errors of a running store.
var (
	// ErrFenced says that a hand-over or an output came from a life that is not
	// the owner of its range, or that the store has failed or is closed.
	ErrFenced = errors.New("objectstore: fenced")
	// ErrClosed is found behind ErrFenced when the store was closed.
	ErrClosed = errors.New("objectstore: store closed")
	// ErrNoSpace says that the disk has less free space than Options.ReserveBytes.
	ErrNoSpace = errors.New("objectstore: disk almost full")
	// ErrReadOnlyStore says that the store was opened with Options.ReadOnly.
	ErrReadOnlyStore = errors.New("objectstore: opened read-only")
)

// Store is the objects of one host, in one directory. All methods may be called
// from any goroutine.
type Store struct{}

// Open opens the store in dir, and makes it if dir is empty or absent.
func Open(dir string, o *Options) (*Store, error) { return nil, nil }

// Close commits everything handed over, writes the mark of a clean end and
// closes the store. Calls after it, and later hand-overs, are refused with
// ErrFenced. It returns the error that the store failed with, if it did. Closing
// twice is allowed.
func (s *Store) Close() error { return nil }

// Abandon closes the store without draining it and without the clean mark, as
// near to a crash as a process can come and live on. What was handed over and is
// in no record yet is dropped; its outputs are released with ErrFenced.
func (s *Store) Abandon() {}

// Err says why the store failed; nil if it did not.
func (s *Store) Err() error { return nil }

// Generation is the host generation of this Open: one more than that of the last.
func (s *Store) Generation() uint64 { return 0 }

// Clean says whether the last host closed the store. It is true of a new store.
func (s *Store) Clean() bool { return false }

// NewEpoch numbers a new life.
func (s *Store) NewEpoch() Epoch { return Epoch{} }

// NewAlarmGeneration returns a number that is larger than all it returned before,
// in this and in earlier hosts on the store.
func (s *Store) NewAlarmGeneration() uint64 { return 0 }

// Stalled is how long the record in flight has been in flight; zero if there is none.
func (s *Store) Stalled() time.Duration { return 0 }

// Stats counts what the store has done since Open.
func (s *Store) Stats() Stats { return Stats{} }

// Importing says whether an import of the object has begun and not been
// completed. Such an object has part of its rows and must not be run. No I/O.
func (s *Store) Importing(id ID) bool { return false }

// Stats counts what a store has done since Open.
type Stats struct {
	Records   int64 // records made durable
	Segments  int64 // segments with writes, in those records
	Bytes     int64 // bytes of those records
	Undurable int64 // bytes handed over and not durable, now
}

var _ = context.Background
