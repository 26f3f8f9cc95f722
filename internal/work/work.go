package work

import (
	"fmt"
	"time"
)

// State is the state of an item.
type State uint8

// The states of items.
const (
	Waiting    State = iota // it has not begun, or waits for its time
	Running                 // its owner works on it
	Recovering              // it was interrupted, and a hook that decides about it was called
	Notifying               // it has ended, and the call of its end hook is pending
	Ended                   // it has ended
	Orphaned                // its code is not registered any more
	Dead                    // recovery has given it up: an operator decides
	Cancelling              // it was cancelled while it ran, and keeps its place until the run returns
	Replaced                // as Cancelling, but another payload runs next
)

// String returns the name of the state.
func (s State) String() string {
	return [...]string{"waiting", "running", "recovering", "notifying", "ended", "orphaned", "dead", "cancelling", "replaced"}[s]
}

// Outcome is the outcome of an item that has ended.
type Outcome uint8

// The outcomes of items.
const (
	Completed Outcome = iota + 1
	Failed
	Cancelled
	Skipped // not begun, because another item takes its place, or because it has become pointless
)

// Item is the state of one piece of durable work. Times are in milliseconds since 1970; zero means none.
type Item struct {
	State   State   `msgpack:",omitempty"`
	Outcome Outcome `msgpack:",omitempty"` // of an item that is Ended or Notifying
	// Owner is the incarnation that works on it, or did until it ended; of a chat reply, a call of its handler. Empty means
	// none.
	Owner string `msgpack:",omitempty"`
	// Run is the number of its current run, or of the last: see Event.Run.
	Run uint64 `msgpack:",omitempty"`

	Attempt  int `msgpack:",omitempty"` // failures and interruptions since it was started
	Failures int `msgpack:",omitempty"` // errors that its code has returned
	Stalls   int `msgpack:",omitempty"` // interruptions since it last made progress
	// FirstStall is the time of the first of them, if the policy has MaxStallTime.
	FirstStall int64 `msgpack:",omitempty"`

	Calls     int   `msgpack:",omitempty"` // of its hook, since it last made progress
	FirstCall int64 `msgpack:",omitempty"` // when the first of them began
	NotBefore int64 `msgpack:",omitempty"` // when it is due: for a run or, while a hook is pending, for a call of it
	Expires   int64 `msgpack:",omitempty"` // when the row of an ended item may be deleted
}

// Open reports whether the item has not ended, and is not given up.
func (it *Item) Open() bool {
	return it.State == Waiting || it.State == Running || it.State == Recovering
}

// Interrupted reports whether an owner that has ended has left the item open. owner is the incarnation that asks.
func (it *Item) Interrupted(owner string) bool {
	switch it.State {
	case Waiting:
		return it.Owner != "" && it.Owner != owner
	case Running, Cancelling, Replaced:
		return it.Owner != owner
	}
	return it.State == Recovering
}

// Policy is the difference between the kinds of work.
type Policy struct {
	// Known is set if the item's code is registered.
	Known bool
	// Resumable is set if the code can be called again after an interruption. Other items end then, or their hook
	// resumes them as something else.
	Resumable bool
	// RecoveryHook is set if a hook decides about interrupted items.
	RecoveryHook bool
	// EndHook is set if a hook is called when the item has ended, unless it was cancelled.
	EndHook bool
	// EndHookAfterCancel is set if that hook is also called for an item that was cancelled after it had begun.
	EndHookAfterCancel bool
	// MaxRetries bounds Failures and Stalls together. Negative means no bound.
	MaxRetries int
	// CountAllAttempts makes MaxRetries bound Attempt, which includes the attempts that made progress.
	CountAllAttempts bool
	// MaxStallTime bounds the time from the first of the Stalls to a further attempt. Zero or less means no bound.
	MaxStallTime time.Duration
	// Isolate is the number of Stalls that makes an interrupted item a suspect, because it may be the one that ends its
	// process. Suspects run one at a time. Zero means never.
	Isolate int
	// GiveUp makes an interrupted item that is out of retries Dead, instead of Failed.
	GiveUp bool
	// KeepPlace makes an item that is cancelled or replaced while it runs wait for the return of the run.
	KeepPlace bool
	// RetryDelay bounds the delay before the run after the first failure. The bound doubles with each failure, up to
	// MaxRetryDelay; each delay is shorter than its bound by the share Event.Jitter. The item waits without an owner. Zero means that the run continues: its
	// owner repeats the code itself.
	RetryDelay, MaxRetryDelay time.Duration
	// HookDelay is the delay before the second call of a hook. It doubles with each call, up to 5 minutes; each delay is
	// longer by the share Event.Jitter, except the one of HookRunning.
	HookDelay time.Duration
	// KeepCompleted and KeepFailed are the retention periods of ended items. Zero or less means no expiry.
	KeepCompleted, KeepFailed time.Duration
}

// EventKind is the kind of an event.
type EventKind uint8

