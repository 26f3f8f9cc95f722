package runtime

import (
	goruntime "runtime"
	"sync"

	"github.com/dohost/dohost/internal/guard"
)

// maxIdle is how many runners that have nothing to do a host keeps. A new goroutine
// would have to grow its stack first, which costs more than an event that does little.
const maxIdle = 64

// runners are a host's goroutines for events.
type runners struct {
	mu   sync.Mutex
	idle []chan job // the last that came to rest is the first to go on
	shut bool       // none stays
}

// job is what a runner is there for: the object's granted turn and those after it or,
// without one, what is between two lives first.
type job struct {
	o *object
	t *turn
}

// spawn gets a runner going: with a granted turn, or between lives.
func (h *Host) spawn(o *object, t *turn) {
	h.running.Add(1)
	if ch := h.runners.take(); ch != nil {
		ch <- job{o, t}
		return
	}
	go h.run(job{o, t})
}

// run is a runner's goroutine. A handler that ends it by Goexit takes it along.
func (h *Host) run(j job) {
	var ch chan job
	for ok := true; ok; j, ok = <-ch {
		h.serve(j)
		if ch == nil {
			ch = make(chan job, 1)
		}
		if !h.runners.rest(ch) {
			return
		}
		// Those who are about to call go first: if one of them is there already when this
		// goroutine comes back, it need not be put to sleep and woken.
		goruntime.Gosched()
	}
}

// serve does a job.
func (h *Host) serve(j job) {
	defer h.calmer(&h.running)
	t := j.t
	if t == nil {
		if h.opts.Policy.At != nil {
			guard.Run(func() { j.o.visit(nil, Point{Place: PlaceWake}) })
		}
		t = j.o.wake()
	}
	for t != nil {
		t = j.o.run(t)
	}
}

// take returns the channel of an idle runner, or nil.
func (r *runners) take() chan job {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := len(r.idle)
	if n == 0 {
		return nil
	}
	ch := r.idle[n-1]
	r.idle[n-1] = nil
	r.idle = r.idle[:n-1]
	return ch
}

// rest keeps an idle runner, if there is room for it.
func (r *runners) rest(ch chan job) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.shut || len(r.idle) >= maxIdle {
		return false
	}
	r.idle = append(r.idle, ch)
	return true
}

// close sends the idle ones home, and those that will be.
func (r *runners) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.shut = true
	for _, ch := range r.idle {
		close(ch)
	}
	r.idle = nil
}
