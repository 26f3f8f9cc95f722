package runtime

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dohost/dohost/alarm"
	"github.com/dohost/dohost/eviction"
	"github.com/dohost/dohost/objectstore"
)

// TestStoreFailureEndsDeliveries has a host that learns late of the failure of its store. Until then the alarms of an object in
// memory and of another one are due, the handler of a third object ends, and a call comes. The host must not repeat the refused
// attempts.
func TestStoreFailureEndsDeliveries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const learns = 10 * time.Second
		var mu sync.Mutex
		failing, attempts := false, map[string]int{}
		at := func(p Point) eviction.EndMode {
			if p.Place == eviction.PlaceFail {
				time.Sleep(learns)
				return eviction.EndNone
			}
			mu.Lock()
			counts := failing && p.ID.Name != "" && (p.Place == eviction.PlaceStart || p.Place == eviction.PlaceConstruct)
			if counts {
				attempts[p.ID.Name]++
			}
			mu.Unlock()
			if counts {
				time.Sleep(time.Millisecond) // attempts without a pause would never end
			}
			return eviction.EndNone
		}
		fs := objectstore.NewMemFS()
		h := open(t, fs, Options{Policy: Policy{At: at}}, newRunLog().class(func(ctx context.Context, c *counter, _ alarm.Info) error {
			return errors.Join(Sleep(ctx, 3*time.Second), increment(ctx, c))
		}))
		setAlarm(t, h, "cold", time.Minute)
		setAlarm(t, h, "live", time.Minute)
		setAlarm(t, h, "running", time.Minute-2*time.Second)
		h.Evict(id("cold"), eviction.EndFence)
		time.Sleep(time.Minute - time.Second)
		fs.FailSyncs(errDisk)
		if _, err := add(t.Context(), h, "writer", 1); !errors.Is(err, errDisk) {
			t.Errorf("the store has not failed: %v", err)
		}
		mu.Lock()
		failing = true
		mu.Unlock()
		_, err := add(t.Context(), h, "called", 1)
		if e, ok := errors.AsType[*Error](err); !ok || e.Err != ErrClosed || e.Outcome != OutcomeNotRun || e.Retryable {
			t.Errorf("a call: %#v", err)
		}
		if synctest.Wait(); h.Err() == nil || h.phase.Load() == phaseClosed {
			t.Error("the host does not wait where its store has failed")
		}
		time.Sleep(2 * learns)
		mu.Lock()
		defer mu.Unlock()
		if h.phase.Load() != phaseClosed {
			t.Error("the host is not closed")
		}
		if len(attempts) > 0 {
			t.Errorf("attempts after the failure: %v", attempts)
		}
	})
}
