package dohost_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/examples/counter"
	"github.com/dohost/dohost/internal/kernel"
	"github.com/dohost/dohost/objectstore"
	"github.com/dohost/dohost/runtime"
	"github.com/vmihailenco/msgpack/v5"
)

// open opens a host in memory and closes it when the test ends.
func open(t *testing.T, o *dohost.Options, classes ...dohost.Class) *dohost.Host {
	t.Helper()
	return openOn(t, objectstore.NewMemFS(), o, classes...)
}

// openOn opens a host on a file system and closes it when the test ends.
func openOn(t *testing.T, fs *objectstore.FS, o *dohost.Options, classes ...dohost.Class) *dohost.Host {
	t.Helper()
	if o == nil {
		o = &dohost.Options{}
	}
	h, err := dohost.Open("data", kernel.OnFS(o, fs), classes...)
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
		if !h.Evict(alice.ID(), dohost.EndFence) {
			t.Fatal("nothing to evict")
		}
		out, err := h.Invoke(t.Context(), alice.ID(), "add", []byte("3"))
		if err != nil || string(out) != "5" {
			t.Fatalf("add = %s, %v", out, err)
		}
		_, err = h.Invoke(t.Context(), alice.ID(), "subtract", nil)
		if e, ok := errors.AsType[*dohost.Error](err); !ok || !errors.Is(err, runtime.ErrNoMethod) || e.Outcome != dohost.OutcomeNotRun {
			t.Fatalf("unknown method: %v", err)
		}
		bad, ok := errors.AsType[*dohost.ArgumentError](mustFail(h.Invoke(t.Context(), alice.ID(), "add", []byte("{"))))
		if !ok || bad.Method != "add" {
			t.Fatalf("bad argument: %v", bad)
		}
	})
}

// relay passes an argument on to another object, and returns its answer.
type relay struct {
	host  **dohost.Host
	store *dohost.Storage
}

const relays dohost.Namespace[relay] = "relay"

func (r *relay) Forward(ctx context.Context, arg string) (int, error) {
	_, err := (*r.host).Invoke(ctx, counter.Counters.Get(*r.host, "alice").ID(), "add", []byte(arg))
	return 0, err
}

func (r *relay) Refuse(context.Context, string) (int, error) {
	return 0, &dohost.ArgumentError{Method: "refuse", Err: errors.New("not this one")}
}

func TestInvokeReportsRanForAMethodsArgumentError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var h *dohost.Host
		h = open(t, nil, counter.Class(), dohost.Bind(relays, func(context.Context, *dohost.State) (*relay, error) {
			return &relay{&h, nil}, nil
		}, nil, dohost.Expose("forward", (*relay).Forward), dohost.Expose("refuse", (*relay).Refuse)))
		for _, c := range []struct {
			method, arg string
			ran         dohost.Outcome
		}{
			{"forward", "{", dohost.OutcomeNotRun},
			{"forward", `"{"`, dohost.OutcomeRan},
			{"refuse", "", dohost.OutcomeRan},
		} {
			err := mustFail(h.Invoke(t.Context(), relays.Get(h, "x").ID(), c.method, []byte(c.arg)))
			if _, ok := errors.AsType[*dohost.ArgumentError](err); !ok {
				t.Errorf("%s(%s): %v", c.method, c.arg, err)
			}
			if e, ok := errors.AsType[*dohost.Error](err); !ok || e.Outcome != c.ran || e.Remote() != (c.ran == dohost.OutcomeRan) {
				t.Errorf("%s(%s): ran %v, remote %v; want %v", c.method, c.arg, e.Outcome, e.Remote(), c.ran)
			}
		}
	})
}

// Count writes, calls an object that does not exist, and returns the error.
func (r *relay) Count(ctx context.Context, class string) (int, error) {
	if err := dohost.Add(ctx, r.store, "n", 1); err != nil {
		return 0, err
	}
	return dohost.Call(ctx, dohost.Namespace[counter.Counter](class).Get(*r.host, "x"), (*counter.Counter).Add, 1)
}

func TestErrorDescribesTheCallThatReturnedIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var h *dohost.Host
		h = open(t, nil, dohost.Bind(relays, func(_ context.Context, st *dohost.State) (*relay, error) {
			return &relay{&h, st.Storage()}, nil
		}, nil))
		front := relays.Get(h, "x")
		calls := 0
		err := dohost.Retry(t.Context(), &dohost.RetryPolicy{ShouldRetry: dohost.RetryIdempotent}, func(ctx context.Context) error {
			calls++
			return mustFail(dohost.Call(ctx, front, (*relay).Count, "back"))
		})
		outer, _ := errors.AsType[*dohost.Error](err)
		inner, ok := errors.AsType[*dohost.Error](outer.Err)
		if !ok || !errors.Is(err, runtime.ErrNoClass) || outer.Outcome != dohost.OutcomeRan || inner.Outcome != dohost.OutcomeNotRun || calls != 1 {
			t.Errorf("%d calls, ran %v behind %v: %v", calls, outer.Outcome, inner, err)
		}
		err = front.Do(t.Context(), func(ctx context.Context, r *relay) error {
			n, _, err := dohost.Get[int](ctx, r.store, "n")
			if n != 1 {
				t.Errorf("n is %d", n)
			}
			return err
		})
		if err != nil {
			t.Error(err)
		}
	})
}

