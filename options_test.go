package dohost

import (
	"testing"
	"time"

	"github.com/dohost/dohost/eviction"
	"github.com/dohost/dohost/runtime"
	"github.com/dohost/dohost/sharedlog"
)

func noSockets(ID) int { return 0 }

func TestTimeScaleAppliesToDefaultTimesOnly(t *testing.T) {
	scaled := (&Options{TimeScale: 10}).runtime(noSockets)
	if d := scaled.Policy.Idle(ID{}, 1, 1); d < 7*time.Second || d >= 14*time.Second {
		t.Errorf("default idle time is %v, want 7s to 14s", d)
	}
	withSockets := (&Options{TimeScale: 10}).runtime(func(ID) int { return 1 })
	if d := withSockets.Policy.Idle(ID{}, 1, 1); d != time.Second {
		t.Errorf("with a socket the idle time is %v, want 1s", d)
	}
	if scaled.Limits.Exclusive != 3*time.Second {
		t.Errorf("exclusive limit is %v, want 3s", scaled.Limits.Exclusive)
	}
	if d := (&Options{TimeScale: 10, IdleAfter: time.Second}).runtime(noSockets).Policy.Idle(ID{}, 1, 1); d < time.Second || d >= 2*time.Second {
		t.Errorf("the user's idle time is %v, want 1s to 2s", d)
	}
	if d := (&Options{TimeScale: 10, IdleAfter: -1}).runtime(noSockets).Policy.Idle(ID{}, 1, 1); d >= 0 {
		t.Errorf("never is %v", d)
	}
}

func TestTimeScaleNearZeroMakesLongTimes(t *testing.T) {
	for _, scale := range []float64{1e-9, 1e-300} {
		o := (&Options{TimeScale: scale}).runtime(noSockets)
		if d := o.Policy.Idle(ID{}, 1, 1); d < 1000*time.Hour {
			t.Errorf("scale %v: default idle time is %v", scale, d)
		}
		if o.Limits.Stall < 1000*time.Hour {
			t.Errorf("scale %v: stall limit is %v", scale, o.Limits.Stall)
		}
	}
}

func TestBaseAfterRefusesNegativeSizes(t *testing.T) {
	if err := (&Options{BaseAfter: -1}).check(); err == nil {
		t.Error("it was accepted")
	}
	if o := (&Options{BaseAfter: 5, Lease: struct{ sharedlog.Lease }{}}).shared(); o.BaseAfter != 5 {
		t.Errorf("the store has %d", o.BaseAfter)
	}
}

func TestStoreMemoryIsThatOfTheEngine(t *testing.T) {
	if err := (&Options{StoreMemory: minStoreMemory - 1}).check(); err == nil {
		t.Error("too little is accepted")
	}
	if err := (&Options{StoreMemory: -1}).check(); err == nil {
		t.Error("a negative size is accepted")
	}
	if err := (&Options{StoreMemory: minStoreMemory}).check(); err != nil {
		t.Errorf("the least size is refused: %v", err)
	}
	o := &Options{StoreMemory: 8 << 20}
	if s := o.runtime(noSockets).Store; o.check() != nil || s.Cache != 8<<20 || s.MemTable != 8<<20 {
		t.Errorf("%v; the store has a cache of %d bytes, and memtables of %d", o.check(), s.Cache, s.MemTable)
	}
}

// TestChaosEndsNothingAfterItsEnd asks at places that end nothing, since they are over or may not end an incarnation.
func TestChaosEndsNothingAfterItsEnd(t *testing.T) {
	at := chaosAt(eviction.Chaos{Seed: 1, Rate: 1})
	for _, p := range []runtime.Point{{Over: true, Place: eviction.PlaceStart}, {Place: eviction.PlaceClose}} {
		if mode := at(p); mode != eviction.EndNone {
			t.Errorf("at %+v it ends an incarnation with %v", p, mode)
		}
	}
}
