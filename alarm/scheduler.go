package alarm

import (
	"context"
	"sync"
	"time"

	"github.com/dohost/dohost/objectstore"
)

// Config has the functions and limits of a Scheduler. Zero numbers mean the defaults.
type Config struct {
	// Classes reads which classes have alarms in the durable index. It may return a class twice,
	// and classes without alarms.
	Classes func(ctx context.Context) ([]string, error)
	// Window reads the durable index of a class, or with an empty class the index of
	// the suspects, in order of due time and object, after a position; fewer than limit
	// mean the end.
	Window func(ctx context.Context, class string, after objectstore.AlarmPos, limit int) ([]objectstore.Alarm, objectstore.AlarmPos, error)
	// StartAlarms reads the alarms of a class that are delivered when the host starts as well, in
	// order of name, after a name. Nil if there are none.
	StartAlarms func(ctx context.Context, class, after string, limit int) ([]objectstore.Alarm, error)
	// StartBefore is the first alarm generation of this host: an alarm with a later generation
	// is delivered only when it is due.
	StartBefore uint64
	// Deliver starts a delivery, which ends with Done. It must not block, nor call Stop.
	Deliver func(Delivery)
	// CrashLoop decides which deliveries are charged, and when suspects are delivered.
	CrashLoop CrashLoop
	// Step is called before each search for due alarms, and may block. Tests set it; it is nil in production.
	Step func()
	// OnError is called with the error of a failed read, by the goroutine of the Scheduler. All
	// reads pause for a second after it. Nil ignores the error.
	OnError func(error)
	// Limit bounds the alarms in memory; 8,192. The classes that have alarms share it equally,
	// but each may have at least 256.
	Limit int
	// Concurrency bounds the deliveries of a class that are out and not noted as waiting; 256.
	// Including waiting deliveries, the bound is 16 x Concurrency.
	Concurrency int
	// HostConcurrency is the same for all classes together; twice Concurrency. Reserve is
	// how many deliveries of a class may be out beyond that; an eighth of Concurrency.
	HostConcurrency, Reserve int
	// Group bounds how many alarms of a class are delivered at the start at a time; 256.
	Group int
	// MaxSleep is the longest time between two reads of the wall clock: it may jump, and the machine may have been
	// asleep. 30 s.
	MaxSleep time.Duration
}

// Scheduler delivers alarms when they are due: never early by the wall clock, apart
// from Config.StartAlarms; at least once; and at most one of an object at a time. One
// goroutine does the work. All methods may be called from any goroutine.
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
	size    int       // of the queues, for Pending
	next    time.Time // of the queues, for Pending

	// Owned by the goroutine.
	start            time.Time
	queues           map[string]*alarmQueue
	order            []*alarmQueue // the same, the suspects first
	suspects         *alarmQueue
	listed           bool                           // list has read the classes
	suspectsReleased bool                           // see suspectsMayRun
	queued           map[objectstore.ID]*alarmEntry // in the queues
	held             map[objectstore.ID]*alarmEntry // cut off, and not to be delivered again yet
	outstanding      map[objectstore.ID]*delivery
	waiting          int       // of those that are out
	retryAt          time.Time // no read before this, after one failed; monotonic
}

// message is a durable change, or the waiting or the end of a delivery.
type message struct {
	change    objectstore.AlarmChange
	suspended *objectstore.Alarm
	ended     *objectstore.Alarm
	retry     bool
}

// NewScheduler returns a scheduler that has not started. Its reads end with ctx, or
// with Stop.
func NewScheduler(ctx context.Context, c Config) *Scheduler {
	setDefault(&c.Limit, 8192)
	setDefault(&c.Concurrency, 256)
	setDefault(&c.HostConcurrency, 2*c.Concurrency)
	setDefault(&c.Reserve, (c.Concurrency+7)/8)
	setDefault(&c.Group, 256)
	setDefault(&c.MaxSleep, 30*time.Second)
	s := &Scheduler{
		cfg: c, now: func() time.Time { return time.Now().Round(0) },
		wake: make(chan struct{}, 1), done: make(chan struct{}),
		queues: map[string]*alarmQueue{}, queued: map[objectstore.ID]*alarmEntry{}, held: map[objectstore.ID]*alarmEntry{},
		outstanding: map[objectstore.ID]*delivery{},
	}
	s.suspects = s.queueFor("")
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

// Stop ends the goroutine and waits for it. Deliveries that are out continue; their Done is ignored.
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

// Done notes that a delivery has ended. With again it was cut off by no fault of its own, and is delivered again
// unless the alarm has changed since.
func (s *Scheduler) Done(a objectstore.Alarm, again bool) {
	s.post(message{ended: &a, retry: again})
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

// Pending returns how many alarms wait in memory, and when the next of those in queues is due;
// the zero time if there is none. Deliveries that are out do not count.
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
	s.start = s.now()
	for s.ctx.Err() == nil {
		if s.cfg.Step != nil {
			s.cfg.Step()
			select { // its message is in the inbox
			case <-s.wake:
			default:
			}
		}
		s.read()
		s.refill()
		s.deliver()
		timer.Reset(s.sleepTime())
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
			s.ended(*m.ended, m.retry)
		case m.suspended != nil:
			s.markSuspended(*m.suspended)
		default:
			s.apply(m.change)
		}
	}
	s.trim()
}

