package objectstore

import (
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2"
)

// Reads counts the engine's work for a store, so that a test can bound the cost of an operation. All counters may be
// read and set at any time.
type Reads struct {
	// Gets are look-ups of one key.
	Gets atomic.Int64
	// Walks are iterators that were closed.
	Walks atomic.Int64
	// Steps are the entries that these iterators visited: rows, and entries that are deleted or overwritten.
	Steps atomic.Int64
}

// got counts a look-up, unless r is nil.
func (r *Reads) got() {
	if r != nil {
		r.Gets.Add(1)
	}
}

// walked counts an iterator that is about to be closed, unless r is nil.
func (r *Reads) walked(it engineIterator) {
	if r == nil {
		return
	}
	s := it.(*pebble.Iterator).Stats()
	r.Walks.Add(1)
	r.Steps.Add(int64(s.InternalStats.PointCount))
}
