package runtime

import (
	"context"
	"errors"
	goruntime "runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dohost/dohost/eviction"
	"github.com/dohost/dohost/objectstore"
)

// A handler may return while one of its goroutines is in the middle of an operation. The
// goroutine's rights end with the handler.

// still is an event of object a that writes x, works for three seconds with the turn
// held, and writes y.
func still(t *testing.T, h *Host, inside *int, op string) {
	go func() {
		err := do(t.Context(), h, "a", op, func(ctx context.Context, c *counter) error {
			if *inside++; *inside > 1 {
				t.Errorf("%s is in the object's code with another", op)
			}
			defer func() { *inside-- }()
			err := c.put(ctx, "x", 1)
			time.Sleep(3 * time.Second)
			return errors.Join(err, c.put(ctx, "y", 1))
		})
		if err != nil {
			t.Errorf("%s: %v", op, err)
		}
	}()
}

func TestAwaitOutlivingItsHandlerFails(t *testing.T) {
	for name, section := range map[string]func(context.Context, func(context.Context) error) error{
		"in the open": func(ctx context.Context, fn func(context.Context) error) error { return fn(ctx) },
		"exclusive":   Exclusive,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := open(t, objectstore.NewMemFS(), Options{})
				errLate := errors.New("timed out")
				left := make(chan error, 1)
				answer := make(chan error, 1)
				go func() {
					answer <- do(t.Context(), h, "a", "impatient", func(ctx context.Context, c *counter) error {
						go func() {
							left <- section(ctx, func(ctx context.Context) error {
								return Await(ctx, func(context.Context) error { time.Sleep(10 * time.Second); return nil })
							})
						}()
						time.Sleep(time.Second)
						return errLate
					})
				}()
				time.Sleep(100 * time.Millisecond)
				var inside int
				still(t, h, &inside, "second")
				time.Sleep(100 * time.Millisecond)
				still(t, h, &inside, "third")
				time.Sleep(2 * time.Second) // the impatient one has returned; in the open, the second is between its writes
				sn, err := h.Store().Snapshot(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				if torn, err := sn.Exists(id("a")); err != nil || torn {
					t.Errorf("half of a batch is durable, %v", err)
				}
				sn.Close()
				if err := <-answer; !errors.Is(err, errLate) {
					t.Errorf("the impatient one: %v", err)
				}
				if err := <-left; !errors.Is(err, ErrNoTurn) {
					t.Errorf("the goroutine that outlived its handler: %v", err)
				}
				if n, err := add(t.Context(), h, "a", 1); err != nil || n != 1 {
					t.Errorf("add = %d, %v", n, err)
				}
				synctest.Wait() // an event may unpin its object after its caller has the result
				if pins, _ := h.Inspect(id("a")); len(pins.Pins) > 0 {
					t.Errorf("pins %v", pins.Pins)
				}
			})
		})
	}
}

// TestAwaitQueuedAtItsHandlersEndFails has an Await that queues for the turn when its handler
// returns.
func TestAwaitQueuedAtItsHandlersEndFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := open(t, objectstore.NewMemFS(), Options{})
		left := make(chan error, 1)
		first := make(chan error, 1)
		go func() {
			first <- do(t.Context(), h, "a", "impatient", func(ctx context.Context, c *counter) error {
				go func() { left <- Sleep(ctx, time.Second) }()
				time.Sleep(2 * time.Second)
				return nil
			})
		}()
		time.Sleep(500 * time.Millisecond)
		var inside int
		still(t, h, &inside, "second") // has the turn from 0.5 to 3.5 s
		if err := <-first; err != nil {
			t.Error(err)
		}
		if err := <-left; !errors.Is(err, ErrNoTurn) {
			t.Errorf("the goroutine that outlived its handler: %v", err)
		}
		if _, err := add(t.Context(), h, "a", 1); err != nil {
			t.Error(err)
		}
	})
}

func TestTransactionOutlivingItsHandlerIsRolledBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := open(t, objectstore.NewMemFS(), Options{})
		left := make(chan error, 1)
		err := do(t.Context(), h, "a", "impatient", func(ctx context.Context, c *counter) error {
			err := c.put(ctx, "before", 1)
			go func() {
				left <- Transaction(ctx, func(ctx context.Context) error {
					return Transaction(ctx, func(ctx context.Context) error {
						err := c.put(ctx, "half", 1)
						time.Sleep(time.Second)
						return err
					})
				})
			}()
			time.Sleep(100 * time.Millisecond)
			return err
		})
		if err != nil {
			t.Error(err)
		}
		if err := <-left; !errors.Is(err, ErrNoTurn) {
			t.Errorf("the goroutine that outlived its handler: %v", err)
		}
		err = do(t.Context(), h, "a", "look", func(ctx context.Context, c *counter) error {
			before, err := c.get(ctx, "before")
			half, err2 := c.get(ctx, "half")
			if before != 1 || half != 0 {
				t.Errorf("before %d, half %d", before, half)
			}
			return errors.Join(err, err2)
		})
		if err != nil {
			t.Error(err)
		}
	})
}

