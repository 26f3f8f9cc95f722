package socket

import (
	"fmt"
	goruntime "runtime"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/dohost/dohost/runtime"
)

// broadcaster distributes the outputs of an object to its sockets. The goroutine that releases outputs serves all
// objects of the host, so a release is constant work: output for many sockets goes into a queue, and a goroutine that
// exists while the queue is not empty delivers it to each socket. Outputs for one socket that are released in that time
// join the queue, so each socket gets its frames in the order of their release.
//
// Consecutive outputs for the same sockets are delivered to a socket in one step, and so are written in one call: the
// more there are, the less a frame costs.
type broadcaster struct {
	mu           sync.Mutex // order: before a Conn's
	queue        []outgoing
	distributing bool // a goroutine distributes the queue

	unsent atomic.Int64 // bytes of broadcasts that are not distributed
}

// outgoing is an output that was released.
type outgoing struct {
	frame      Packed   // nil: it is a closing frame
	closing    *Closing // else
	recipient  *Conn    // the recipient, or
	recipients []*Conn
	size       int64 // counted in unsent
	// shared counts the frame among those that wait for the host's clients; nil if it is for one.
	shared *shared
}

const (
	// maxDirect is the largest number of recipients that the releasing goroutine serves itself.
	maxDirect = 16
	// yieldEvery is the number of sockets after which the distributing goroutine yields, so that their writers run and
	// do not pile up.
	yieldEvery = 64
	// maxBroadcasts bounds the bytes of an object's broadcasts that wait: frames and lists of sockets.
	maxBroadcasts = 64 << 20
)

// send delivers or queues an output.
func (f *broadcaster) send(p outgoing) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.distributing:
		f.queue = append(f.queue, p)
	case len(p.recipients) <= maxDirect:
		deliverAll([]outgoing{p})
	default:
		f.queue, f.distributing = append(f.queue, p), true
		go f.distribute()
	}
}

// distribute distributes the queue until it is empty.
func (f *broadcaster) distribute() {
	for {
		f.mu.Lock()
		ps := f.queue
		f.queue, f.distributing = nil, len(ps) > 0
		f.mu.Unlock()
		if len(ps) == 0 {
			return
		}
		for len(ps) > 0 {
			n := sameRecipients(ps)
			deliverAll(ps[:n])
			ps = ps[n:]
		}
	}
}

// sameRecipients returns how many of the first outputs are for the same sockets.
func sameRecipients(ps []outgoing) int {
	for n := range ps {
		if ps[n].recipient != ps[0].recipient || !slices.Equal(ps[n].recipients, ps[0].recipients) {
			return n
		}
	}
	return len(ps)
}

// deliverAll delivers outputs that all have the same recipients.
func deliverAll(ps []outgoing) {
	if c := ps[0].recipient; c != nil {
		c.enqueue(ps)
		return
	}
	for i, c := range ps[0].recipients {
		c.enqueue(ps)
		if i%yieldEvery == yieldEvery-1 {
			goruntime.Gosched()
		}
	}
	for i := range ps {
		c := ps[0].recipients[0]
		c.sockets.broadcaster.unsent.Add(-ps[i].size)
		c.table.queue.releaseShared(ps[i].shared)
	}
}

// Broadcast is a frame for some sockets of one object.
type Broadcast struct{ p outgoing }

// NewBroadcast makes a Broadcast. The caller calls Send or Drop.
//
// Errors: ErrOverloaded, while too many bytes wait to be distributed.
func NewBroadcast(to []*Conn, frame Packed) (*Broadcast, error) {
	b := &Broadcast{outgoing{frame: frame, recipients: to, size: int64(len(frame) + 8*len(to))}}
	if len(to) == 0 {
		return b, nil
	}
	unsent := &to[0].sockets.broadcaster.unsent
	if n := unsent.Add(b.p.size); n > maxBroadcasts && n > b.p.size {
		unsent.Add(-b.p.size)
		return nil, fmt.Errorf("%w: %d bytes of broadcasts are waiting to be sent", runtime.ErrOverloaded, n-b.p.size)
	}
	return b, nil
}

// Send releases the broadcast.
func (b *Broadcast) Send() {
	to := b.p.recipients
	if len(to) == 0 {
		return
	}
	if len(to) > 1 {
		b.p.shared = to[0].table.queue.share(int64(len(b.p.frame)))
	}
	to[0].sockets.broadcaster.send(b.p)
}

// Drop discards a broadcast that must not leave.
func (b *Broadcast) Drop() {
	if to := b.p.recipients; len(to) > 0 {
		to[0].sockets.broadcaster.unsent.Add(-b.p.size)
	}
}