// The kinds of events.
const (
	Begun        EventKind = iota // its owner begins to work on it
	Due                           // the driver has found it interrupted or due
	Stuck                         // its run takes too long, and is superseded
	Progressed                    // it has a new checkpoint, or new chunks
	Returned                      // its code has returned
	HookCalled                    // the driver is about to call its hook
	HookRunning                   // the call of the hook takes longer than the delay before the next
	HookReturned                  // the hook has returned
	Decided                       // the hook for recovery decides about it
	Cancel                        // a user cancels it
	Restart                       // a user restarts it
	Retry                         // an operator lets recovery begin again
	Resolve                       // an operator sets its outcome
	Replace                       // a user gives it another payload
)

// String returns the name of the kind.
func (k EventKind) String() string {
	return [...]string{
		"Begun", "Due", "Stuck", "Progressed", "Returned", "HookCalled", "HookRunning", "HookReturned", "Decided", "Cancel", "Restart",
		"Retry", "Resolve", "Replace",
	}[k]
}

// Event is an event of an item.
type Event struct {
	Kind  EventKind
	Owner string // the incarnation that sends the event
	// Run is the number of a run: of Progressed and Returned, the run that they belong to; of Due, Stuck, Decided and
	// Restart, the run that they may start. The owner gives each run of any item another number.
	Run uint64
	// Failed is set by Returned and HookReturned after an error, and by Due if the interrupted run has failed: its retry
	// counts as a failure instead of a stall.
	Failed bool
	// Final forbids a further attempt: after an error (Returned), after an interruption (Due), or after a hook that has
	// failed (HookReturned).
	Final bool
	// Outcome is the outcome that Resolve, Decided or Cancel sets. Zero means that the item resumes (Decided), or Cancelled
	// (Cancel).
	Outcome Outcome
	// Alone is set by Due if no suspect runs.
	Alone bool
	// Jitter is a share of a delay: HookCalled and Due extend the delay of the hook by it, and Returned shortens the delay of the next run.
	Jitter float64 // from 0 to 0.25
	// Delay is set by Returned without Failed for a run that postpones the item: it waits for this time, at least 1 ms, and no
	// attempt is charged.
	Delay time.Duration
}

// Effect is the instruction of a step to the driver.
type Effect uint8

// The effects.
const (
	None       Effect = iota // write the item
	Refused                  // the event does not apply any more: write nothing
	Impossible               // the driver must not send this event: write nothing
	Wait                     // it is not due, or a suspect is running: write nothing
	Run                      // write the item, and call its code
	CallHook                 // write nothing yet: call its hook, after HookCalled
	Delete                   // delete the row
)

// The bounds of calls of hooks, and of runs.
const (
	MaxCalls     = 5
	maxCallsTime = 24 * time.Hour
	maxHookDelay = 5 * time.Minute
	// maxAttempts bounds the failures and interruptions in total. If a checkpoint contains the time, it changes in every
	// run, which counts as progress. Without this bound such an item could end its process forever.
	maxAttempts = 10_000
)

// Step returns the item after an event. It panics about an impossible event in builds that check invariants: those with
// the tag invariants, or with -race.
func Step(it Item, ev Event, p *Policy, now time.Time) (Item, Effect) {
	next, eff := step(it, ev, p, now)
	if strict && eff == Impossible {
		panic(fmt.Sprintf("work: the event %+v is impossible for %+v", ev, it))
	}
	return next, eff
}

func step(it Item, ev Event, p *Policy, now time.Time) (Item, Effect) {
	before := it
	eff := it.step(ev, p, now.UnixMilli())
	switch eff {
	case Refused, Impossible, Wait, CallHook, Delete:
		return before, eff
	}
	return it, eff
}

func (it *Item) step(ev Event, p *Policy, now int64) Effect {
	switch ev.Kind {
	case Begun:
		return it.begin(ev)
	case Due:
		return it.due(ev, p, now)
	case Stuck:
		if it.State != Running || it.Owner != ev.Owner {
			return Impossible
		}
		it.Attempt, it.Stalls, it.FirstStall = 0, 0, 0
		return it.start(ev)
	case Progressed:
		return it.progress(ev)
	case Returned:
		return it.returned(ev, p, now)
	case HookCalled:
		return it.callHook(ev, p, now)
	case HookRunning:
		if it.State != Recovering && it.State != Notifying {
			return Refused
		}
		it.NotBefore = now + p.HookDelay.Milliseconds()
		return None
	case HookReturned:
		return it.hookReturned(ev, p, now)
	case Decided:
		return it.decided(ev, p, now)
	case Cancel:
		return it.cancel(ev, p, now)
	case Restart:
		return it.restart(ev, p)
	case Retry:
		if it.State != Dead {
			return Refused
		}
		it.State, it.Owner = Recovering, ""
		it.clearHook()
		return None
	case Resolve:
		if it.State != Orphaned && it.State != Dead {
			return Refused
		}
		it.end(ev.Outcome, p, now)
		return None
	case Replace:
		return it.replace(ev)
	}
	return Impossible
}
