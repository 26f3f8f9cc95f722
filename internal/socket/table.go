package socket

import (
	"cmp"
	"fmt"
	"hash/maphash"
	"iter"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dohost/dohost/eviction"
	"github.com/dohost/dohost/internal/budget"
	"github.com/dohost/dohost/objectstore"
	"github.com/dohost/dohost/runtime"
)

// closeTimeout is how long Close waits for clients to close.
const closeTimeout = 5 * time.Second

// shards is the number of parts of the table, each with a lock of its own.
const shards = 64

// Table has the sockets of a host, by object. Its methods may be called from any goroutine.
type Table struct {
	host  *runtime.Host  // set before the first Accept
	reads *budget.Budget // of frames that are being read, until they are handled
	frame int64          // maximum bytes of a received frame
	queue sendQueue

	responses    responses
	overflowOnce sync.Once // starts overflowLoop

	conns atomic.Int64  // those that were accepted and have not ended
	empty chan struct{} // capacity 1: conns has come to zero

	seed      maphash.Seed
	shards    [shards]shard
	pingOnce  sync.Once     // starts the goroutine that sends pings
	quit      chan struct{} // closed with the table
	closeOnce sync.Once
}

// shard has the objectSockets of some of the objects.
type shard struct {
	// n is the number of entries, so that an object takes no lock if no object of the shard has a socket. It is written
	// with mu held.
	n atomic.Int64

	mu      sync.Mutex // order: before a Conn's
	objects map[runtime.ID]*objectSockets
	// detached has the objectSockets that were detached from their object, while their sockets close.
	detached map[*objectSockets]struct{}
	closed   bool
}

// objectSockets has the sockets of an object.
type objectSockets struct {
	autoResponse atomic.Pointer[autoResponse] // nil: nothing is answered
	broadcaster  broadcaster

	// Guarded by the shard's lock.
	first, last *Conn // in the order of their acceptance
	n           int
	accepted    uint64 // sockets ever accepted
	tagged      map[string]map[*Conn]struct{}
}

type autoResponse struct {
	request  string
	response []byte // packed
}

// Limits bound the bytes that the sockets of a host take together.
type Limits struct {
	MaxFrame   int64          // bytes of a frame that is received
	Reads      *budget.Budget // of all frames that are being read, until they are handled
	SendBudget int64          // bytes that wait for all clients, of sockets and responses
}

// New returns an empty table. Put its Ended and Abandon into the options of the host.
func New(l Limits) *Table {
	t := &Table{
		seed: maphash.MakeSeed(), quit: make(chan struct{}), empty: make(chan struct{}, 1),
		reads: l.Reads, frame: l.MaxFrame, queue: newSendQueue(l.SendBudget),
	}
	for i := range t.shards {
		t.shards[i].objects, t.shards[i].detached = map[runtime.ID]*objectSockets{}, map[*objectSockets]struct{}{}
	}
	return t
}

// Serve gives the table its host, before the host serves a request: no socket is accepted earlier.
func (t *Table) Serve(h *runtime.Host) { t.host = h }

func (t *Table) shard(id runtime.ID) *shard {
	return &t.shards[maphash.String(t.seed, id.Name)%shards]
}

func (s *shard) objectLocked(id runtime.ID) *objectSockets {
	r := s.objects[id]
	if r == nil {
		r = &objectSockets{tagged: map[string]map[*Conn]struct{}{}}
		s.objects[id] = r
		s.n.Add(1)
	}
	return r
}

// removeEmptyLocked removes an entry without sockets and without an auto-response.
func (s *shard) removeEmptyLocked(id runtime.ID, r *objectSockets) {
	if r.n == 0 && r.autoResponse.Load() == nil && s.objects[id] == r {
		s.removeLocked(id)
	}
}

func (s *shard) removeLocked(id runtime.ID) {
	delete(s.objects, id)
	s.n.Add(-1)
}

// detachLocked detaches an object's sockets. Its sockets end by themselves, or are cut by
// [Table.Close].
func (s *shard) detachLocked(id runtime.ID, r *objectSockets) {
	s.removeLocked(id)
	if r.n > 0 {
		s.detached[r] = struct{}{}
	}
}

// Accept adds a socket that is not open yet. The caller opens it, or ends it.
//
// Errors: ErrClosed, and a *LimitError for one beyond MaxSockets.
func (t *Table) Accept(id runtime.ID, h *Handlers, o *Options) (*Conn, error) {
	c := t.conn(id, h, o)
	if err := t.add(c); err != nil {
		return nil, err
	}
	t.pingOnce.Do(func() { go t.pingLoop() })
	t.startOverflowLoop()
	return c, nil
}

// conn makes a socket.
func (t *Table) conn(id runtime.ID, h *Handlers, o *Options) *Conn {
	c := &Conn{
		table: t, id: id, handlers: h, origins: o.Origins, access: o.Access, attachment: slices.Clone(o.Attachment), since: o.Since,
	}
	if c.since.IsZero() {
		c.since = time.Now()
	}
	for _, tag := range o.Tags {
		if !slices.Contains(c.tags, tag) {
			c.tags = append(c.tags, tag)
		}
	}
	return c
}

// add adds a socket to its object.
func (t *Table) add(c *Conn) error {
	s := t.shard(c.id)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return runtime.ErrClosed
	}
	r := s.objectLocked(c.id)
	if r.n >= MaxSockets {
		return &objectstore.LimitError{Subject: "object", Size: r.n + 1, Limit: MaxSockets, Unit: "sockets"}
	}
	r.addLocked(c)
	if c.relay == nil {
		t.conns.Add(1)
	}
	return nil
}

