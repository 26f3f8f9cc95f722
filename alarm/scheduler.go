package alarm

import (
	"context"
	"sync"
	"time"

	"github.com/dohost/dohost/objectstore"
)

// Config is what a Scheduler needs of the world. Zero numbers mean the defaults.
type Config struct {
	// Window reads the durable index in order of due time and object, after a
	// position; fewer than limit mean the end.
	Window func(ctx context.Context, after objectstore.AlarmPos, limit int) ([]objectstore.Alarm, objectstore.AlarmPos, error)
	// Boot reads the alarms that are delivered when the host starts as well, in
	// order of object. Nil if there are none.
	Boot func(ctx context.Context, after objectstore.ID, limit int) ([]objectstore.Alarm, error)
	// BootBefore is the first alarm generation of this host: what was set since is
	// delivered in its time only.
	BootBefore uint64
	// Deliver starts a delivery, which ends with Done. It must not block, nor call Stop.
	Deliver func(Delivery)
	// Raise counts the coming runs of due alarms durably and returns those to
	// deliver. With suspects, it takes those whose runs were so counted before; else
	// it leaves those out. Failed are those with which it failed, and OnError was told;
	// they are tried again. It waits for the disk, and not for what objects are doing:
	// see Delivery.Raise.
	Raise func(ctx context.Context, due []objectstore.Alarm, suspects bool) (deliver []Delivery, failed []objectstore.ID)
	// Unclean says that the host before this one did not close: what is due now may
	// be what ended it.
	Unclean bool
	// Step is called before each look at what is due, and may block: a test's scheduler
	// does. Nil in production.
	Step func()
	// OnError is told of failed reads, which are tried again after a second.
	OnError func(error)
	// Limit bounds the alarms in memory; 8,192.
	Limit int
	// Concurrency bounds the deliveries that are out and not noted as waiting, and a
	// sixteenth of all that are out; 256.
	Concurrency int
	// Group bounds what one Raise gets, and how many are delivered at boot at a time; 256.
	Group int
	// Look is how often the wall clock is looked at, at least: it may jump, and the
	// machine may have been asleep. 30 s.
	Look time.Duration
}

// Scheduler delivers alarms when they are due: never early by the wall clock, at
// least once, at most one of an object at a time. One goroutine does the work. All
// methods may be called from any goroutine.
type Scheduler struct {
	cfg  Config
	now  func() time.Time // the wall clock
	ctx  context.Context
	stop context.CancelFunc
	wake chan struct{} // holds one token while the inbox has something new
	done chan struct{}

	mu      sync.Mutex
	inbox   []message
	started bool
	size    int       // of the queue, for Pending
	next    time.Time // of the queue, for Pending

	// Owned by the goroutine.
	queue    queue
	held     map[objectstore.ID]*entry // cut off, and not to be delivered again yet
	out      map[objectstore.ID]*delivery
	waiting  int // of those that are out
	horizon  objectstore.AlarmPos
	last     objectstore.Alarm // at the horizon
	complete bool              // nothing is beyond the horizon
	retryAt  time.Time         // no read before this, after one failed; monotonic
	boot     bootPass
}

// message is a durable change, or the waiting or the end of a delivery.
type message struct {
	change  objectstore.AlarmChange
	waits   *objectstore.Alarm
	counted *objectstore.Alarm
	ended   *objectstore.Alarm
	again   bool
}

// NewScheduler returns a scheduler that has not started. Its reads end with ctx, or
// with Stop.
func NewScheduler(ctx context.Context, c Config) *Scheduler {
	setDefault(&c.Limit, 8192)
	setDefault(&c.Concurrency, 256)
	setDefault(&c.Group, 256)
	setDefault(&c.Look, 30*time.Second)
	s := &Scheduler{
		cfg: c, now: func() time.Time { return time.Now().Round(0) },
		wake: make(chan struct{}, 1), done: make(chan struct{}),
		queue: queue{byID: map[objectstore.ID]*entry{}}, out: map[objectstore.ID]*delivery{},
		held: map[objectstore.ID]*entry{},
	}
	s.ctx, s.stop = context.WithCancel(ctx)
	return s
}

