package dohost

import (
	"fmt"
	"log/slog"
	"math"
	"runtime/metrics"
	"time"

	"github.com/dohost/dohost/eviction"
	"github.com/dohost/dohost/internal/errkind"
	"github.com/dohost/dohost/internal/socket"
	"github.com/dohost/dohost/objectstore"
	"github.com/dohost/dohost/runtime"
	"github.com/dohost/dohost/sharedlog"
)

// Options tunes a Host. A nil *Options, and the zero Options, mean the defaults. [Open] returns an error for a field
// that is out of its range.
type Options struct {
	// IdleAfter is the time after which an object without work is evicted. Zero means a random time from 70 to 140 s,
	// or 10 s if the object has a WebSocket, as in Durable Objects. Otherwise the time is drawn from IdleAfter to
	// twice that. Negative means never.
	IdleAfter time.Duration
	// Grace is the time that Close gives handlers to finish. Zero means 30 s; negative, no time.
	Grace time.Duration
	// MaxEvents bounds an object's queued, running and suspended events, and its background tasks. An event no
	// longer counts once its answer has left. Zero means 4,096; negative is an error.
	MaxEvents int
	// MaxBytes bounds the encoded arguments that wait for an object. Zero means
	// 64 MiB; negative is an error.
	MaxBytes int
	// MaxAge bounds how long an event waits for an object. Zero means 30 s; negative, no bound.
	MaxAge time.Duration
	// MaxLive bounds the objects in memory: beyond it the host evicts idle ones. Zero means no bound; negative is an
	// error.
	MaxLive int
	// HeapBudget is the live heap, in bytes, beyond which idle objects are evicted.
	// Zero means no bound.
	HeapBudget uint64
	// TimeScale divides the platform's times: the time until idle eviction (unless IdleAfter is set), and the time
	// limits of constructors and Exclusive sections, of alarm handlers and of the disk. It scales neither times that
	// objects ask for, nor the other options (Grace, MaxAge), nor the delays before a failed alarm or constructor
	// runs again. Zero means 1; negative, infinite and NaN are errors.
	TimeScale float64
	// Chaos ends incarnations at random. The zero Chaos ends none; a rate that is not a probability, a
	// negative mean, and an unknown place or mode are errors.
	Chaos Chaos
	// MaxFrame bounds a frame that a client sends over a WebSocket, in bytes. Zero means
	// DefaultMaxFrame; negative is an error, and so is more than a quarter of ReadBudget.
	MaxFrame int
	// ReadBudget bounds the bytes of request bodies and frames that the host reads and handles at one
	// time, for all clients together. They count until their handler has returned, even while it
	// awaits. The first 4 KiB of each do not count, nor do the bytes of a body beyond 16 MiB. The
	// budget is divided: a frame or a body gets more bytes of three quarters of it only if then as many
	// stay free as its object and its client (a socket or a request) have together. So the clients of one
	// object get at most half of these, the clients of another one at most half of the rest, and so on. Of
	// the clients that wait, the client with the smallest need gets bytes first. It is no protection against
	// clients that use many objects at the same time. The last quarter is a reserve: a frame or body that
	// waits gets from it all bytes that it may need in the end, one for each object at a time, and the
	// oldest wait first, so that long bodies do not wait for each other. After 10 s without its bytes, a
	// client gets status 503, or the host closes its socket with CloseBusy. The host refuses a body that counts
	// for more than a quarter of the budget with status 413. Zero means DefaultReadBudget; negative is an error.
	ReadBudget int64
	// SendBudget bounds the bytes of frames, of released parts of HTTP responses and of results of
	// exposed methods ([Host.WriteBody]) that wait for all clients. A frame for many sockets counts
	// once, a part of a response counts with its header and the memory that it takes, and the first
	// 4 KiB of a response do not count. Beyond it the host closes the sockets with the most waiting
	// bytes, with CloseBusy, and cuts the connections of the responses with the most. A part of a
	// response that is larger than the budget is always cut. Zero means DefaultSendBudget; negative
	// is an error.
	SendBudget int64
	// Origins are the origins of pages that may connect WebSockets to objects, in addition to the server's own, such
	// as "https://example.com" or, for any scheme, "*.example.com". A malformed pattern is an error.
	Origins []string
	// Listener is notified of the host's actions. The zero value ignores them.
	Listener Listener
	// ErrorTexts lets clients outside the process read the texts of all errors that methods and
	// handlers return, not only the text of a [PublicError]. It is for development.
	ErrorTexts bool
	// Ship is the archive that gets a copy of each record, asynchronously: see [Archive]. Nil ships nothing. The archive
	// must be empty, or have records of this store; otherwise Open returns ErrConflict. Host.Stats has the lag. The caller
	// closes the archive after the host.
	Ship Archive
	// Lease is the right to append to a log outside of the directory; the log then has the history of the store: see package
	// [github.com/dohost/dohost/sharedlog] and docs/shared-log.md. The directory may be empty or old: Open replays the
	// records that it lacks. When the lease is lost the host fails with ErrFenced, as when a disk fails. A lease is good for
	// one Open. Close releases it; if Open fails, the caller must release it. Nil keeps the history in the directory. Lease
	// excludes Ship.
	Lease sharedlog.Lease
	// BaseAfter is the number of bytes of records that follow a base in the log of Lease, in addition to the size of the
	// base, before the host writes the next base and purges the records before it. A host that opens an empty directory
	// reads a base and the records after it. Zero means 64 MiB; negative is an error. Host.Stats has the failures.
	BaseAfter int64
	// Holds reports whether the host has an object; it is for hosts that divide the objects of a program among themselves,
	// like the hosts of package [github.com/dohost/dohost/cluster] do. The host wakes no other object, neither for a call
	// nor for an alarm, and neither imports nor restores one: the call has no effect, and [DescribeError] returns the code
	// "elsewhere" for its error. Holds must not block, and must always return the same for an object; a panic means
	// false. It may be called from any goroutine. Nil means all objects.
	Holds func(ID) bool
	// Remote carries calls of [Invoke] to objects that the host does not have according to Holds. Nil means that these
	// calls fail with the code "elsewhere".
	Remote Remote
	// StoreMemory is the size in bytes of each of the storage engine's up to four memtables, and the minimum size of its
	// block cache, which also uses the memory that the memtables leave free. So the engine takes at most five times as
	// much. Zero means 64 MiB. Programs with several hosts should choose less; less than 1 MiB is an error.
	StoreMemory int64
	// Logger gets the storage engine's messages, and the errors that clients receive without their text. Nil
	// discards them.
	Logger *slog.Logger

	// fs is the file system of the store, in tests and tools of this module. Nil means the disk.
	fs *objectstore.FS
	// tune changes the runtime's options, in tests and tools of this module. Nil changes nothing.
	tune func(*runtime.Options)
}

