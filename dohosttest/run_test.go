package dohosttest_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/dohosttest"
)

// clock is an object that counts its incarnations, its calls and its alarms.
type clock struct {
	st    *dohost.State
	calls int // of this incarnation
}

const clocks dohost.Namespace[clock] = "clock"

func clockClass(step int) dohost.Class {
	return dohost.Bind(clocks, func(ctx context.Context, st *dohost.State) (*clock, error) {
		_, err := add(ctx, st, "incarnations", 1)
		return &clock{st: st}, err
	}, &dohost.Handlers[clock]{
		OnAlarm: func(c *clock, ctx context.Context, _ dohost.AlarmInfo) error {
			_, err := add(ctx, c.st, "n", step)
			return err
		},
	})
}

func add(ctx context.Context, st *dohost.State, key string, by int) (int, error) {
	n, _, err := dohost.Get[int](ctx, st.Storage(), key)
	if err != nil {
		return 0, err
	}
	return n + by, dohost.Put(ctx, st.Storage(), key, n+by)
}

func (c *clock) Bump(ctx context.Context, after time.Duration) (int, error) {
	c.calls++
	if after > 0 {
		if err := c.st.SetAlarm(ctx, time.Now().Add(after)); err != nil {
			return 0, err
		}
	}
	return add(ctx, c.st, "n", 1)
}

func (c *clock) Incarnations(ctx context.Context, _ int) (int, error) {
	return add(ctx, c.st, "incarnations", 0)
}

func bump(t *testing.T, h *dohosttest.Host, after time.Duration, want int) {
	t.Helper()
	n, err := dohost.Call(t.Context(), clocks.Get(h, "a"), (*clock).Bump, after)
	if err != nil || n != want {
		t.Errorf("%d, %v; want %d", n, err, want)
	}
}

func TestRunSupportsEveryHostFailure(t *testing.T) {
	dohosttest.Run(t, &dohosttest.Options{Classes: []dohost.Class{clockClass(10)}}, func(t *testing.T, h *dohosttest.Host) {
		begun := time.Now()
		stub := clocks.Get(h, "a") // valid in every process
		incarnations := func(want int) {
			t.Helper()
			if n, err := dohost.Call(t.Context(), stub, (*clock).Incarnations, 0); err != nil || n != want {
				t.Errorf("%d incarnations, %v; want %d", n, err, want)
			}
		}
		bump(t, h, 0, 1)
		if !h.Evict(stub.ID(), dohost.EndFence) || h.Evict(stub.ID(), dohost.EndFence) {
			t.Error("it was to be evicted once")
		}
		incarnations(2)
		bump(t, h, time.Hour, 2)
		h.Crash()
		h.Advance(time.Hour + 10*time.Minute) // the alarm survives; then the object is idle
		bump(t, h, 0, 13)
		incarnations(4)
		h.Kill()
		incarnations(5)
		bump(t, h, time.Minute, 14)
		if err := h.Restart(clockClass(100)); err != nil {
			t.Error(err)
		}
		if err := h.WaitIdle(0); err != nil {
			t.Error(err)
		}
		bump(t, h, 0, 115)
		h.FailSync(errors.New("out of cylinders"))
		_, err := dohost.Call(t.Context(), stub, (*clock).Bump, 0)
		if !errors.Is(err, dohost.ErrFenced) || !strings.Contains(err.Error(), "out of cylinders") {
			t.Errorf("acknowledged by a disk that fails: %v", err)
		}
		if err := h.Restart(); err == nil || !strings.Contains(err.Error(), "out of cylinders") {
			t.Error(err)
		}
		bump(t, h, 0, 116)
		down := time.Now()
		h.EndFor(dohost.EndKill, time.Minute)
		if d := time.Since(down); d != time.Minute {
			t.Errorf("the host was down for %v", d)
		}
		bump(t, h, 0, 117)
		if d := time.Since(begun); d < time.Hour || d > 2*time.Hour {
			t.Errorf("it took %v", d)
		}
		for _, want := range []string{
			"clock/a: incarnation 1, event 1 Bump, storage 1", "clock/a: evicted by the test", "host: power cut by the test",
			"host: kill by the test", "host: restart by the test", "out of cylinders", "incarnation 6, event 1 alarm, outcome 1",
		} {
			if !strings.Contains(h.Log(), want) {
				t.Errorf("the log does not have %q", want)
			}
		}
		if t.Failed() {
			t.Log(h.Log())
		}
	})
}