// addLocked appends a socket to the list.
func (r *objectSockets) addLocked(c *Conn) {
	r.accepted++
	c.sockets, c.seq, c.prev = r, r.accepted, r.last
	if r.last == nil {
		r.first = c
	} else {
		r.last.next = c
	}
	r.last = c
	r.n++
	for _, tag := range c.tags {
		if r.tagged[tag] == nil {
			r.tagged[tag] = map[*Conn]struct{}{}
		}
		r.tagged[tag][c] = struct{}{}
	}
}

// removeLocked removes a socket.
func (r *objectSockets) removeLocked(c *Conn) {
	if c.prev == nil {
		r.first = c.next
	} else {
		c.prev.next = c.next
	}
	if c.next == nil {
		r.last = c.prev
	} else {
		c.next.prev = c.prev
	}
	c.prev, c.next = nil, nil
	r.n--
	for _, tag := range c.tags {
		delete(r.tagged[tag], c)
		if len(r.tagged[tag]) == 0 {
			delete(r.tagged, tag)
		}
	}
}

// allLocked yields the sockets in the order of their acceptance.
func (r *objectSockets) allLocked() iter.Seq[*Conn] {
	return func(yield func(*Conn) bool) {
		for c := r.first; c != nil && yield(c); c = c.next {
		}
	}
}

// socketEnded counts an ended socket.
func (t *Table) socketEnded() {
	if t.conns.Add(-1) == 0 {
		select {
		case t.empty <- struct{}{}:
		default:
		}
	}
}

// remove removes a socket from its object, once, or from the detached sockets.
func (t *Table) remove(c *Conn) {
	s := t.shard(c.id)
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.removed {
		return
	}
	c.removed = true
	c.sockets.removeLocked(c)
	s.removeEmptyLocked(c.id, c.sockets)
	if c.sockets.n == 0 {
		delete(s.detached, c.sockets)
	}
	c.abort() // later frames for it are dropped, and not counted
}

// Of returns the sockets of an object that can send frames, only those with the tag if it is not
// empty, in the order of their acceptance.
func (t *Table) Of(id runtime.ID, tag string) []*Conn {
	return slices.DeleteFunc(t.list(id, tag), (*Conn).Muted)
}

// list returns an object's sockets, in the order of their acceptance: all of them, or those with the tag if it is not
// empty.
func (t *Table) list(id runtime.ID, tag string) (all []*Conn) {
	s := t.shard(id)
	if s.n.Load() == 0 {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.objects[id]
	switch {
	case r == nil:
		return nil
	case tag == "":
		return slices.AppendSeq(make([]*Conn, 0, r.n), r.allLocked())
	}
	all = slices.Collect(maps.Keys(r.tagged[tag]))
	slices.SortFunc(all, func(a, b *Conn) int { return cmp.Compare(a.seq, b.seq) })
	return all
}

// Ended closes an object's sockets after the end of its incarnation, except after an eviction for being idle or to
// save memory. It is for runtime.Options.
func (t *Table) Ended(id runtime.ID, why *runtime.Fenced, mode eviction.EndMode) {
	s := t.shard(id)
	if why.Reason == runtime.ReasonIdle || why.Reason == runtime.ReasonPressure || s.n.Load() == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.objects[id]
	if r == nil {
		return
	}
	s.detachLocked(id, r)
	for c := range r.allLocked() {
		if mode == eviction.EndCrash {
			c.abort() // without a closing frame
		}
		c.detach(string(why.Reason))
	}
}

// SetAutoResponse makes the table answer text frames of an object's sockets that equal request, without the object.
// An empty request ends that.
func (t *Table) SetAutoResponse(id runtime.ID, request, response string) {
	s := t.shard(id)
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.objectLocked(id)
	if request == "" {
		r.autoResponse.Store(nil)
	} else {
		r.autoResponse.Store(&autoResponse{request, Pack(Frame{Text: true, Data: []byte(response)})})
	}
	s.removeEmptyLocked(id, r)
}

// detachAll refuses new sockets, detaches all sockets from their objects, and returns them.
func (t *Table) detachAll() (cs []*Conn) {
	t.closeOnce.Do(func() { close(t.quit) })
	for i := range t.shards {
		s := &t.shards[i]
		s.mu.Lock()
		s.closed = true
		for id, r := range s.objects {
			cs = slices.AppendSeq(cs, r.allLocked())
			s.detachLocked(id, r)
		}
		s.mu.Unlock()
	}
	return cs
}

// Close closes all sockets and refuses new ones. It waits for the clients to answer the closing frame, then cuts the
// others, and waits for their goroutines to end; for closeTimeout each time. The error has the number of sockets that
// have not ended by then.
func (t *Table) Close() error {
	for _, c := range t.detachAll() {
		c.detach(string(runtime.ReasonClosing))
	}
	if t.wait() {
		return nil
	}
	t.abortDetached()
	if t.wait() {
		return nil
	}
	return fmt.Errorf("dohost: %d sockets are still open", t.conns.Load())
}

// abortDetached cuts the sockets that are detached from their objects.
func (t *Table) abortDetached() {
	for i := range t.shards {
		s := &t.shards[i]
		s.mu.Lock()
		for r := range s.detached {
			for c := range r.allLocked() {
				c.abort()
			}
		}
		s.mu.Unlock()
	}
}

// wait waits for all sockets to end, for closeTimeout at most, and reports whether they have.
func (t *Table) wait() bool {
	late := time.NewTimer(closeTimeout)
	defer late.Stop()
	for t.conns.Load() > 0 {
		select {
		case <-t.empty:
		case <-late.C:
			return false
		}
	}
	return true
}

// Abandon cuts all connections, as the end of the process does, and refuses new ones. It is for runtime.Options.
func (t *Table) Abandon() {
	cs := t.detachAll()
	t.abortDetached()
	for _, c := range cs {
		c.detach(string(runtime.ReasonKilled))
	}
}
