package runtime

import (
	"math"
	"sync"
	"time"

	"github.com/dohost/dohost/internal/guard"
	"github.com/dohost/dohost/internal/invariants"
)

// overdueLocked returns the time limit that the object's incarnation has exceeded, or the
// turn that is held long enough to be reported.
func (o *object) overdueLocked(now time.Duration, stalled bool) (*Fenced, *LongTurn) {
	invariants.Held(&o.mu)
	inc := o.incarnation
	if inc == nil || inc.activity == nil {
		return nil, nil
	}
	lim := o.limits()
	if inc.exclusive != nil && lim.Exclusive > 0 && now-inc.exclusiveSince > lim.Exclusive {
		return &Fenced{Reason: ReasonExclusive, by: inc.exclusive}, nil
	}
	if ev := o.alarm; ev != nil && ev.incarnation == inc && lim.Alarm > 0 && now-ev.begun > lim.Alarm {
		return &Fenced{Reason: ReasonAlarm, by: ev}, nil
	}
	for ev := inc.running; ev != nil; ev = ev.succ {
		if limit := ev.limit(); limit > 0 && now-ev.begun > limit {
			return &Fenced{Reason: ReasonEvent, by: ev}, nil
		}
	}
	if stalled && inc.running != nil && (!o.rng.Clean() || inc.throttled.Load() > 0) {
		return &Fenced{Reason: ReasonStall}, nil
	}
	return nil, inc.longTurnLocked(now)
}

// limit returns the limit of the event's handler, or zero. If Limit does not return, the event has no limit.
func (ev *event) limit() (limit time.Duration) {
	if h, ok := ev.handler.(LimitedHandler); ok {
		guard.Run(func() { limit = h.Limit() })
	}
	return limit
}

// LongTurn is a turn that one event has held, without an Await, for longer than
// Limits.Turn.
type LongTurn struct {
	ID    ID
	Op    string
	Held  time.Duration // at least
	Stack string        // of the goroutines that run such an event, by profiler label
}

// longTurnLocked compares the holder with the holder at the previous check. A turn counts
// its batches for that, at no further cost: a turn with the same count at two checks was
// held between them.
func (inc *incarnation) longTurnLocked(now time.Duration) *LongTurn {
	invariants.Held(&inc.obj.mu)
	t := inc.queue.holder
	if t == nil || t.state.Load() != turnHeld {
		inc.watched = nil
		return nil
	}
	if at := t.progress.Load(); t != inc.watched || at != inc.watchedAt {
		inc.watched, inc.watchedAt, inc.watchedFrom, inc.reported = t, at, now, false
		return nil
	}
	held := now - inc.watchedFrom
	if limit := inc.obj.limits().Turn; inc.reported || limit < 0 || held < limit {
		return nil
	}
	inc.reported = true
	return &LongTurn{ID: inc.obj.id(), Op: t.ev.op, Held: held} // the caller looks for its stack, without the lock
}

// expiredLocked takes the events out of the queues that have waited too long.
func (o *object) expiredLocked(now time.Duration) []*event {
	invariants.Held(&o.mu)
	var old []*event
	limit := o.host().opts.MaxAge
	if limit < 0 {
		limit = math.MaxInt64
	}
	queues := []*turnList{&o.waiting}
	if o.incarnation != nil && o.incarnation.activity != nil {
		queues = append(queues, &o.incarnation.queue.turnList)
	}
	for _, q := range queues {
		for t := q.head; t != nil; t = t.next {
			if t.unstarted && !t.ev.abandoned && t.ev.kind == kindCall && now-t.ev.queued > limit {
				o.unqueueLocked(t.ev)
				old = append(old, t.ev)
			}
		}
		q.pruneLocked()
	}
	return old
}

// pin is State.Pin.
func (inc *incarnation) pin(reason string) func() {
	o := inc.obj
	o.mu.Lock()
	defer o.mu.Unlock()
	if inc.dead.Load() {
		return func() {}
	}
	p := &pin{reason: reason, since: o.host().now()}
	if inc.pins == nil {
		inc.pins = map[*pin]struct{}{}
	}
	inc.pins[p] = struct{}{}
	var once sync.Once
	return func() {
		once.Do(func() {
			o.mu.Lock()
			defer o.mu.Unlock()
			delete(inc.pins, p)
			if len(inc.pins) == 0 {
				inc.pins = nil
			}
			o.last = o.host().now()
			o.host().sweeper.wake() // there may be too many objects
		})
	}
}

// pin is one Pin.
type pin struct {
	reason string
	since  time.Duration
}