func setDefault[T int | time.Duration](v *T, def T) {
	if *v == 0 {
		*v = def
	}
}

// Start starts the goroutine, once. After Stop it does nothing.
func (s *Scheduler) Start() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.started || s.ctx.Err() != nil {
		return
	}
	s.started = true
	go s.run()
}

// Stop ends the goroutine and waits for it. Deliveries that are out go on; their
// Done is ignored.
func (s *Scheduler) Stop() {
	s.mu.Lock()
	s.stop()
	started := s.started
	s.mu.Unlock()
	if started {
		<-s.done
	}
}

// Changed notes durable changes of slots, in order.
func (s *Scheduler) Changed(cs []objectstore.AlarmChange) {
	ms := make([]message, len(cs))
	for i, c := range cs {
		ms[i] = message{change: c}
	}
	s.post(ms...)
}

// Done notes that a delivery has ended. With again it was cut off by no fault of its
// own, and is delivered again unless the alarm was changed meanwhile.
func (s *Scheduler) Done(a objectstore.Alarm, again bool) {
	s.post(message{ended: &a, again: again})
}

func (s *Scheduler) post(ms ...message) {
	s.mu.Lock()
	if s.ctx.Err() == nil {
		s.inbox = append(s.inbox, ms...)
	}
	s.mu.Unlock()
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// Pending returns how many alarms wait in memory, and when the next one is due.
func (s *Scheduler) Pending() (inMemory int, next time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.size, s.next
}

// run is the scheduler goroutine.
func (s *Scheduler) run() {
	defer close(s.done)
	timer := time.NewTimer(0)
	defer timer.Stop()
	s.boot.start = s.now()
	for s.ctx.Err() == nil {
		if s.cfg.Step != nil {
			s.cfg.Step()
			select { // what it is about is in the inbox
			case <-s.wake:
			default:
			}
		}
		s.read()
		s.refill()
		s.deliver()
		timer.Reset(s.rest())
		select {
		case <-timer.C:
		case <-s.wake:
		case <-s.ctx.Done():
		}
	}
}

// read empties the inbox.
func (s *Scheduler) read() {
	s.mu.Lock()
	ms := s.inbox
	s.inbox = nil
	s.mu.Unlock()
	for _, m := range ms {
		switch {
		case m.ended != nil:
			s.ended(*m.ended, m.again)
		case m.waits != nil:
			s.waits(*m.waits)
		case m.counted != nil:
			s.counted(*m.counted)
		default:
			s.apply(m.change)
		}
	}
	s.trim()
}

// apply brings a durable change to where its alarm is.
func (s *Scheduler) apply(c objectstore.AlarmChange) {
	if d := s.out[c.ID]; d != nil {
		d.next = &c
		return
	}
	if e := s.forget(c.ID); e != nil {
		s.boot.ended(e)
	}
	a := objectstore.Alarm{ID: c.ID, Due: c.Slot.Due, Generation: c.Slot.Generation}
	if c.Set && (s.complete || compare(a, s.last) <= 0) {
		s.queue.put(&entry{Alarm: a, at: a.Due})
	}
}

// forget takes an alarm out of the queue, or out of those that are held.
func (s *Scheduler) forget(id objectstore.ID) *entry {
	if e := s.held[id]; e != nil {
		delete(s.held, id)
		return e
	}
	return s.queue.remove(id)
}

// hold keeps an entry from being delivered for d, by the monotonic clock: the wall
// clock may be set back meanwhile.
func (s *Scheduler) hold(e *entry, d time.Duration) {
	e.until = time.Now().Add(d)
	s.held[e.ID] = e
}

// unhold queues the entries whose time of waiting is over.
func (s *Scheduler) unhold() {
	for id, e := range s.held {
		if !time.Now().Before(e.until) {
			delete(s.held, id)
			s.queue.put(e)
		}
	}
}

// ended takes a delivery back.
func (s *Scheduler) ended(a objectstore.Alarm, again bool) {
	d := s.out[a.ID]
	if d == nil || d.Generation != a.Generation {
		return
	}
	s.takeBack(d)
	changed := d.next != nil && d.next.Slot.Generation != a.Generation
	if again && !changed {
		d.tries++
		s.hold(d.entry, againAfter(d.tries))
		return
	}
	s.boot.ended(d.entry)
	if changed {
		s.apply(*d.next)
	}
}

// trim keeps memory within its limit by moving the horizon nearer.
func (s *Scheduler) trim() {
	if len(s.queue.order) <= s.cfg.Limit {
		return
	}
	last := s.queue.shrink(s.cfg.Limit / 2)
	if !s.complete && compare(last, s.last) >= 0 {
		return // all that is beyond the horizon are entries that must stay
	}
	s.last, s.horizon, s.complete = last, last.Pos(), false
}

// refill reads the index beyond the horizon while memory holds few alarms.
func (s *Scheduler) refill() {
	for !s.complete && len(s.queue.order) < s.cfg.Limit/4 && !s.paused() && s.ctx.Err() == nil {
		limit := s.cfg.Limit / 2
		as, pos, err := s.cfg.Window(s.ctx, s.horizon, limit)
		if err != nil {
			s.failed(err)
			return
		}
		for _, a := range as {
			if s.out[a.ID] == nil && s.queue.byID[a.ID] == nil && s.held[a.ID] == nil {
				s.queue.put(&entry{Alarm: a, at: a.Due})
			}
			s.last = a
		}
		s.horizon = pos
		s.complete = len(as) < limit
		s.read()
		if len(as) > 0 && s.last.Due.After(s.now()) {
			return
		}
	}
}

// retryAfter is how long nothing is read after a read that failed.
const retryAfter = time.Second

func (s *Scheduler) paused() bool { return time.Now().Before(s.retryAt) }

func (s *Scheduler) failed(err error) {
	s.retryAt = time.Now().Add(retryAfter)
	if s.cfg.OnError != nil && s.ctx.Err() == nil {
		s.cfg.OnError(err)
	}
}

// deliver sends out what is due.
func (s *Scheduler) deliver() {
	s.deliverBoot()
	s.unhold()
	now := s.now()
	for s.room() > 0 {
		e := s.queue.first()
		if e == nil || e.at.After(now) {
			break
		}
		if s.uncounted(e) {
			s.deliverRaised()
			continue
		}
		s.send(s.queue.take())
	}
	s.deliverSuspect()
	s.mu.Lock()
	s.size, s.next = len(s.queue.order)+len(s.held), time.Time{}
	if e := s.queue.first(); e != nil {
		s.next = e.at
	}
	s.mu.Unlock()
}

func (s *Scheduler) send(e *entry) {
	s.out[e.ID] = &delivery{entry: e}
	s.cfg.Deliver(Delivery{Alarm: e.Alarm, Raise: e.count == countLate, Suspects: e.suspect})
}

// rest is how long the goroutine may sleep: until the next alarm, and not longer
// than the wall clock can be trusted.
func (s *Scheduler) rest() time.Duration {
	d := s.cfg.Look
	if e := s.queue.first(); e != nil && s.room() > 0 {
		d = min(d, e.at.Sub(s.now()))
	}
	for _, e := range s.held {
		d = min(d, time.Until(e.until))
	}
	if wait := time.Until(s.retryAt); wait > 0 {
		d = min(d, wait)
	} else if !s.complete && len(s.queue.order) < s.cfg.Limit/4 && s.last.Due.Before(s.now()) {
		d = 0
	}
	return max(d, 0)
}
