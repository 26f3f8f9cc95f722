package objectstore

import (
	"sync"
	"time"
)

// maxSpare is how many layers a store keeps for reuse.
const maxSpare = 64

// queue is the committer's work queue, and a pool of layers.
type queue struct {
	wake chan struct{} // cap 1; has a token when there may be work

	mu      sync.Mutex
	shut    bool     // no range is added any more
	abort   bool     // queued commits are dropped
	stopped bool     // the committer takes no more work
	dirty   []*Range // with a filling layer
	busy    []*Range // with outputs that the committer must release
	spares  []*layer
}

// add queues a range before its filling layer gets a write. It returns false if the store refuses commits.
func (q *queue) add(r *Range) bool {
	q.mu.Lock()
	if q.shut {
		q.mu.Unlock()
		return false
	}
	q.dirty = append(q.dirty, r)
	first := len(q.dirty) == 1
	q.mu.Unlock()
	if first {
		q.signal()
	}
	return true
}

// continueRelease makes the committer continue the release of the range's outputs for the caller. It returns false if the
// committer takes no more work.
func (q *queue) continueRelease(r *Range) bool {
	q.mu.Lock()
	if q.stopped {
		q.mu.Unlock()
		return false
	}
	q.busy = append(q.busy, r)
	q.mu.Unlock()
	q.signal()
	return true
}

// tryStop ends the committer's service. It returns false if there is work left.
func (q *queue) tryStop() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.stopped = len(q.dirty) == 0 && len(q.busy) == 0
	return q.stopped
}

// end refuses further ranges. With abort the queued commits are dropped.
func (q *queue) end(abort bool) {
	q.mu.Lock()
	q.shut = true
	q.abort = q.abort || abort
	q.mu.Unlock()
	q.signal()
}

// pause waits for d. It returns false, without waiting longer, if queued commits are to be dropped.
func (q *queue) pause(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	for {
		q.mu.Lock()
		abort := q.abort
		q.mu.Unlock()
		if abort {
			return false
		}
		select {
		case <-q.wake: // for an end, or for work, which the committer finds later
		case <-timer.C:
			return true
		}
	}
}

func (q *queue) signal() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// work is the committer's part of the queue.
type work struct {
	dirty []*Range // with a filling layer
	busy  []*Range // with outputs that the committer releases
	shut  bool
	abort bool
}

// objects yields the objects that have a filling layer.
func (w *work) objects(yield func(ID) bool) {
	for _, r := range w.dirty {
		if !yield(r.id) {
			return
		}
	}
}

// take moves the queue's content to the end of w's lists.
func (q *queue) take(w *work) {
	q.mu.Lock()
	defer q.mu.Unlock()
	w.dirty = append(w.dirty, q.dirty...)
	w.busy = append(w.busy, q.busy...)
	clear(q.dirty)
	clear(q.busy)
	q.dirty, q.busy = q.dirty[:0], q.busy[:0]
	w.shut, w.abort = q.shut, q.abort
}

// emptyLayer returns an empty layer.
func (q *queue) emptyLayer() *layer {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := len(q.spares)
	if n == 0 {
		return new(layer)
	}
	g := q.spares[n-1]
	q.spares[n-1] = nil
	q.spares = q.spares[:n-1]
	return g
}

// recycle keeps layers that are no longer referenced for reuse.
func (q *queue) recycle(gs []*layer) {
	for _, g := range gs {
		g.reset()
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	free := maxSpare - len(q.spares)
	q.spares = append(q.spares, gs[:min(free, len(gs))]...)
}
