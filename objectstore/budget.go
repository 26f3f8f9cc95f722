package objectstore

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"github.com/dohost/dohost/internal/errkind"
)

// ErrFull reports that a write would exceed the limits that Options sets for undurable data. Nothing was written.
// [Batch.WaitMemory] waits until the write may be repeated.
var ErrFull = errkind.New(errkind.ErrOverloaded, "too many bytes wait to be committed")

// MaxOvercommit bounds the bytes of the favored batch, which may exceed Options.MaxHostBytes. A batch of MaxBatchBytes fits, with
// the undo of a savepoint.
const MaxOvercommit = 2 * MaxBatchBytes

// budget bounds the memory of a store for undurable data. The package comment has its rules, under Memory.
type budget struct {
	limit  int64 // Options.MaxHostBytes
	object int64 // Options.MaxObjectBytes

	held       atomic.Int64          // all counted bytes
	committing atomic.Int64          // the part of held that is committed and not durable
	favored    atomic.Pointer[Batch] // the batch that may exceed the limit; nil: none

	waiting atomic.Int32 // length of queue
	mu      sync.Mutex   // taken after a Range.mu, never before one
	queue   []*waiter    // in the order of their arrival
	shut    bool         // no wait blocks any more
}

// waiter is a waiting batch. Its user does not use the batch until granted is closed.
type waiter struct {
	s       *Batch
	need    int64
	granted chan struct{} // closed when need was added to held, or when the store has ended: then need is zero
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

// exceed adds n bytes for the batch s if it is the favored one, even if there is no room.
func (b *budget) exceed(s *Batch, n int64) bool {
	if b.favored.Load() != s || s.held+n > MaxOvercommit {
		return false
	}
	b.held.Add(n)
	return true
}

// give subtracts n bytes, or adds them if n is negative.
func (b *budget) give(n int64) {
	if n == 0 {
		return
	}
	b.held.Add(-n)
	if n > 0 {
		b.serve()
	}
}

// serve grants bytes to the waiting batches, in order, as far as there is room. A batch
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

// favorLocked makes w's batch the favored one, unless there is another. It does not while commits are on their way
// to the disk, since they will make room.
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

// unfavor ends the privilege of a batch, if it has it.
func (b *budget) unfavor(s *Batch) {
	if b.favored.Load() == s && b.favored.CompareAndSwap(s, nil) {
		b.serve()
	}
}

// wait waits until s has been granted n bytes, or until ctx or the store ends, and returns how many bytes s has been
// granted.
func (b *budget) wait(ctx context.Context, s *Batch, n int64) (int64, error) {
	w := &waiter{s: s, need: n, granted: make(chan struct{})}
	b.mu.Lock()
	b.queue = append(b.queue, w)
	b.waiting.Add(1) // before serve checks it: a later give sees the waiter
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
			b.serve() // later waiters may need less
			return 0, ctx.Err()
		}
	}
	b.mu.Unlock()
	return w.need, nil // granted at the last moment
}

// close ends all waits, also later ones.
func (b *budget) close() {
	b.mu.Lock()
	b.shut = true
	b.mu.Unlock()
	b.serve()
}

// bytes returns the size of the batch against the limits.
func (s *Batch) bytes() int64 { return s.g.bytes() + int64(s.saves.bytes) + s.payload }

// reserve makes room for n bytes more.
func (s *Batch) reserve(n int) error {
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

// Reserve makes room for a change of the slot, which does not reserve by itself. Errors: ErrFull.
func (s *Batch) Reserve() error { return s.reserve(rowOverhead) }

// WaitMemory waits until the write that returned ErrFull may be repeated. Errors: ErrFenced if the store has failed or is closed; the
// error of ctx.
func (s *Batch) WaitMemory(ctx context.Context) error {
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

// retryFull calls op, which adds to the batch, and repeats it after a wait for memory while it returns ErrFull. Errors: op's
// and WaitMemory's.
func (s *Batch) retryFull(ctx context.Context, op func() error) error {
	for {
		err := op()
		if !errors.Is(err, ErrFull) {
			return err
		}
		if err := s.WaitMemory(ctx); err != nil {
			return err
		}
	}
}

// returnUnused returns the bytes that the batch holds to the budget, except the committed ones, which the layer holds.
func (s *Batch) returnUnused(committed int64) {
	back := s.held - committed
	s.held, s.payload = 0, 0
	s.r.store.budget.give(back)
}
