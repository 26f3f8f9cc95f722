package runtime

import (
	"context"
	"fmt"
	goruntime "runtime"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/dohost/dohost/objectstore"
)

// idleRunners returns how many idle runners the host keeps.
func (h *Host) idleRunners() int {
	h.runners.mu.Lock()
	defer h.runners.mu.Unlock()
	return len(h.runners.idle)
}

// TestRunnersAreReusedUntilClose has many concurrent events: some of their goroutines stay for later
// events, but not one that a handler has ended, and none after Close, or the bubble would
// not end.
func TestRunnersAreReusedUntilClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := open(t, objectstore.NewMemFS(), Options{})
		hold := make(chan struct{})
		var wg sync.WaitGroup
		for i := range 3 * maxIdle {
			wg.Go(func() {
				if err := do(t.Context(), h, fmt.Sprint(i), "wait", func(context.Context, *counter) error { <-hold; return nil }); err != nil {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		if n := h.idleRunners(); n != 0 {
			t.Errorf("%d idle runners while all have an event", n)
		}
		close(hold)
		wg.Wait()
		synctest.Wait()
		if n := h.idleRunners(); n != maxIdle {
			t.Errorf("%d idle runners, want %d", n, maxIdle)
		}
		running := goruntime.NumGoroutine()
		for range 100 {
			if err := do(t.Context(), h, "a", "touch", touch); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		if n := goruntime.NumGoroutine(); n > running {
			t.Errorf("%d goroutines after 100 events more, %d before", n, running)
		}
		_ = do(t.Context(), h, "a", "exit", func(context.Context, *counter) error { goruntime.Goexit(); return nil })
		synctest.Wait()
		if n := h.idleRunners(); n != maxIdle-1 {
			t.Errorf("%d idle runners after a handler has ended one of %d", n, maxIdle)
		}
		if err := h.Close(); err != nil {
			t.Fatal(err)
		}
	})
}
