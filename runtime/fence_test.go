package runtime

import (
	"context"
	"errors"
	"fmt"
	"iter"
	goruntime "runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dohost/dohost/eviction"
	"github.com/dohost/dohost/objectstore"
)

// later is the outcome of a call in the background.
type later struct {
	done chan struct{}
	err  error
}

func goDo(ctx context.Context, h *Host, name, op string, fn func(context.Context, *counter) error) *later {
	l := &later{done: make(chan struct{})}
	go func() {
		defer close(l.done)
		l.err = do(ctx, h, name, op, fn)
	}()
	return l
}

// ended reports whether the call has returned, after synctest.Wait.
func (l *later) ended() bool {
	synctest.Wait()
	select {
	case <-l.done:
		return true
	default:
		return false
	}
}

// ran returns the Outcome of an *Error.
func ran(t *testing.T, err error) Outcome {
	t.Helper()
	e, ok := errors.AsType[*Error](err)
	if !ok {
		t.Fatalf("%v is no *Error", err)
	}
	return e.Outcome
}

func TestEventsInTheQueueMoveToTheNextIncarnationFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := open(t, objectstore.NewMemFS(), Options{})
		var order []int
		epochs := map[objectstore.Epoch]bool{}
		stuck := make(chan struct{})
		first := goDo(t.Context(), h, "a", "stuck", func(ctx context.Context, c *counter) error {
			epochs[c.s.Epoch()] = true
			<-stuck
			return nil
		})
		synctest.Wait()
		var calls []*later
		note := func(i int) {
			calls = append(calls, goDo(t.Context(), h, "a", "note", func(_ context.Context, c *counter) error {
				order = append(order, i)
				epochs[c.s.Epoch()] = true
				return nil
			}))
			synctest.Wait()
		}
		for i := range 10 {
			note(i)
		}
		h.Evict(id("a"), eviction.EndFence)
		for i := range 10 {
			note(10 + i)
		}
		for i, c := range calls {
			if !c.ended() || c.err != nil {
				t.Fatalf("event %d: %v", i, c.err)
			}
		}
		if !slices.IsSorted(order) || len(order) != 20 || len(epochs) != 2 {
			t.Errorf("order %v in %d incarnations", order, len(epochs))
		}
		if !first.ended() || !errors.Is(first.err, ErrFenced) || ran(t, first.err) != OutcomeUnknown {
			t.Errorf("the running event's caller got %v", first.err)
		}
		close(stuck)
	})
}

// Batches committed before a fence are history: results, errors and frames leave once they
// are durable. Calls, fns and tasks no longer start.
func TestFenceKeepsCommittedBatchesAndStartsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs := objectstore.NewMemFS()
		h := open(t, fs, Options{})
		release := fs.HoldSyncs()
		var started atomic.Int32
		var frames []error
		write := func(ctx context.Context, c *counter) error {
			_, err := c.add(ctx, 1)
			return errors.Join(err, c.s.Emit(ctx, func(err error) { frames = append(frames, err) }))
		}
		start := func(context.Context) error { started.Add(1); return nil }
		result := goDo(t.Context(), h, "a", "result", write)
		no := errors.New("no")
		failure := goDo(t.Context(), h, "a", "error", func(ctx context.Context, c *counter) error {
			return errors.Join(write(ctx, c), no)
		})
		fn := goDo(t.Context(), h, "a", "fn", func(ctx context.Context, c *counter) error {
			return errors.Join(write(ctx, c), Await(ctx, start))
		})
		call := goDo(t.Context(), h, "a", "call", func(ctx context.Context, c *counter) error {
			return errors.Join(write(ctx, c), do(ctx, h, "b", "callee", func(ctx context.Context, _ *counter) error { return start(ctx) }))
		})
		task := goDo(t.Context(), h, "a", "task", func(ctx context.Context, c *counter) error {
			return errors.Join(write(ctx, c), c.s.Go(ctx, "task", start))
		})
		synctest.Wait()
		h.Evict(id("a"), eviction.EndFence)
		for what, l := range map[string]*later{"fn": fn, "call": call} {
			if !l.ended() || !errors.Is(l.err, ErrFenced) {
				t.Errorf("%s: the caller of an unfinished event got %v", what, l.err)
			}
		}
		if result.ended() || failure.ended() {
			t.Error("a result left before it was durable")
		}
		release()
		time.Sleep(time.Second)
		if !result.ended() || result.err != nil || !task.ended() || task.err != nil {
			t.Errorf("results: %v, %v", result.err, task.err)
		}
		if !failure.ended() || !errors.Is(failure.err, no) || ran(t, failure.err) != OutcomeRan {
			t.Errorf("error: %v", failure.err)
		}
		if n := started.Load(); n > 0 {
			t.Errorf("%d things started in an incarnation that had ended", n)
		}
		if len(frames) != 5 || errors.Join(frames...) != nil {
			t.Errorf("frames %v", frames)
		}
		if n, err := add(t.Context(), h, "a", 0); err != nil || n != 5 {
			t.Errorf("history: %d, %v", n, err)
		}
	})
}

