package runtime

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dohost/dohost/alarm"
	"github.com/dohost/dohost/eviction"
	"github.com/dohost/dohost/objectstore"
)

// Calls, alarms, tasks and returning Awaits, of all kinds and at any time: no two of them
// are ever in the object's code together.
func TestTurnIsHeldByOneEventAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var inside, entered atomic.Int32
		in := func(c *counter) {
			if inside.Add(1) > 1 {
				t.Error("two events are in the object's code at once")
			}
			c.calls++ // for the race detector
			entered.Add(1)
			time.Sleep(time.Millisecond)
			inside.Add(-1)
		}
		handle := func(ctx context.Context, c *counter, i int) error {
			in(c)
			err := []func() error{
				func() error {
					return Await(ctx, func(context.Context) error { time.Sleep(3 * time.Millisecond); return nil })
				},
				func() error { return Sleep(ctx, 5*time.Millisecond) },
				func() error { _, err := c.add(ctx, 1); return errors.Join(err, Sync(ctx)) },
				func() error {
					return c.s.Go(ctx, "task", func(ctx context.Context) error { in(c); return Sleep(ctx, time.Millisecond) })
				},
				func() error { return c.s.SetAlarm(ctx, time.Now()) },
				func() error {
					return do(ctx, c.s.Host(), "b", "callee", func(ctx context.Context, _ *counter) error {
						return do(ctx, c.s.Host(), "a", "back", func(_ context.Context, c *counter) error { in(c); return nil })
					})
				},
				func() error {
					return Await(ctx, func(ctx context.Context) error {
						var wg sync.WaitGroup
						for range 3 {
							wg.Go(func() {
								if err := HoldTurn(ctx, func(context.Context) error { in(c); return nil }); err != nil {
									t.Error(err)
								}
							})
						}
						wg.Wait()
						return nil
					})
				},
				func() error {
					return Exclusive(ctx, func(ctx context.Context) error { in(c); return Sleep(ctx, 2*time.Millisecond) })
				},
			}[i%8]()
			in(c)
			return err
		}
		class := Class{Name: "counter", New: newCounter, Alarm: func(_ context.Context, o any, _ alarm.Info) error { in(o.(*counter)); return nil }}
		h := open(t, objectstore.NewMemFS(), Options{}, class)
		var wg sync.WaitGroup
		for i := range 400 {
			wg.Go(func() {
				err := do(t.Context(), h, "a", "handle", func(ctx context.Context, c *counter) error { return handle(ctx, c, i) })
				if err != nil && !errors.Is(err, ErrDeadlock) {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		time.Sleep(time.Second)
		if entered.Load() < 1000 {
			t.Errorf("only %d times in code", entered.Load())
		}
	})
}

// New events and returning Awaits wait in one queue.
func TestTurnQueueOrdersNewEventsAndReturningAwaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := open(t, objectstore.NewMemFS(), Options{})
		var order []string
		awaits, holds := make(chan struct{}), make(chan struct{})
		note := func(what string) {
			goDo(t.Context(), h, "a", what, func(context.Context, *counter) error { order = append(order, what); return nil })
			synctest.Wait()
		}
		goDo(t.Context(), h, "a", "awaiting", func(ctx context.Context, _ *counter) error {
			err := Await(ctx, func(context.Context) error { <-awaits; return nil })
			order = append(order, "returned")
			return err
		})
		synctest.Wait()
		goDo(t.Context(), h, "a", "holding", func(context.Context, *counter) error { <-holds; return nil })
		synctest.Wait()
		note("before")
		close(awaits)
		synctest.Wait()
		note("after")
		close(holds)
		synctest.Wait()
		if got := strings.Join(order, " "); got != "before returned after" {
			t.Errorf("order: %s", got)
		}
	})
}

func TestEventsStartInTheOrderOfArrival(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := open(t, objectstore.NewMemFS(), Options{})
		var started []int
		for i := range 500 {
			sent, err := h.Send(t.Context(), id("a"), Call{Op: "note", Handler: Func(func(context.Context, any) error {
				started = append(started, i)
				return nil
			})})
			if err != nil {
				t.Fatal(err)
			}
			defer func() { <-sent.Done() }()
		}
		synctest.Wait()
		if !slices.IsSorted(started) || len(started) != 500 {
			t.Errorf("%v", started)
		}
	})
}

