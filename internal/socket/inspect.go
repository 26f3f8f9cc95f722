package socket

import (
	"iter"
	"slices"

	"github.com/dohost/dohost/internal/budget"
	"github.com/dohost/dohost/runtime"
)

// These methods take the table's locks and a socket's own, and wake no object.

// Count is how many sockets an object has, those included that are being closed.
func (t *Table) Count(id runtime.ID) int {
	s := t.shard(id)
	if s.n.Load() == 0 {
		return 0
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if r := s.objects[id]; r != nil {
		return r.n
	}
	return 0
}

// SendUsage returns the bytes that wait for all clients, and how many sockets were closed and responses cut because
// their clients did not take them.
func (t *Table) SendUsage() budget.Usage {
	return budget.Usage{Used: t.queue.bytes.Load(), Limit: t.queue.limit, Refused: t.queue.dropped.Load()}
}

// Infos describes an object's sockets, in the order of their acceptance.
func (t *Table) Infos(id runtime.ID) (infos []Info) {
	s := t.shard(id)
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.objects[id]
	if r == nil {
		return nil
	}
	for c := range r.allLocked() {
		infos = append(infos, c.info())
	}
	return infos
}

func (c *Conn) info() Info {
	c.mu.Lock()
	defer c.mu.Unlock()
	state := StateOpening
	switch {
	case c.muted || c.closing:
		state = StateClosing
	case c.ws != nil || c.relay != nil:
		state = StateOpen
	}
	return Info{Tags: slices.Clone(c.tags), Since: c.since, State: state, Unsent: c.unsentBytes}
}

// Objects yields the objects that have sockets, and how many.
func (t *Table) Objects() iter.Seq2[runtime.ID, int] {
	return func(yield func(runtime.ID, int) bool) {
		for i := range t.shards {
			s := &t.shards[i]
			s.mu.Lock()
			counts := make(map[runtime.ID]int, len(s.objects))
			for id, r := range s.objects {
				counts[id] = r.n
			}
			s.mu.Unlock()
			for id, n := range counts {
				if !yield(id, n) {
					return
				}
			}
		}
	}
}

// CloseAll closes an object's sockets, or those with the tag if it is not empty, and returns their number. It cuts a
// socket that is closing already; a socket that has not been answered yet is removed from the object.
func (t *Table) CloseAll(id runtime.ID, tag string, how Closing) (n int) {
	for _, c := range t.list(id, tag) {
		n++
		if c.relay != nil {
			c.relay.Close(how)
			continue
		}
		c.mu.Lock()
		opening, closing := c.ws == nil, c.closeFrame != nil
		c.muted = true
		c.mu.Unlock()
		c.Close(how)
		if closing {
			c.abort()
		}
		if opening {
			t.remove(c)
		}
	}
	return n
}
