package runtime

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dohost/dohost/alarm"
	"github.com/dohost/dohost/eviction"
	"github.com/dohost/dohost/objectstore"
)

// The phases of a host.
const (
	phaseOpen    int32 = iota
	phaseClosing       // outside calls are refused
	phaseClosed        // everything is fenced
)

// Host owns a store and the objects in it. All methods may be called from any
// goroutine.
type Host struct {
	// Fixed after Open.
	opts      Options
	lis       *Listener // guarded
	log       *slog.Logger
	store     *objectstore.Store
	classes   map[string]*class
	bound     []*class // the same, in order
	scheduler *alarm.Scheduler
	crashLoop alarm.CrashLoop
	sweeper   *sweeper
	start     time.Time

	open    context.Context // ends with ErrClosed when the host begins to close
	endOpen context.CancelCauseFunc

	phase        atomic.Int32
	answers      sync.Pool // of empty channels for answers
	runners      runners
	reports      reports // of the store
	services     serviceReports
	active       atomic.Int64  // events queued, running and suspended, and tasks to come
	running      atomic.Int64  // runners that have a job
	idleSignal   chan struct{} // capacity 1: one of the counters has reached zero
	idle         *sync.Cond    // waits until a turn is not in use; only after misuse
	incarnations atomic.Int64  // objects with an incarnation in memory
	emitting     atomic.Int64  // functions given to Emit that outputs wait for, and reports
	sampled      atomic.Uint64 // shards that shedOne sampled, of all classes
	restores     chan struct{} // has an element for each running RestoreObject

	mu      sync.Mutex
	err     error               // why the store failed
	zombies map[zombie]struct{} // code that still runs in ended incarnations
	failed  chan struct{}       // closed when err is set
	closing atomic.Bool
	closed  error         // written before done is closed
	done    chan struct{} // closed when Close has finished
}

// Open opens the store in dir, which it creates if necessary, and starts delivering alarms.
// Errors: objectstore's, and one for a class that is bound twice.
func Open(dir string, opts Options, classes []Class) (*Host, error) {
	h := &Host{
		opts: opts.withDefaults(), classes: map[string]*class{}, start: time.Now(),
		zombies: map[zombie]struct{}{}, failed: make(chan struct{}), done: make(chan struct{}),
		idleSignal: make(chan struct{}, 1), restores: make(chan struct{}, maxRestores), idle: sync.NewCond(new(sync.Mutex)),
	}
	h.open, h.endOpen = context.WithCancelCause(context.Background())
	h.log = loggerOf(&h.opts.Store)
	h.lis = h.guarded(h.opts.Listener)
	h.guardPolicy(&h.opts.Policy)
	for i := range classes {
		c := &classes[i]
		if err := (ID{Class: c.Name, Name: "x"}).Validate(); err != nil {
			return nil, err
		}
		if h.classes[c.Name] != nil {
			return nil, fmt.Errorf("dohost: class %q is bound twice", c.Name)
		}
		bound := &class{Class: *c, host: h, table: table{seed: maphash.MakeSeed()}}
		h.classes[c.Name], h.bound = bound, append(h.bound, bound)
	}
	so := h.opts.Store
	so.OnFail = h.storeFailed
	so.OnDropped = h.writesDropped
	so.OnSpace, so.OnDamage = h.spaceChanged, h.damageFound
	if h.opts.Policy.At != nil {
		so.Hook = h.guardedRecordAt
	}
	so.OnAlarms = func(cs []objectstore.AlarmChange) { h.scheduler.Changed(cs) }
	if so.Ship != nil && so.Ship.Context == nil {
		ship := *so.Ship
		ship.Context = context.Background() // the store ships its last records while the host closes
		so.Ship = &ship
	}
	if so.Shared != nil && so.Shared.Context == nil {
		shared := *so.Shared
		shared.Context = context.Background() // the store appends its last record while the host closes
		so.Shared = &shared
	}
	h.sweeper = newSweeper(h)
	store, err := objectstore.Open(dir, &so)
	if err != nil {
		return nil, err
	}
	h.store = store
	h.crashLoop = alarm.CrashLoop{Host: store.Generation(), Unclean: !store.Clean()}
	h.scheduler = alarm.NewScheduler(context.Background(), alarm.Config{
		Classes: h.alarmClasses, Window: h.alarmWindow, StartAlarms: h.startAlarms, StartBefore: store.Generation() << 40, Deliver: h.deliver,
		CrashLoop: h.crashLoop, OnError: h.lis.failed, Step: func() { h.guardedStep(eviction.PlaceDue) },
	})
	if h.opts.Opened != nil {
		h.opts.Opened(h)
	}
	h.sweeper.start()
	h.scheduler.Start()
	return h, nil
}

// now is the time since the host was opened, on the monotonic clock.
func (h *Host) now() time.Duration { return time.Since(h.start) }

// Owner returns Options.Owner.
func (h *Host) Owner() any { return h.opts.Owner }

// Store returns the host's store, for inspection.
func (h *Host) Store() *objectstore.Store { return h.store }

// Evict ends the incarnation of id, and reports whether there was one.
func (h *Host) Evict(id ID, mode eviction.EndMode) bool {
	o := h.lookup(id)
	if o == nil {
		return false
	}
	o.mu.Lock()
	inc := o.incarnation
	o.mu.Unlock()
	return o.fence(inc, &Fenced{Reason: ReasonEvicted}, mode)
}

// Err returns the reason why the store failed, or nil.
func (h *Host) Err() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.err
}

// Failed is closed when the store has failed: the host is closing itself then.
func (h *Host) Failed() <-chan struct{} { return h.failed }

