package dohost

import (
	"fmt"
	"math"
	"runtime/metrics"
	"time"

	"github.com/dohost/dohost/eviction"
	"github.com/dohost/dohost/internal/socket"
	"github.com/dohost/dohost/objectstore"
	"github.com/dohost/dohost/runtime"
)

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
		return fmt.Errorf("dohost: Options.Chaos: %w", err)
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
	ro.Policy.Trusted = o.tune == nil
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
		return c.At(eviction.Point{
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
