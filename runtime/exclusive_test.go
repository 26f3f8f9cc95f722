package runtime

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dohost/dohost/eviction"
	"github.com/dohost/dohost/objectstore"
)

func TestExclusiveAdmitsOnlyItsOwnHoldTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := open(t, objectstore.NewMemFS(), Options{})
		var order []string
		note := func(what string) { order = append(order, what) }
		returning := goDo(t.Context(), h, "a", "returning", func(ctx context.Context, _ *counter) error {
			err := Sleep(ctx, time.Second)
			note("returned")
			return err
		})
		synctest.Wait()
		exclusive := goDo(t.Context(), h, "a", "exclusive", func(ctx context.Context, c *counter) error {
			return Exclusive(ctx, func(ctx context.Context) error {
				note("open")
				err := Exclusive(ctx, func(ctx context.Context) error { // it nests
					return Await(ctx, func(ctx context.Context) error {
						time.Sleep(5 * time.Second)
						return HoldTurn(ctx, func(ctx context.Context) error { note("enter"); _, err := c.add(ctx, 1); return err })
					})
				})
				err = errors.Join(err, Sleep(ctx, 5*time.Second))
				note("closed")
				return err
			})
		})
		synctest.Wait()
		other := goDo(t.Context(), h, "a", "other", func(context.Context, *counter) error { note("other"); return nil })
		time.Sleep(time.Minute)
		for _, l := range []*later{returning, exclusive, other} {
			if !l.ended() || l.err != nil {
				t.Error(l.err)
			}
		}
		if got := strings.Join(order, " "); got != "open enter closed other returned" {
			t.Errorf("order: %s", got)
		}
	})
}

// A goroutine of an Exclusive section, in a HoldTurn that outlives the section, gets the turn
// after the section in queue order, and no event is lost in the section's queue.
func TestHoldTurnOutlivingExclusiveQueuesForTheTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := open(t, objectstore.NewMemFS(), Options{})
		var inside atomic.Int32
		in := func() {
			if inside.Add(1) > 1 {
				t.Error("two at once")
			}
			time.Sleep(time.Millisecond)
			inside.Add(-1)
		}
		left := make(chan error, 1)
		first := goDo(t.Context(), h, "a", "exclusive", func(ctx context.Context, c *counter) error {
			err := Exclusive(ctx, func(ctx context.Context) error {
				return Await(ctx, func(ctx context.Context) error {
					go func() {
						left <- HoldTurn(ctx, func(ctx context.Context) error {
							err := Sleep(ctx, time.Second)
							in()
							return err
						})
					}()
					time.Sleep(100 * time.Millisecond)
					return nil
				})
			})
			for range 2000 {
				in()
				if err := Sleep(ctx, 0); err != nil {
					return err
				}
			}
			return err
		})
		time.Sleep(time.Minute)
		if !first.ended() || first.err != nil {
			t.Error(first.err)
		}
		select {
		case err := <-left:
			if err != nil {
				t.Error(err)
			}
		default:
			t.Error("the HoldTurn never came back")
		}
	})
}

