package runtime

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dohost/dohost/eviction"
	"github.com/dohost/dohost/internal/invariants"
)

// sweepEvery is the interval between two checks of the objects that have work.
const sweepEvery = time.Second

// sweeper checks once a second the objects that had something to do: it enforces time
// limits, reports long turns, and evicts idle objects. An object at rest is in the wheel,
// in the slot of the second when it may be evicted, and costs nothing until then: an event
// does not move its entry; the sweeper files the entry again when it comes due.
type sweeper struct {
	host   *Host
	wakeup chan struct{}
	quit   chan struct{}
	done   chan struct{}

	mu        sync.Mutex
	pending   []*object // had something to do since the last check
	asleep    bool      // the goroutine waits for the wheel, or for a wakeup
	requested bool      // a check within a second was requested

	stale atomic.Int64 // stale entries of the wheel: the object has left the table, or was filed again

	// Owned by the sweeper's goroutine.
	wheel map[int64][]*object // by second on the host's clock
	next  int64               // the first second of the wheel not yet checked
	filed int
	dump  string // of all goroutines, once per sweep that needs it
}

func newSweeper(h *Host) *sweeper {
	return &sweeper{
		host: h, wheel: map[int64][]*object{},
		wakeup: make(chan struct{}, 1), quit: make(chan struct{}), done: make(chan struct{}),
	}
}

func (s *sweeper) start() { go s.run() }

func (s *sweeper) stop() {
	close(s.quit)
	<-s.done
}

// enqueueForSweep adds an object that has something to do. The caller has set o.toSweep.
func (s *sweeper) enqueueForSweep(o *object) { s.wake(o) }

// wake makes the sweeper check some objects, and the number of objects, within a second.
func (s *sweeper) wake(os ...*object) {
	s.mu.Lock()
	s.pending = append(s.pending, os...)
	wake := s.asleep
	s.asleep, s.requested = false, true
	s.mu.Unlock()
	if wake {
		select {
		case s.wakeup <- struct{}{}:
		default:
		}
	}
}

// run is the sweeper goroutine.
func (s *sweeper) run() {
	defer close(s.done)
	timer := time.NewTimer(sweepEvery)
	defer timer.Stop()
	for {
		timer.Reset(s.sleepTime())
		select {
		case <-timer.C:
		case <-s.wakeup:
			continue
		case <-s.quit:
			return
		}
		s.host.guardedStep(eviction.PlaceSweep)
		s.sweep()
	}
}

// sleepTime returns how long the goroutine may sleep: a second while there is work to check,
// otherwise until the first filed object comes due.
func (s *sweeper) sleepTime() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asleep = len(s.pending) == 0 && !s.requested
	if !s.asleep {
		return sweepEvery
	}
	longest := time.Hour
	if h := s.host; h.opts.Policy.Shed != nil && h.incarnations.Load() > 0 {
		longest = sweepEvery
	}
	if s.filed == 0 {
		return longest
	}
	at, end := s.next, s.next+int64(longest/time.Second)
	for at < end && len(s.wheel[at]) == 0 {
		at++
	}
	return max(time.Duration(at)*time.Second-s.host.now(), time.Millisecond)
}

func (s *sweeper) sweep() {
	s.mu.Lock()
	s.asleep, s.requested = false, false
	select {
	case <-s.wakeup: // a wakeup between the timer and here
	default:
	}
	list := s.pending
	s.pending = nil
	s.mu.Unlock()
	now := s.host.now()
	s.dump = ""
	for _, o := range list {
		s.check(o, now)
	}
	for ; s.next <= int64(now/time.Second); s.next++ {
		due := s.wheel[s.next]
		delete(s.wheel, s.next)
		s.filed -= len(due)
		for _, o := range due {
			s.idle(o, uint32(s.next), now)
		}
	}
	s.shed()
	if 2*s.stale.Load() > int64(s.filed) {
		s.compact()
	}
}

