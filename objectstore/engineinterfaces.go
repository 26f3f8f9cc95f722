package objectstore

import (
	"io"

	"github.com/cockroachdb/pebble/v2"
)

// The public API reaches types of this package, and the compiler loads each type that the fields and methods of a reached
// type name. With *pebble.DB among them each package of a user's program took 0.75 s of processor time to compile instead of 0.1 s, mostly
// for Pebble's generic trees, which it compiled again. So fields and methods of reached types have these interfaces, which name no type of Pebble.

// engineReader has the methods of *pebble.DB and *pebble.Snapshot that read.
type engineReader interface {
	Get(key []byte) (value []byte, closer io.Closer, err error)
}

// engineDB has the methods of *pebble.DB that name no other type of Pebble, as far as this package uses them.
type engineDB interface {
	engineReader
	AsyncFlush() (<-chan struct{}, error)
	Close() error
	EstimateDiskUsage(start, end []byte) (uint64, error)
	Flush() error
}

// engineSnapshot has methods of *pebble.Snapshot.
type engineSnapshot interface {
	engineReader
	Close() error
}

// engineIterator has methods of *pebble.Iterator.
type engineIterator interface {
	Close() error
	Error() error
	First() bool
	Key() []byte
	Last() bool
	NextPrefix() bool
	Prev() bool
	SeekGE(key []byte) bool
	ValueAndErr() ([]byte, error)
}

// engineBatch has methods of *pebble.Batch.
type engineBatch interface {
	Close() error
	Len() int
	Repr() []byte
	SyncWait() error
}

// pebbleDB returns the database of an open store.
func pebbleDB(s *Store) *pebble.DB { return s.db.(*pebble.DB) }

// pebbleBatch returns the batch of a record.
func pebbleBatch(rec *record) *pebble.Batch { return rec.batch.(*pebble.Batch) }
