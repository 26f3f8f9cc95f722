package runtime

import (
	"time"

	"github.com/dohost/dohost/eviction"
	"github.com/dohost/dohost/objectstore"
)

// Options configures a Host. Zero values mean the defaults.
type Options struct {
	// Store are the store's options.
	Store objectstore.Options
	// Grace is how long Close lets running events finish. Zero means 30 s; negative, no time.
	Grace time.Duration
	// MaxEvents bounds an object's events: queued, running and suspended. An event does not count once its answer has left.
	// Zero means 4,096.
	MaxEvents int
	// MaxBytes bounds the encoded payloads of an object's queued events. Zero means 64 MiB.
	MaxBytes int
	// MaxAge bounds how long an event is queued; the sweeper checks it every second. Zero
	// means 30 s; negative, no bound.
	MaxAge time.Duration
	// MaxLive bounds the number of objects in memory; beyond it idle ones are
	// evicted. Zero means no bound.
	MaxLive int
	// Holds reports whether the host may wake an object. Nil means all objects.
	Holds func(ID) bool
	// Policy decides on evictions.
	Policy Policy
	// Limits are the platform's time limits.
	Limits Limits
	// Listener observes the host.
	Listener Listener
	// Owner is an arbitrary value for Host.Owner.
	Owner any
	// Opened, if it is set, is called by Open before the first alarm is delivered.
	Opened func(*Host)
	// Ended is called for each incarnation that has ended, before the next one begins and
	// before the Listener. It must be quick. Optional.
	Ended func(id ID, cause *Fenced, mode eviction.EndMode)
	// Abandoned is called by Host.Abandon before it ends the host as the end of the process
	// would. Optional.
	Abandoned func()
}

// Limits are the time limits of an incarnation. The host ends an incarnation that exceeds one, except Turn.
// The sweeper checks them every second; Output has timers. Zero means the default, negative means none.
type Limits struct {
	Exclusive time.Duration // an Exclusive section or a constructor; 30 s
	Alarm     time.Duration // an alarm handler; 15 min
	Stall     time.Duration // a record in flight to the disk; 30 s
	Turn      time.Duration // a turn held: reported, not ended; 1 s
	Output    time.Duration // a function given to Emit; 30 s
}

// Policy decides which incarnations end. Its functions are pure, and quick: any goroutine
// may call them. Nil functions never evict.
type Policy struct {
	// Idle returns how long the object may be idle, given the number of its incarnation and
	// of the events it has had. Negative means for ever. The sweeper calls it when the
	// object has come to rest, and when that time is over.
	Idle func(id ID, incarnation, events uint64) time.Duration
	// At is called at every point, without locks, and returns the mode of the incarnation's end
	// there, or eviction.EndNone. A test's scheduler blocks in it and so chooses the goroutine that runs
	// next: the points are the steps that other goroutines can observe.
	At func(Point) eviction.EndMode
	// Shed returns how many of the live objects to evict to save memory. It is called once
	// a second; only idle objects are evicted.
	Shed func(live int) int
	// Trusted lets the host call these functions without a guard against panics and hangs. It
	// is for functions that are not a user's.
	Trusted bool
}

func (o Options) withDefaults() Options {
	setDefault(&o.Grace, 30*time.Second)
	setDefault(&o.MaxEvents, 4096)
	setDefault(&o.MaxBytes, 64<<20)
	setDefault(&o.MaxAge, 30*time.Second)
	setDefault(&o.Limits.Exclusive, 30*time.Second)
	setDefault(&o.Limits.Alarm, 15*time.Minute)
	setDefault(&o.Limits.Stall, 30*time.Second)
	setDefault(&o.Limits.Turn, time.Second)
	setDefault(&o.Limits.Output, 30*time.Second)
	if o.Policy.Idle == nil {
		o.Policy.Idle = func(_ ID, _, _ uint64) time.Duration { return -1 }
	}
	return o
}

func setDefault[T int | time.Duration](v *T, def T) {
	if *v == 0 {
		*v = def
	}
}