// The fence comes when the record is durable, before the committer releases its outputs, so
// that the objects' own goroutines have no time to notice.
func TestFenceBetweenSyncAndReleaseStartsNothing(t *testing.T) {
	for what, start := range map[string]func(ctx context.Context, h *Host, s *State, mark func(context.Context) error) error{
		"fn": func(ctx context.Context, _ *Host, _ *State, mark func(context.Context) error) error {
			return Await(ctx, mark)
		},
		"call": func(ctx context.Context, h *Host, _ *State, mark func(context.Context) error) error {
			return do(ctx, h, "b", "callee", func(ctx context.Context, _ *counter) error { return mark(ctx) })
		},
		"task": func(ctx context.Context, _ *Host, s *State, mark func(context.Context) error) error {
			return s.Go(ctx, "task", mark)
		},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var h *Host
				var armed atomic.Bool
				var started atomic.Int32
				h = open(t, objectstore.NewMemFS(), Options{Store: objectstore.Options{Hook: func(s objectstore.Stage, _ iter.Seq[ID]) {
					if s == objectstore.StageDurable && armed.Swap(false) {
						h.Evict(id("a"), eviction.EndFence)
					}
				}}})
				for i := range 100 {
					armed.Store(true)
					l := goDo(t.Context(), h, "a", "start", func(ctx context.Context, c *counter) error {
						if _, err := c.add(ctx, 1); err != nil {
							return err
						}
						return start(ctx, h, c.s, func(context.Context) error { started.Add(1); return nil })
					})
					if !l.ended() || (l.err != nil && !errors.Is(l.err, ErrFenced)) {
						t.Fatal(l.err)
					}
					if n, err := add(t.Context(), h, "a", 0); err != nil || n != i+1 {
						t.Fatalf("%d, %v", n, err)
					}
				}
				if n := started.Load(); n > 0 {
					t.Errorf("%d of 100 started", n)
				}
			})
		})
	}
}

// A crash loses batches that are in no record yet, and their callers get errors; a record
// in flight becomes durable.
func TestCrashModeLosesUnsyncedBatchesWithAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs := objectstore.NewMemFS()
		h := open(t, fs, Options{})
		if _, err := add(t.Context(), h, "a", 1); err != nil {
			t.Fatal(err)
		}
		release := fs.HoldSyncs()
		put := func(ctx context.Context, c *counter) error { _, err := c.add(ctx, 10); return err }
		var left atomic.Int32
		inFlight := goDo(t.Context(), h, "a", "in flight", put)
		synctest.Wait()
		filling := goDo(t.Context(), h, "a", "filling", func(ctx context.Context, c *counter) error {
			return errors.Join(put(ctx, c), c.s.Emit(ctx, func(err error) {
				if err == nil {
					left.Add(1)
				}
			}))
		})
		synctest.Wait()
		reader := goDo(t.Context(), h, "a", "reader", func(ctx context.Context, c *counter) error { _, err := c.get(ctx, "n"); return err })
		synctest.Wait()
		h.Evict(id("a"), eviction.EndCrash)
		for _, l := range []*later{filling, reader} {
			if !l.ended() || !errors.Is(l.err, ErrFenced) || ran(t, l.err) != OutcomeUnknown {
				t.Errorf("lost: %v", l.err)
			}
		}
		if inFlight.ended() {
			t.Error("the record in flight has not landed")
		}
		release()
		time.Sleep(time.Second)
		if !inFlight.ended() || inFlight.err != nil {
			t.Errorf("in flight: %v", inFlight.err)
		}
		if n, err := add(t.Context(), h, "a", 0); err != nil || n != 11 {
			t.Errorf("after the crash: %d, %v; want 11", n, err)
		}
		if left.Load() > 0 {
			t.Error("a lost output left")
		}
	})
}

