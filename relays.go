package dohost

import (
	"context"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/dohost/dohost/internal/seal"
	"github.com/dohost/dohost/runtime"
)

// relays are the relays of a host. Its methods may be called from any goroutine.
type relays struct {
	n       atomic.Int64 // of objects: a host without relays takes no lock
	mu      sync.Mutex   // guards the rest; order: before the mu of a relay
	objects map[ID]*relay
	closed  bool
	ends    map[endKey]int // calls of Closed that have not returned
}

// endKey names a socket.
type endKey struct {
	id   ID
	name RelayedSocket
}

// maxEndKeys bounds the sockets that are counted.
const maxEndKeys = 10_000

// countEnd counts a call of Closed, and returns the number of calls that have not returned.
func (rs *relays) countEnd(key endKey) int {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if rs.ends == nil || len(rs.ends) > maxEndKeys {
		rs.ends = map[endKey]int{}
	}
	rs.ends[key]++
	return rs.ends[key]
}

// forgetEnd is called when Closed has returned.
func (rs *relays) forgetEnd(key endKey) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	delete(rs.ends, key)
}

// of returns the relay of an object, or nil.
func (rs *relays) of(id ID) *relay {
	if rs.n.Load() == 0 {
		return nil
	}
	rs.mu.Lock()
	defer rs.mu.Unlock()
	return rs.objects[id]
}

// add adds the relay of an incarnation, unless the incarnation has ended, so that ended drops each relay, or the host is closed.
func (rs *relays) add(ctx context.Context, r *relay) error {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if rs.closed {
		return runtime.ErrClosed
	}
	if err := alive(ctx, runtime.StateOf(ctx, seal.New())); err != nil {
		return err
	}
	if rs.objects == nil {
		rs.objects = map[ID]*relay{}
	}
	rs.objects[r.id] = r
	rs.n.Add(1)
	return nil
}

// pass gives a relay that has stayed to an incarnation, unless the incarnation has ended: the relay may be the next one's by then.
func (rs *relays) pass(ctx context.Context, r *relay, epoch Epoch) error {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if err := alive(ctx, runtime.StateOf(ctx, seal.New())); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.epoch, r.last = epoch, 0
	return nil
}

// ended is called when an incarnation has ended, before the next one begins. After an eviction for being idle or to save memory the
// relay stays, since its rows are as it knows them.
func (rs *relays) ended(id ID, why *Fenced) {
	r := rs.of(id)
	if r == nil || (why.Reason == ReasonIdle || why.Reason == ReasonPressure) && r.inUse() {
		return
	}
	rs.drop(r)
}

// isOf reports whether an incarnation has the relay.
func (r *relay) isOf(e Epoch) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.epoch == e
}

// drop removes and ends a relay.
func (rs *relays) drop(r *relay) {
	rs.mu.Lock()
	if rs.objects[r.id] == r {
		delete(rs.objects, r.id)
		rs.n.Add(-1)
	}
	rs.mu.Unlock()
	r.end()
}

// close ends all relays, and refuses new ones.
func (rs *relays) close() {
	rs.mu.Lock()
	rs.closed = true
	all := slices.Collect(maps.Values(rs.objects))
	rs.mu.Unlock()
	for _, r := range all {
		rs.drop(r)
	}
}

// loadsRelays makes the constructor of a class with durable sockets load them first.
func (c *Class) loadsRelays() {
	if !c.sockets.Durable {
		return
	}
	construct, handlers := c.rt.New, c.sockets
	c.rt.New = func(ctx context.Context, rt *runtime.State) (any, error) {
		s := stateOf(rt)
		if err := s.loadRelay(ctx, handlers); err != nil {
			return nil, err
		}
		o, err := construct(ctx, rt)
		if err != nil {
			if r := s.relay(); r != nil && !r.inUse() {
				s.host().relays.drop(r)
			}
		}
		return o, err
	}
}
