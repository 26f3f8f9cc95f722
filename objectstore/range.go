package objectstore

import (
	"sync"
	"sync/atomic"

	"github.com/dohost/dohost/internal/invariants"
)

// Range is one object's key range and its writes that are not durable yet. The
// caller keeps at most one Range per ID. All methods may be called from any
// goroutine.
type Range struct {
	// Fixed from the start.
	store  *Store
	id     ID
	prefix []byte // of all keys of the object
	bad    error  // the ID is not allowed: commits are refused

	// undurable is the size of filling and inflight against the limits. A commit changes it with mu held. It is reduced without mu when a
	// layer has become durable or was dropped.
	undurable atomic.Int64

	// mu guards the rest. It is taken before queue.mu, and never held during I/O or while an output is released. Its
	// critical sections are short, so that a Commit does not wait for a record.
	mu          sync.Mutex
	owner       Epoch       // zero: none
	filling     *layer      // nil if nothing was committed since the last record
	inflight    *layer      // nil unless it is part of the record in flight
	lastDurable *layer      // the layer that became durable last, if it is small: Pebble has its rows, too
	reading     *layer      // gets a copy of all rows of Pebble; nil once they have changed
	commits     uint64      // commits with writes
	records     uint64      // layers that have become durable
	empty       *emptySpans // nil for most objects
	out         []emission  // may leave; in order, before those of inflight and filling
	dropping    int32       // dropped layers with outputs that are being released
	releasing   bool        // a goroutine releases out, or will; true unless out is empty
	queued      bool        // filling is in the committer's queue
	whole       bool        // lastDurable is all that Pebble has
	waking      bool        // see SetWaking
	misses      byte        // reads of this waking that found nothing in memory, up to wholeAt
}

// Range returns the range of an object. It does no I/O, and the store keeps no
// reference to a Range that is clean.
func (s *Store) Range(id ID) *Range {
	return &Range{store: s, id: id, prefix: appendObject(nil, id), bad: id.Validate()}
}

// Begin makes e the owner: from now on commits of every other epoch are refused.
func (r *Range) Begin(e Epoch) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.beginLocked(e)
}

func (r *Range) beginLocked(e Epoch) {
	invariants.Held(&r.mu)
	r.owner = e
	if f := r.store.budget.favored.Load(); f != nil && f.r == r && f.epoch != e {
		r.store.budget.unfavor(f) // its code may never come to an end
	}
}

// Fence leaves the range without an owner. Earlier commits stay history, and their outputs leave when they are
// durable.
func (r *Range) Fence() { r.Begin(Epoch{}) }

// FenceDropping is Fence as a power cut would do it: it drops the commits that are in no record yet, and releases
// their outputs with ErrFenced on the caller's goroutine. A record in flight becomes durable.
func (r *Range) FenceDropping() {
	r.mu.Lock()
	r.beginLocked(Epoch{})
	g := r.filling
	r.filling = nil
	if g != nil {
		r.dropping++
	}
	r.mu.Unlock()
	if g == nil {
		return
	}
	r.subtractUndurable(g.bytes())
	r.store.budget.give(g.bytes())
	r.releaseDropped(g.outs, ErrFenced)
}

// Commit makes the batch history, unless its epoch is not the owner
// or it is a batch of another range (ErrFenced); the store has failed or is
// closed (an error that is both ErrFenced and the failure, or ErrClosed); the ID
// of the range is not allowed (*NameError); or the batch has writes, and the
// store is read-only (ErrReadOnlyStore). On success the batch is empty again, ready for use, and each of
// its outputs will be released exactly once, in order; outputs that wait for
// nothing are released before Commit returns, or by a goroutine that is
// releasing outputs of the range at this moment. On failure the batch is
// untouched: the caller discards it and owns its outputs.
func (r *Range) Commit(s *Batch) error {
	r.mu.Lock()
	if err := r.admitLocked(s); err != nil {
		r.mu.Unlock()
		return err
	}
	now, mustRelease := r.commitLocked(s)
	r.mu.Unlock()
	s.emptied()
	if mustRelease && r.releasePass(now) {
		r.releaseLoop()
	}
	return nil
}

