package objectstore

import (
	"sync"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2"
)

// engineUse counts the calls that are inside Pebble, and refuses others once it is closed: Pebble panics if it is used
// while or after it closes. The zero engineUse is open, except for drained.
type engineUse struct {
	n       atomic.Int64  // calls inside; minus engineClosed once closed
	drained chan struct{} // cap 1; gets a token when the last call has released a closed engineUse
}

const engineClosed = 1 << 62

func (d *engineUse) acquire() bool {
	if d.n.Add(1) > 0 {
		return true
	}
	d.release()
	return false
}

func (d *engineUse) release() {
	if d.n.Add(-1) == -engineClosed {
		select {
		case d.drained <- struct{}{}:
		default:
		}
	}
}

// close refuses new calls and returns when all calls inside have ended. It is called once.
func (d *engineUse) close() {
	if d.n.Add(-engineClosed) != -engineClosed {
		<-d.drained
	}
}

// openCursors lists the cursors that have to be closed before Pebble is.
type openCursors struct {
	mu   sync.Mutex
	head *cursor
}

// cursor is a Pebble iterator that the store can close while its user still has it. It is not for concurrent use.
// Each step is inside engineUse, so once that is closed no step is running and the store may close the iterator.
type cursor struct {
	store *Store
	it    engineIterator // not touched outside engineUse
	lower []byte         // names the object in errors, if all of the bounds are within one
	shut  bool           // Close was called

	prev, next *cursor // guarded by openCursors.mu
}

// cursor opens an iterator on a database or snapshot.
func (s *Store) cursor(on engineReader, lower, upper []byte) (*cursor, error) {
	if !s.engine.acquire() {
		return nil, s.refusal()
	}
	defer s.engine.release()
	it, err := on.(pebble.Reader).NewIter(&pebble.IterOptions{LowerBound: lower, UpperBound: upper})
	if err != nil {
		return nil, readError(lower, err)
	}
	c := &cursor{store: s, it: it, lower: lower}
	s.cursors.mu.Lock()
	defer s.cursors.mu.Unlock()
	c.next = s.cursors.head
	if c.next != nil {
		c.next.prev = c
	}
	s.cursors.head = c
	return c, nil
}

// nextRow moves an iterator to the next row. A key of this store is its own prefix, so NextPrefix acts as Next, but
// it seeks past the older versions of a row in the memtable: Next walks through them, and a counter has one for each
// increment.
func nextRow(it engineIterator) bool { return it.NextPrefix() }

// rowSink gets the row of a cursor. The slices are valid until add returns.
type rowSink interface{ add(key, value []byte) }

// step moves the iterator and, if there is a row, passes it to sink.
func (c *cursor) step(move func(engineIterator) bool, sink rowSink) (bool, error) {
	if !c.store.engine.acquire() {
		return false, c.store.refusal()
	}
	defer c.store.engine.release()
	if !move(c.it) {
		if err := c.it.Error(); err != nil {
			return false, readError(c.lower, err)
		}
		return false, nil
	}
	value, err := c.it.ValueAndErr()
	if err != nil {
		return false, readError(c.it.Key(), err)
	}
	sink.add(c.it.Key(), value)
	return true, nil
}

// close may be called twice. Once engineUse is closed the store closes the iterator.
func (c *cursor) close() error {
	if c.shut || !c.store.engine.acquire() {
		return nil
	}
	defer c.store.engine.release()
	c.shut = true
	c.store.cursors.remove(c)
	c.store.opts.Reads.walked(c.it)
	return c.it.Close()
}

func (o *openCursors) remove(c *cursor) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if c.prev != nil {
		c.prev.next = c.next
	} else {
		o.head = c.next
	}
	if c.next != nil {
		c.next.prev = c.prev
	}
}

// closeAll closes all open cursors. engineUse is closed by now.
func (o *openCursors) closeAll() {
	o.mu.Lock()
	defer o.mu.Unlock()
	for c := o.head; c != nil; c = c.next {
		_ = c.it.Close() // the error of an earlier step: its caller has it
	}
	o.head = nil
}
