package cluster

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/internal/budget"
)

// The bounds of an edge.
const (
	maxHandshake     = 64 << 10  // bytes of a client's request for a durable socket
	maxHandshakes    = 128 << 20 // bytes of these requests for one object
	maxAllHandshakes = 256 << 20 // bytes of these requests for all objects, without the first freeHandshake of each
	freeHandshake    = 8 << 10
	edgeCloseTime    = 5 * time.Second
)

// Codes that an edge closes connections with.
const (
	closeNotUTF8 = 1007
	closeFailed  = 1011
	closeRestart = 1012
	closeBusy    = 1013
	closeNoFrame = 1006 // never sent
)

// edge has the durable sockets of the clients of a node: see "Durable sockets" in doc.go. The zero value has none. Its methods may be called
// from any goroutine.
//
// Locks: mu of the edge, then mu of an edgeEntry, then mu of an edgeSocket, then the lock of reads or sends. None is held during I/O, or while a link is
// called.
//
// Goroutines: for each object with an accepted socket edgeEntry.run, and for a link to another node wireLink.read and wireLink.keepAlive. For
// each connection of a client edgeSocket.serve, and while frames wait edgeSocket.write.
type edge struct {
	mu      sync.Mutex
	entries map[dohost.ID]*edgeEntry
	last    uint64             // number of the last socket
	ctx     context.Context    // of all links; nil before the first socket
	cancel  context.CancelFunc // likewise
	closed  bool
	reads   *budget.Budget // set with ctx, unless a test has set one
	sends   sendBudget     // its limit is set likewise

	handshakes      atomic.Int64  // bytes beyond freeHandshake of each
	handshakesLimit int64         // set with ctx, likewise
	empty           chan struct{} // made by close, and closed when there is no entry
}

// edgeEntry has the sockets of one object.
type edgeEntry struct {
	edge *edge
	rt   *router
	id   dohost.ID
	wake chan struct{} // holds a hint for run: an input, an output, or the end of a socket

	// mu guards the rest, and the fields of the sockets that edgeSocket lists.
	mu         sync.Mutex
	sockets    map[uint64]*edgeSocket
	handshakes int       // bytes of their handshakes
	accepted   int       // sockets that are not opening
	running    bool      // run runs
	after      string    // position of the last output that was received
	link       *edgeLink // the newest one; outputs of others are ignored
	relink     bool      // the edge and the object may have different sockets: the next link compares them
}

type closing = dohost.Closing

// noValues is the context of the links: it has no values of the client that was first.
type noValues struct{ context.Context }

// Value returns nil.
func (noValues) Value(any) any { return nil }

// edgeLink is a link of an entry. Its fields are guarded by the mu of the entry.
type edgeLink struct {
	entry   *edgeEntry
	ready   []*edgeSocket // that have inputs to deliver, each once
	unacked int           // outputs since the last acknowledgment
	since   time.Time     // of the first of them
}

var errEdgeClosed = errors.New("cluster: the node is closing")

// register adds an opening socket.
//
// Errors: a *dohost.LimitError, a *badMessage for a request that a link could not name, and errEdgeClosed.
func (d *edge) register(rt *router, id dohost.ID, r *http.Request) (*edgeSocket, error) {
	ctx := context.WithoutCancel(r.Context())
	handshake := r.Clone(ctx)
	handshake.Body, handshake.Pattern = http.NoBody, ""
	linked := toLinkSocket(&dohost.LinkedSocket{Number: 1, Handshake: handshake})
	if _, err := linked.linked(); err != nil {
		return nil, err
	}
	size := linked.size()
	if size > maxHandshake {
		return nil, &dohost.LimitError{Subject: "handshake of a durable socket", Size: size, Limit: maxHandshake}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil, errEdgeClosed
	}
	if d.ctx == nil {
		d.ctx, d.cancel = context.WithCancel(noValues{ctx})
		d.entries = map[dohost.ID]*edgeEntry{}
		d.reads = cmp.Or(d.reads, newReads(rt.o.MaxFrame))
		d.reads.LogTo(rt.node.log)
		d.handshakesLimit = cmp.Or(d.handshakesLimit, maxAllHandshakes)
		d.sends.limit, d.sends.sockets = cmp.Or(d.sends.limit, maxSends), map[*edgeSocket]struct{}{}
	}
	if n := d.handshakes.Load() + extraHandshake(size); n > d.handshakesLimit {
		return nil, &dohost.LimitError{Subject: "handshakes of all objects", Size: int(n), Limit: int(d.handshakesLimit)}
	}
	e := d.entries[id]
	if e == nil {
		e = &edgeEntry{edge: d, rt: rt, id: id, wake: make(chan struct{}, 1), sockets: map[uint64]*edgeSocket{}}
		d.entries[id] = e
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.sockets) >= maxLinkSockets {
		return nil, &dohost.LimitError{Subject: "edge", Size: len(e.sockets) + 1, Limit: maxLinkSockets, Unit: "sockets of an object"}
	}
	if e.handshakes+size > maxHandshakes {
		return nil, &dohost.LimitError{Subject: "handshakes of an object", Size: e.handshakes + size, Limit: maxHandshakes}
	}
	d.handshakes.Add(extraHandshake(size))
	d.last++
	s := newEdgeSocket(e, d.last, handshake, size)
	e.sockets[s.number], e.handshakes = s, e.handshakes+size
	d.sends.add(s)
	return s, nil
}

