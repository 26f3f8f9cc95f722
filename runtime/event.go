package runtime

import (
	"context"
	"errors"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/dohost/dohost/eviction"
	"github.com/dohost/dohost/internal/invariants"
	"github.com/dohost/dohost/objectstore"
)

// maxDepth bounds a chain of calls from object to object, as workerd bounds the nesting of
// critical sections.
const maxDepth = 64

type eventKind uint8

const (
	kindCall       eventKind = iota
	kindAlarm                // a delivery of the object's alarm
	kindBackground           // State.Go
	kindInternal             // of the runtime itself
	kindConstruct            // the constructor
)

// event is a unit of work delivered to an object. It contains its turn, its context and its
// output in one allocation. It is not reused: a goroutine that outlives its handler may
// still have the context.
type event struct {
	turn turn

	// Fixed when it is made.
	kind      eventKind
	depth     uint8 // of calls from event to event
	op        string
	size      int    // bytes of its encoded payload
	parent    *event // the calling event, for the chain of calls
	handler   Handler
	only      *incarnation // kindBackground: the incarnation that it belongs to
	*delivery              // kindAlarm

	obj *object // set when it is enqueued

	// Set when it starts, by the goroutine that grants the turn, before the runner reads it.
	incarnation *incarnation
	seq         uint64 // number of this event within the object, for points

	// Owned by the event's own goroutine.
	err  error // of the handler, or the reason why its last batch was refused
	last *turn // the turn that it ends with, set after its code and before committed: its own, or a replacement

	// points counts the visits to each place; nil if the policy has no At.
	points *visits

	// Guarded by obj.mu.
	prompt     bool // the answer is likely to follow soon; read by the enqueuing goroutine
	abandoned  bool // its caller gave up before it started, or it was refused late
	dropAlarm  bool // Abort asked for the alarm to be dropped
	isZombie   bool // counted as running in an ended incarnation
	prev, succ *event
	queued     time.Duration
	begun      time.Duration

	sent      atomic.Pointer[object] // the object that has or had it in its queue
	committed atomic.Bool            // its last batch was committed: the output answers
	answered  atomic.Bool
	done      chan error // capacity 1; nil for events without a caller
}

// delivery is the part of an event that delivers an alarm.
type delivery struct {
	// Fixed when it is made.
	alarm  objectstore.Alarm
	from   time.Time // when the delivery was due
	charge bool      // see alarm.Delivery

	// Owned by the runner between incarnations, and then by that of the incarnation.
	compared bool             // slot is read, before the constructor
	slot     objectstore.Slot // the slot that the delivery was compared with, as charged
	charged  bool             // durably, between incarnations
	moved    bool             // the constructor has run, and left the slot with the generation
	movedTo  uint64           // (zero: no alarm): the delivery is for this generation, too

	// Owned by the event's own goroutine.
	waited bool      // the scheduler knows that the event has given up the turn
	run    *alarmRun // if the handler ran

	// running is the charge of the run in progress. It is written before the handler
	// begins, and read by the holder of the turn.
	running objectstore.Charge

	ended atomic.Bool // the end of the delivery is reported, or will be
}

func (ev *event) host() *Host { return ev.obj.host() }

// outlived reports whether the event's incarnation has ended.
func (ev *event) outlived() bool { return ev.incarnation.dead.Load() }

// answer answers the caller, once.
func (ev *event) answer(err error) {
	if ev.answered.CompareAndSwap(false, true) && ev.done != nil {
		ev.done <- err
	}
}

// Release answers the caller. The event is the output of its own last batch.
func (ev *event) Release(err error) {
	if ev.kind == kindAlarm {
		if inc := ev.incarnation; err != nil && inc.cause() != nil {
			ev.obj.alarmFenced(ev, inc.why) // the handler may return before the fence has got to its event
		} else {
			ev.endDelivery(err != nil)
		}
	}
	if err != nil {
		ev.answer(ev.failure(ev.lost(err), OutcomeUnknown))
		return
	}
	ev.obj.guardedAt(ev, eviction.PlaceRelease)
	ev.answer(ev.failure(ev.err, OutcomeRan))
}

// lost returns why a result of this event must not leave: the end of the incarnation, the
// failure of the store, or else err.
func (ev *event) lost(err error) error {
	if cause := ev.incarnation.cause(); cause != nil {
		return cause
	}
	if failure := ev.host().store.Err(); failure != nil {
		return &Fenced{Reason: ReasonStore, Err: failure}
	}
	return err
}

// wait returns the event's answer, or abandons the event when ctx ends. If the event was answered,
// its channel is empty and may be reused.
func (ev *event) wait(ctx context.Context, id ID) (answered bool, err error) {
	select {
	case err := <-ev.done: // receiving from one channel is cheaper than the select below
		return true, err
	default:
	}
	select {
	case err := <-ev.done:
		return true, err
	case <-ctx.Done():
		return false, ev.abandon(ctx, id)
	}
}

// abandon returns the error for the caller after its ctx ended without an answer. The call
// may still wait at the caller's own gate: enqueue stores the object before it checks
// whether the call was answered, so one of the two sees the other.
func (ev *event) abandon(ctx context.Context, id ID) error {
	if !ev.answered.CompareAndSwap(false, true) {
		return <-ev.done // the answer came at the last moment
	}
	e := &Error{Op: ev.op, ID: id, Err: context.Cause(ctx)}
	if o := ev.sent.Load(); o == nil || !o.withdraw(ev) {
		e.Outcome, e.Retryable = OutcomeNotRun, true
	}
	return e
}

