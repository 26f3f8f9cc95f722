package runtime

import (
	goruntime "runtime"
	"sync"
)

// maxIdle is how many idle runners a host keeps. A new goroutine would have to grow its
// stack first, which costs more than a small event.
const maxIdle = 64

// runners are a host's goroutines for events.
type runners struct {
	mu   sync.Mutex
	idle []chan job // a stack: the last one gets the next job
	shut bool       // idle runners end
}

// job is the work of a runner: the object's granted turn and those after it. Without a
// granted turn, the runner begins between incarnations.
type job struct {
	o *object
	t *turn
}

// spawn starts a runner: with a granted turn, or between incarnations.
func (h *Host) spawn(o *object, t *turn) {
	h.running.Add(1)
	if ch := h.runners.take(); ch != nil {
		ch <- job{o, t}
		return
	}
	go h.run(job{o, t})
}

// run is a runner's goroutine. A handler that calls Goexit ends it.
func (h *Host) run(j job) {
	var ch chan job
	for ok := true; ok; j, ok = <-ch {
		h.serve(j)
		if ch == nil {
			ch = make(chan job, 1)
		}
		if !h.runners.putIdle(ch) {
			return
		}
		// Yield to callers first: if one of them has sent a job when this goroutine runs
		// again, the goroutine need not sleep and wake.
		goruntime.Gosched()
	}
}

// serve does a job.
func (h *Host) serve(j job) {
	defer h.decrement(&h.running)
	t := j.t
	if t == nil {
		j.o.visitWake()
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

// putIdle keeps an idle runner, unless there are maxIdle.
func (r *runners) putIdle(ch chan job) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.shut || len(r.idle) >= maxIdle {
		return false
	}
	r.idle = append(r.idle, ch)
	return true
}

// close ends the idle runners, and all others once they are idle.
func (r *runners) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.shut = true
	for _, ch := range r.idle {
		close(ch)
	}
	r.idle = nil
}
