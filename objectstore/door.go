package objectstore

import (
	"sync"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2"
)

// door counts the calls that are inside Pebble, and keeps others out once it is
// shut: Pebble panics if it is used while or after it closes. The zero door is
// open, except for drained.
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

// shut returns when nobody is inside and nobody will be. It is called once.
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

// cursor is a Pebble iterator that the store can close behind its user's back.
// It is not for concurrent use. Each step holds the door, so once that is shut
// nobody is in the iterator and the store may close it.
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

// nextRow moves an iterator to the next row. A key of this store is its own prefix, so this
// is Next, but that it seeks past the older versions of a row in the memtable: Next walks
// through them, and a counter has as many as it has counted.
func nextRow(it *pebble.Iterator) bool { return it.NextPrefix() }

// rowSink gets a row of a cursor. The slices are its own until it returns.
type rowSink interface{ see(key, value []byte) }

// step moves the iterator and, if that ends on a row, shows it to sink.
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

// closeAll closes what is left open. The door is shut by now.
func (o *openCursors) closeAll() {
	o.mu.Lock()
	defer o.mu.Unlock()
	for c := o.head; c != nil; c = c.next {
		// An error of a read that nobody waits for any more.
		_ = c.it.Close()
	}
	o.head = nil
}
