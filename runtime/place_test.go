package runtime

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dohost/dohost/alarm"
	"github.com/dohost/dohost/eviction"
	"github.com/dohost/dohost/objectstore"
)

// TestIncarnationMayEndAtEveryPlace ends an incarnation at the first, second and third visit of
// every declared place, in every mode, while an object runs code that passes all of them.
// A place that is never reached fails the test.
func TestIncarnationMayEndAtEveryPlace(t *testing.T) {
	points := 0
	for place := range eviction.PlaceEnd + 1 {
		for mode := eviction.EndFence; mode <= eviction.EndCrash; mode++ {
			for visit := int64(1); visit <= 3; visit++ {
				synctest.Test(t, func(t *testing.T) {
					reached := onceAt(t, place, mode, visit)
					if visit == 1 && !reached {
						t.Errorf("%v is not reached", place)
					}
					if reached {
						points++
					}
				})
			}
		}
	}
	t.Logf("%d points", points)
	if points < 2*3*int(eviction.PlaceEnd+1) {
		t.Errorf("only %d points", points)
	}
}

// onceAt runs ten steps of an object, each at least once and with one effect, with one
// eviction. It reports whether the eviction happened.
func onceAt(t *testing.T, place eviction.Place, mode eviction.EndMode, visit int64) bool {
	const steps = 10
	var visits, ends atomic.Int64
	opts := Options{Policy: Policy{At: func(p Point) eviction.EndMode {
		if p.Place != place || visits.Add(1) != visit {
			return eviction.EndNone
		}
		ends.Add(1)
		return mode
	}}}
	class := Class{Name: "counter", New: newCounter, Alarm: func(ctx context.Context, o any, _ alarm.Info) error {
		_, err := o.(*counter).add(ctx, 1)
		return err
	}}
	h := open(t, objectstore.NewMemFS(), opts, class)
	for step := 1; step <= steps; step++ {
		for {
			err := do(t.Context(), h, "a", "step", func(ctx context.Context, c *counter) error { return c.step(ctx, step) })
			if err == nil {
				break
			}
			if !errors.Is(err, ErrFenced) && !errors.Is(err, ErrConstructor) {
				t.Fatalf("%v visit %d: step %d: %v", place, visit, step, err)
			}
			time.Sleep(time.Minute)
		}
	}
	time.Sleep(time.Hour)
	err := do(t.Context(), h, "a", "check", func(ctx context.Context, c *counter) error {
		last, err := c.get(ctx, "step")
		n, err2 := c.get(ctx, "n") // one per step, and one per run of the alarm
		if last != steps || n <= steps || n > 2*steps {
			t.Errorf("%v visit %d: step %d, n %d", place, visit, last, n)
		}
		return errors.Join(err, err2)
	})
	if err != nil {
		t.Errorf("%v visit %d: %v", place, visit, err)
	}
	return ends.Load() == 1
}

// step adds one, unless the step has been done, and passes every place.
func (c *counter) step(ctx context.Context, step int) error {
	last, err := c.get(ctx, "step")
	if err != nil || last >= step {
		return err
	}
	if err := Await(ctx, func(ctx context.Context) error { return Visit(ctx, eviction.PlaceEffect) }); err != nil {
		return err
	}
	err = Transaction(ctx, func(ctx context.Context) error {
		_, err := c.add(ctx, 1)
		return errors.Join(err, c.put(ctx, "step", step), c.s.SetAlarm(ctx, time.Now().Add(time.Second)))
	})
	if err != nil {
		return err
	}
	return c.s.Chunk(ctx, 0, func(error) {}, func(context.Context) error { return nil })
}

// TestFenceTakesPrecedenceOverAnOpenGate ends an incarnation after a commit without writes, so that the gate of its
// Await is open as it ends. fn must never run: otherwise chance decides, and no run can be repeated.
func TestFenceTakesPrecedenceOverAnOpenGate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var begun atomic.Int64
		opts := Options{Policy: Policy{At: func(p Point) eviction.EndMode {
			switch {
			case p.Op != "wait":
			case p.Place == eviction.PlaceCommitted:
				return eviction.EndFence
			case p.Place == eviction.PlaceAwait:
				begun.Add(1)
			}
			return eviction.EndNone
		}}}
		h := open(t, objectstore.NewMemFS(), opts, Class{Name: "counter", New: newCounter})
		const rounds = 100
		for range rounds {
			err := do(t.Context(), h, "a", "wait", func(ctx context.Context, _ *counter) error {
				return Await(ctx, func(context.Context) error { return nil })
			})
			if !errors.Is(err, ErrFenced) {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		if n := begun.Load(); n != 0 {
			t.Errorf("the function of %d Awaits was about to begin in an incarnation that had ended, of %d", n, rounds)
		}
	})
}
