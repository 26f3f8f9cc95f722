package runtime

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/dohost/dohost/internal/invariants"
	"github.com/dohost/dohost/objectstore"
)

// life is one incarnation of an object in memory. It stays in use after its end until its
// code has unwound.
type life struct {
	// Fixed when it begins; read by any goroutine.
	obj    *object
	number uint64        // of its epoch, in this host
	born   time.Duration // on the host's clock

	// dead is set, once, under obj.mu; why is written before it.
	dead atomic.Bool
	why  *Fenced

	// Owned by the holder of the turn. No lock: the turn is the lock.
	instance any

	// ctx ends with the incarnation. It is made on the first use, so that an object with
	// code that never waits for its end does not have one.
	ctx atomic.Pointer[lifeContext]

	// Guarded by obj.mu.
	holds     map[*hold]struct{} // by State.Pin
	*underway                    // nil at rest
}

// underway is the part of a life that exists only while the object has work. It is made
// and, when the object is at rest, dropped under obj.mu.
type underway struct {
	// Owned by the holder of the turn.
	rng     *objectstore.Range     // the object's range when the segment was made
	segment *objectstore.Segment   // nil until the first event
	ringing *delivery              // the delivery in the alarm handler, or nil
	waiting map[string]wakeReaders // by feed: readers that wait for new entries

	tasks     atomic.Int64 // by State.Go, not yet ended
	throttled atomic.Int32 // writes that wait until fewer bytes are undurable

	// Guarded by obj.mu.
	lane        lane
	started     *event // started and not yet ended, newest first
	exclusive   *event // the event with the open Exclusive section, or nil
	opener      *turn  // the turn that opened it
	entered     int    // turns of Enters
	exclusives  time.Duration
	watched     *turn  // the holder that the sweeper saw last,
	watchedAt   uint64 // its segment at that time,
	watchedFrom time.Duration
	reported    bool
}

// epoch differs from the epochs of all other incarnations, also in other hosts and forks.
func (l *life) epoch() objectstore.Epoch {
	return l.obj.host().store.Epoch(l.number)
}

// stirLocked prepares a life for work.
func (l *life) stirLocked() {
	invariants.Held(&l.obj.mu)
	if l.underway == nil {
		l.underway = new(underway)
	}
}

// lifeContext is a context with its cancel function.
type lifeContext struct {
	context.Context
	end context.CancelCauseFunc
}

// cause returns the error for operations of an ended incarnation.
func (l *life) cause() error {
	if !l.dead.Load() {
		return nil
	}
	return l.why
}

// context returns the context that ends with the incarnation.
func (l *life) context() context.Context {
	if c := l.ctx.Load(); c != nil {
		return c.Context
	}
	ctx, end := context.WithCancelCause(context.Background())
	if !l.ctx.CompareAndSwap(nil, &lifeContext{ctx, end}) {
		end(nil) // another goroutine was first
		return l.ctx.Load().Context
	}
	if l.dead.Load() { // end may have run before ctx was stored
		end(l.why)
	}
	return ctx
}

// end cancels the context of an incarnation that is marked dead.
func (l *life) end() {
	if c := l.ctx.Load(); c != nil {
		c.end(l.why)
	}
}

// handOver commits the segment, unless the incarnation has ended. The caller holds the
// turn.
func (l *life) handOver(t *turn) error {
	t.seen.Add(1)
	l.obj.at(t.ev, PlaceHandOver)
	if l.dead.Load() {
		if l.segment.Dirty() {
			l.obj.host().refused(l)
		}
		drop(l.segment, l.why)
		return l.why
	}
	if err := l.rng.HandOver(l.segment); err != nil {
		l.obj.host().refused(l)
		if cause := l.cause(); cause != nil {
			err = cause
		}
		drop(l.segment, err)
		return err
	}
	l.obj.at(t.ev, PlaceHanded)
	return nil
}

// drop empties a segment that will not become history, and releases its outputs with err.
func drop(s *objectstore.Segment, err error) {
	for _, o := range s.Discard() {
		o.Release(err)
	}
}

// emitAlone commits an output without the turn.
func (s *State) emitAlone(ctx context.Context, out objectstore.Output, size int) error {
	l := s.life()
	o := l.obj
	var tried *objectstore.Range
	for {
		o.mu.Lock()
		if err := l.cause(); err != nil {
			o.mu.Unlock()
			return err
		}
		rng := o.rangeLocked(l.epoch())
		o.mu.Unlock()
		if rng == tried {
			return l.orFenced()
		}
		seg := rng.NewSegment(l.epoch())
		err := s.writeTo(ctx, seg, func(seg *objectstore.Segment) error { return seg.EmitSized(out, size) })
		if err != nil {
			seg.Discard()
			return err
		}
		if rng.HandOver(seg) == nil {
			return nil
		}
		seg.Discard()
		tried = rng // the object may have come to rest in between and dropped its range
	}
}