// check checks the limits of an object that had something to do, and files it if
// it is at rest now.
func (s *sweeper) check(o *object, now time.Duration) {
	o.mu.Lock()
	if o.state == objectRemoved { // an import evicted it while idle was about to
		o.toSweep = false
		o.mu.Unlock()
		return
	}
	limit := o.limits().Stall
	why, report := o.overdueLocked(now, limit > 0 && s.host.store.Stalled() > limit)
	inc := o.incarnation
	old := o.expiredLocked(now)
	// The back-off outlives the failure, so that a lasting failure is retried ever more rarely.
	resting := why == nil && o.isIdleLocked() && (o.backOff == nil || now >= o.backOff.until+backoffMost)
	switch {
	case resting:
		o.toSweep = false
		o.freeIdleLocked(s)
	case o.count == 0:
		o.last = now // its outputs have not been released yet
	}
	o.mu.Unlock()
	switch {
	case why == nil:
	case why.Reason == ReasonExclusive && why.by.kind == kindConstruct:
		o.failConstructor(inc, why)
	default:
		o.fence(inc, why, eviction.EndFence)
	}
	for _, ev := range old {
		ev.answer(ev.failure(ErrOverloaded, OutcomeNotRun))
	}
	if report != nil {
		if s.dump == "" {
			s.dump = goroutines()
		}
		report.Stack = o.class.stacks(report.Op, s.dump)
		s.host.lis.turnHeld(report)
	}
	switch {
	case resting && inc == nil:
		o.class.forget(o)
	case resting:
		s.file(o, inc)
	default:
		s.enqueueForSweep(o)
	}
}

// freeIdleLocked frees the parts of an object that it does not need at rest.
func (o *object) freeIdleLocked(s *sweeper) {
	invariants.Held(&o.mu)
	if o.incarnation == nil {
		o.markRemovedLocked()
		return
	}
	if o.incarnation.activity != nil && o.incarnation.batch.Empty() {
		// The next event makes new ones. Nothing is undurable, so a new range reads the
		// same state as this one.
		o.rng.Fence()
		o.incarnation.activity, o.rng = nil, nil
	}
}

// markRemovedLocked marks an object that is about to leave the table.
func (o *object) markRemovedLocked() {
	invariants.Held(&o.mu)
	o.transitionLocked(objectRemoved)
	if o.filed != 0 {
		o.host().sweeper.addStale()
	}
}

// file asks the policy how long the object, which is at rest, may be idle, and files it. An
// event that arrives before the policy's answer makes the sweeper check the object again.
func (s *sweeper) file(o *object, inc *incarnation) {
	o.mu.Lock()
	events := o.events
	o.mu.Unlock()
	after := o.idleTime(inc, events)
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.incarnation == inc && !o.toSweep {
		o.fileLocked(s, after)
	}
}

// idleTime asks the policy how long the object may be idle.
func (o *object) idleTime(inc *incarnation, events uint64) time.Duration {
	return o.policy().Idle(o.id(), inc.epoch().Incarnation, events)
}

// addStale counts an entry of the wheel that has become stale.
func (s *sweeper) addStale() { s.stale.Add(1) }

// fileLocked files an object by its due time, unless it is checked before that anyway.
func (o *object) fileLocked(s *sweeper, after time.Duration) {
	invariants.Held(&o.mu)
	if after < 0 || after > never {
		return
	}
	// The second after the due time, so that no eviction is early.
	at := max(int64((o.last+after)/time.Second)+1, s.next)
	switch {
	case o.filed != 0 && int64(o.filed) <= at:
		return
	case o.filed != 0:
		s.addStale() // the existing entry
	}
	o.filed = uint32(at)
	s.wheel[at] = append(s.wheel[at], o)
	s.filed++
}

// never is longer than any wait, and can be added to a time.
const never = 100 * 365 * 24 * time.Hour