// extraHandshake returns the bytes of a handshake that count for the node.
func extraHandshake(size int) int64 { return max(int64(size)-freeHandshake, 0) }

// accept notes that the object has accepted a socket, and starts the link if there is none. It returns false if the edge has ended.
func (e *edgeEntry) accept(s *edgeSocket) bool {
	e.edge.mu.Lock()
	defer e.edge.mu.Unlock()
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.sockets[s.number] != s || e.edge.ctx.Err() != nil {
		return false
	}
	s.opening = false
	e.accepted++
	if s.gone {
		e.relink = true
		e.hint()
	}
	if !e.running {
		e.running = true
		go e.run(e.edge.ctx)
	}
	return true
}

// refuse removes an opening socket. If it is unknown whether the object has accepted it, the object gets its end over the link. If there is no
// link, it ends the socket for that reason.
func (e *edgeEntry) refuse(s *edgeSocket, unknown bool) {
	e.mu.Lock()
	switch {
	case e.sockets[s.number] != s:
	case unknown && e.running:
		s.opening, s.ended = false, true
		e.accepted++
		e.appendLocked(s, &dohost.LinkInput{Closing: &closing{Code: closeNoFrame, Reason: "the handshake was not completed"}})
	default:
		e.removeLocked(s)
	}
	e.mu.Unlock()
	s.abort()
	e.hint()
	e.release()
}

// removeLocked removes a socket. The caller closes its connection.
func (e *edgeEntry) removeLocked(s *edgeSocket) {
	delete(e.sockets, s.number)
	e.handshakes -= s.size
	e.edge.handshakes.Add(-extraHandshake(s.size))
	if !s.opening {
		e.accepted--
	}
	s.ended, s.inputs, s.unacked = true, nil, 0
	e.releaseUnusedLocked(s)
	s.hasSpace()
	e.hint()
}

// hint makes run look.
func (e *edgeEntry) hint() {
	select {
	case e.wake <- struct{}{}:
	default: // it has a hint
	}
}

// finish ends run if the object has accepted no socket, and reports whether it ends.
func (e *edgeEntry) finish() bool {
	e.edge.mu.Lock()
	defer e.edge.mu.Unlock()
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.accepted > 0 {
		return false
	}
	e.running, e.relink = false, false
	e.forgetLocked()
	return true
}

// release removes the entry if it has no socket and no link.
func (e *edgeEntry) release() {
	e.edge.mu.Lock()
	defer e.edge.mu.Unlock()
	e.mu.Lock()
	defer e.mu.Unlock()
	e.forgetLocked()
}

// forgetLocked is release with both locks held.
func (e *edgeEntry) forgetLocked() {
	d := e.edge
	if len(e.sockets) > 0 || e.running || d.entries[e.id] != e {
		return
	}
	delete(d.entries, e.id)
	if d.empty != nil && len(d.entries) == 0 {
		close(d.empty)
	}
}

// drop removes all accepted sockets, and closes their connections. The objects get no inputs for that.
func (e *edgeEntry) drop(how closing) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, s := range e.sockets {
		if !s.opening {
			e.removeLocked(s)
			s.close(how)
		}
	}
}

// close closes the connections of all clients with 1012, and waits until their objects have the ends, for edgeCloseTime at most. Then it
// ends the links.
func (d *edge) close() {
	d.mu.Lock()
	if d.closed {
		d.mu.Unlock()
		return
	}
	d.closed = true
	empty := make(chan struct{})
	d.empty = empty
	if len(d.entries) == 0 {
		close(empty)
	}
	for _, e := range d.entries {
		e.mu.Lock()
		for _, s := range e.sockets {
			s.close(closing{Code: closeRestart, Reason: "the node is closing"})
		}
		e.mu.Unlock()
	}
	cancel := d.cancel
	d.mu.Unlock()
	late := time.NewTimer(edgeCloseTime)
	defer late.Stop()
	select {
	case <-empty:
	case <-late.C:
	}
	if cancel != nil {
		cancel()
	}
}
