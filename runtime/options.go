package runtime

import (
	"time"

	"github.com/dohost/dohost/objectstore"
)

// Options tunes a Host. Zero values mean the defaults.
type Options struct {
	// Store are the store's options.
	Store objectstore.Options
	// Grace is how long Close lets what runs finish. Zero means 30 s; negative, no time.
	Grace time.Duration
	// MaxEvents bounds an object's events: queued, running and suspended. Zero means 4,096.
	MaxEvents int
	// MaxBytes bounds the encoded payloads of an object's queued events. Zero means 64 MiB.
	MaxBytes int
	// MaxAge bounds how long an event is queued; it is looked at every second.
	// Zero means 30 s; negative, no bound.
	MaxAge time.Duration
	// MaxLive bounds the number of objects in memory; beyond it idle ones are
	// evicted. Zero means no bound.
	MaxLive int
	// Policy decides who is evicted when.
	Policy Policy
	// Limits are the platform's time limits.
	Limits Limits
	// Listener is told what the host does.
	Listener Listener
	// Owner is whoever the host is part of: see Host.Owner.
	Owner any
	// Ended is told of each incarnation that has ended, before the next one begins and
	// before the Listener. It must be quick. Nil if nobody wants to know.
	Ended func(id ID, why *Fenced, style Style)
	// Abandoned is told that the host is to end as with its process, before it does: see
	// Host.Abandon. Nil if nobody wants to know.
	Abandoned func()
}

// Limits are time limits whose breach ends an incarnation. They are looked at
// every second, but for Output, which has timers. Zero means the default, negative means none.
type Limits struct {
	Exclusive time.Duration // an Exclusive section or a constructor; 30 s
	Alarm     time.Duration // an alarm handler; 15 min
	Stall     time.Duration // a record in flight to the disk; 30 s
	Turn      time.Duration // a turn held: reported, not ended; 1 s
	Output    time.Duration // a function given to Emit; 30 s
}

// Policy says which incarnations end. Its functions are pure, and quick: they are
// called by any goroutine. Nil functions never evict.
type Policy struct {
	// Idle returns how long the object may be idle, given the number of its life
	// and of the events it has had. Negative means for ever. It is asked when the object
	// has come to rest, and when that time is over.
	Idle func(id ID, life, events uint64) time.Duration
	// At is asked at every point, and says how the incarnation ends there, if it does.
	// It is called without locks. A test's scheduler waits in it, and so decides who
	// goes on: at each point a goroutine has come to what others can notice.
	At func(Point) Style
	// Shed is asked once a second how many of the live objects to evict for the
	// sake of memory; only idle ones go.
	Shed func(live int) int
	// Trusted says that Idle and Shed are not a user's: the host calls them without a guard
	// against panics and calls that do not return.
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
