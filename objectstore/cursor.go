package objectstore

import (
	"sync"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2"
)

// door counts the calls that are inside Pebble, and refuses others once it is shut: Pebble panics if it is used while
// or after it closes. The zero door is open, except for drained.
type door struct {
	n       atomic.Int64  // calls inside; minus doorShut once shut
	drained chan struct{} // cap 1; gets a token when the last call has left a shut door
}

const doorShut = 1 << 62

func (d *door) enter() bool {
	if d.n.Add(1) > 0 {
		return true
	}
	d.leave()
	return false
}

func (d *door) leave() {
	if d.n.Add(-1) == -doorShut {
		select {
		case d.drained <- struct{}{}:
		default:
		}
	}
}

// shut refuses new calls and returns when all calls inside have ended. It is called once.
func (d *door) shut() {
	if d.n.Add(-doorShut) != -doorShut {
		<-d.drained
	}
}

// openCursors lists the cursors that have to be closed before Pebble is.
type openCursors struct {
	mu   sync.Mutex
	head *cursor
}

// cursor is a Pebble iterator that the store can close while its user still has it. It is not for concurrent use.
// Each step holds the door, so once the door is shut no step is running and the store may close the iterator.
type cursor struct {
	store *Store
	it    *pebble.Iterator // not touched outside the door
	lower []byte           // names the object in errors, if all of the bounds are within one
	shut  bool             // Close was called

	prev, next *cursor // guarded by openCursors.mu
}

// cursor opens an iterator on a database or snapshot.
func (s *Store) cursor(on pebble.Reader, lower, upper []byte) (*cursor, error) {
	if !s.door.enter() {
		return nil, s.refusal()
	}
	defer s.door.leave()
	it, err := on.NewIter(&pebble.IterOptions{LowerBound: lower, UpperBound: upper})
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
func nextRow(it *pebble.Iterator) bool { return it.NextPrefix() }

// rowSink gets the row of a cursor. The slices are valid until see returns.
type rowSink interface{ see(key, value []byte) }

// step moves the iterator and, if there is a row, passes it to sink.
func (c *cursor) step(move func(*pebble.Iterator) bool, sink rowSink) (bool, error) {
	if !c.store.door.enter() {
		return false, c.store.refusal()
	}
	defer c.store.door.leave()
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
	sink.see(c.it.Key(), value)
	return true, nil
}

// close may be called twice. Once the door is shut the store closes the iterator.
func (c *cursor) close() error {
	if c.shut || !c.store.door.enter() {
		return nil
	}
	defer c.store.door.leave()
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

// closeAll closes all open cursors. The door is shut by now.
func (o *openCursors) closeAll() {
	o.mu.Lock()
	defer o.mu.Unlock()
	for c := o.head; c != nil; c = c.next {
		// The read that failed is not waited for any more.
		_ = c.it.Close()
	}
	o.head = nil
}