// TestDoKnowsTheClassByName calls an object from outside and from another object, which gives up its turn.
func TestDoKnowsTheClassByName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var last *dohost.State
		h := open(t, nil, dohost.Bind(relays, func(_ context.Context, st *dohost.State) (*relay, error) {
			last = st
			return &relay{nil, st.Storage()}, nil
		}, nil))
		id := dohost.ID{Class: string(relays), Name: "x"}
		add := func(ctx context.Context, object any) error { return dohost.Add(ctx, object.(*relay).store, "n", 1) }
		err := dohost.Do(t.Context(), h, id, func(ctx context.Context, object any) error {
			if last.ID() != id {
				t.Errorf("the object is %v", last.ID())
			}
			return dohost.Do(ctx, last, dohost.ID{Class: id.Class, Name: "y"}, add)
		})
		if err != nil {
			t.Error(err)
		}
		err = relays.Get(h, "y").Do(t.Context(), func(ctx context.Context, r *relay) error {
			if n, _, err := dohost.Get[int](ctx, r.store, "n"); n != 1 || err != nil {
				t.Errorf("n is %d, %v", n, err)
			}
			return nil
		})
		unknown := dohost.Do(t.Context(), h, dohost.ID{Class: "none", Name: "y"}, add)
		if e, ok := errors.AsType[*dohost.Error](unknown); err != nil || !ok || !errors.Is(unknown, dohost.ErrNotFound) || e.Outcome != dohost.OutcomeNotRun {
			t.Errorf("%v; %v", err, unknown)
		}
	})
}

// TestRetryStopsAtTheEndOfTheIncarnation ends the incarnation in the first attempt.
func TestRetryStopsAtTheEndOfTheIncarnation(t *testing.T) {
	for _, base := range []time.Duration{0, -1} {
		synctest.Test(t, func(t *testing.T) {
			var st *dohost.State
			h := open(t, nil, dohost.Bind(relays, func(_ context.Context, s *dohost.State) (*relay, error) {
				st = s
				return &relay{}, nil
			}, nil))
			calls := 0
			err := relays.Get(h, "x").Do(t.Context(), func(ctx context.Context, r *relay) error {
				policy := &dohost.RetryPolicy{BaseDelay: base, ShouldRetry: dohost.RetryAnyError}
				return dohost.Retry(ctx, policy, func(ctx context.Context) error {
					calls++
					return st.Abort(ctx, errors.New("wrong"), nil)
				})
			})
			if calls != 1 || !errors.Is(err, dohost.ErrFenced) {
				t.Errorf("BaseDelay %v: %d calls, %v", base, calls, err)
			}
		})
	}
}

// undecodable is a result that cannot be read.
type undecodable struct{ Text []byte }

func (*undecodable) DecodeMsgpack(*msgpack.Decoder) error { return errors.New("no") }

func (r *relay) Stubborn(context.Context) (undecodable, error) { return undecodable{}, nil }

func TestCallWithAnUnreadableResultRan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		newRelay := func(context.Context, *dohost.State) (*relay, error) { return &relay{}, nil }
		h := open(t, nil, dohost.Bind(relays, newRelay, nil))
		s := relays.Get(h, "x")
		err := mustFail(dohost.CallNoArg(t.Context(), s, (*relay).Stubborn))
		if e, ok := errors.AsType[*dohost.Error](err); !ok || e.Outcome != dohost.OutcomeRan || e.Op != "Stubborn" || e.ID != s.ID() {
			t.Fatalf("%v", err)
		}
	})
}

func mustFail[T any](_ T, err error) error { return err }

// mapObject keeps a map, which its callers must not share.
type mapObject struct{ m map[string]int }

const mapObjects dohost.Namespace[mapObject] = "holder"

func (h *mapObject) Get(context.Context) (map[string]int, error) { return h.m, nil }
func (h *mapObject) Set(_ context.Context, m map[string]int) error {
	h.m = m
	return nil
}

func TestCallCopiesArgumentsAndResults(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		newHolder := func(context.Context, *dohost.State) (*mapObject, error) { return &mapObject{}, nil }
		h := open(t, nil, dohost.Bind(mapObjects, newHolder, nil))
		s := mapObjects.Get(h, "x")
		mine := map[string]int{"a": 1}
		if err := dohost.CallNoResult(t.Context(), s, (*mapObject).Set, mine); err != nil {
			t.Fatal(err)
		}
		mine["a"] = 2
		got, err := dohost.CallNoArg(t.Context(), s, (*mapObject).Get)
		if err != nil || got["a"] != 1 {
			t.Fatalf("the object saw its caller's change: %v, %v", got, err)
		}
		got["a"] = 3
		if again, err := dohost.CallNoArg(t.Context(), s, (*mapObject).Get); err != nil || again["a"] != 1 {
			t.Fatalf("the caller changed the object's map: %v, %v", again, err)
		}
	})
}
