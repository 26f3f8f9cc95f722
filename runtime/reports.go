package runtime

import (
	"sync"

	"github.com/dohost/dohost/objectstore"
)

// reports queues the store's calls of the Listener, which their callers do not wait for: the caller is the committer, or
// holds locks of the engine. One goroutine makes the calls, in order. A Listener that hangs costs ten seconds once.
type reports struct {
	mu      sync.Mutex
	queue   []func()
	running bool // a goroutine empties the queue
}

// later calls f after the earlier reports, on the goroutine of the reports. The queue needs no bound: the store reports
// each damaged block once, 1,024 at most, and checks its disk at most ten times a second.
func (r *reports) later(h *Host, f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.queue = append(r.queue, f)
	if !r.running {
		r.running = true
		h.emitting.Add(1)
		go r.run(h)
	}
}

// run empties the queue.
func (r *reports) run(h *Host) {
	defer h.decrement(&h.emitting)
	for {
		r.mu.Lock()
		if len(r.queue) == 0 {
			r.running = false
			r.mu.Unlock()
			return
		}
		f := r.queue[0]
		r.queue[0] = nil
		r.queue = r.queue[1:]
		r.mu.Unlock()
		f()
	}
}

// spaceChanged is the store's OnSpace.
func (h *Host) spaceChanged(d objectstore.DiskSpace) {
	if h.lis.Space != nil {
		h.reports.later(h, func() { h.lis.Space(d) })
	}
}

// damageFound is the store's OnDamage.
func (h *Host) damageFound(d objectstore.Damage) {
	if h.lis.Damaged != nil {
		h.reports.later(h, func() { h.lis.Damaged(d) })
	}
}
