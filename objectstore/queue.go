package objectstore

import "sync"

// maxSpare is how many generations a store keeps for reuse.
const maxSpare = 64

// visit is what the committer is asked to do for a range besides committing.
type visit struct {
	r *Range
	// release says that the asker was releasing and leaves it to the committer.
	// Without it the range has become clean, and onClean is to be called.
	release bool
}

// queue is the committer's work: ranges with a filling generation, and ranges
// whose outputs it was asked to go on releasing.
type queue struct {
	wake chan struct{} // cap 1; a token says that there may be work

	mu     sync.Mutex
	shut   bool // no range is added any more
	abort  bool // what is queued is dropped
	gone   bool // the committer has left
	dirty  []*Range
	visits []visit
	spares []*generation
}

// add queues a range whose generation is about to be filled. It returns false if
// the store takes no more.
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
		q.poke()
	}
	return true
}

// visit asks the committer to come by. It returns false if there is no committer
// any more.
func (q *queue) visit(v visit) bool {
	q.mu.Lock()
	if q.gone {
		q.mu.Unlock()
		return false
	}
	q.visits = append(q.visits, v)
	q.mu.Unlock()
	q.poke()
	return true
}

// leave is the committer's way out. It returns false if there is work left.
func (q *queue) leave() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.gone = len(q.dirty) == 0 && len(q.visits) == 0
	return q.gone
}

// end lets no more ranges in. With abort those that are in are dropped.
func (q *queue) end(abort bool) {
	q.mu.Lock()
	q.shut = true
	q.abort = q.abort || abort
	q.mu.Unlock()
	q.poke()
}

func (q *queue) poke() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// work is what the committer finds in the queue.
type work struct {
	dirty  []*Range
	visits []visit
	shut   bool
	abort  bool
}

// take empties the queue into w, whose lists it reuses.
func (q *queue) take(w *work) {
	q.mu.Lock()
	defer q.mu.Unlock()
	w.dirty = append(w.dirty, q.dirty...)
	w.visits = append(w.visits, q.visits...)
	clear(q.dirty)
	clear(q.visits)
	q.dirty, q.visits = q.dirty[:0], q.visits[:0]
	w.shut, w.abort = q.shut, q.abort
}

// spare returns an empty generation.
func (q *queue) spare() *generation {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := len(q.spares)
	if n == 0 {
		return new(generation)
	}
	g := q.spares[n-1]
	q.spares[n-1] = nil
	q.spares = q.spares[:n-1]
	return g
}

// recycle takes back generations that nobody refers to any more.
func (q *queue) recycle(gs []*generation) {
	for _, g := range gs {
		g.reset()
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	room := maxSpare - len(q.spares)
	q.spares = append(q.spares, gs[:min(room, len(gs))]...)
}
