package runtime

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/dohost/dohost/internal/invariants"
	"github.com/dohost/dohost/objectstore"
)

// life is one incarnation of an object in memory. It outlives its end for as
// long as code of its own has not unwound.
type life struct {
	// Fixed at birth; read by anyone.
	obj    *object
	number uint64        // the epoch's, in this host
	born   time.Duration // on the host's clock

	// dead is set, once, under obj.mu; why is written before it.
	dead atomic.Bool
	why  *Fenced

	// Owned by whoever holds the turn. No lock: the turn is the lock.
	instance any

	// ctx ends with the life. It is made when somebody first asks for it, so
	// that an object whose code never waits for its end does not carry one.
	ctx atomic.Pointer[lifeContext]

	// Guarded by obj.mu.
	holds     map[*hold]struct{} // by State.Pin
	*underway                    // nil at rest
}

// underway is what a life has while it has something to do. It is made, and taken
// away when the object is at rest, under obj.mu.
type underway struct {
	// Owned by whoever holds the turn.
	rng     *objectstore.Range     // the object's, when the segment was made
	segment *objectstore.Segment   // nil until the first event
	ringing *delivery              // of the alarm whose handler runs, or nil
	waiting map[string]wakeReaders // by feed: readers that wait for it to grow

	tasks     atomic.Int64 // by State.Go, not yet ended
	throttled atomic.Int32 // writes that wait until less is undurable

	// Guarded by obj.mu.
	lane        lane
	started     *event // started and not yet ended, newest first
	exclusive   *event // whose Exclusive section is open, or nil
	opener      *turn  // which opened it
	entered     int    // turns of Enters
	exclusives  time.Duration
	watched     *turn  // the holder that the sweeper saw last, and
	watchedAt   uint64 // at which of its segments,
	watchedFrom time.Duration
	reported    bool
}

// epoch differs from that of every other life, also of other hosts and forks.
func (l *life) epoch() objectstore.Epoch {
	return l.obj.host().store.Epoch(l.number)
}

// stirLocked is for a life that gets something to do.
func (l *life) stirLocked() {
	invariants.Held(&l.obj.mu)
	if l.underway == nil {
		l.underway = new(underway)
	}
}

// lifeContext is a context and how it ends.
type lifeContext struct {
	context.Context
	end context.CancelCauseFunc
}

// cause is the error that operations of an ended life return.
func (l *life) cause() error {
	if !l.dead.Load() {
		return nil
	}
	return l.why
}

// context returns the context that ends with the life.
func (l *life) context() context.Context {
	if c := l.ctx.Load(); c != nil {
		return c.Context
	}
	ctx, end := context.WithCancelCause(context.Background())
	if !l.ctx.CompareAndSwap(nil, &lifeContext{ctx, end}) {
		end(nil) // another was first
		return l.ctx.Load().Context
	}
	if l.dead.Load() { // and end may have come too early to see it
		end(l.why)
	}
	return ctx
}

// end cancels what was handed out of the life's context. The life is dead already.
func (l *life) end() {
	if c := l.ctx.Load(); c != nil {
		c.end(l.why)
	}
}

// handOver makes the segment history, unless the life has ended. It is called
// by the goroutine that holds the turn.
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

// drop empties a segment that will not become history and tells its outputs.
func drop(s *objectstore.Segment, err error) {
	for _, o := range s.Discard() {
		o.Release(err)
	}
}

// emitAlone hands an output over without the turn.
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
		tried = rng // the object may have come to rest in between, without it
	}
}
