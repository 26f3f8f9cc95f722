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
	freeBytes  = 4 << 10   // of a frame, that are not counted
	freeUnsent = 64 << 10  // of a client, that may wait beyond maxSends
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

// chargeOf returns the bytes of a frame that are counted.
func chargeOf(size int) int64 { return max(int64(size)-freeBytes, 0) }

// releaseLocked releases the bytes of inputs that are dropped or acknowledged.
func (e *edgeEntry) releaseLocked(inputs []*dohost.LinkInput) {
	n := int64(0)
	for _, in := range inputs {
		n += chargeOf(len(in.Frame.Data))
	}
	e.edge.reads.release(n)
}

// readAll reads a frame to its end, and counts its bytes. busy reports that the budget is exhausted: the rest of the frame was discarded.
func (s *edgeSocket) readAll(r io.Reader) (data []byte, busy bool, err error) {
	reads, charged := &s.entry.edge.reads, int64(0)
	buf := make([]byte, 0, firstRead)
	for {
		n, err := r.Read(buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		if err == io.EOF {
			reads.release(charged - chargeOf(len(buf)))
			return buf, false, nil
		}
		if err != nil {
			reads.release(charged)
			return nil, false, err
		}
		if len(buf) < cap(buf) {
			continue
		}
		size := 2 * cap(buf)
		if more := chargeOf(size) - charged; more > 0 {
			if !reads.acquire(more, s.cut) {
				reads.release(charged)
				_, err := io.Copy(io.Discard, r)
				return nil, true, err
			}
			charged += more
		}
		buf = append(make([]byte, 0, size), buf...)
	}
}