// TestCallThatIsAnsweredLeavesRoomForTheNext has room for one event, and holds up an event that its caller has the answer of.
func TestCallThatIsAnsweredLeavesRoomForTheNext(t *testing.T) {
	type handler = func(context.Context, *counter) error
	nothing := func(context.Context, *counter) error { return nil }
	for name, handle := range map[string]handler{
		"read":  func(ctx context.Context, c *counter) error { _, err := c.get(ctx, "n"); return err },
		"write": func(ctx context.Context, c *counter) error { _, err := c.add(ctx, 1); return err },
		"error": func(context.Context, *counter) error { return errors.New("failed") },
		"exclusive": func(ctx context.Context, _ *counter) error {
			return Exclusive(ctx, func(ctx context.Context) error { return Sleep(ctx, time.Second) })
		},
		"outlived": func(ctx context.Context, _ *counter) error {
			go func() { _ = Sleep(ctx, time.Minute) }() // the event ends with another turn
			synctest.Wait()
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				proceed := make(chan struct{})
				h := open(t, objectstore.NewMemFS(), Options{MaxEvents: 1, Listener: Listener{EventEnded: func(e Event) {
					if e.Op == "first" {
						<-proceed
					}
				}}})
				if err := do(t.Context(), h, "a", "first", handle); err != nil && name != "error" {
					t.Error(err)
				}
				second := goDo(t.Context(), h, "a", "second", nothing)
				if second.ended() {
					t.Errorf("the next call was refused: %v", second.err)
				}
				if err := do(t.Context(), h, "a", "third", nothing); !errors.Is(err, ErrOverloaded) {
					t.Errorf("the call after it: %v", err)
				}
				close(proceed)
				if !second.ended() || second.err != nil {
					t.Errorf("the next call: %v", second.err)
				}
			})
		})
	}
}

// TestTurnThatOutlivesItsEventTakesRoom lets a HoldTurn take the turn again when its event has been answered.
func TestTurnThatOutlivesItsEventTakesRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := open(t, objectstore.NewMemFS(), Options{MaxEvents: 2})
		hold, held := make(chan struct{}), make(chan error, 1)
		err := do(t.Context(), h, "a", "outlived", func(ctx context.Context, _ *counter) error {
			go func() {
				held <- Await(ctx, func(ctx context.Context) error {
					return HoldTurn(ctx, func(ctx context.Context) error {
						err := Sleep(ctx, time.Second)
						<-hold
						return err
					})
				})
			}()
			synctest.Wait()
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		nothing := func(context.Context, *counter) error { return nil }
		second := goDo(t.Context(), h, "a", "second", nothing)
		synctest.Wait()
		if err := do(t.Context(), h, "a", "third", nothing); !errors.Is(err, ErrOverloaded) {
			t.Errorf("with a HoldTurn and a call: %v", err)
		}
		close(hold)
		if !second.ended() || second.err != nil {
			t.Error(second.err)
		}
		<-held // the Await has lost its turn
	})
}

