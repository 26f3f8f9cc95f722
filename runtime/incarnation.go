package runtime

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/dohost/dohost/eviction"
	"github.com/dohost/dohost/internal/invariants"
	"github.com/dohost/dohost/objectstore"
)

// incarnation is one instance of an object in memory. It stays in use after its end until its
// code has ended.
type incarnation struct {
	// Fixed when it begins; read by any goroutine.
	obj    *object
	number uint64        // of its epoch, in this host
	began  time.Duration // on the host's clock

	// dead is set, once, under obj.mu; why is written before it.
	dead atomic.Bool
	why  *Fenced

	// Owned by the holder of the turn. No lock: the turn is the lock.
	instance any

	// ctx ends with the incarnation. It is made on the first use, so that an object with
	// code that never waits for its end does not have one.
	ctx atomic.Pointer[incarnationContext]

	// Guarded by obj.mu.
	pins      map[*pin]struct{} // by State.Pin
	*activity                   // nil at rest
}

// activity is the part of an incarnation that exists only while the object has work. It is made
// and, when the object is at rest, dropped under obj.mu.
type activity struct {
	// Owned by the holder of the turn.
	rng        *objectstore.Range     // the object's range when the batch was made
	batch      *objectstore.Batch     // nil until the first event
	delivering *delivery              // the delivery in the alarm handler, or nil
	waiting    map[string]wakeReaders // by feed: readers that wait for new entries
	deletions  uint64                 // DeleteAlls

	tasks     atomic.Int64 // by State.Go, not yet ended
	watches   atomic.Int64 // by State.BeginWatch, not yet ended
	throttled atomic.Int32 // writes that wait until fewer bytes are undurable

	// Guarded by obj.mu.
	queue          turnQueue
	running        *event // started and not yet ended, newest first
	exclusive      *event // the event with the open Exclusive section, or nil
	opener         *turn  // the turn that opened it
	heldTurns      int    // turns of HoldTurns
	exclusiveSince time.Duration
	watched        *turn  // the holder that the sweeper saw last,
	watchedAt      uint64 // its batch at that time,
	watchedFrom    time.Duration
	reported       bool
}

func (inc *incarnation) host() *Host { return inc.obj.host() }

func (inc *incarnation) class() *class { return inc.obj.class }

// epoch differs from the epochs of all other incarnations, also in other hosts and forks.
func (inc *incarnation) epoch() objectstore.Epoch {
	return inc.host().store.Epoch(inc.number)
}

// ensureActivityLocked prepares an incarnation for work.
func (inc *incarnation) ensureActivityLocked() {
	invariants.Held(&inc.obj.mu)
	if inc.activity == nil {
		inc.activity = new(activity)
	}
}

// incarnationContext is a context with its cancel function.
type incarnationContext struct {
	context.Context
	end context.CancelCauseFunc
}

// cause returns the error for operations of an ended incarnation.
func (inc *incarnation) cause() error {
	if !inc.dead.Load() {
		return nil
	}
	return inc.why
}

// context returns the context that ends with the incarnation.
func (inc *incarnation) context() context.Context {
	if c := inc.ctx.Load(); c != nil {
		return c.Context
	}
	ctx, end := context.WithCancelCause(context.Background())
	if !inc.ctx.CompareAndSwap(nil, &incarnationContext{ctx, end}) {
		end(nil) // another goroutine was first
		return inc.ctx.Load().Context
	}
	if inc.dead.Load() { // end may have run before ctx was stored
		end(inc.why)
	}
	return ctx
}

// end cancels the context of an incarnation that is marked dead.
func (inc *incarnation) end() {
	if c := inc.ctx.Load(); c != nil {
		c.end(inc.why)
	}
}

// commit commits the batch, unless the incarnation has ended. The caller holds the
// turn.
func (inc *incarnation) commit(t *turn) error {
	t.progress.Add(1)
	inc.obj.at(t.ev, eviction.PlaceCommit)
	if inc.dead.Load() {
		if inc.batch.Dirty() {
			inc.obj.host().refused(inc)
		}
		drop(inc.batch, inc.why)
		return inc.why
	}
	if err := inc.rng.Commit(inc.batch); err != nil {
		inc.obj.host().refused(inc)
		if cause := inc.cause(); cause != nil {
			err = cause
		}
		drop(inc.batch, err)
		return err
	}
	inc.obj.at(t.ev, eviction.PlaceCommitted)
	return nil
}

// drop empties a batch that will not become history, and releases its outputs with err.
func drop(s *objectstore.Batch, err error) {
	for _, o := range s.Discard() {
		o.Release(err)
	}
}

// emitAlone commits an output without the turn.
func (s *State) emitAlone(ctx context.Context, out objectstore.Output, size int) error {
	inc := s.incarnation()
	o := inc.obj
	var tried *objectstore.Range
	for {
		o.mu.Lock()
		if err := inc.cause(); err != nil {
			o.mu.Unlock()
			return err
		}
		rng := o.rangeLocked(inc.epoch())
		o.mu.Unlock()
		if rng == tried {
			return inc.orFenced()
		}
		batch := rng.NewBatch(inc.epoch())
		err := s.writeTo(ctx, batch, func(batch *objectstore.Batch) error { return batch.EmitSized(out, size) })
		if err != nil {
			batch.Discard()
			return err
		}
		if rng.Commit(batch) == nil {
			return nil
		}
		batch.Discard()
		tried = rng // the object may have come to rest in between and dropped its range
	}
}
