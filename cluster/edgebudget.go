package cluster

import (
	"container/heap"
	"io"
	"sync"
	"time"
)

// The bounds of the bytes that an edge has read for all of its clients together.
const (
	maxReads   = 256 << 20 // of frames that are being read, or are not acknowledged; at least readFrames of the largest frames
	readFrames = 4         // a frame counts three times: see readBudget
	freeBytes  = 4 << 10   // bytes of the frames of a client that maxReads does not count
	budgetWait = 10 * time.Second
	firstRead  = 512 // bytes of the first buffer for a frame
)

// readBudget divides maxReads among the objects, and the bytes of an object among its clients. A client gets more bytes only if then
//
//	bytes of all clients + bytes of the clients of its object + bytes of the client <= limit
//
// So the clients of an object that acknowledges nothing get at most half of the limit, and the clients of n such objects n/(n+1) of it: there are
// always bytes for others. Of the clients that wait, those with the smallest need get bytes first.
//
// The zero value is not used. Its methods may be called from any goroutine.
type readBudget struct {
	limit int64

	mu      sync.Mutex // guards the rest, and all objectReads and clientReads; no lock is taken while it is held
	used    int64
	waiting waitHeap[*objectReads] // objects with clients that wait
	waits   uint64                 // that have begun
}

// objectReads are the bytes of the clients of an object.
type objectReads struct {
	used    int64
	waiting waitHeap[*clientReads]
	at      int // the index in readBudget.waiting
}

// clientReads are the bytes of a client. One goroutine at a time waits for more.
type clientReads struct {
	used  int64
	more  int64         // that it waits for
	since uint64        // the number of the wait
	at    int           // the index in objectReads.waiting
	ready chan struct{} // closed when it has got the bytes; nil if it does not wait
}

func (c *clientReads) need() (bytes int64, since uint64) { return c.used + 3*c.more, c.since }
func (c *clientReads) index() *int                       { return &c.at }

func (o *objectReads) need() (bytes int64, since uint64) {
	bytes, since = o.waiting[0].need()
	return o.used + bytes, since
}
func (o *objectReads) index() *int { return &o.at }

// waitHeap is a heap.Interface: the smallest need is the first, and of equal ones the oldest.
type waitHeap[T interface {
	need() (bytes int64, since uint64)
	index() *int
}] []T

// Len implements heap.Interface.
func (h *waitHeap[T]) Len() int { return len(*h) }

// Less implements heap.Interface.
func (h *waitHeap[T]) Less(i, j int) bool {
	a, first := (*h)[i].need()
	b, second := (*h)[j].need()
	return a < b || a == b && first < second
}

// Swap implements heap.Interface.
func (h *waitHeap[T]) Swap(i, j int) {
	a := *h
	a[i], a[j] = a[j], a[i]
	*a[i].index(), *a[j].index() = i, j
}

// Push implements heap.Interface.
func (h *waitHeap[T]) Push(x any) {
	*x.(T).index() = len(*h)
	*h = append(*h, x.(T))
}

// Pop implements heap.Interface.
func (h *waitHeap[T]) Pop() any {
	var none T
	n := len(*h) - 1
	last := (*h)[n]
	(*h)[n], *h = none, (*h)[:n]
	return last
}

// readLimit returns the limit of an edge.
func readLimit(maxFrame int64) int64 { return max(maxReads, readFrames*maxFrame) }

