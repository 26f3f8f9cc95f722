package objectstore

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
)

// ErrFull says that a write would take more memory than Options allow for what is not
// durable. Nothing was written. [Segment.WaitRoom] waits until the write may be repeated.
var ErrFull = errors.New("dohost: too many bytes wait to be committed")

// MaxOvercommit is how many bytes the one segment may hold that may exceed
// Options.MaxHostBytes. A segment of MaxSegment fits, with the undo of a savepoint.
const MaxOvercommit = 2 * MaxSegment

// budget bounds the memory of a store for what is not durable. The package comment has its
// rules, under Memory.
type budget struct {
	limit  int64 // Options.MaxHostBytes
	object int64 // Options.MaxObjectBytes

	held       atomic.Int64            // all that counts
	committing atomic.Int64            // the part of held that was handed over and is not durable
	favored    atomic.Pointer[Segment] // the segment that may exceed the limit; nil: none

	waiting atomic.Int32 // length of queue
	mu      sync.Mutex   // taken after a Range.mu, never before one
	queue   []*waiter    // the one that has waited longest first
	shut    bool         // nobody waits any more
}

// waiter is a segment that waits. Its user does not touch it until granted is closed.
type waiter struct {
	s       *Segment
	need    int64
	granted chan struct{} // closed when need was added to held
}

// take adds n bytes, unless there is no room for them.
func (b *budget) take(n int64) bool {
	for {
		held := b.held.Load()
		if held+n > b.limit {
			return false
		}
		if b.held.CompareAndSwap(held, held+n) {
			return true
		}
	}
}

// exceed adds n bytes for the favored segment, which holds so many, whether there is room
// or not.
func (b *budget) exceed(s *Segment, n int64) bool {
	if b.favored.Load() != s || s.held+n > MaxOvercommit {
		return false
	}
	b.held.Add(n)
	return true
}

// give takes n bytes away, or adds them if n is negative.
func (b *budget) give(n int64) {
	if n == 0 {
		return
	}
	b.held.Add(-n)
	if n > 0 {
		b.serve()
	}
}

// serve grants bytes to the waiting segments, in order, as far as there is room. A segment
// that waits for the limit of its own object does not block others.
func (b *budget) serve() {
	if b.waiting.Load() == 0 {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	rest, full := b.queue[:0], false
	for _, w := range b.queue {
		switch {
		case b.shut:
			w.need = 0
		case full || w.s.r.undurable.Load() > b.object:
			rest = append(rest, w)
			continue
		case !b.take(w.need) && !b.favorLocked(w):
			full = true
			rest = append(rest, w)
			continue
		}
		b.waiting.Add(-1)
		close(w.granted)
	}
	clear(b.queue[len(rest):])
	b.queue = rest
}

// favorLocked lets the segment that has waited longest exceed the limit, if nothing is on its
// way to the disk, which would make room, and no other may.
func (b *budget) favorLocked(w *waiter) bool {
	if b.committing.Load() > 0 || w.s.held+w.need > MaxOvercommit {
		return false
	}
	if b.favored.CompareAndSwap(nil, w.s) || b.favored.Load() == w.s {
		b.held.Add(w.need)
		return true
	}
	return false
}

// unfavor ends the privilege of a segment, if it has it.
func (b *budget) unfavor(s *Segment) {
	if b.favored.Load() == s && b.favored.CompareAndSwap(s, nil) {
		b.serve()
	}
}

// wait returns when s has been given n bytes, or when ctx or the store ends, with how many
// bytes it has been given.
func (b *budget) wait(ctx context.Context, s *Segment, n int64) (int64, error) {
	w := &waiter{s: s, need: n, granted: make(chan struct{})}
	b.mu.Lock()
	b.queue = append(b.queue, w)
	b.waiting.Add(1) // before serve looks: who gives after that sees it
	b.mu.Unlock()
	b.serve()
	select {
	case <-w.granted:
		return w.need, nil
	case <-ctx.Done():
	}
	b.mu.Lock()
	for i, o := range b.queue {
		if o == w {
			b.queue = append(b.queue[:i], b.queue[i+1:]...)
			b.waiting.Add(-1)
			b.mu.Unlock()
			b.serve() // those behind it may need less
			return 0, ctx.Err()
		}
	}
	b.mu.Unlock()
	return w.need, nil // it came at the last moment
}

// close ends all waits, also later ones.
func (b *budget) close() {
	b.mu.Lock()
	b.shut = true
	b.mu.Unlock()
	b.serve()
}

// bytes is what the segment counts for.
func (s *Segment) bytes() int64 { return s.g.bytes() + int64(s.saves.bytes) + s.payload }

// reserve makes room for n bytes more.
func (s *Segment) reserve(n int) error {
	b := &s.r.store.budget
	need := s.bytes() + int64(n) - s.held
	full := s.r.undurable.Load() > b.object
	if need <= 0 && !full {
		return nil
	}
	if full || !b.take(need) && !b.exceed(s, need) {
		s.need = max(need, 0)
		return ErrFull
	}
	s.held += need
	return nil
}

// Reserve makes room for a change of the slot, which takes it without asking. Errors: ErrFull.
func (s *Segment) Reserve() error { return s.reserve(rowOverhead) }

// WaitRoom waits until the write that returned ErrFull may be repeated. It returns ErrFenced
// when the store fails or closes, else the ctx's error.
func (s *Segment) WaitRoom(ctx context.Context) error {
	if err := s.r.store.refusal(); err != nil {
		return err
	}
	given, err := s.r.store.budget.wait(ctx, s, s.need)
	s.held += given
	if refusal := s.r.store.refusal(); refusal != nil {
		return refusal
	}
	return err
}

// settle gives back what the segment holds, but for so many bytes that were handed over.
func (s *Segment) settle(handed int64) {
	back := s.held - handed
	s.held, s.payload = 0, 0
	s.r.store.budget.give(back)
}
