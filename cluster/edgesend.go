package cluster

import (
	"cmp"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dohost/dohost"
)

// The bounds of the frames that wait for all clients of an edge together.
const (
	maxSends  = 256 << 20
	sendSpare = 16      // beyond maxSends, the edge frees this fraction of it
	keptFrame = 4 << 10 // bytes of the largest frame that an evicted client may still get
)

// sendBudget counts the bytes of frames that wait for clients. Beyond the limit, it closes the clients that read slowest: those with
// the largest product of their share of these bytes and the time that the oldest of their frames has waited. With the bytes alone, a
// client that gets a burst would pay for many that keep a little forever; with the time alone, a client with one late frame would pay for
// one with 32 MiB. All clients are compared only once for each sixteenth of the limit.
//
// The zero value is not used. Its methods may be called from any goroutine.
type sendBudget struct {
	limit int64
	bytes atomic.Int64

	freeing sync.Mutex // held while clients are compared and closed; before all other locks

	mu      sync.Mutex // guards sockets; no lock is taken while it is held
	sockets map[*edgeSocket]struct{}
}

// add adds a socket, which may get frames.
func (b *sendBudget) add(s *edgeSocket) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.sockets[s] = struct{}{}
}

// remove removes a socket that gets no more frames, and has none.
func (b *sendBudget) remove(s *edgeSocket) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.sockets, s)
}

// clientLoad is a client with frames that wait.
type clientLoad struct {
	socket *edgeSocket
	load   int64
}

// free closes clients if more bytes than the limit wait. The caller has no lock.
func (b *sendBudget) free() {
	if b.bytes.Load() <= b.limit {
		return
	}
	b.freeing.Lock()
	defer b.freeing.Unlock()
	if b.bytes.Load() <= b.limit {
		return // another goroutine has done it
	}
	now := time.Now()
	var loads []clientLoad
	for _, s := range b.all() {
		if n := s.load(now); n > 0 {
			loads = append(loads, clientLoad{s, n})
		}
	}
	slices.SortFunc(loads, func(a, b clientLoad) int { return cmp.Compare(b.load, a.load) })
	kept := int64(0) // by clients that were closed
	for _, l := range loads {
		if b.bytes.Load()-kept <= b.limit-b.limit/sendSpare {
			return
		}
		kept += l.socket.evict()
	}
}

func (b *sendBudget) all() []*edgeSocket {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := make([]*edgeSocket, 0, len(b.sockets))
	for s := range b.sockets {
		all = append(all, s)
	}
	return all
}

// load returns the client's share of the bytes that wait, multiplied by the time of its oldest frame in milliseconds, and one more.
func (s *edgeSocket) load(now time.Time) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.frames) == 0 {
		return 0
	}
	share := int64(0)
	for _, f := range s.frames {
		share += f.share()
	}
	return share * (1 + max(now.Sub(s.frames[0].since), 0).Milliseconds())
}

// evict drops the frames that wait for the client, and closes its connection. A small frame that is being written stays until the client is evicted
// again. evict returns the bytes of that frame.
func (s *edgeSocket) evict() (kept int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case len(s.frames) == 0: // they were written since the comparison
		return 0
	case s.evicted:
		s.abortLocked()
		return 0
	}
	s.evicted = true
	s.overflowLocked(keptFrame)
	s.startWriterLocked()
	return int64(s.unsent)
}

// sharedFrame is a frame for some of the clients of a node. Its data counts once, while it waits for any of them.
type sharedFrame struct {
	dohost.Frame
	budget  *sendBudget
	since   time.Time
	holders atomic.Int64 // clients that it waits for, and receive
}

// newFrame returns a frame that the caller releases when all clients have it.
func (b *sendBudget) newFrame(f dohost.Frame) *sharedFrame {
	shared := &sharedFrame{Frame: f, budget: b, since: time.Now()}
	b.bytes.Add(int64(len(f.Data)))
	shared.retain()
	return shared
}

// share returns a client's part of the bytes that the frame counts for all clients together.
func (f *sharedFrame) share() int64 { return frameCost + int64(len(f.Data))/max(f.holders.Load(), 1) }

// size returns the bytes that the frame counts for each client.
func (f *sharedFrame) size() int { return len(f.Data) + frameCost }

func (f *sharedFrame) retain() {
	f.budget.bytes.Add(frameCost)
	f.holders.Add(1)
}

func (f *sharedFrame) release() {
	n := int64(frameCost)
	if f.holders.Add(-1) == 0 {
		n += int64(len(f.Data))
	}
	f.budget.bytes.Add(-n)
}
