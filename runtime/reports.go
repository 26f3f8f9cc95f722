package runtime

import (
	"sync"

	"github.com/dohost/dohost/objectstore"
)

// reports queues calls of the Listener that their callers do not wait for: the caller is the
// committer, or holds locks of the engine. One goroutine makes the calls, in order. The queue
// stays short: the store reports each damaged block once, 1,024 at most, checks its disk at most
// ten times a second, and a Listener that hangs costs ten seconds once.
type reports struct {
	mu      sync.Mutex
	queue   []func()
	running bool // a goroutine empties the queue
}

// later calls f after the earlier reports, on the goroutine of the reports.
func (h *Host) later(f func()) {
	h.reports.mu.Lock()
	defer h.reports.mu.Unlock()
	h.reports.queue = append(h.reports.queue, f)
	if !h.reports.running {
		h.reports.running = true
		h.emitting.Add(1)
		go h.report()
	}
}

// report empties the queue.
func (h *Host) report() {
	defer h.decrement(&h.emitting)
	r := &h.reports
	for {
		r.mu.Lock()
		if len(r.queue) == 0 {
			r.running = false
			r.mu.Unlock()
			return
		}
		f := r.queue[0]
		r.queue = r.queue[1:]
		r.mu.Unlock()
		f()
	}
}

// spaceChanged is the store's OnSpace.
func (h *Host) spaceChanged(d objectstore.DiskSpace) {
	if h.lis.Space != nil {
		h.later(func() { h.lis.Space(d) })
	}
}

// damageFound is the store's OnDamage.
func (h *Host) damageFound(d objectstore.Damage) {
	if h.lis.Damaged != nil {
		h.later(func() { h.lis.Damaged(d) })
	}
}