// TestExclusiveOutlivingItsHandlerIsClosed has code inside the section that holds the turn when its
// handler returns.
func TestExclusiveOutlivingItsHandlerIsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := open(t, objectstore.NewMemFS(), Options{})
		left := make(chan error, 1)
		err := do(t.Context(), h, "a", "impatient", func(ctx context.Context, c *counter) error {
			go func() {
				left <- Exclusive(ctx, func(ctx context.Context) error {
					time.Sleep(time.Minute)
					return c.put(ctx, "n", 100)
				})
			}()
			time.Sleep(100 * time.Millisecond)
			return nil
		})
		if err != nil {
			t.Error(err)
		}
		for range 3 {
			time.Sleep(30 * time.Second)
			if _, err := add(t.Context(), h, "a", 1); err != nil {
				t.Error(err)
			}
		}
		if err := <-left; !errors.Is(err, ErrNoTurn) {
			t.Errorf("the goroutine that outlived its handler: %v", err)
		}
		if n, err := add(t.Context(), h, "a", 1); err != nil || n != 4 {
			t.Errorf("add = %d, %v", n, err)
		}
	})
}

// TestHoldTurnMayOutliveItsEvent has a HoldTurn that keeps its rights, and the object in memory.
func TestHoldTurnMayOutliveItsEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		soon := Policy{Idle: func(_ ID, _, _ uint64) time.Duration { return time.Second }}
		h := open(t, objectstore.NewMemFS(), Options{Policy: soon})
		left := make(chan error, 1)
		err := do(t.Context(), h, "a", "event", func(ctx context.Context, c *counter) error {
			return Await(ctx, func(ctx context.Context) error {
				started := make(chan struct{})
				go func() {
					left <- HoldTurn(ctx, func(ctx context.Context) error {
						close(started)
						if err := Sleep(ctx, time.Minute); err != nil {
							return err
						}
						return c.put(ctx, "n", 1)
					})
				}()
				<-started
				return nil
			})
		})
		if err != nil {
			t.Error(err)
		}
		if err := <-left; err != nil {
			t.Error(err)
		}
		time.Sleep(10 * time.Second)
		if h.Live() != 0 {
			t.Error("the object stays in memory")
		}
		if n, err := add(t.Context(), h, "a", 0); err != nil || n != 1 {
			t.Errorf("n is %d, %v", n, err)
		}
	})
}

// TestHoldTurnWaitingForTheDiskReleasesTheTurn has two concurrent events.
func TestHoldTurnWaitingForTheDiskReleasesTheTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs := objectstore.NewMemFS()
		h := open(t, fs, Options{})
		entered := false
		var release func()
		first := make(chan error, 1)
		go func() {
			first <- do(t.Context(), h, "a", "first", func(ctx context.Context, c *counter) error {
				return Await(ctx, func(ctx context.Context) error {
					release = fs.HoldSyncs()
					err := HoldTurn(ctx, func(ctx context.Context) error { return c.put(ctx, "n", 1) })
					entered = true
					return err
				})
			})
		}()
		synctest.Wait()
		ran := false
		go do(t.Context(), h, "a", "second", func(context.Context, *counter) error { ran = true; return nil })
		synctest.Wait()
		if !ran || entered {
			t.Errorf("second ran: %v; the HoldTurn returned: %v", ran, entered)
		}
		release()
		if err := <-first; err != nil || !entered {
			t.Errorf("first: %v; the HoldTurn returned: %v", err, entered)
		}
	})
}

func TestZombiesCountNeitherForLimitsNorForIdleness(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		soon := Policy{Idle: func(_ ID, _, _ uint64) time.Duration { return time.Second }}
		h := open(t, objectstore.NewMemFS(), Options{Policy: soon, MaxEvents: 2})
		deaf := make(chan struct{})
		for range 5 { // more than the queue holds
			go do(t.Context(), h, "a", "deaf", func(context.Context, *counter) error { <-deaf; return nil })
			synctest.Wait()
			h.Evict(id("a"), eviction.EndFence)
		}
		if _, err := add(t.Context(), h, "a", 1); err != nil {
			t.Error(err)
		}
		time.Sleep(10 * time.Second)
		if h.Live() != 0 {
			t.Error("the next incarnation does not become idle")
		}
		closing := time.Now()
		if err := h.Close(); err == nil || time.Since(closing) > 2*time.Second {
			t.Errorf("Close took %v and returned %v", time.Since(closing), err)
		}
		close(deaf)
	})
}

