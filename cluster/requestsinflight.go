package cluster

import (
	"context"
	"errors"
	"sync"
	"time"
)

// leaveTime is the time that a node has for its last answers after its record was deleted or has expired. A node that ends writes them after
// it has closed its cells.
const leaveTime = 30 * time.Second

// errNoMember is the cause of the end of a request whose node may not answer any more.
var errNoMember = errors.New("cluster: the node is not a member any more")

// requestsInFlight has the requests that other nodes are answering. Its methods may be called from any goroutine.
type requestsInFlight struct {
	// mu guards requests and the ids of their targets. No lock is taken while it is held.
	mu       sync.Mutex
	requests map[*target]context.CancelCauseFunc
}

// begin adds a request. end removes it.
func (p *requestsInFlight) begin(ctx context.Context, to *target) (_ context.Context, end func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.requests == nil {
		p.requests = map[*target]context.CancelCauseFunc{}
	}
	p.requests[to] = cancel
	return ctx, func() {
		p.mu.Lock()
		delete(p.requests, to)
		p.mu.Unlock()
		cancel(nil)
	}
}

// move changes the node of a request.
func (p *requestsInFlight) move(to *target, id, address string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	to.id, to.address = id, address
}

// cancel ends the requests to a node.
func (p *requestsInFlight) cancel(id string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for to, cancel := range p.requests {
		if to.id == id {
			cancel(errNoMember)
		}
	}
}

// learn replaces the view. A node that is not in the new one, nor again after leaveTime, may be lost: nothing else would end the requests
// that it has, since its machine may send nothing any more.
func (n *Node) learn(v *view) {
	old := n.known.Swap(v)
	if old == nil {
		return
	}
	for id := range old.addresses {
		if v.addresses[id] != "" {
			continue
		}
		time.AfterFunc(leaveTime, func() {
			if n.known.Load().addresses[id] == "" {
				n.inFlight.cancel(id)
			}
		})
	}
}