// minStoreMemory is the least Options.StoreMemory.
const minStoreMemory = 1 << 20

// check returns an error for an option that is out of its range.
func (o *Options) check() error {
	for _, f := range []struct {
		name  string
		value int
	}{{"MaxEvents", o.MaxEvents}, {"MaxBytes", o.MaxBytes}, {"MaxLive", o.MaxLive}} {
		if f.value < 0 {
			return fmt.Errorf("dohost: Options.%s is %d, want 0 for the default, or more", f.name, f.value)
		}
	}
	if o.BaseAfter < 0 {
		return fmt.Errorf("dohost: Options.BaseAfter is %d, want 0 for the default, or more", o.BaseAfter)
	}
	if o.StoreMemory != 0 && o.StoreMemory < minStoreMemory {
		return fmt.Errorf("dohost: Options.StoreMemory is %d, want 0 for the default, or at least %d", o.StoreMemory, minStoreMemory)
	}
	if s := o.TimeScale; s < 0 || math.IsNaN(s) || math.IsInf(s, 0) {
		return fmt.Errorf("dohost: Options.TimeScale is %v, want 0 for the default, or a finite number above 0", s)
	}
	if err := o.Chaos.Validate(); err != nil {
		return errkind.About("Options.Chaos", err)
	}
	for _, pattern := range o.Origins {
		if err := socket.CheckOrigin(pattern); err != nil {
			return fmt.Errorf("dohost: Options.Origins has %q: %w", pattern, err)
		}
	}
	return o.checkLimits()
}

