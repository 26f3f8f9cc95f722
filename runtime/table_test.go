package runtime

import (
	"context"
	"fmt"
	goruntime "runtime"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/dohost/dohost/eviction"
	"github.com/dohost/dohost/objectstore"
)

// TestTableDistinguishesNamesOfOneHash fills a shard with objects of two names that have the same
// hash, in both orders of adding and removing.
func TestTableDistinguishesNamesOfOneHash(t *testing.T) {
	const hash = 7
	for _, firstGoes := range []bool{true, false} {
		a, b := &object{name: "a"}, &object{name: "b"}
		var s shard
		s.putLocked(hash, a)
		if o := s.getLocked(hash, "b"); o != nil {
			t.Fatalf("found %q for %q", o.name, "b")
		}
		s.putLocked(hash, b)
		if s.getLocked(hash, "a") != a || s.getLocked(hash, "b") != b || s.getLocked(hash, "c") != nil {
			t.Fatal("two objects of one hash are not told apart")
		}
		goes, stays := a, b
		if !firstGoes {
			goes, stays = b, a
		}
		s.removeLocked(hash, &object{name: goes.name}) // another of that name: it is not in the table
		if s.getLocked(hash, goes.name) != goes {
			t.Fatalf("%q was removed for another of its name", goes.name)
		}
		s.removeLocked(hash, goes)
		if s.getLocked(hash, goes.name) != nil || s.getLocked(hash, stays.name) != stays {
			t.Fatalf("after %q has gone: %v, %v", goes.name, s.getLocked(hash, goes.name), s.getLocked(hash, stays.name))
		}
		s.putLocked(hash, goes)
		all := slices.Collect(s.allLocked)
		if len(all) != 2 || !slices.Contains(all, a) || !slices.Contains(all, b) {
			t.Fatalf("%d objects, want both", len(all))
		}
	}
}

// TestInstanceIsFreedWithItsIncarnation evicts objects, wakes them and evicts them
// again, while their table entries stay: in the wheel, or because a new incarnation begins.
func TestInstanceIsFreedWithItsIncarnation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var freed atomic.Int64
		type instance struct{ _ [1 << 10]byte }
		h := open(t, objectstore.NewMemFS(), Options{
			Policy: Policy{Idle: func(_ ID, _, _ uint64) time.Duration { return 24 * time.Hour }},
		}, Class{Name: "counter", New: func(_ context.Context, s *State) (any, error) {
			i := new(instance)
			goruntime.AddCleanup(i, func(int) { freed.Add(1) }, 0)
			return i, nil
		}})
		const objects, ended = 100, 45 // fewer than half: the wheel keeps them
		call := func(n int) {
			for i := range n {
				c := Call{Op: "touch", Handler: Func(func(context.Context, any) error { return nil })}
				if err := h.Do(t.Context(), id(fmt.Sprint(i)), c); err != nil {
					t.Fatal(err)
				}
			}
			pass(5 * time.Second)
		}
		want := func(n int64) {
			t.Helper()
			goruntime.GC()
			goruntime.GC()
			pass(time.Second)
			if got := freed.Load(); got != n {
				t.Errorf("%d instances are freed, want %d", got, n)
			}
		}
		call(objects)
		want(0)
		for round := range int64(3) {
			for i := range ended {
				h.Evict(id(fmt.Sprint(i)), eviction.EndFence)
			}
			pass(5 * time.Second)
			want((round + 1) * ended)
			call(ended)
		}
	})
}

// TestShedEvictsTheObjectsIdleLongest has many objects of one class that are idle, and a few of
// another that are not.
func TestShedEvictsTheObjectsIdleLongest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shed := map[string]int{}
		class := func(name string) Class {
			return Class{Name: name, New: func(_ context.Context, s *State) (any, error) { return &small{s}, nil }}
		}
		h := open(t, objectstore.NewMemFS(), Options{
			MaxLive: 3600, Policy: idle(eviction.Idle{}),
			Listener: Listener{Fenced: func(e Ended) {
				if e.Cause.Reason == ReasonPressure {
					shed[e.ID.Class]++
				}
			}},
		}, class("many"), class("few"))
		touch := func(class string, n int) {
			for i := range n {
				c := Call{Op: "touch", Handler: Func(func(context.Context, any) error { return nil })}
				if err := h.Do(t.Context(), ID{Class: class, Name: fmt.Sprint(i)}, c); err != nil {
					t.Fatal(err)
				}
			}
		}
		touch("many", 3500)
		pass(time.Minute)
		touch("few", 256)
		pass(5 * time.Second)
		if shed["few"] > 0 || shed["many"] != 3756-3600 {
			t.Errorf("shed: %v", shed)
		}
	})
}

// An event, and an object, each fill a size class of the allocator: one word more costs
// the next.
func TestEventAndObjectFillTheirSizeClasses(t *testing.T) {
	if event, object := unsafe.Sizeof(event{}), unsafe.Sizeof(object{}); event > 256 || object > 208 {
		t.Errorf("an event has %d bytes, want 256; an object %d, want 208", event, object)
	}
}