// run runs the event of a granted turn in its incarnation, on this goroutine, and returns
// the next turn for this goroutine to run.
func (o *object) run(t *turn) (next *turn) {
	ev := t.ev
	returned := false
	defer func() {
		if returned {
			return
		}
		p := &PanicError{Value: recover(), Stack: debug.Stack()}
		ev.end()
		ev.err = p
		o.crashed(ev, p)
		next = o.finish(ev) // none: the queue of the ended incarnation has no turn that has not started
	}()
	o.class.label(ev.op)
	o.at(ev, eviction.PlaceStart)
	if inc := ev.incarnation; inc.dead.Load() {
		ev.answer(ev.failure(inc.why, OutcomeNotRun))
	} else {
		o.handle(ev)
	}
	returned = true
	next = o.finish(ev)
	o.guardedAt(ev, eviction.PlaceEnd)
	return next
}

// crashed drops the batch of code that panicked, or exited its goroutine, with the turn
// held, and ends the incarnation.
func (o *object) crashed(ev *event, p *PanicError) {
	drop(ev.incarnation.batch, ErrFenced)
	o.fence(ev.incarnation, &Fenced{Reason: ReasonPanic, Err: p, by: ev}, eviction.EndFence)
}

// handle runs the handler and commits its last batch.
func (o *object) handle(ev *event) {
	inc := ev.incarnation
	if ev.kind == kindAlarm {
		o.at(ev, eviction.PlaceAlarm)
		o.handleAlarm(ev)
	} else {
		ev.err = ev.handler.Handle((*eventCtx)(ev), inc.instance)
	}
	last := ev.end()
	inc.batch.Emit(ev)
	// A refused batch releases its outputs, this event among them, with the error.
	ev.committed.Store(true)
	if err := inc.commit(last); err != nil && ev.err == nil {
		ev.err = err
	}
}

// end ends the turn of the event's code, once.
func (ev *event) end() *turn {
	if ev.last == nil {
		ev.last = ev.turn.end()
	}
	return ev.last
}

// finish ends an event. It passes the turn to the next in order, and returns that turn if
// it needs a goroutine. If the Listener ends this goroutine, the next event gets another.
func (o *object) finish(ev *event) (next *turn) {
	heard := false
	defer func() {
		if next = o.pass(ev); !heard && next != nil {
			o.host().spawn(o, next)
		}
	}()
	o.host().eventEnded(ev)
	heard = true
	return nil
}

// pass ends the turn of an event, and passes it to the next in order.
func (o *object) pass(ev *event) (next *turn) {
	o.mu.Lock()
	inc := ev.incarnation
	inc.unlinkLocked(ev)
	if ev.kind == kindBackground {
		inc.tasks.Add(-1)
	}
	ev.turn.state.Store(turnOver)
	counted := !ev.isZombie
	if counted {
		o.count--
	} else {
		o.host().removeZombie(ev)
	}
	if o.alarm == ev {
		o.alarm = nil
	}
	o.last, o.prompt = o.host().now(), ev.answered.Load()
	next = o.startLocked(inc, inc.queue.passLocked(), o.last)
	o.mu.Unlock()
	if counted {
		o.host().decrement(&o.host().active)
	}
	return next
}

// startNextLocked passes the turn to the next in order. If that is a new event, it starts it.
func (o *object) startNextLocked(inc *incarnation, from *turnQueue) *turn {
	invariants.Held(&o.mu)
	t := from.passLocked()
	if t == nil {
		return nil
	}
	return o.startLocked(inc, t, o.host().now())
}

// startLocked makes a granted new turn the running event of the incarnation, if there is one.
func (o *object) startLocked(inc *incarnation, t *turn, now time.Duration) *turn {
	invariants.Held(&o.mu)
	if t == nil {
		return nil
	}
	ev := t.ev
	if inc.batch == nil {
		inc.rng = o.rangeLocked(inc.epoch())
		inc.batch = inc.rng.NewBatch(inc.epoch())
	}
	o.bytes -= ev.size
	o.events++
	ev.seq = o.events
	ev.incarnation = inc
	ev.begun = now
	t.unstarted = false
	o.host().count(ev)
	inc.linkLocked(ev)
	return t
}

func (inc *incarnation) linkLocked(ev *event) {
	invariants.Held(&inc.obj.mu)
	ev.succ = inc.running
	if inc.running != nil {
		inc.running.prev = ev
	}
	inc.running = ev
}

func (inc *incarnation) unlinkLocked(ev *event) {
	invariants.Held(&inc.obj.mu)
	if ev.prev != nil {
		ev.prev.succ = ev.succ
	} else if inc.running == ev {
		inc.running = ev.succ
	}
	if ev.succ != nil {
		ev.succ.prev = ev.prev
	}
	ev.prev, ev.succ = nil, nil
	inc.dropInstanceLocked()
}

// dropInstanceLocked drops the instance of an ended incarnation when none of its code runs any
// more. The table entry may keep the incarnation itself: see object.first.
func (inc *incarnation) dropInstanceLocked() {
	if inc.dead.Load() && inc.running == nil {
		inc.instance = nil
	}
}

// errGone means that an object left the table before an event could enter its queue: look
// it up again.
var errGone = errors.New("object has left memory")