// storeFailed is called once, by a store that refuses all operations from now on.
func (h *Host) storeFailed(err error) {
	h.mu.Lock()
	h.err = err
	h.mu.Unlock()
	h.guardedStep(eviction.PlaceFail) // the store drops outputs concurrently
	close(h.failed)
	h.lis.storeFailed(err)
	h.phase.Store(phaseClosed)
	h.scheduler.Stop() // before the ends of deliveries wake it
	h.fenceAll(&Fenced{Reason: ReasonStore, Err: err})
	_ = h.Close() // its error is Err
}

// writesDropped ends an incarnation after the store has dropped its writes.
func (h *Host) writesDropped(id ID, epoch objectstore.Epoch, cause error) {
	o := h.lookup(id)
	if o == nil {
		return
	}
	o.mu.Lock()
	inc := o.incarnation
	o.mu.Unlock()
	if inc != nil && inc.epoch() == epoch {
		o.fence(inc, &Fenced{Reason: ReasonStore, Err: cause}, eviction.EndCrash)
	}
}

// Context returns a context for events that no request causes. It ends with ErrClosed when the host begins to close.
func (h *Host) Context() context.Context { return h.open }

// Closing returns a channel that is closed when the host begins to close.
func (h *Host) Closing() <-chan struct{} { return h.open.Done() }

// Close refuses outside calls, lets running events finish for Options.Grace while the host
// still serves calls from inside, fences the other incarnations, and closes the store. Its
// error names handlers that did not stop, and the failure of the store. Reports have a second
// to reach Listener.Service; Close discards the others and reports their number to Listener.Failed.
func (h *Host) Close() error {
	if h.closing.CompareAndSwap(false, true) {
		h.shutDown()
	}
	<-h.done
	return h.closed
}

// Abandon ends the host as the end of its process would, as far as a surviving process can
// imitate that: nothing more leaves, except outputs with a release in progress; nothing
// more is written, except a record in flight; and handlers find their incarnation ended.
// For tests.
func (h *Host) Abandon() {
	h.phase.Store(phaseClosed)
	if h.opts.Abandoned != nil {
		h.opts.Abandoned()
	}
	h.store.BeginAbandon()
	h.fenceAll(&Fenced{Reason: ReasonKilled})
	h.store.Abandon()
	if h.closing.CompareAndSwap(false, true) {
		h.finish()
	}
	<-h.done
}

// RecheckSpace measures the free space of the disk now. For tests.
func (h *Host) RecheckSpace() { h.store.RecheckSpace() }

func (h *Host) shutDown() {
	h.phase.CompareAndSwap(phaseOpen, phaseClosing)
	h.endOpen(ErrClosed)
	h.scheduler.Stop()
	h.drain()
	h.guardedStep(eviction.PlaceClose)
	h.phase.Store(phaseClosed)
	h.fenceAll(&Fenced{Reason: ReasonClosing})
	h.finish()
}

// finish waits for the code of incarnations that have ended, and closes the store.
func (h *Host) finish() {
	defer close(h.done)
	h.endOpen(ErrClosed)
	h.scheduler.Stop()
	h.sweeper.stop()
	h.awaitZero(&h.running, unwindTime, nil)
	h.runners.close()
	h.guardedStep(eviction.PlaceClose)
	err := h.store.Close()
	h.awaitZero(&h.emitting, unwindTime, nil) // the last outputs leave when the store closes
	h.closeServices()
	h.closed = errors.Join(h.zombieError(), err)
}

// drain waits until no event is queued or running, for Options.Grace at most.
func (h *Host) drain() {
	if h.opts.Grace > 0 {
		h.awaitZero(&h.active, h.opts.Grace, h.failed)
	}
}

// decrement decrements a counter, and wakes Close at zero.
func (h *Host) decrement(n *atomic.Int64) {
	if n.Add(-1) == 0 {
		select {
		case h.idleSignal <- struct{}{}:
		default:
		}
	}
}

// awaitZero waits until n is zero, for d at most, or until or is closed.
func (h *Host) awaitZero(n *atomic.Int64, d time.Duration, or <-chan struct{}) {
	late := time.NewTimer(d)
	defer late.Stop()
	for n.Load() > 0 {
		select {
		case <-h.idleSignal:
		case <-late.C:
			return
		case <-or:
			return
		}
	}
}

// fenceAll ends every incarnation and fails the queued events.
func (h *Host) fenceAll(why *Fenced) {
	os := h.all()
	if h.opts.Policy.At != nil { // in the same order each time
		slices.SortFunc(os, func(a, b *object) int { return strings.Compare(a.id().String(), b.id().String()) })
	}
	for _, o := range os {
		o.mu.Lock()
		inc := o.incarnation
		o.mu.Unlock()
		o.fence(inc, why, eviction.EndFence)
	}
}

// unwindTime is how long Close, and outputs that wait for a function given to Emit, wait
// for code of an incarnation that has ended.
const unwindTime = time.Second

// zombieError returns an error with the code of ended incarnations that still runs.
func (h *Host) zombieError() error {
	if left := h.Zombies(); len(left) > 0 {
		return fmt.Errorf("dohost: handlers are still running after their contexts were cancelled: %v", left)
	}
	return nil
}

// zombie is code that still runs in an incarnation that has ended: an event, or a function
// that was given to Emit.
type zombie interface {
	zombie() string // "class/name op"
}

// Zombies lists code that still runs in ended incarnations, as "class/name op".
func (h *Host) Zombies() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	var zs []string
	for z := range h.zombies {
		zs = append(zs, z.zombie())
	}
	return zs
}

func (ev *event) zombie() string { return ev.obj.id().String() + " " + ev.op }

func (h *Host) addZombie(z zombie) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.zombies[z] = struct{}{}
}

func (h *Host) removeZombie(z zombie) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.zombies, z)
}
