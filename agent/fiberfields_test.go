package agent_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/dohost/dohost/agent"
	"github.com/dohost/dohost/dohosttest"
)

// A restarted fiber that has not begun is pending, also while OnRecovery is asked about it.
func TestFiberRestartedIsPendingUntilItBegins(t *testing.T) {
	w := &fiberTest{}
	w.run = func(_ *fiberAgent, ctx context.Context, f *agent.Fiber[int]) error {
		return sleep(context.WithoutCancel(ctx), time.Hour) // ignores its cancellation
	}
	w.recovery = func(w *fiberAgent, ctx context.Context, fs []*agent.InterruptedFiber) error {
		return errors.New("undecided")
	}
	runFiberTest(t, w, nil, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		s := start(t, h, 1, nil)
		h.Advance(time.Second)
		do(t, h, func(ctx context.Context, a *fiberAgent) error {
			_, err := a.Fibers().Cancel(ctx, s.ID)
			_, err2 := a.Fibers().Restart(ctx, s.ID)
			return errors.Join(err, err2)
		})
		h.Advance(time.Second)
		wantEqual(t, "before", inspect(t, h, s.ID).Status, agent.FiberPending)
		evict(h)
		wantEqual(t, "after", inspect(t, h, s.ID).Status, agent.FiberPending)
		h.Advance(time.Hour)
		i := inspect(t, h, s.ID)
		wantEqual(t, "dead", i.Status, agent.FiberPending)
		wantEqual(t, "dead", i.Dead, true)
		do(t, h, func(ctx context.Context, a *fiberAgent) error {
			ok, err := a.Fibers().SetStatus(ctx, s.ID, agent.FiberCompleted)
			wantEqual(t, "the status was set", ok, true)
			return err
		})
		i = inspect(t, h, s.ID)
		wantEqual(t, "after SetStatus", i.Status, agent.FiberCompleted)
		wantEqual(t, "after SetStatus, dead", i.Dead, false)
	})
}

// The notification of OnFiberEnded does not change Updated.
func TestFiberIsNotUpdatedByItsEndHook(t *testing.T) {
	w := &fiberTest{}
	w.run = func(_ *fiberAgent, ctx context.Context, f *agent.Fiber[int]) error { return nil }
	w.ended = func(w *fiberAgent, ctx context.Context, i agent.FiberInfo) error { return sleep(ctx, 7*time.Second) }
	runFiberTest(t, w, nil, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		s := start(t, h, 1, nil)
		h.Advance(time.Minute)
		i := inspect(t, h, s.ID)
		wantEqual(t, "updated after the end", i.Updated.Sub(i.Ended), 0)
	})
}

// The time of the last change of a fiber does not move while a hook is called about it.
func TestFiberIsNotUpdatedByHookCalls(t *testing.T) {
	w := &fiberTest{}
	w.hook = func(w *fiberAgent, ctx context.Context, i *agent.InterruptedRun) error { return sleep(ctx, time.Hour) }
	runFiberTest(t, w, nil, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		var id string
		h.Client(func(ctx context.Context) error {
			return fiberAgents.Get(h, "a").Do(ctx, func(ctx context.Context, a *fiberAgent) error {
				return agent.RunFiber(ctx, a, "x", func(ctx context.Context) error { id, _ = agent.FiberID(ctx); return sleep(ctx, time.Hour) })
			})
		})
		h.Advance(time.Second)
		before := inspect(t, h, id)
		evict(h)
		h.Advance(10 * time.Minute)
		after := inspect(t, h, id)
		// The call in the constructor fails after 10 s, which is recorded. The next one is still running.
		wantEqual(t, "updated by hooks", after.Updated.Sub(before.Updated), 40*time.Second)
	})
}

// OnInterrupted, in the constructor, cancels a started fiber that recovery has read already.
func TestFiberCancelledByAnotherHookStaysCancelled(t *testing.T) {
	w := &fiberTest{}
	var id string
	w.run = func(_ *fiberAgent, ctx context.Context, f *agent.Fiber[int]) error { return sleep(ctx, time.Minute) }
	w.hook = func(w *fiberAgent, ctx context.Context, i *agent.InterruptedRun) error {
		_, err := w.Fibers().Cancel(ctx, id)
		return err
	}
	runFiberTest(t, w, nil, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		h.Client(func(ctx context.Context) error {
			return fiberAgents.Get(h, "a").Do(ctx, func(ctx context.Context, a *fiberAgent) error {
				return agent.RunFiber(ctx, a, "x", func(ctx context.Context) error { return sleep(ctx, time.Hour) })
			})
		})
		h.Advance(time.Second)
		id = start(t, h, 1, nil).ID
		h.Advance(time.Second)
		evict(h)
		wantEqual(t, "after cancel", inspect(t, h, id).Status, agent.FiberCancelled)
		h.Advance(time.Hour)
		wantEqual(t, "at last", inspect(t, h, id).Status, agent.FiberCancelled)
	})
}