func TestTurnQueueLimits(t *testing.T) {
	refused := func(t *testing.T, what string, err error) {
		t.Helper()
		e, ok := errors.AsType[*Error](err)
		if !ok || !errors.Is(err, ErrOverloaded) || e.Outcome != OutcomeNotRun || !e.Overloaded() || e.Retryable {
			t.Errorf("%s: %v", what, err)
		}
	}
	nothing := func(context.Context, *counter) error { return nil }
	synctest.Test(t, func(t *testing.T) {
		h := open(t, objectstore.NewMemFS(), Options{MaxEvents: 10, MaxBytes: 1000, MaxAge: time.Hour}, Class{
			Name: "counter", New: newCounter, Alarm: func(context.Context, any, alarm.Info) error { return nil },
		})
		// Suspended events count as well.
		var suspended []*later
		for range 10 {
			suspended = append(suspended, goDo(t.Context(), h, "a", "suspended", func(ctx context.Context, _ *counter) error { return Sleep(ctx, time.Minute) }))
			synctest.Wait()
		}
		refused(t, "the eleventh event", do(t.Context(), h, "a", "more", nothing))
		if err := do(t.Context(), h, "b", "other", nothing); err != nil {
			t.Errorf("another object: %v", err)
		}
		time.Sleep(2 * time.Minute) // returning Awaits are not refused
		for _, l := range suspended {
			if !l.ended() || l.err != nil {
				t.Errorf("suspended: %v", l.err)
			}
		}
		if err := do(t.Context(), h, "a", "more", nothing); err != nil {
			t.Errorf("after they ended: %v", err)
		}

		hold := make(chan struct{})
		goDo(t.Context(), h, "a", "hold", func(context.Context, *counter) error { <-hold; return nil })
		synctest.Wait()
		sized := func(n int) error {
			sent, err := h.Send(t.Context(), id("a"), Call{Op: "sized", Size: n, Handler: Func(func(context.Context, any) error { return nil })})
			if err == nil {
				go func() { <-sent.Done() }()
			}
			return err
		}
		if err := errors.Join(sized(600), sized(400)); err != nil {
			t.Errorf("a full queue: %v", err)
		}
		refused(t, "one byte more", sized(1))
		close(hold)
		synctest.Wait()
		if err := sized(1000); err != nil {
			t.Errorf("the bytes of started events count: %v", err)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		h := open(t, objectstore.NewMemFS(), Options{MaxAge: 10 * time.Second})
		goDo(t.Context(), h, "a", "stuck", func(ctx context.Context, _ *counter) error { <-ctx.Done(); return nil })
		synctest.Wait()
		start := time.Now()
		err := do(t.Context(), h, "a", "old", nothing)
		refused(t, "an event that waited too long", err)
		if d := time.Since(start); d < 10*time.Second || d > 12*time.Second {
			t.Errorf("refused after %v", d)
		}
		// A stuck object does not accumulate the calls that it refused.
		for range 100 {
			goDo(t.Context(), h, "a", "old", nothing)
		}
		time.Sleep(time.Minute)
		o := h.lookup(id("a"))
		o.mu.Lock()
		queued := 0
		for q := o.incarnation.queue.head; q != nil; q = q.next {
			queued++
		}
		o.mu.Unlock()
		if queued > 0 {
			t.Errorf("%d refused events are still in the turn queue", queued)
		}
	})
}

func TestTurnMisuseIsNamedInTheError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := open(t, objectstore.NewMemFS(), Options{})
		want := func(what string, err, is error, text string) {
			t.Helper()
			if !errors.Is(err, is) || !strings.Contains(err.Error(), text) {
				t.Errorf("%s: %v; want %v with %q", what, err, is, text)
			}
		}
		var s *State
		var old context.Context
		nothing := func(context.Context) error { return nil }
		err := do(t.Context(), h, "a", "misuse", func(ctx context.Context, c *counter) error {
			s, old = c.s, ctx
			_, _, err := c.s.Get(context.Background(), nil, kv, []byte("n"))
			want("a foreign context", err, ErrNoTurn, "")
			err = Await(ctx, func(inner context.Context) error {
				_, err := c.get(ctx, "n")
				want("the outer context in an Await", err, ErrNoTurn, "use the context that it passed to fn")
				want("an Await on it", Await(ctx, nothing), ErrNoTurn, "use the context that it passed to fn")
				want("Sync without the turn", Sync(inner), ErrNoTurn, "")
				want("Exclusive without the turn", Exclusive(inner, nothing), ErrNoTurn, "")
				want("Transaction without the turn", Transaction(inner, nothing), ErrNoTurn, "")
				if err := Await(inner, nothing); err != nil {
					t.Errorf("an Await inside an Await: %v", err)
				}
				return nil
			})
			want("HoldTurn with the turn", HoldTurn(ctx, nothing), ErrNoTurn, "the context that Await passed")
			return errors.Join(err, Transaction(ctx, func(ctx context.Context) error {
				for what, err := range map[string]error{
					"Await": Await(ctx, nothing), "Wait": Wait(ctx, nothing), "Sync": Sync(ctx), "Exclusive": Exclusive(ctx, nothing),
					"call":  do(ctx, h, "b", "x", func(context.Context, *counter) error { return nil }),
					"Sleep": Sleep(ctx, 1), "DeleteAll": c.s.DeleteAll(ctx),
					"Chunk": c.s.Chunk(ctx, 0, func(error) {}, nothing),
				} {
					want(what+" in a Transaction", err, ErrInTransaction, "")
				}
				return nil
			}))
		})
		if err != nil {
			t.Fatal(err)
		}
		_, _, err = s.Get(old, nil, kv, []byte("n"))
		want("after the event", err, ErrNoTurn, "the event has ended")
		want("Await after the event", Await(old, nothing), ErrNoTurn, "the event has ended")
		err = do(t.Context(), h, "b", "other", func(ctx context.Context, c *counter) error {
			_, _, err := s.Get(ctx, nil, kv, []byte("n"))
			return err
		})
		want("another object's turn", err, ErrNoTurn, "")

		// Two goroutines on one turn: the operation of one takes long.
		fs := objectstore.NewMemFS()
		h = open(t, fs, Options{})
		release := fs.HoldSyncs()
		err = do(t.Context(), h, "a", "busy", func(ctx context.Context, c *counter) error {
			if _, err := c.add(ctx, 1); err != nil {
				return err
			}
			synced := make(chan error)
			go func() { synced <- Sync(ctx) }()
			synctest.Wait()
			_, err := c.get(ctx, "n")
			want("while another goroutine is at it", err, ErrTurnBusy, "")
			release()
			return <-synced
		})
		if err != nil {
			t.Fatal(err)
		}
	})
}

