package runtime

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dohost/dohost/objectstore"
)

// A handler may leave a goroutine behind that is in the middle of something. When it
// returns, its rights end with it.

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

func TestAwaitLeftBehind(t *testing.T) {
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
					t.Errorf("half of a segment is durable, %v", err)
				}
				sn.Close()
				if err := <-answer; !errors.Is(err, errLate) {
					t.Errorf("the impatient one: %v", err)
				}
				if err := <-left; !errors.Is(err, ErrNoTurn) {
					t.Errorf("what it left behind: %v", err)
				}
				if n, err := add(t.Context(), h, "a", 1); err != nil || n != 1 {
					t.Errorf("add = %d, %v", n, err)
				}
				if pins, _ := h.Inspect(id("a")); len(pins.Pins) > 0 {
					t.Errorf("pins %v", pins.Pins)
				}
			})
		})
	}
}

// TestAwaitLeftBehindComesBackLate has what was left behind queue for the turn when
// its handler returns.
func TestAwaitLeftBehindComesBackLate(t *testing.T) {
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
			t.Errorf("what was left behind: %v", err)
		}
		if _, err := add(t.Context(), h, "a", 1); err != nil {
			t.Error(err)
		}
	})
}

func TestTransactionLeftBehindIsTakenBack(t *testing.T) {
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
			t.Errorf("what was left behind: %v", err)
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

// TestExclusiveLeftBehindIsClosed has code inside the section hold the turn when its
// handler returns.
func TestExclusiveLeftBehindIsClosed(t *testing.T) {
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
			t.Errorf("what was left behind: %v", err)
		}
		if n, err := add(t.Context(), h, "a", 1); err != nil || n != 4 {
			t.Errorf("add = %d, %v", n, err)
		}
	})
}

// TestEnterOutlastsItsEvent has an Enter keep its rights, and the object in memory.
func TestEnterOutlastsItsEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		soon := Policy{Idle: func(_, _ uint64) time.Duration { return time.Second }}
		h := open(t, objectstore.NewMemFS(), Options{Policy: soon})
		left := make(chan error, 1)
		err := do(t.Context(), h, "a", "event", func(ctx context.Context, c *counter) error {
			return Await(ctx, func(ctx context.Context) error {
				started := make(chan struct{})
				go func() {
					left <- Enter(ctx, func(ctx context.Context) error {
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

// TestOthersRunWhileAnEnterWaitsForTheDisk has two events under way.
func TestOthersRunWhileAnEnterWaitsForTheDisk(t *testing.T) {
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
					err := Enter(ctx, func(ctx context.Context) error { return c.put(ctx, "n", 1) })
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
			t.Errorf("second ran: %v; the Enter returned: %v", ran, entered)
		}
		release()
		if err := <-first; err != nil || !entered {
			t.Errorf("first: %v; the Enter returned: %v", err, entered)
		}
	})
}

func TestAZombieCountsForNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		soon := Policy{Idle: func(_, _ uint64) time.Duration { return time.Second }}
		h := open(t, objectstore.NewMemFS(), Options{Policy: soon, MaxEvents: 2})
		deaf := make(chan struct{})
		for range 5 { // more than the queue holds
			go do(t.Context(), h, "a", "deaf", func(context.Context, *counter) error { <-deaf; return nil })
			synctest.Wait()
			h.Evict(id("a"), StyleFence)
		}
		if _, err := add(t.Context(), h, "a", 1); err != nil {
			t.Error(err)
		}
		time.Sleep(10 * time.Second)
		if h.Live() != 0 {
			t.Error("the next life does not become idle")
		}
		closing := time.Now()
		if err := h.Close(); err == nil || time.Since(closing) > 2*time.Second {
			t.Errorf("Close took %v and returned %v", time.Since(closing), err)
		}
		close(deaf)
	})
}
