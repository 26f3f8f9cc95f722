package runtime

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dohost/dohost/alarm"
	"github.com/dohost/dohost/eviction"
	"github.com/dohost/dohost/objectstore"
)

// counter is the object of most tests.
type counter struct {
	s     *State
	calls int // of this incarnation
}

func newCounter(_ context.Context, s *State) (any, error) { return &counter{s: s}, nil }

func (c *counter) get(ctx context.Context, key string) (int, error) {
	v, ok, err := c.s.Get(ctx, nil, objectstore.SpaceKV, []byte(key))
	if err != nil || !ok {
		return 0, err
	}
	return decode(v), nil
}

func decode(v []byte) int { return int(binary.BigEndian.Uint64(v)) }

func (c *counter) put(ctx context.Context, key string, n int) error {
	return c.s.Put(ctx, objectstore.SpaceKV, []byte(key), binary.BigEndian.AppendUint64(nil, uint64(n)), false)
}

func (c *counter) add(ctx context.Context, n int) (int, error) {
	c.calls++
	old, err := c.get(ctx, "n")
	if err != nil {
		return 0, err
	}
	return old + n, c.put(ctx, "n", old+n)
}

// open opens a host over fs with one class, and closes it when the test ends.
func open(t *testing.T, fs *objectstore.FS, opts Options, classes ...Class) *Host {
	t.Helper()
	opts.Store.FS = fs
	if len(classes) == 0 {
		classes = []Class{{Name: "counter", New: newCounter}}
	}
	h, err := Open("data", opts, classes)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { h.Close() })
	return h
}

func id(name string) ID { return ID{Class: "counter", Name: name} }

// do calls fn on the counter of that name.
func do(ctx context.Context, h *Host, name, op string, fn func(context.Context, *counter) error) error {
	return h.Do(ctx, id(name), Call{Op: op, Handler: Func(func(ctx context.Context, o any) error { return fn(ctx, o.(*counter)) })})
}

// add adds to the counter of that name and returns its new value.
func add(ctx context.Context, h *Host, name string, n int) (int, error) {
	var total int
	err := do(ctx, h, name, "add", func(ctx context.Context, c *counter) (err error) {
		total, err = c.add(ctx, n)
		return err
	})
	if err != nil {
		return 0, err // the handler may still run after this error
	}
	return total, nil
}

func TestCallsTakeEffectOnceAcrossEvictionsAndRestarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs := objectstore.NewMemFS()
		h := open(t, fs, Options{})
		for i := 1; i <= 10; i++ {
			n, err := add(t.Context(), h, "a", 1)
			if err != nil || n != i {
				t.Fatalf("add %d = %d, %v", i, n, err)
			}
			if i%3 == 0 && !h.Evict(id("a"), eviction.EndFence) {
				t.Fatal("nothing to evict")
			}
		}
		if err := h.Close(); err != nil {
			t.Fatal(err)
		}
		h = open(t, fs, Options{})
		if n, err := add(t.Context(), h, "a", 1); err != nil || n != 11 {
			t.Fatalf("after reopening: %d, %v", n, err)
		}
	})
}

func TestAwaitReleasesTheTurnAndReacquiresIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := open(t, objectstore.NewMemFS(), Options{})
		var log []string
		inside := make(chan struct{})
		first := make(chan error)
		go func() {
			first <- do(t.Context(), h, "a", "first", func(ctx context.Context, c *counter) error {
				log = append(log, "first before")
				err := Await(ctx, func(ctx context.Context) error {
					if _, err := c.get(ctx, "n"); !errors.Is(err, ErrNoTurn) {
						t.Errorf("get inside Await: %v", err)
					}
					<-inside
					return nil
				})
				log = append(log, "first after")
				return err
			})
		}()
		synctest.Wait()
		err := do(t.Context(), h, "a", "second", func(context.Context, *counter) error {
			log = append(log, "second")
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		close(inside)
		if err := <-first; err != nil {
			t.Fatal(err)
		}
		if got, want := fmt.Sprint(log), "[first before second first after]"; got != want {
			t.Errorf("order %s, want %s", got, want)
		}
	})
}

func TestCallsInACircleDoNotDeadlock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := open(t, objectstore.NewMemFS(), Options{})
		var hop func(ctx context.Context, left int, names ...string) error
		hop = func(ctx context.Context, left int, names ...string) error {
			return do(ctx, h, names[0], "hop", func(ctx context.Context, c *counter) error {
				if _, err := c.add(ctx, 1); err != nil || left == 0 {
					return err
				}
				return hop(ctx, left-1, append(names[1:], names[0])...)
			})
		}
		if err := hop(t.Context(), 9, "a", "b"); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"a", "b"} {
			if n, err := add(t.Context(), h, name, 0); err != nil || n != 5 {
				t.Errorf("%s = %d, %v", name, n, err)
			}
		}
	})
}

func TestAlarmFiresOnTimeAndAfterARestartWithoutARequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs := objectstore.NewMemFS()
		var mu sync.Mutex
		var fired []time.Time
		class := Class{Name: "counter", New: newCounter, Alarm: func(ctx context.Context, o any, _ alarm.Info) error {
			mu.Lock()
			defer mu.Unlock()
			fired = append(fired, time.Now())
			return nil
		}}
		h := open(t, fs, Options{}, class)
		at := time.Now().Add(time.Hour)
		set := func(ctx context.Context, c *counter) error { return c.s.SetAlarm(ctx, at) }
		if err := do(t.Context(), h, "a", "set", set); err != nil {
			t.Fatal(err)
		}
		if err := h.Close(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Hour)
		h = open(t, fs, Options{}, class)
		time.Sleep(time.Second)
		synctest.Wait()
		if len(fired) != 1 {
			t.Fatalf("overdue alarm fired %d times", len(fired))
		}
		at = time.Now().Add(time.Minute)
		if err := do(t.Context(), h, "a", "set", set); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		if len(fired) != 2 || fired[1].Before(at) || fired[1].Sub(at) > time.Millisecond {
			t.Fatalf("due %v, fired %v", at, fired)
		}
	})
}

func TestAlarmThatFailsRunsSevenTimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var attempts []int
		class := Class{Name: "counter", New: newCounter, Alarm: func(ctx context.Context, o any, i alarm.Info) error {
			attempts = append(attempts, i.Attempt)
			if i.Attempt%2 == 1 {
				panic("odd")
			}
			return errors.New("even")
		}}
		h := open(t, objectstore.NewMemFS(), Options{}, class)
		if err := do(t.Context(), h, "a", "set", func(ctx context.Context, c *counter) error { return c.s.SetAlarm(ctx, time.Now()) }); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		if got := fmt.Sprint(attempts); got != "[0 1 2 3 4 5 6]" {
			t.Errorf("attempts %s", got)
		}
	})
}

func TestTurnThatTakesLongIsReportedOnceWithItsStack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var reports []LongTurn
		h := open(t, objectstore.NewMemFS(), Options{Listener: Listener{TurnHeld: func(l LongTurn) { reports = append(reports, l) }}})
		err := do(t.Context(), h, "a", "ponder", func(context.Context, *counter) error {
			time.Sleep(10 * time.Second)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if len(reports) != 1 || reports[0].ID != id("a") || reports[0].Op != "ponder" || reports[0].Held < time.Second {
			t.Fatalf("reports %+v", reports)
		}
		if !strings.Contains(reports[0].Stack, "TestTurnThatTakesLongIsReportedOnceWithItsStack") {
			t.Errorf("the stack does not show the handler:\n%s", reports[0].Stack)
		}
	})
}