// TestAwaitOutlivingExclusiveDoesNotBlockOthers has an Await that outlives its Exclusive section.
func TestAwaitOutlivingExclusiveDoesNotBlockOthers(t *testing.T) {
	for name, inside := range map[string]int{"nobody inside": 0, "a HoldTurn inside": 1} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := open(t, objectstore.NewMemFS(), Options{})
				left := make(chan error, 2)
				entered := make(chan struct{})
				errLate := errors.New("timed out")
				err := do(t.Context(), h, "a", "impatient", func(ctx context.Context, c *counter) error {
					return Exclusive(ctx, func(ctx context.Context) error {
						go func() {
							left <- Await(ctx, func(ctx context.Context) error {
								if inside > 0 {
									go func() {
										left <- HoldTurn(ctx, func(ctx context.Context) error {
											close(entered)
											time.Sleep(3 * time.Second)
											return c.put(ctx, "entered", 1)
										})
									}()
									<-entered
								}
								time.Sleep(5 * time.Second)
								return nil
							})
						}()
						time.Sleep(time.Second)
						return errLate
					})
				})
				if !errors.Is(err, errLate) {
					t.Errorf("the impatient one: %v", err)
				}
				for i := 1; i <= 3; i++ {
					if n, err := add(t.Context(), h, "a", 1); err != nil || n != i {
						t.Errorf("add = %d, %v", n, err)
					}
					time.Sleep(3 * time.Second)
				}
				for range 1 + inside {
					if err := <-left; err != nil && !errors.Is(err, ErrNoTurn) {
						t.Errorf("the goroutine that outlived its handler: %v", err)
					}
				}
				if entered := inside; entered > 0 {
					err := do(t.Context(), h, "a", "look", func(ctx context.Context, c *counter) error {
						n, err := c.get(ctx, "entered")
						if n != 1 {
							t.Error("the HoldTurn wrote nothing")
						}
						return err
					})
					if err != nil {
						t.Error(err)
					}
				}
			})
		})
	}
}

// TestCallOutlivingItsHandlerIsAnswered returns from a handler while one of its goroutines commits
// its batch, for a call.
func TestCallOutlivingItsHandlerIsAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		at, proceed := make(chan struct{}), make(chan struct{})
		first := true
		h := open(t, objectstore.NewMemFS(), Options{Policy: Policy{At: func(p Point) eviction.EndMode {
			if p.Place == eviction.PlaceCommit && p.Op == "caller" && first {
				first = false
				close(at)
				<-proceed
			}
			return eviction.EndNone
		}}})
		left := make(chan error, 1)
		err := do(t.Context(), h, "a", "caller", func(ctx context.Context, c *counter) error {
			if _, err := c.add(ctx, 1); err != nil { // so that the call leaves from the committer
				return err
			}
			go func() {
				_, err := add(ctx, h, "b", 1)
				left <- err
			}()
			<-at
			time.AfterFunc(time.Second, func() { close(proceed) })
			return nil
		})
		if err != nil {
			t.Error(err)
		}
		if err := <-left; err != nil {
			t.Errorf("the call: %v", err)
		}
		if n, err := add(t.Context(), h, "b", 0); n != 1 || err != nil {
			t.Errorf("b is %d, %v", n, err)
		}
	})
}

// TestHoldTurnDoesNotChangeTheResultOfItsEvent ends the goroutine of a HoldTurn when its event has
// ended, and the answer waits for the disk.
func TestHoldTurnDoesNotChangeTheResultOfItsEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs := objectstore.NewMemFS()
		h := open(t, fs, Options{})
		entered, proceed := make(chan struct{}), make(chan struct{})
		answer := make(chan error, 1)
		go func() {
			answer <- do(t.Context(), h, "a", "event", func(ctx context.Context, c *counter) error {
				err := Await(ctx, func(ctx context.Context) error {
					go HoldTurn(ctx, func(ctx context.Context) error {
						close(entered)
						_ = Wait(ctx, func(context.Context) error { <-proceed; return nil })
						goruntime.Goexit()
						return nil
					})
					<-entered
					return nil
				})
				return errors.Join(err, c.put(ctx, "n", 5))
			})
		}()
		<-entered
		release := fs.HoldSyncs()
		synctest.Wait()
		close(proceed)
		synctest.Wait()
		release()
		if err := <-answer; err != nil {
			t.Errorf("the handler returned nil, and its caller got %v", err)
		}
	})
}