// apply updates the entry of an alarm after a durable change.
func (s *Scheduler) apply(c objectstore.AlarmChange) {
	if d := s.outstanding[c.ID]; d != nil {
		d.next = &c
		return
	}
	if e := s.take(c.ID); e != nil {
		e.endStartDelivery()
	}
	if !c.Set || c.Slot.Parked != objectstore.NotParked {
		return
	}
	a := objectstore.Alarm{ID: c.ID, Due: c.Slot.Due, Generation: c.Slot.Generation, Suspect: c.Slot.Suspect()}
	if q := s.queueOf(a); q.complete || compare(a, q.last) <= 0 {
		s.put(&alarmEntry{Alarm: a, queue: q, at: a.Due})
	}
}

// hold keeps an entry from being delivered for d, by the monotonic clock: the wall clock may be set back before d is
// over.
func (s *Scheduler) hold(e *alarmEntry, d time.Duration) {
	e.until = time.Now().Add(d)
	s.held[e.ID] = e
}

// queueHeld queues the entries that have been held long enough.
func (s *Scheduler) queueHeld() {
	for id, e := range s.held {
		if !time.Now().Before(e.until) {
			delete(s.held, id)
			s.put(e)
		}
	}
}

// ended handles the end of a delivery.
func (s *Scheduler) ended(a objectstore.Alarm, again bool) {
	d := s.outstanding[a.ID]
	if d == nil || d.Generation != a.Generation {
		return
	}
	s.removeDelivery(d)
	changed := d.next != nil && d.next.Slot.Generation != a.Generation
	if again && !changed {
		d.tries++
		s.hold(d.alarmEntry, cutOffDelay(d.tries))
		return
	}
	d.alarmEntry.endStartDelivery()
	if changed {
		s.apply(*d.next)
	}
}

// retryAfter is the pause of all reads after a failed one.
const retryAfter = time.Second

func (s *Scheduler) paused() bool { return time.Now().Before(s.retryAt) }

func (s *Scheduler) failed(err error) {
	s.retryAt = time.Now().Add(retryAfter)
	if s.cfg.OnError != nil && s.ctx.Err() == nil {
		s.cfg.OnError(err)
	}
}

// deliver sends out the due alarms.
func (s *Scheduler) deliver() {
	s.queueStartAlarms()
	s.queueHeld()
	now := s.now()
	for e := s.nextDue(now); e != nil; e = s.nextDue(now) {
		s.remove(e.ID)
		s.send(e)
	}
	first := time.Time{}
	for _, q := range s.order {
		if e := q.first(); e != nil && (first.IsZero() || e.at.Before(first)) {
			first = e.at
		}
	}
	s.mu.Lock()
	s.size, s.next = len(s.queued)+len(s.held), first
	s.mu.Unlock()
}

// nextDue returns the first entry that is due by now, of the queues that have room.
func (s *Scheduler) nextDue(now time.Time) (first *alarmEntry) {
	for _, q := range s.order {
		e := q.first()
		if e == nil || e.at.After(now) || first != nil && !e.at.Before(first.at) {
			continue
		}
		if s.freePlaces(q) > 0 && (q != s.suspects || s.suspectsMayRun()) {
			first = e
		}
	}
	return first
}

// sleepTime returns how long the goroutine may sleep: until the next alarm, and at most MaxSleep, since the wall clock
// may jump.
func (s *Scheduler) sleepTime() time.Duration {
	d, now := s.cfg.MaxSleep, s.now()
	reading := time.Until(s.retryAt) <= 0
	for _, q := range s.order {
		if e := q.first(); e != nil && s.freePlaces(q) > 0 && (q != s.suspects || s.suspectsMayRun()) {
			d = min(d, e.at.Sub(now))
		}
		if reading && s.needsRefill(q) && q.last.Due.Before(now) {
			d = 0
		}
	}
	for _, e := range s.held {
		d = min(d, time.Until(e.until))
	}
	if !reading {
		d = min(d, time.Until(s.retryAt))
	}
	return max(d, 0)
}
