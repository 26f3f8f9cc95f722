package agent_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/agent"
	"github.com/dohost/dohost/dohosttest"
)

// If a fiber's checkpoint changes between the ends of its processes, their number does not fail the fiber.
func TestFiberThatMakesProgressOutlivesRestarts(t *testing.T) {
	const restarts = 12
	w := &fiberTest{}
	runFiberTest(t, w, nil, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		w.run = func(_ *fiberAgent, ctx context.Context, f *agent.Fiber[int]) error {
			for n := f.Checkpoint(); n < 3*restarts; {
				if err := sleep(ctx, time.Second); err != nil {
					return err
				}
				n++
				if err := f.SaveCheckpoint(ctx, n); err != nil {
					return err
				}
			}
			return nil
		}
		s := start(t, h, 0, nil)
		for n := range restarts {
			h.Advance(2500 * time.Millisecond)
			h.Kill()
			if info := inspect(t, h, s.ID); info.Status != agent.FiberRunning {
				t.Fatalf("after %d restarts: %s %s", n+1, info.Status, info.Error)
			}
		}
		h.Advance(time.Minute)
		info := inspect(t, h, s.ID)
		wantEqual(t, "the fiber", joinValues(info.Status, info.Attempt, string(info.Checkpoint)), "completed 12 36")
	})
}

// Saving the same checkpoint again is not progress, and progress does not reset the count of errors.
func TestFiberWithoutProgressFails(t *testing.T) {
	t.Run("the same checkpoint in every run", func(t *testing.T) {
		w := &fiberTest{}
		runFiberTest(t, w, nil, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
			calls := 0
			w.run = func(_ *fiberAgent, ctx context.Context, f *agent.Fiber[int]) error {
				calls++
				if err := f.SaveCheckpoint(ctx, 7); err != nil {
					return err
				}
				return sleep(ctx, time.Hour)
			}
			s := start(t, h, 7, nil)
			for range 4 {
				h.Advance(time.Second)
				h.Kill()
			}
			h.Advance(time.Second)
			info := inspect(t, h, s.ID)
			wantEqual(t, "the fiber", joinValues(calls, info.Status, info.Error), "4 failed max retries exceeded")
		})
	})
	t.Run("an error after every checkpoint", func(t *testing.T) {
		w := &fiberTest{}
		runFiberTest(t, w, nil, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
			calls := 0
			w.run = func(_ *fiberAgent, ctx context.Context, f *agent.Fiber[int]) error {
				calls++
				if err := f.SaveCheckpoint(ctx, calls); err != nil {
					return err
				}
				return errTest
			}
			s := start(t, h, 0, nil)
			h.Advance(time.Second)
			info := inspect(t, h, s.ID)
			wantEqual(t, "the fiber", joinValues(calls, info.Status, info.Error), "4 failed "+errTest.Error())
		})
	})
}

// If a fiber that its hook resumes ends twice without progress, the next call is delayed: a process that dies
// often for other reasons does not use up the five calls of the hook within seconds.
func TestFiberResumedByHookWithoutProgressWaits(t *testing.T) {
	w := &fiberTest{}
	w.hook = func(w *fiberAgent, ctx context.Context, i *agent.InterruptedRun) error {
		w.record("hook %d", i.Attempt)
		_, err := i.Resume(ctx, func(ctx context.Context) error { return sleep(ctx, 40*time.Second) })
		return err
	}
	runFiberTest(t, w, nil, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		client := h.Client(func(ctx context.Context) error {
			return fiberAgents.Get(h, "a").Do(ctx, func(ctx context.Context, a *fiberAgent) error {
				return agent.RunFiber(ctx, a, "long", func(ctx context.Context) error {
					return sleep(ctx, time.Hour)
				})
			})
		})
		for range 8 {
			h.Advance(time.Second)
			h.Kill()
		}
		if err := client.Wait(); err == nil {
			t.Error("the fiber's caller was answered by a process that has ended")
		}
		h.Advance(10 * time.Minute)
		w.wantEvents(t, "1s hook 0", "2s hook 1", "3s~30s hook 2")
		do(t, h, func(ctx context.Context, a *fiberAgent) error {
			open, err := a.Fibers().List(ctx, nil)
			dead, err2 := a.Fibers().List(ctx, &agent.FiberQuery{Status: []agent.FiberStatus{agent.FiberDead}})
			wantEqual(t, "left open and dead", joinValues(len(open), len(dead)), "0 0")
			return errors.Join(err, err2)
		})
	})
}

func TestSaveCheckpointInATransactionSavesNothing(t *testing.T) {
	w := &fiberTest{}
	w.run = func(_ *fiberAgent, ctx context.Context, f *agent.Fiber[int]) error {
		w.record("checkpoint %d", f.Checkpoint())
		if f.Attempt > 0 {
			return nil
		}
		err := dohost.Transaction(ctx, func(ctx context.Context) error {
			if err := f.SaveCheckpoint(ctx, 7); !errors.Is(err, dohost.ErrMisuse) {
				t.Error(err)
			}
			return nil
		})
		return errors.Join(err, errTest)
	}
	runFiberTest(t, w, nil, func(t *testing.T, _ context.Context, h *dohosttest.Host) {
		start(t, h, 1, nil)
		h.Advance(time.Minute)
		w.wantEvents(t, "0s checkpoint 1", "0s checkpoint 1")
	})
}