// TestTransactionsOfTwoGoroutinesDoNotOverlap begins a transaction while another goroutine's is open.
func TestTransactionsOfTwoGoroutinesDoNotOverlap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := open(t, objectstore.NewMemFS(), Options{})
		errRollback := errors.New("back")
		err := do(t.Context(), h, "a", "two", func(ctx context.Context, c *counter) error {
			in, out := make(chan struct{}), make(chan error, 1)
			go func() {
				out <- Transaction(ctx, func(ctx context.Context) error {
					close(in)
					time.Sleep(time.Second)
					return errRollback
				})
			}()
			<-in
			if err := Transaction(ctx, func(ctx context.Context) error { return c.put(ctx, "n", 1) }); !errors.Is(err, ErrTurnBusy) {
				t.Errorf("the second: %v", err)
			}
			if err := <-out; !errors.Is(err, errRollback) {
				t.Errorf("the first: %v", err)
			}
			return Transaction(ctx, func(ctx context.Context) error { return c.put(ctx, "n", 2) })
		})
		if n, err2 := add(t.Context(), h, "a", 0); err != nil || err2 != nil || n != 2 {
			t.Errorf("n is %d, %v, %v", n, err, err2)
		}
	})
}

// TestTransactionOutlivingItsOuterIsRolledBack writes after both have returned.
func TestTransactionOutlivingItsOuterIsRolledBack(t *testing.T) {
	for _, result := range []error{nil, errors.New("back")} {
		synctest.Test(t, func(t *testing.T) {
			h := open(t, objectstore.NewMemFS(), Options{})
			err := do(t.Context(), h, "a", "two", func(ctx context.Context, c *counter) error {
				in, inner := make(chan struct{}), make(chan error, 1)
				err := Transaction(ctx, func(ctx context.Context) error {
					err := errors.Join(c.put(ctx, "p", 1), c.put(ctx, "q", 1))
					go func() {
						inner <- Transaction(ctx, func(ctx context.Context) error {
							err := c.put(ctx, "half", 1)
							close(in)
							time.Sleep(time.Minute)
							return err
						})
					}()
					<-in
					return errors.Join(err, result)
				})
				if !errors.Is(err, result) {
					t.Errorf("the outer: %v", err)
				}
				err = errors.Join(c.put(ctx, "r", 1), c.put(ctx, "s", 1), c.put(ctx, "t", 1))
				if err := <-inner; !errors.Is(err, ErrTurnBusy) {
					t.Errorf("the inner: %v", err)
				}
				return err
			})
			err = errors.Join(err, do(t.Context(), h, "a", "look", func(ctx context.Context, c *counter) error {
				want := map[string]int{"p": 1, "q": 1, "half": 0, "r": 1, "s": 1, "t": 1}
				if result != nil {
					want["p"], want["q"] = 0, 0
				}
				for key, want := range want {
					if n, err := c.get(ctx, key); n != want || err != nil {
						t.Errorf("%s is %d, want %d; %v", key, n, want, err)
					}
				}
				return nil
			}))
			if err != nil {
				t.Error(err)
			}
		})
	}
}

func TestCloseWaitsForAHoldTurnThatOutlivesItsEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := open(t, objectstore.NewMemFS(), Options{})
		left := make(chan error, 1)
		err := do(t.Context(), h, "a", "event", func(ctx context.Context, c *counter) error {
			return Await(ctx, func(ctx context.Context) error {
				in := make(chan struct{})
				go func() {
					left <- HoldTurn(ctx, func(ctx context.Context) error { close(in); return Sleep(ctx, 5*time.Second) })
				}()
				<-in
				return nil
			})
		})
		if err := errors.Join(err, h.Close(), <-left); err != nil {
			t.Error(err)
		}
	})
}

// TestCloseWaitsForTheWritesOfAHoldTurn closes the host while the disk is busy with the
// writes of a HoldTurn that has outlasted its event.
func TestCloseWaitsForTheWritesOfAHoldTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs := objectstore.NewMemFS()
		h := open(t, fs, Options{})
		left := make(chan error, 1)
		in, ended := make(chan struct{}), make(chan struct{})
		err := do(t.Context(), h, "a", "event", func(ctx context.Context, c *counter) error {
			return Await(ctx, func(ctx context.Context) error {
				go func() {
					left <- HoldTurn(ctx, func(ctx context.Context) error {
						close(in)
						if err := Wait(ctx, func(context.Context) error { <-ended; return nil }); err != nil {
							return err
						}
						return c.put(ctx, "n", 1)
					})
				}()
				<-in
				return nil
			})
		})
		if err != nil {
			t.Fatal(err)
		}
		release := fs.HoldSyncs()
		close(ended)
		synctest.Wait()
		closed := make(chan error, 1)
		go func() { closed <- h.Close() }()
		synctest.Wait()
		release()
		if err := errors.Join(<-left, <-closed); err != nil {
			t.Error(err)
		}
	})
}