// wait waits for the bytes of a take, for budgetWait at most, or until cut is closed. It returns false if the client has not got them.
func (b *readBudget) wait(o *objectReads, c *clientReads, ready, cut <-chan struct{}) bool {
	late := time.NewTimer(budgetWait)
	defer late.Stop()
	select {
	case <-ready:
		return true
	case <-late.C:
	case <-cut:
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	waits := c.ready != nil
	if waits {
		b.endWaitLocked(o, c)
	}
	return !waits
}

// take raises the bytes of a client of an object to n and returns nil, or begins to wait: see wait.
func (b *readBudget) take(o *objectReads, c *clientReads, n int64) (ready <-chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	more := n - c.used
	if more <= 0 || b.used+o.used+c.used+3*more <= b.limit {
		b.addLocked(o, c, max(more, 0))
		return nil
	}
	b.waits++
	c.more, c.since, c.ready = more, b.waits, make(chan struct{})
	heap.Push(&o.waiting, c)
	if len(o.waiting) == 1 {
		heap.Push(&b.waiting, o)
	}
	b.orderLocked(o)
	return c.ready
}

// addLocked changes the bytes of a client.
func (b *readBudget) addLocked(o *objectReads, c *clientReads, n int64) {
	b.used += n
	o.used += n
	c.used += n
	b.orderLocked(o)
}

// orderLocked is called when the need of an object may have changed.
func (b *readBudget) orderLocked(o *objectReads) {
	if len(o.waiting) > 0 {
		heap.Fix(&b.waiting, o.at)
	}
}

// endWaitLocked ends the wait of a client.
func (b *readBudget) endWaitLocked(o *objectReads, c *clientReads) {
	if len(o.waiting) == 1 {
		heap.Remove(&b.waiting, o.at)
	}
	heap.Remove(&o.waiting, c.at)
	b.orderLocked(o)
	close(c.ready)
	c.ready = nil
}

// lower is called when a client needs n bytes. It returns more bytes than that, and gives them to clients that wait. If the client waits for more
// bytes than it needs by now, it waits for fewer.
func (b *readBudget) lower(o *objectReads, c *clientReads, n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if c.ready != nil {
		if c.more = min(c.more, n-c.used); c.more <= 0 {
			b.endWaitLocked(o, c)
		} else {
			heap.Fix(&o.waiting, c.at)
			b.orderLocked(o)
		}
	}
	if n < c.used {
		b.addLocked(o, c, n-c.used)
	}
	for len(b.waiting) > 0 {
		o := b.waiting[0]
		if need, _ := o.need(); b.used+need > b.limit {
			return
		}
		c := o.waiting[0]
		b.endWaitLocked(o, c)
		b.addLocked(o, c, c.more)
	}
}

// chargeLocked returns the bytes of the budget that a socket needs, for its inputs and the frame that is being read.
func (s *edgeSocket) chargeLocked() int64 { return max(int64(s.unacked+s.buffer)-freeBytes, 0) }

// releaseUnusedLocked releases the bytes that a socket has taken and does not need any more.
func (e *edgeEntry) releaseUnusedLocked(s *edgeSocket) {
	if n := s.chargeLocked(); n != s.charged {
		s.charged = n
		e.edge.reads.lower(&e.reads, &s.reads, n)
	}
}

// setBuffer notes the size of the buffer for the frame that is being read, or 0 if the frame was dropped. If the budget stays exhausted, it
// returns false.
func (s *edgeSocket) setBuffer(size int) bool {
	e := s.entry
	e.mu.Lock()
	defer e.mu.Unlock()
	s.buffer = size
	n := s.chargeLocked()
	if n <= s.charged {
		e.releaseUnusedLocked(s)
		return true
	}
	s.charged = n
	ready := e.edge.reads.take(&e.reads, &s.reads, n) // with the lock: an acknowledgment after it lowers the bytes that it waits for
	if ready == nil {
		return true
	}
	e.mu.Unlock()
	defer e.mu.Lock()
	return e.edge.reads.wait(&e.reads, &s.reads, ready, s.cut)
}

// nextSize returns the size of a larger buffer.
func nextSize(size, largest int) int {
	if size < largest {
		return min(2*size, largest)
	}
	return 2 * size
}

// readAll reads a frame to its end, and takes its bytes of the budget. busy reports that the budget is exhausted: the rest of the frame was
// discarded.
func (s *edgeSocket) readAll(r io.Reader) (data []byte, busy bool, err error) {
	largest := int(s.entry.rt.o.MaxFrame) + 1 // a byte more than a frame may have
	for size := firstRead; ; size = nextSize(size, largest) {
		if !s.setBuffer(size + inputOverhead) {
			s.setBuffer(0)
			_, err := io.Copy(io.Discard, r)
			return nil, true, err
		}
		data = append(make([]byte, 0, size), data...)
		for len(data) < size {
			n, err := r.Read(data[len(data):size])
			data = data[:len(data)+n]
			if err == io.EOF {
				return data, false, nil
			}
			if err != nil {
				return nil, false, err
			}
		}
	}
}
