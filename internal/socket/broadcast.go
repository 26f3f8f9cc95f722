package socket

import (
	"fmt"
	goruntime "runtime"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/dohost/dohost/runtime"
)

// fan distributes the outputs of an object to its sockets. The goroutine that releases outputs serves all objects of
// the host, so a release is constant work: a parcel for many sockets goes into a queue, and a goroutine that exists
// while the queue is not empty delivers it to each socket. Parcels for one socket that are released in that time join
// the queue, so each socket gets its frames in the order of their release.
//
// Consecutive parcels for the same sockets are delivered to a socket in one step, and so are written in one call: the
// more there are, the less a frame costs.
type fan struct {
	mu    sync.Mutex // order: before a Conn's
	queue []parcel
	busy  bool // a goroutine distributes the queue

	unsent atomic.Int64 // bytes of broadcasts that are not distributed
}

// parcel is an output that was released.
type parcel struct {
	frame Packed   // nil: it is a closing frame
	how   *Closing // else
	one   *Conn    // the recipient, or
	many  []*Conn
	size  int64 // counted in unsent
	// shared counts the frame among those that wait for the host's clients; nil if it is for one.
	shared *shared
}

const (
	// few is the largest number of recipients that the releasing goroutine serves itself.
	few = 16
	// stride is the number of sockets after which the distributing goroutine yields, so that their writers run and do
	// not pile up.
	stride = 64
	// maxBroadcasts bounds the bytes of an object's broadcasts that wait: frames and lists of sockets.
	maxBroadcasts = 64 << 20
)

// send delivers or queues a parcel.
func (f *fan) send(p parcel) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.busy:
		f.queue = append(f.queue, p)
	case len(p.many) <= few:
		give([]parcel{p})
	default:
		f.queue, f.busy = append(f.queue, p), true
		go f.handOut()
	}
}

// handOut distributes the queue until it is empty.
func (f *fan) handOut() {
	for {
		f.mu.Lock()
		ps := f.queue
		f.queue, f.busy = nil, len(ps) > 0
		f.mu.Unlock()
		if len(ps) == 0 {
			return
		}
		for len(ps) > 0 {
			n := alike(ps)
			give(ps[:n])
			ps = ps[n:]
		}
	}
}

// alike returns how many of the first parcels are for the same sockets.
func alike(ps []parcel) int {
	for n := range ps {
		if ps[n].one != ps[0].one || !slices.Equal(ps[n].many, ps[0].many) {
			return n
		}
	}
	return len(ps)
}

// give delivers parcels that all have the same recipients.
func give(ps []parcel) {
	if c := ps[0].one; c != nil {
		c.take(ps)
		return
	}
	for i, c := range ps[0].many {
		c.take(ps)
		if i%stride == stride-1 {
			goruntime.Gosched()
		}
	}
	for i := range ps {
		c := ps[0].many[0]
		c.room.fan.unsent.Add(-ps[i].size)
		c.table.queue.let(ps[i].shared)
	}
}

// Broadcast is a frame for some sockets of one object.
type Broadcast struct{ p parcel }

// NewBroadcast makes a Broadcast. The caller calls Send or Drop.
//
// Errors: ErrOverloaded, while too many bytes wait to be distributed.
func NewBroadcast(to []*Conn, frame Packed) (*Broadcast, error) {
	b := &Broadcast{parcel{frame: frame, many: to, size: int64(len(frame) + 8*len(to))}}
	if len(to) == 0 {
		return b, nil
	}
	unsent := &to[0].room.fan.unsent
	if n := unsent.Add(b.p.size); n > maxBroadcasts && n > b.p.size {
		unsent.Add(-b.p.size)
		return nil, fmt.Errorf("%w: %d bytes of broadcasts are waiting to be sent", runtime.ErrOverloaded, n-b.p.size)
	}
	return b, nil
}

// Send releases the broadcast.
func (b *Broadcast) Send() {
	to := b.p.many
	if len(to) == 0 {
		return
	}
	if len(to) > 1 {
		b.p.shared = to[0].table.queue.share(int64(len(b.p.frame)))
	}
	to[0].room.fan.send(b.p)
}

// Drop discards a broadcast that must not leave.
func (b *Broadcast) Drop() {
	if to := b.p.many; len(to) > 0 {
		to[0].room.fan.unsent.Add(-b.p.size)
	}
}