// admitLocked decides whether the batch may become history, and reserves a
// place with the committer if it has writes.
func (r *Range) admitLocked(s *Batch) error {
	invariants.Held(&r.mu)
	switch {
	case r.bad != nil:
		return r.bad
	case s.r != r || s.epoch != r.owner || r.owner == Epoch{}:
		return ErrFenced
	}
	if err := r.store.refusal(); err != nil {
		return err
	}
	if !s.g.dirty() {
		return nil
	}
	if r.store.opts.ReadOnly {
		return ErrReadOnlyStore
	}
	if !r.queued {
		// Fails if the store has failed or closed since: both shut the queue before they look for undurable
		// layers.
		if !r.store.queue.add(r) {
			return r.store.refusal()
		}
		r.queued = true
	}
	return nil
}

// commitLocked moves the batch's writes and outputs into the range. With mustRelease the caller has to release outputs:
// those in now, and then those that may leave by then.
func (r *Range) commitLocked(s *Batch) (now []emission, mustRelease bool) {
	invariants.Held(&r.mu)
	g := s.g
	outs := g.outs
	if !g.dirty() {
		s.returnUnused(s.payload)
	}
	if !g.dirty() && r.freeLocked() {
		g.outs = nil
		g.reset()
		if cap(outs) <= maxSpareOuts {
			g.outs = outs[:0] // the caller releases them before the batch gets others
		}
		r.releasing = len(outs) > 0
		return outs, r.releasing
	}
	if g.dirty() {
		if g.cleared {
			r.checkClearingLocked(&g.clearing)
		}
		r.commits++
		grown := r.fillLocked(s)
		r.undurable.Add(grown)
		r.store.budget.committing.Add(grown)
		s.returnUnused(grown + s.payload)
		if r.filling == g {
			s.g = r.store.queue.emptyLayer()
			if g.gated {
				return nil, false
			}
			g.outs = nil
		}
	}
	for _, e := range outs {
		to := r.joinLocked(e)
		*to = append(*to, e)
	}
	if r.filling != g {
		g.reset()
	}
	if len(r.out) == 0 || r.releasing {
		return nil, false
	}
	r.releasing = true
	now, r.out = r.out, nil
	return now, true
}

// freeLocked reports whether a new output has to wait for nothing.
func (r *Range) freeLocked() bool {
	invariants.Held(&r.mu)
	return r.filling == nil && r.inflight == nil && !r.releasing
}

// fillLocked adds the batch's writes to the filling layer; if there is none, the batch's layer becomes
// it. It returns by how many bytes filling grew.
func (r *Range) fillLocked(s *Batch) int64 {
	invariants.Held(&r.mu)
	if r.filling == nil {
		r.filling = s.g
		s.g.batches = 1
		return s.g.bytes()
	}
	before := r.filling.bytes()
	r.filling.merge(s.g)
	return r.filling.bytes() - before
}

// joinLocked returns the list that an output joins: the newest layer that it
// has to wait for, or that holds outputs which leave before it.
func (r *Range) joinLocked(e emission) *[]emission {
	invariants.Held(&r.mu)
	for _, g := range [...]*layer{r.filling, r.inflight} {
		if g != nil && (e.sync || g.gated || len(g.outs) > 0) {
			return &g.outs
		}
	}
	return &r.out
}

// Clean reports whether nothing of the range is undurable and nothing unreleased.
func (r *Range) Clean() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.filling == nil && r.inflight == nil && len(r.out) == 0 && !r.releasing && r.dropping == 0
}

// subtractUndurable subtracts bytes that have become durable, or were dropped. The caller returns them to the budget.
func (r *Range) subtractUndurable(n int64) {
	r.undurable.Add(-n)
	r.store.budget.committing.Add(-n)
}
