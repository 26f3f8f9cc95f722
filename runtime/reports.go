package runtime

import (
	"fmt"
	"log/slog"
	"sync"

	"github.com/dohost/dohost/internal/invariants"
	"github.com/dohost/dohost/objectstore"
)

// reports queues calls of the Listener that their callers do not wait for: the caller is the
// committer, holds locks of the engine, or makes an object wait. One goroutine makes the
// calls, in order. A Listener that hangs costs ten seconds once.
type reports struct {
	mu      sync.Mutex
	queue   []func()
	running bool // a goroutine empties the queue
	full    bool // a report was dropped since the queue was empty
}

// maxReports bounds the reports of services that wait for the Listener. The other queue needs
// no bound: the store reports each damaged block once, 1,024 at most, and checks its disk at
// most ten times a second.
const maxReports = 4096

// later calls f after the earlier reports, on the goroutine of the reports.
func (r *reports) later(h *Host, f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.laterLocked(h, f)
}

// laterOrNever is later, but drops f while maxReports wait. The host reports the first drop.
func (r *reports) laterOrNever(h *Host, name string, f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case len(r.queue) < maxReports:
		r.laterLocked(h, f)
	case !r.full:
		r.full = true
		r.laterLocked(h, func() {
			h.reportFailure(name, fmt.Errorf("%d calls waited for the function; the host has dropped later ones", maxReports), nil)
		})
	}
}

func (r *reports) laterLocked(h *Host, f func()) {
	invariants.Held(&r.mu)
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
			r.running, r.full = false, false
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

// Report passes an event of a service on top of the runtime to the Listener. It is constant work, and
// does not wait for the Listener, which does not get the event if 4,096 events wait for it.
func (h *Host) Report(id ID, event string, attrs ...slog.Attr) {
	if h.lis.Service != nil {
		h.services.laterOrNever(h, "Listener.Service", func() { h.lis.Service(id, event, attrs...) })
	}
}