// idle evicts an object that was filed for this second if it is due, or files it again.
func (s *sweeper) idle(o *object, at uint32, now time.Duration) {
	o.mu.Lock()
	if o.filed != at {
		s.stale.Add(-1)
		o.mu.Unlock()
		return
	}
	o.filed = 0
	if o.state == objectRemoved {
		s.stale.Add(-1)
		o.mu.Unlock()
		return
	}
	if o.toSweep {
		o.mu.Unlock()
		return // it is filed again once it is at rest
	}
	inc := o.incarnation
	if inc == nil { // evicted for another reason since
		o.releaseLocked(runnerRequest{})
		return
	}
	events := o.events
	o.mu.Unlock()
	after := o.idleTime(inc, events)
	o.mu.Lock()
	if o.toSweep || o.incarnation != inc {
		o.mu.Unlock()
		return // it is checked again, or gone
	}
	if len(inc.pins) > 0 {
		o.last = now
	}
	if after < 0 || now < o.last+min(after, never) {
		o.fileLocked(s, after)
		o.mu.Unlock()
		return
	}
	o.mu.Unlock()
	if s.host.evictIdle(o, inc, ReasonIdle) {
		return
	}
	o.mu.Lock()
	o.releaseLocked(runnerRequest{}) // not evicted: check it again in a second
}

// evictIdle ends an incarnation that has nothing to do, and reports whether it did.
func (h *Host) evictIdle(o *object, inc *incarnation, r Reason) bool {
	o.mu.Lock()
	if o.incarnation != inc || inc == nil || !o.isIdleLocked() || len(inc.pins) > 0 {
		o.mu.Unlock()
		return false
	}
	why := &Fenced{Reason: r}
	o.retireLocked(inc, why, true) // the next incarnation begins after the Listener was notified of the end
	o.mu.Unlock()
	h.ended(o, inc, why, eviction.EndFence)
	inc.end()
	o.mu.Lock()
	o.transitionLocked(objectCold)
	if !o.toSweep {
		o.markRemovedLocked()
	}
	forget, run := o.state == objectRemoved, o.wakeLocked()
	o.mu.Unlock()
	if forget {
		o.class.forget(o)
	}
	run.begin(o)
	return true
}

// shed evicts idle objects while there are too many, or too little memory.
func (s *sweeper) shed() {
	h := s.host
	n := 0
	if live := int(h.incarnations.Load()); h.opts.MaxLive > 0 && live > h.opts.MaxLive {
		n = live - h.opts.MaxLive
	}
	if h.opts.Policy.Shed != nil {
		n = max(n, h.opts.Policy.Shed(int(h.incarnations.Load())))
	}
	for range n {
		if !h.shedOne() {
			break
		}
	}
}

// compact removes the stale entries from the wheel, which keep the memory of objects that
// are gone until the entries come due. It reads the whole wheel, so it runs only when half
// of the entries are stale.
func (s *sweeper) compact() {
	for at, os := range s.wheel {
		left := slices.DeleteFunc(os, func(o *object) bool {
			o.mu.Lock()
			defer o.mu.Unlock()
			return o.state == objectRemoved || int64(o.filed) != at
		})
		s.stale.Add(int64(len(left) - len(os)))
		s.filed -= len(os) - len(left)
		switch {
		case len(left) == 0:
			delete(s.wheel, at)
		case len(left) < len(os):
			s.wheel[at] = slices.Clone(left)
		}
	}
}

// sampleSize is the size of the sample for shedOne. Exact order would need a list, and
// every event would have to move its object in that list.
const sampleSize = 16

// shedOne evicts the least recently used of a sample of idle objects.
func (h *Host) shedOne() bool {
	for range 2 * h.shardsInAll() {
		var oldest *object
		var inc *incarnation
		var last time.Duration
		for _, o := range h.sample() {
			o.mu.Lock()
			if o.incarnation != nil && o.isIdleLocked() && len(o.incarnation.pins) == 0 && (oldest == nil || o.last < last) {
				oldest, inc, last = o, o.incarnation, o.last
			}
			o.mu.Unlock()
		}
		if oldest != nil && h.evictIdle(oldest, inc, ReasonPressure) {
			return true
		}
	}
	return false
}
