package streams

import (
	"context"
	"errors"
	"sync"
)

// sharedReads lets readers of the same data share a read: when a change wakes a thousand readers of a stream, the object has two more
// events and not a thousand.
//
// A reader must see everything that was durable before it asked. So it shares no read that has begun: while one runs, new readers form
// the next group, and the group's read begins when the present one has ended. One of them performs it, on its own goroutine.
type sharedReads struct {
	mu     sync.Mutex
	groups map[string]*readGroup // by key: the group that runs
}

// readGroup is the readers that share a read.
type readGroup struct {
	turn chan struct{} // has a value when a member must perform the read
	done chan struct{} // closed after the read
	page *page
	err  error

	// Guarded by sharedReads.mu.
	members int        // that wait
	next    *readGroup // that reads after this group
}

func newSharedReads() *sharedReads { return &sharedReads{groups: map[string]*readGroup{}} }

// errReadEnded is the result of a read that panics.
var errReadEnded = errors.New("streams: the shared read has not returned")

// do returns the result of a read that begins after the call of do. The context of the read does not end with ctx, since the read may
// serve other readers too.
func (s *sharedReads) do(ctx context.Context, key string, read func(context.Context) (*page, error)) (*page, error) {
	g := s.join(key)
	defer s.leave(key, g)
	select {
	case <-g.turn:
		defer s.ended(key, g)
		page, err := read(context.WithoutCancel(ctx))
		g.page, g.err = page, err
		return page, err
	case <-g.done:
		return g.page, g.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// join adds a reader to the group that reads next.
func (s *sharedReads) join(key string) *readGroup {
	s.mu.Lock()
	defer s.mu.Unlock()
	g := &readGroup{turn: make(chan struct{}, 1), done: make(chan struct{}), err: errReadEnded}
	switch running := s.groups[key]; {
	case running == nil:
		g.turn <- struct{}{}
		s.groups[key] = g
	case running.next == nil:
		running.next = g
	default:
		g = running.next
	}
	g.members++
	return g
}

// leave removes a reader from a group. If it was the last one, and none has performed the read, the group ends without it.
func (s *sharedReads) leave(key string, g *readGroup) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if g.members--; g.members == 0 && len(g.turn) > 0 {
		s.advanceLocked(key, g)
	}
}

// ended is called after the read of a group.
func (s *sharedReads) ended(key string, g *readGroup) {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(g.done)
	s.advanceLocked(key, g)
}

// advanceLocked lets the group after g read, if it has members.
func (s *sharedReads) advanceLocked(key string, g *readGroup) {
	if g.next == nil || g.next.members == 0 {
		delete(s.groups, key)
		return
	}
	s.groups[key] = g.next
	g.next.turn <- struct{}{}
}
