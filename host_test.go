package dohost_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/examples/counter"
	"github.com/dohost/dohost/objectstore"
)

// open opens a host in memory and closes it when the test ends.
func open(t *testing.T, o *dohost.Options, classes ...dohost.Class) *dohost.Host {
	t.Helper()
	if o == nil {
		o = &dohost.Options{}
	}
	if o.FS == nil {
		o.FS = objectstore.NewMemFS()
	}
	h, err := dohost.Open("data", o, classes...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { h.Close() })
	return h
}

func TestCallAndInvokeReachTheSameObject(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := open(t, nil, counter.Class())
		alice := counter.Counters.Get(h, "alice")
		if n, err := dohost.Call(t.Context(), alice, (*counter.Counter).Add, 2); err != nil || n != 2 {
			t.Fatalf("Add = %d, %v", n, err)
		}
		if !h.Evict(alice.ID(), dohost.Fence) {
			t.Fatal("nothing to evict")
		}
		out, err := h.Invoke(t.Context(), alice.ID(), "add", []byte("3"))
		if err != nil || string(out) != "5" {
			t.Fatalf("add = %s, %v", out, err)
		}
		_, err = h.Invoke(t.Context(), alice.ID(), "subtract", nil)
		if e, ok := errors.AsType[*dohost.Error](err); !ok || !errors.Is(err, dohost.ErrNoMethod) || e.Ran != dohost.RanNo {
			t.Fatalf("unknown method: %v", err)
		}
		bad, ok := errors.AsType[*dohost.ArgumentError](mustFail(h.Invoke(t.Context(), alice.ID(), "add", []byte("{"))))
		if !ok || bad.Method != "add" {
			t.Fatalf("bad argument: %v", bad)
		}
	})
}

func mustFail[T any](_ T, err error) error { return err }

// holder keeps a map, which its callers must not share.
type holder struct{ m map[string]int }

const holders dohost.Namespace[holder] = "holder"

func (h *holder) Get(context.Context, struct{}) (map[string]int, error) { return h.m, nil }
func (h *holder) Set(_ context.Context, m map[string]int) (struct{}, error) {
	h.m = m
	return struct{}{}, nil
}

func TestValuesCrossByCopy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		newHolder := func(context.Context, *dohost.State) (*holder, error) { return &holder{}, nil }
		h := open(t, nil, dohost.Bind(holders, newHolder))
		s := holders.Get(h, "x")
		mine := map[string]int{"a": 1}
		if _, err := dohost.Call(t.Context(), s, (*holder).Set, mine); err != nil {
			t.Fatal(err)
		}
		mine["a"] = 2
		got, err := dohost.Call(t.Context(), s, (*holder).Get, struct{}{})
		if err != nil || got["a"] != 1 {
			t.Fatalf("the object saw its caller's change: %v, %v", got, err)
		}
		got["a"] = 3
		if again, err := dohost.Call(t.Context(), s, (*holder).Get, struct{}{}); err != nil || again["a"] != 1 {
			t.Fatalf("the caller changed the object's map: %v, %v", again, err)
		}
	})
}
