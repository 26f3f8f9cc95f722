package socket

import (
	"fmt"
	goruntime "runtime"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/dohost/dohost/runtime"
)

// fan hands out what leaves an object for many of its sockets at once. Letting go of an
// output is constant work, and whoever lets go serves all objects of the host; so a parcel
// for many goes into a queue, and a goroutine that is there while the queue is not empty
// gives it to each. Whatever leaves meanwhile for one socket goes into the queue too: so
// each socket gets what it gets in the order in which it has left.
//
// What has come into the queue for the same sockets is given to each of them at once, and so
// leaves in one write: the more there is, the less a frame costs.
type fan struct {
	mu    sync.Mutex // order: before a Conn's
	queue []parcel
	busy  bool // a goroutine hands out

	unsent atomic.Int64 // bytes of broadcasts that are not handed out
}

// parcel is something that has left the object.
type parcel struct {
	frame Packed   // nil: it is a closing frame
	how   *Closing // else
	one   *Conn    // for whom it is, or
	many  []*Conn
	size  int64 // counted in unsent
	// shared counts the frame among those that wait for the host's clients; nil if it is for one.
	shared *shared
}

const (
	// few is up to how many sockets are given a parcel at once by whoever lets it go.
	few = 16
	// stride is after how many sockets the goroutine that hands out lets others run, which
	// write what it has handed out. So the host is not flooded with those who want to write.
	stride = 64
	// maxBroadcasts is how many bytes of broadcasts may wait: frames and lists of sockets.
	maxBroadcasts = 64 << 20
)

// send lets go of a parcel.
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

// handOut gives until there is nothing left.
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

// alike is how many of the first parcels are for the same sockets.
func alike(ps []parcel) int {
	for n := range ps {
		if ps[n].one != ps[0].one || !slices.Equal(ps[n].many, ps[0].many) {
			return n
		}
	}
	return len(ps)
}

// give gives parcels to those for whom they are, who are the same for all.
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

// NewBroadcast makes one, of which Send or Drop is to be called.
//
// Errors: ErrOverloaded, while too much waits to be handed out.
func NewBroadcast(to []*Conn, frame Packed) (*Broadcast, error) {
	b := &Broadcast{parcel{frame: frame, many: to, size: int64(len(frame) + 8*len(to))}}
	if len(to) == 0 {
		return b, nil
	}
	unsent := &to[0].room.fan.unsent
	if n := unsent.Add(b.p.size); n > maxBroadcasts && n > b.p.size {
		unsent.Add(-b.p.size)
		return nil, fmt.Errorf("%w: %d bytes of broadcasts wait to be handed out", runtime.ErrOverloaded, n-b.p.size)
	}
	return b, nil
}

// Send lets it go.
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

// Drop is for one that does not leave.
func (b *Broadcast) Drop() {
	if to := b.p.many; len(to) > 0 {
		to[0].room.fan.unsent.Add(-b.p.size)
	}
}
