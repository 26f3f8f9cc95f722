package runtime

import (
	"context"
	"errors"
	goruntime "runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dohost/dohost/eviction"
	"github.com/dohost/dohost/objectstore"
)

// endings are the ways for a user's function not to return as it should. A function that
// hangs returns at the end of the test.
var endings = []struct {
	name string
	end  func(quit <-chan struct{})
}{
	{"panic", func(<-chan struct{}) { panic("bad") }},
	{"goexit", func(<-chan struct{}) { goruntime.Goexit() }},
	{"hang", func(quit <-chan struct{}) { <-quit }},
}

func TestEmitFunctionThatNeverReturnsEndsItsIncarnationOnly(t *testing.T) {
	for _, e := range endings {
		for _, written := range []bool{false, true} {
			name := e.name + " on the handler's goroutine"
			if written {
				name = e.name + " after a commit"
			}
			t.Run(name, func(t *testing.T) { synctest.Test(t, func(t *testing.T) { testBadEmit(t, e.end, written) }) })
		}
	}
}

func testBadEmit(t *testing.T, end func(<-chan struct{}), written bool) {
	var fenced []*Fenced
	h := open(t, objectstore.NewMemFS(), Options{Listener: Listener{Fenced: func(e Ended) { fenced = append(fenced, e.Cause) }}})
	quit := make(chan struct{})
	bad := make(chan error, 1)
	go func() {
		bad <- do(t.Context(), h, "a", "bad", func(ctx context.Context, c *counter) error {
			if written {
				if err := c.put(ctx, "n", 1); err != nil {
					return err
				}
			}
			return c.s.Emit(ctx, func(error) { end(quit) })
		})
	}()
	synctest.Wait()
	if _, err := add(t.Context(), h, "b", 1); err != nil {
		t.Errorf("a call of another object: %v", err)
	}
	// The committed batch is history: its answer leaves, after Limits.Output at the latest.
	if err := <-bad; err != nil {
		t.Errorf("the call itself: %v", err)
	}
	synctest.Wait()
	if len(fenced) != 1 || (fenced[0].Reason != ReasonPanic && fenced[0].Reason != ReasonOutput) {
		t.Errorf("ended incarnations: %v", fenced)
	}
	if n, err := add(t.Context(), h, "a", 1); err != nil || n < 1 {
		t.Errorf("a call of the next incarnation: %d, %v", n, err)
	}
	if len(fenced) == 1 && fenced[0].Reason == ReasonOutput {
		if zs := h.Zombies(); len(zs) != 1 || !strings.HasSuffix(zs[0], "(Emit)") {
			t.Errorf("zombies: %q", zs)
		}
	}
	if err := h.Err(); err != nil {
		t.Errorf("the store failed: %v", err)
	}
	close(quit)
	synctest.Wait()
	if zs := h.Zombies(); len(zs) > 0 {
		t.Errorf("zombies after the end of the function: %q", zs)
	}
	if err := h.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
}

func TestEmitThatHangsReleasesLaterOutputsAfterEviction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := open(t, objectstore.NewMemFS(), Options{})
		quit := make(chan struct{})
		bad := make(chan error, 1)
		go func() {
			bad <- do(t.Context(), h, "a", "bad", func(ctx context.Context, c *counter) error {
				return errors.Join(c.put(ctx, "n", 1), c.s.Emit(ctx, func(error) { <-quit }))
			})
		}()
		synctest.Wait()
		began := time.Now()
		h.Evict(id("a"), eviction.EndFence)
		if n, err := add(t.Context(), h, "a", 1); n != 2 || err != nil {
			t.Errorf("a call of the next incarnation: %d, %v", n, err)
		}
		if took := time.Since(began); took != unwindTime {
			t.Errorf("it was answered after %v, want %v", took, unwindTime)
		}
		if err := <-bad; err != nil {
			t.Errorf("the call itself: %v", err)
		}
		close(quit)
	})
}

func TestEmitThatIsRolledBackMayPanic(t *testing.T) {
	for _, e := range endings {
		t.Run(e.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := open(t, objectstore.NewMemFS(), Options{})
				quit := make(chan struct{})
				err := do(t.Context(), h, "a", "bad", func(ctx context.Context, c *counter) error {
					err := Transaction(ctx, func(ctx context.Context) error {
						return errors.Join(c.s.Emit(ctx, func(error) { e.end(quit) }), errors.New("roll it back"))
					})
					if err == nil {
						t.Error("the transaction was not rolled back")
					}
					return nil
				})
				if err != nil && !errors.Is(err, ErrFenced) {
					t.Errorf("the call itself: %v", err)
				}
				synctest.Wait()
				if _, err := add(t.Context(), h, "a", 1); err != nil {
					t.Errorf("the next call: %v", err)
				}
				close(quit)
			})
		})
	}
}

func TestEmitKeepsTheOrderOfOutputs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := open(t, objectstore.NewMemFS(), Options{})
		var order []string
		for _, written := range []bool{false, true} {
			order = nil
			err := do(t.Context(), h, "a", "x", func(ctx context.Context, c *counter) error {
				if written {
					if err := c.put(ctx, "n", 1); err != nil {
						return err
					}
				}
				return errors.Join(
					c.s.EmitOutput(ctx, 0, func(error) { order = append(order, "1") }),
					c.s.Emit(ctx, func(error) { time.Sleep(time.Second); order = append(order, "2") }),
					c.s.EmitOutput(ctx, 0, func(error) { order = append(order, "3") }),
					c.s.Emit(ctx, func(error) { order = append(order, "4") }))
			})
			order = append(order, "answer")
			if got := strings.Join(order, " "); err != nil || got != "1 2 3 4 answer" {
				t.Errorf("written %v: outputs left as %s, %v", written, got, err)
			}
		}
	})
}