func TestPanicAndGoexitFenceTheIncarnationOnly(t *testing.T) {
	for name, exit := range map[string]func(){"panic": func() { panic("oh") }, "Goexit": goruntime.Goexit} {
		var queued chan struct{} // closed when another event waits for the turn
		end := func() {
			<-queued
			exit()
		}
		wheres := map[string]func(ctx context.Context, c *counter) error{
			"handler": func(ctx context.Context, c *counter) error {
				_, err := c.add(ctx, 100)
				end()
				return err
			},
			"Await": func(ctx context.Context, c *counter) error {
				return Await(ctx, func(context.Context) error { end(); return nil })
			},
			"HoldTurn": func(ctx context.Context, c *counter) error {
				return Await(ctx, func(ctx context.Context) error {
					return HoldTurn(ctx, func(ctx context.Context) error {
						_, err := c.add(ctx, 100)
						end()
						return err
					})
				})
			},
			"Transaction": func(ctx context.Context, c *counter) error {
				return Transaction(ctx, func(ctx context.Context) error {
					_, err := c.add(ctx, 100)
					end()
					return err
				})
			},
			"Exclusive": func(ctx context.Context, c *counter) error {
				return Exclusive(ctx, func(ctx context.Context) error {
					_, err := c.add(ctx, 100)
					end()
					return err
				})
			},
		}
		for where, handler := range wheres {
			t.Run(name+" in "+where, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					var ends []Ended
					queued = make(chan struct{})
					h := open(t, objectstore.NewMemFS(), Options{Listener: Listener{Fenced: func(e Ended) { ends = append(ends, e) }}})
					if _, err := add(t.Context(), h, "a", 1); err != nil {
						t.Fatal(err)
					}
					suspended := goDo(t.Context(), h, "a", "suspended", func(ctx context.Context, _ *counter) error { return Sleep(ctx, time.Hour) })
					synctest.Wait()
					bad := goDo(t.Context(), h, "a", "bad", handler)
					synctest.Wait()
					// Queued after it, for the next incarnation.
					next := goDo(t.Context(), h, "a", "next", func(ctx context.Context, c *counter) error {
						if n, err := c.get(ctx, "n"); err != nil || n != 1 {
							return fmt.Errorf("n is %d, %w", n, err)
						}
						return nil
					})
					synctest.Wait()
					close(queued)
					if !bad.ended() || !errors.Is(bad.err, ErrFenced) {
						t.Errorf("its caller got %v", bad.err)
					}
					p, ok := errors.AsType[*PanicError](bad.err)
					if !ok || (p.Value == "oh") != (name == "panic") {
						t.Errorf("the cause is %v", bad.err)
					}
					if !suspended.ended() || !errors.Is(suspended.err, ErrFenced) {
						t.Errorf("a suspended event's caller got %v", suspended.err)
					}
					if !next.ended() || next.err != nil {
						t.Errorf("the next event: %v", next.err)
					}
					if len(ends) != 1 || ends[0].Cause.Reason != ReasonPanic {
						t.Errorf("ends %+v", ends)
					}
				})
			})
		}
	}
}

func TestIncarnationThatIsFencedUnwindsItsEventsOneAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := open(t, objectstore.NewMemFS(), Options{})
		var inside, most, unwound atomic.Int32
		for range 20 {
			goDo(t.Context(), h, "a", "sleeper", func(ctx context.Context, c *counter) error {
				if err := Sleep(ctx, time.Hour); !errors.Is(err, ErrFenced) {
					t.Errorf("Sleep in an ended incarnation: %v", err)
				}
				most.Store(max(most.Load(), inside.Add(1)))
				time.Sleep(time.Second) // not an Await: the turn is held
				inside.Add(-1)
				unwound.Add(1)
				return nil
			})
		}
		synctest.Wait()
		h.Evict(id("a"), eviction.EndFence)
		start := time.Now()
		if _, err := add(t.Context(), h, "a", 1); err != nil || time.Since(start) > 0 {
			t.Errorf("the next incarnation waits for the last: %v after %v", err, time.Since(start))
		}
		if len(h.Zombies()) != 20 {
			t.Errorf("%d zombies", len(h.Zombies()))
		}
		time.Sleep(time.Minute)
		if most.Load() != 1 || unwound.Load() != 20 || len(h.Zombies()) > 0 {
			t.Errorf("%d at once, %d unwound, zombies %v", most.Load(), unwound.Load(), h.Zombies())
		}
	})
}

func TestTasksOfAFencedIncarnationDoNotStartInTheNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := open(t, objectstore.NewMemFS(), Options{})
		var started atomic.Bool
		gate := make(chan struct{})
		goDo(t.Context(), h, "a", "starter", func(ctx context.Context, c *counter) error {
			err := c.s.Go(ctx, "task", func(context.Context) error { started.Store(true); return nil })
			err = errors.Join(err, Sync(ctx)) // now it is queued, after this event
			<-gate
			return err
		})
		synctest.Wait()
		h.Evict(id("a"), eviction.EndFence)
		close(gate)
		if _, err := add(t.Context(), h, "a", 1); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		time.Sleep(time.Second)
		if started.Load() {
			t.Error("a queued task moved to the next incarnation")
		}
		if info, _ := h.Inspect(id("a")); info.Queued > 0 || len(info.Pins) > 0 {
			t.Errorf("something is left: %+v", info)
		}
	})
}