// longest bounds a scaled time, so that twice its value still fits.
const longest = time.Duration(math.MaxInt64 / 4)

// hibernateAfter is the time until the idle eviction of an object that has WebSockets, as in Durable Objects: the
// sockets stay, and the next message wakes the object.
const hibernateAfter = 10 * time.Second

// runtime translates the options.
func (o *Options) runtime(sockets func(ID) int) runtime.Options {
	scale := o.TimeScale
	if scale == 0 {
		scale = 1
	}
	// Only the platform's own times are scaled; IdleAfter is set by the user.
	scaled := func(d time.Duration) time.Duration {
		return max(time.Duration(min(float64(d)/scale, float64(longest))), 1)
	}
	idle, hibernate := eviction.Idle{Min: o.IdleAfter}, scaled(hibernateAfter)
	if o.IdleAfter == 0 {
		idle.Min = scaled(70 * time.Second)
	}
	ro := runtime.Options{
		Store: objectstore.Options{
			FS: o.fs, Logger: o.Logger, Ship: o.shipping(), Shared: o.shared(), Cache: o.StoreMemory, MemTable: o.StoreMemory,
		},
		Grace: o.Grace, MaxEvents: o.MaxEvents, MaxBytes: o.MaxBytes, MaxAge: o.MaxAge, MaxLive: o.MaxLive,
		Holds: o.Holds,
		Limits: runtime.Limits{
			Exclusive: scaled(30 * time.Second), Alarm: scaled(15 * time.Minute), Stall: scaled(30 * time.Second),
		},
		Listener: o.Listener,
		Policy: runtime.Policy{Idle: func(id ID, _, events uint64) time.Duration {
			if o.IdleAfter == 0 && sockets(id) > 0 {
				return hibernate
			}
			return idle.After(spread(id), events)
		}},
	}
	if o.Chaos.Active() {
		ro.Policy.At = chaosAt(o.Chaos)
	}
	if o.HeapBudget > 0 {
		ro.Policy.Shed = shedder(eviction.Pressure{Budget: o.HeapBudget})
	}
	ro.Policy.Trusted = true // a tune may set functions that are not
	if o.tune != nil {
		o.tune(&ro)
	}
	return ro
}

// shipping returns nil if there is no archive.
func (o *Options) shipping() *objectstore.Shipping {
	if o.Ship == nil {
		return nil
	}
	return &objectstore.Shipping{Archive: o.Ship}
}

// shared returns nil if there is no lease.
func (o *Options) shared() *objectstore.Shared {
	if o.Lease == nil {
		return nil
	}
	return &objectstore.Shared{Lease: o.Lease, BaseAfter: o.BaseAfter}
}

// spread is a hash of an object's name, by FNV-1a. It spreads the evictions of objects that become idle at the same
// time. The number of the incarnation would do so too, but it depends on the order of wake-ups, and a run under a
// test's scheduler must be the same for the same seed.
func spread(id ID) uint64 {
	h := uint64(14695981039346656037)
	for _, s := range [...]string{id.Class, id.Name} {
		for i := range len(s) {
			h = (h ^ uint64(s[i])) * 1099511628211
		}
	}
	return h
}

func chaosAt(c eviction.Chaos) func(runtime.Point) eviction.EndMode {
	return func(p runtime.Point) eviction.EndMode {
		if p.Over || !p.Place.Ends() {
			return eviction.EndNone
		}
		return eviction.Decide(&c, eviction.Point{
			Class: p.ID.Class, Name: p.ID.Name, Incarnation: p.Incarnation, Event: p.Event,
			Place: p.Place, N: p.N, Age: p.Age,
		})
	}
}

// shedder compares the live heap with the budget, once per garbage collection. The
// runtime calls it from one goroutine.
func shedder(p eviction.Pressure) func(live int) int {
	samples := []metrics.Sample{{Name: "/gc/heap/live:bytes"}, {Name: "/gc/cycles/total:gc-cycles"}}
	var last uint64
	return func(live int) int {
		metrics.Read(samples)
		heap, cycle := samples[0].Value.Uint64(), samples[1].Value.Uint64()
		n := p.Shed(live, heap, cycle, last)
		last = cycle
		return n
	}
}