func TestDeadlockIsReportedImmediately(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var h *Host
		class := Class{Name: "counter", New: func(ctx context.Context, s *State) (any, error) {
			c := &counter{s: s}
			if s.ID().Name != "born calling" {
				return c, nil
			}
			err := do(ctx, h, "b", "hop", func(ctx context.Context, _ *counter) error {
				return do(ctx, h, "born calling", "back", func(context.Context, *counter) error { return nil })
			})
			if !errors.Is(err, ErrDeadlock) {
				t.Errorf("a call back into a constructor: %v", err)
			}
			return c, nil
		}}
		h = open(t, objectstore.NewMemFS(), Options{}, class)
		start := time.Now()
		err := do(t.Context(), h, "a", "exclusive", func(ctx context.Context, _ *counter) error {
			return Exclusive(ctx, func(ctx context.Context) error {
				return do(ctx, h, "b", "hop", func(ctx context.Context, _ *counter) error {
					return Await(ctx, func(ctx context.Context) error { // through an Await as well
						return do(ctx, h, "c", "hop", func(ctx context.Context, _ *counter) error {
							err := do(ctx, h, "a", "back", func(context.Context, *counter) error { return nil })
							if ran(t, err) != OutcomeNotRun {
								t.Errorf("%v", err)
							}
							return err
						})
					})
				})
			})
		})
		if !errors.Is(err, ErrDeadlock) {
			t.Errorf("a call back into an Exclusive section: %v", err)
		}
		if _, err := add(t.Context(), h, "born calling", 1); err != nil {
			t.Error(err)
		}
		// A call to itself is no deadlock outside of such a section, but it is one inside.
		err = do(t.Context(), h, "a", "self", func(ctx context.Context, _ *counter) error {
			self := func(ctx context.Context) error {
				return do(ctx, h, "a", "itself", func(context.Context, *counter) error { return nil })
			}
			if err := self(ctx); err != nil {
				return err
			}
			return Exclusive(ctx, self)
		})
		if !errors.Is(err, ErrDeadlock) {
			t.Errorf("a call to itself: %v", err)
		}
		// A call of another client waits for the section to end.
		hold := goDo(t.Context(), h, "a", "hold", func(ctx context.Context, _ *counter) error {
			return Exclusive(ctx, func(ctx context.Context) error { return Sleep(ctx, 0) })
		})
		if _, err := add(t.Context(), h, "a", 1); err != nil || !hold.ended() {
			t.Error(err)
		}
		if time.Since(start) > 0 {
			t.Errorf("it took %v", time.Since(start))
		}
	})
}

func TestCallChainDepthIsLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := open(t, objectstore.NewMemFS(), Options{})
		deepest := 0
		var hop func(ctx context.Context, depth int) error
		hop = func(ctx context.Context, depth int) error {
			return do(ctx, h, "a", "hop", func(ctx context.Context, _ *counter) error {
				deepest = max(deepest, depth)
				return hop(ctx, depth+1)
			})
		}
		if err := hop(t.Context(), 0); !errors.Is(err, ErrDeadlock) || deepest != maxDepth {
			t.Errorf("%v at depth %d", err, deepest)
		}
		for depth, want := range map[int]error{maxDepth: nil, maxDepth + 1: ErrDeadlock, 1000: ErrDeadlock, -1: nil} {
			got := -1
			err := h.Do(t.Context(), ID{Class: "counter", Name: "a"}, Call{Op: "deep", Depth: depth, Handler: Func(func(ctx context.Context, _ any) error {
				got = DepthOf(ctx)
				return nil
			})})
			if !errors.Is(err, want) || err == nil && got != max(depth, 0)+1 {
				t.Errorf("a call of depth %d from another host: %v, and one from it has depth %d", depth, err, got)
			}
		}
	})
}

func TestExclusiveHasThirtySeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := open(t, objectstore.NewMemFS(), Options{MaxAge: -1})
		start := time.Now()
		long := goDo(t.Context(), h, "a", "long", func(ctx context.Context, _ *counter) error {
			return Exclusive(ctx, func(ctx context.Context) error { return Sleep(ctx, time.Hour) })
		})
		synctest.Wait()
		_, err := add(t.Context(), h, "a", 1) // waits for the section, and moves to the next incarnation
		if d := time.Since(start); err != nil || d < 30*time.Second || d > 32*time.Second {
			t.Errorf("%v after %v", err, d)
		}
		if !long.ended() {
			t.Fatal("the section continues")
		}
		f, ok := errors.AsType[*Fenced](long.err)
		if e, _ := errors.AsType[*Error](long.err); !ok || f.Reason != ReasonExclusive || !e.Reset() || !e.Overloaded() {
			t.Errorf("%v", long.err)
		}
		for range 10 { // short ones do not add up
			err := do(t.Context(), h, "a", "short", func(ctx context.Context, _ *counter) error {
				return Exclusive(ctx, func(ctx context.Context) error { return Sleep(ctx, 10*time.Second) })
			})
			if err != nil {
				t.Fatal(err)
			}
		}
	})
}

func TestConstructorBacksOffAfterFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		no := errors.New("no")
		start := time.Now()
		var births []time.Duration
		class := Class{Name: "counter", New: func(_ context.Context, s *State) (any, error) {
			births = append(births, time.Since(start))
			if len(births) > 9 {
				return &counter{s: s}, nil
			}
			return nil, no
		}}
		h := open(t, objectstore.NewMemFS(), Options{}, class)
		for time.Since(start) < 45*time.Second {
			at := time.Now()
			_, err := add(t.Context(), h, "a", 1)
			if time.Since(at) > 0 {
				t.Fatalf("a call waited %v", time.Since(at))
			}
			if err != nil {
				if e, _ := errors.AsType[*Error](err); !errors.Is(err, ErrConstructor) || !errors.Is(err, no) || e.Outcome != OutcomeNotRun || !e.Reset() {
					t.Fatalf("%v", err)
				}
			}
			time.Sleep(10 * time.Millisecond)
		}
		ms := time.Millisecond
		want := []time.Duration{0, 100 * ms, 300 * ms, 700 * ms, 1500 * ms, 3100 * ms, 6300 * ms, 12700 * ms, 22700 * ms, 32700 * ms}
		if !slices.Equal(births, want) {
			t.Errorf("constructors at %v", births)
		}
		// A success resets the failures.
		synctest.Wait()
		h.Evict(id("a"), eviction.EndFence)
		if _, err := add(t.Context(), h, "a", 1); err != nil {
			t.Error(err)
		}
	})
}

// A fence during the constructor ends that incarnation; the next one gets the events.
func TestFenceDuringConstructorKeepsQueuedEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var births atomic.Int32
		first := make(chan struct{})
		class := Class{Name: "counter", New: func(ctx context.Context, s *State) (any, error) {
			if births.Add(1) == 1 {
				<-first
				if err := s.Put(ctx, kv, []byte("n"), []byte("ghost"), false); !errors.Is(err, ErrFenced) {
					t.Errorf("a late write of the constructor: %v", err)
				}
				return nil, errors.New("no")
			}
			return &counter{s: s}, nil
		}}
		h := open(t, objectstore.NewMemFS(), Options{}, class)
		call := goDo(t.Context(), h, "a", "add", func(ctx context.Context, c *counter) error { _, err := c.add(ctx, 1); return err })
		synctest.Wait()
		h.Evict(id("a"), eviction.EndCrash)
		if !call.ended() || call.err != nil || births.Load() != 2 {
			t.Errorf("%v after %d constructors", call.err, births.Load())
		}
		close(first)
		synctest.Wait()
		h.Evict(id("a"), eviction.EndFence)
		if n, err := add(t.Context(), h, "a", 0); err != nil || n != 1 {
			t.Errorf("the failure of an ended incarnation counts: %d, %v", n, err)
		}
	})
}

// TestConstructorBackoffAppliesToSlowCallers calls every two seconds.
func TestConstructorBackoffAppliesToSlowCallers(t *testing.T) {
	errNo := errors.New("no")
	for name, fail := range map[string]func(context.Context, *State) error{
		"fails":  func(context.Context, *State) error { return errNo },
		"aborts": func(ctx context.Context, s *State) error { return s.Abort(ctx, errNo, false) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				runs := 0
				h := open(t, objectstore.NewMemFS(), Options{}, Class{Name: "counter", New: func(ctx context.Context, s *State) (any, error) {
					runs++
					return nil, fail(ctx, s)
				}})
				for range 60 {
					err := do(t.Context(), h, "a", "x", func(context.Context, *counter) error { return nil })
					if !errors.Is(err, ErrConstructor) || !errors.Is(err, errNo) {
						t.Fatal(err)
					}
					time.Sleep(2 * time.Second)
				}
				if runs < 12 || runs > 20 {
					t.Errorf("%d runs of the constructor in two minutes", runs)
				}
				time.Sleep(time.Minute)
				if n := len(h.all()); n > 0 {
					t.Errorf("%d objects in the table", n)
				}
			})
		})
	}
}
