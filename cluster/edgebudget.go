package cluster

import (
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dohost/dohost"
)

// The bounds of the bytes that an edge keeps for all of its clients together.
const (
	maxReads   = 256 << 20 // of frames that are being read, or are not acknowledged
	maxSends   = 256 << 20 // of frames that wait for clients
	freeBytes  = 4 << 10   // bytes of the frames of a client that maxReads does not count
	freeUnsent = 64 << 10  // bytes that may wait for a client even beyond maxSends
	budgetWait = 10 * time.Second
	firstRead  = 512 // bytes of the first buffer for a frame
)

// readBudget counts the bytes of the frames of clients. The zero value is not used. Its methods may be called from any goroutine.
type readBudget struct {
	limit int64

	mu    sync.Mutex // guards the rest; the last in the order of locks
	used  int64
	freed chan struct{} // closed when bytes are released; nil if no reader waits
}

// acquire takes n bytes. It waits until they are free, for budgetWait at most, or until cut is closed.
func (b *readBudget) acquire(n int64, cut <-chan struct{}) bool {
	late := time.NewTimer(budgetWait)
	defer late.Stop()
	for {
		b.mu.Lock()
		if b.used+n <= b.limit {
			b.used += n
			b.mu.Unlock()
			return true
		}
		if b.freed == nil {
			b.freed = make(chan struct{})
		}
		freed := b.freed
		b.mu.Unlock()
		select {
		case <-freed:
		case <-late.C:
			return false
		case <-cut:
			return false
		}
	}
}

func (b *readBudget) release(n int64) {
	if n == 0 {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.used -= n
	if b.freed != nil {
		close(b.freed)
		b.freed = nil
	}
}

// sharedFrame is a frame for some of the clients of a node. Its data counts once, while it waits for any of them.
type sharedFrame struct {
	dohost.Frame
	edge    *edge
	holders atomic.Int64 // clients that it waits for, and receive
}

// newSharedFrame returns a frame that the caller releases when all clients have it.
func (d *edge) newSharedFrame(f dohost.Frame) *sharedFrame {
	shared := &sharedFrame{Frame: f, edge: d}
	d.unsent.Add(int64(len(f.Data)))
	shared.retain()
	return shared
}

// size returns the bytes that the frame counts for each client.
func (f *sharedFrame) size() int { return len(f.Data) + frameCost }

func (f *sharedFrame) retain() {
	f.edge.unsent.Add(frameCost)
	f.holders.Add(1)
}

func (f *sharedFrame) release() {
	n := int64(frameCost)
	if f.holders.Add(-1) == 0 {
		n += int64(len(f.Data))
	}
	f.edge.unsent.Add(-n)
}

// chargeLocked returns the bytes of the budget that a socket needs, for its inputs and the frame that is being read.
func (s *edgeSocket) chargeLocked() int64 { return max(int64(s.unacked+s.buffer)-freeBytes, 0) }

// releaseUnusedLocked releases the bytes that a socket has taken and does not need any more.
func (e *edgeEntry) releaseUnusedLocked(s *edgeSocket) {
	if n := s.charged - s.chargeLocked(); n > 0 {
		s.charged -= n
		e.edge.reads.release(n)
	}
}

// setBuffer notes the size of the buffer for the frame that is being read, or 0 if the frame was dropped. If the budget stays exhausted, it
// returns false.
func (s *edgeSocket) setBuffer(size int) bool {
	e := s.entry
	e.mu.Lock()
	defer e.mu.Unlock()
	s.buffer = size
	if more := s.chargeLocked() - s.charged; more > 0 {
		e.mu.Unlock()
		ok := e.edge.reads.acquire(more, s.cut)
		e.mu.Lock()
		if !ok {
			return false
		}
		s.charged += more
	}
	e.releaseUnusedLocked(s)
	return true
}

// readAll reads a frame to its end, and takes its bytes of the budget. busy reports that the budget is exhausted: the rest of the frame was
// discarded.
func (s *edgeSocket) readAll(r io.Reader) (data []byte, busy bool, err error) {
	for size := firstRead; ; size *= 2 {
		if !s.setBuffer(size + inputOverhead) {
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