func TestTransactionRollsBackAllItsEffects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		class := Class{Name: "counter", New: newCounter, Alarm: func(context.Context, any, alarm.Info) error { return nil }}
		h := open(t, objectstore.NewMemFS(), Options{}, class)
		no := errors.New("no")
		var mu sync.Mutex // outputs are released on another goroutine than tasks
		var left []string
		leave := func(what string) {
			mu.Lock()
			defer mu.Unlock()
			left = append(left, what)
		}
		emit := func(ctx context.Context, c *counter, what string) error {
			return errors.Join(
				c.s.Emit(ctx, func(err error) {
					if err == nil {
						leave("frame " + what)
					}
				}),
				c.s.Go(ctx, what, func(context.Context) error { leave("task " + what); return nil }))
		}
		err := do(t.Context(), h, "a", "transactions", func(ctx context.Context, c *counter) error {
			hour := time.Now().Add(time.Hour)
			err := errors.Join(c.put(ctx, "n", 1), c.put(ctx, "gone", 1), c.s.SetAlarm(ctx, hour), emit(ctx, c, "kept"))
			if err != nil {
				return err
			}
			err = Transaction(ctx, func(ctx context.Context) error {
				_, derr := c.s.Delete(ctx, kv, []byte("gone"), false)
				return errors.Join(derr, c.put(ctx, "n", 2), c.put(ctx, "new", 1), c.s.DeleteAlarm(ctx), emit(ctx, c, "outer"),
					Transaction(ctx, func(ctx context.Context) error {
						return errors.Join(c.put(ctx, "n", 3), c.s.SetAlarm(ctx, hour.Add(time.Hour)), emit(ctx, c, "inner"))
					}), no)
			})
			if !errors.Is(err, no) {
				t.Errorf("its error: %v", err)
			}
			if n, err := c.get(ctx, "n"); err != nil || n != 1 {
				t.Errorf("n is %d, %v", n, err)
			}
			if at, ok, err := c.s.GetAlarm(ctx); err != nil || !ok || at.Sub(hour).Abs() > time.Millisecond {
				t.Errorf("alarm %v, %v, %v", at, ok, err)
			}
			// If a nested one fails, only the inner part is rolled back.
			return Transaction(ctx, func(ctx context.Context) error {
				err := errors.Join(c.put(ctx, "m", 1), emit(ctx, c, "second"))
				if ierr := Transaction(ctx, func(ctx context.Context) error {
					return errors.Join(c.put(ctx, "m", 2), emit(ctx, c, "second inner"), no)
				}); !errors.Is(ierr, no) {
					t.Errorf("inner error: %v", ierr)
				}
				return err
			})
		})
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		slices.Sort(left)
		if want := []string{"frame kept", "frame second", "task kept", "task second"}; !slices.Equal(left, want) {
			t.Errorf("effects %q", left)
		}
		h.Evict(id("a"), eviction.EndFence)
		one := "0000000000000001"
		if got := contents(t, h); !strings.HasPrefix(got, fmt.Sprintf("gone=%s m=%s n=%s 2000", one, one, one)) {
			t.Errorf("the object has %s", got)
		}
	})
}

// A scan sees the rows as they were when it began, continues over a Sync, and ends when the
// turn is given up.
func TestScanEndsWithTheTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := open(t, objectstore.NewMemFS(), Options{})
		err := do(t.Context(), h, "a", "scan", func(ctx context.Context, c *counter) error {
			for i := range 4 {
				if err := c.put(ctx, fmt.Sprint(i), i); err != nil {
					return err
				}
			}
			rows := 0
			for _, err := range c.s.Scan(ctx, objectstore.Bounds{Space: kv}) {
				if err != nil {
					return err
				}
				rows++
				if err := errors.Join(c.put(ctx, "late", 1), Sync(ctx)); err != nil {
					return err
				}
			}
			if rows != 4 {
				t.Errorf("%d rows", rows)
			}
			rows = 0
			for _, err := range c.s.Scan(ctx, objectstore.Bounds{Space: kv}) {
				if rows++; rows == 2 {
					if !errors.Is(err, ErrTurnOver) {
						t.Errorf("after an Await: %v", err)
					}
					return nil
				}
				if err := Sleep(ctx, time.Second); err != nil {
					return err
				}
			}
			t.Error("the scan goes on after an Await")
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	})
}