func TestContextOfAHandlerEndsWithItsIncarnationOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := open(t, objectstore.NewMemFS(), Options{})
		ctx, cancel := context.WithCancel(t.Context())
		var derived, own context.Context
		calm := make(chan struct{})
		left := goDo(ctx, h, "a", "left", func(ctx context.Context, c *counter) error {
			own = ctx
			var stop context.CancelFunc
			derived, stop = context.WithTimeout(ctx, time.Hour)
			defer stop()
			<-calm
			if _, err := c.add(ctx, 7); err != nil {
				t.Errorf("a write after the caller left: %v", err)
			}
			if err := Sleep(ctx, time.Second); err != nil {
				t.Errorf("an Await after the caller left: %v", err)
			}
			_, err := c.add(ctx, 1)
			return err
		})
		synctest.Wait()
		cancel()
		if !left.ended() || !errors.Is(left.err, context.Canceled) || ran(t, left.err) != OutcomeUnknown {
			t.Errorf("a caller that left a running event got %v", left.err)
		}
		if own.Err() != nil || derived.Err() != nil {
			t.Error("the handler's context ended with its caller")
		}
		close(calm)
		time.Sleep(2 * time.Second)
		if n, err := add(t.Context(), h, "a", 0); err != nil || n != 8 {
			t.Errorf("the handler did not run on: %d, %v", n, err)
		}
		h.Evict(id("a"), eviction.EndFence)
		f, ok := errors.AsType[*Fenced](context.Cause(own))
		if !ok || f.Reason != ReasonEvicted || !errors.Is(context.Cause(own), ErrFenced) || own.Err() == nil {
			t.Errorf("the context's cause is %v, its error %v", context.Cause(own), own.Err())
		}
	})
}

func TestCallCancelledInTheQueueDoesNotRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs := objectstore.NewMemFS()
		h := open(t, fs, Options{})
		calm := make(chan struct{})
		goDo(t.Context(), h, "a", "running", func(context.Context, *counter) error { <-calm; return nil })
		synctest.Wait()
		ctx, cancel := context.WithCancel(t.Context())
		var started atomic.Bool
		mark := func(context.Context, *counter) error { started.Store(true); return nil }
		queued := goDo(ctx, h, "a", "queued", mark)
		// And one that waits at its own caller's gate: it was never sent.
		release := fs.HoldSyncs()
		unsent := goDo(t.Context(), h, "b", "caller", func(bctx context.Context, c *counter) error {
			if _, err := c.add(bctx, 1); err != nil {
				return err
			}
			cctx, stop := context.WithTimeout(bctx, time.Second)
			defer stop()
			err := do(cctx, h, "c", "unsent", mark)
			if !errors.Is(err, context.DeadlineExceeded) || ran(t, err) != OutcomeNotRun {
				t.Errorf("a call that waits at its caller's gate: %v", err)
			}
			return nil
		})
		time.Sleep(10 * time.Second)
		cancel()
		if !queued.ended() || !errors.Is(queued.err, context.Canceled) || ran(t, queued.err) != OutcomeNotRun {
			t.Errorf("a caller that left a queued event got %v", queued.err)
		}
		release()
		close(calm)
		time.Sleep(time.Minute)
		if !unsent.ended() || unsent.err != nil || started.Load() {
			t.Errorf("a call that was taken back ran: %v, %v", started.Load(), unsent.err)
		}
		if info, _ := h.Inspect(id("a")); info.Queued != 0 {
			t.Errorf("%d events queued", info.Queued)
		}
	})
}

// A goroutine that outlives its handler cannot write into the batch being committed, nor
// into the next event's batch.
func TestTurnOfAStrayGoroutineEndsWithTheHandler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs := objectstore.NewMemFS()
		h := open(t, fs, Options{})
		for i := range 200 {
			var wg sync.WaitGroup
			err := do(t.Context(), h, "a", "leaver", func(ctx context.Context, c *counter) error {
				wg.Go(func() {
					for k := 0; ; k++ {
						err := c.put(ctx, fmt.Sprint("x", k%10), i)
						if err != nil && !errors.Is(err, ErrTurnBusy) {
							if !errors.Is(err, ErrNoTurn) {
								t.Error(err)
							}
							return
						}
						goruntime.Gosched()
					}
				})
				for range i % 20 {
					goruntime.Gosched()
				}
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			wg.Wait()
		}
	})
}