func TestTasksOfAnObjectAreBounded(t *testing.T) {
	for name, begin := range map[string]func(*State, context.Context, string, func(context.Context) error) error{
		"Go": (*State).Go, "GoImmediately": (*State).GoImmediately,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := open(t, objectstore.NewMemFS(), Options{MaxEvents: 10})
				start := func(n int) (started int, err error) {
					err = do(t.Context(), h, "a", "start", func(ctx context.Context, c *counter) error {
						for ; started < n; started++ {
							err := begin(c.s, ctx, "task", func(ctx context.Context) error { return Sleep(ctx, time.Minute) })
							if err != nil {
								return err
							}
						}
						return nil
					})
					return started, err
				}
				for range 2 { // the first ten end in between
					if n, err := start(8); n != 8 || err != nil {
						t.Errorf("started %d, %v", n, err)
					}
					synctest.Wait()
					if n, err := start(8); n != 2 || !errors.Is(err, ErrOverloaded) {
						t.Errorf("started %d more, %v", n, err)
					}
					synctest.Wait()
					time.Sleep(2 * time.Minute)
				}
				// Tasks that are rolled back with their transaction do not count either,
				// nor those that have ended.
				err := do(t.Context(), h, "a", "back", func(ctx context.Context, c *counter) error {
					for range 10 {
						_ = Transaction(ctx, func(ctx context.Context) error {
							return errors.Join(begin(c.s, ctx, "task", func(context.Context) error { return nil }), errors.New("back"))
						})
					}
					return nil
				})
				synctest.Wait()
				if n, err2 := start(8); n != 8 || err != nil || err2 != nil {
					t.Errorf("started %d, %v, %v", n, err, err2)
				}
			})
		})
	}
}

// A task that is enqueued after its incarnation has ended and its object has left memory is
// refused like a task of any ended incarnation.
func TestTaskOfAnEvictedObjectIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := open(t, objectstore.NewMemFS(), Options{Policy: idle(eviction.Idle{})})
		var s *State
		if err := do(t.Context(), h, "a", "look", func(_ context.Context, c *counter) error { s = c.s; return nil }); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Minute)
		o := s.incarnation().obj
		if err := o.enqueue(&event{op: "task", kind: kindBackground, only: s.incarnation()}, true); o.state != objectRemoved || !errors.Is(err, ErrFenced) {
			t.Errorf("the object is %v; %v", o.state, err)
		}
	})
}

// TestTaskMayBeginBeforeEarlierWritesAreDurable runs while the disk is busy with the writes before it. The
// task's outputs leave after them.
func TestTaskMayBeginBeforeEarlierWritesAreDurable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs := objectstore.NewMemFS()
		h := open(t, fs, Options{})
		release := fs.HoldSyncs()
		var begun, left, back atomic.Bool
		sent := make(chan error, 1)
		go func() {
			sent <- do(t.Context(), h, "a", "start", func(ctx context.Context, c *counter) error {
				_, err := c.add(ctx, 1)
				err = errors.Join(err, c.s.GoImmediately(ctx, "task", func(ctx context.Context) error {
					begun.Store(true)
					return c.s.Emit(ctx, func(err error) { left.Store(err == nil) })
				}))
				_ = Transaction(ctx, func(ctx context.Context) error {
					return errors.Join(c.s.GoImmediately(ctx, "back", func(context.Context) error { back.Store(true); return nil }), errors.New("back"))
				})
				if begun.Load() || back.Load() {
					t.Error("it has begun without the turn")
				}
				return err
			})
		}()
		synctest.Wait()
		if !begun.Load() || !back.Load() || left.Load() {
			t.Errorf("begun: %v; that of a transaction taken back: %v; left: %v", begun.Load(), back.Load(), left.Load())
		}
		release()
		if err := <-sent; err != nil {
			t.Error(err)
		}
		synctest.Wait()
		if !left.Load() {
			t.Error("what it emits never left")
		}
	})
}

// TestErrorFlagsDoNotDependOnItsCause aborts with an error of another group.
func TestErrorFlagsDoNotDependOnItsCause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := open(t, objectstore.NewMemFS(), Options{})
		err := do(t.Context(), h, "a", "abort", func(ctx context.Context, c *counter) error {
			return c.s.Abort(ctx, fmt.Errorf("callee: %w", ErrOverloaded), false)
		})
		if e, ok := errors.AsType[*Error](err); !ok || e.Overloaded() || !e.Reset() || e.Outcome != OutcomeUnknown {
			t.Errorf("%+v", e)
		}
	})
}
