package agent_test

import (
	"context"
	"errors"
	"fmt"
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
		wantEqual(t, "at last", inspect(t, h, s.ID).Status, agent.FiberDead)
		do(t, h, func(ctx context.Context, a *fiberAgent) error {
			ok, err := a.Fibers().SetStatus(ctx, s.ID, agent.FiberCompleted)
			wantEqual(t, "the status was set", ok, true)
			return err
		})
		wantEqual(t, "after SetStatus", inspect(t, h, s.ID).Status, agent.FiberCompleted)
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

// List has the dead fibers of RunFiber in the order of all fibers.
func TestFiberListHasDeadFibers(t *testing.T) {
	w := &fiberTest{
		run: func(_ *fiberAgent, ctx context.Context, f *agent.Fiber[int]) error {
			if f.Checkpoint() == 1 {
				return sleep(ctx, time.Hour)
			}
			return nil
		},
		hook:     func(*fiberAgent, context.Context, *agent.InterruptedRun) error { return errTest },
		recovery: func(*fiberAgent, context.Context, []*agent.InterruptedFiber) error { return errTest },
	}
	runFiberTest(t, w, nil, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		start(t, h, 0, nil)
		h.Client(func(ctx context.Context) error {
			return fiberAgents.Get(h, "a").Do(ctx, func(ctx context.Context, a *fiberAgent) error {
				return agent.RunFiber(ctx, a, "x", func(ctx context.Context) error { return sleep(ctx, time.Hour) })
			})
		})
		h.Advance(time.Second)
		start(t, h, 1, nil)
		h.Advance(time.Second)
		evict(h)
		h.Advance(2 * time.Hour)
		start(t, h, 2, nil)
		h.Advance(time.Second)
		for _, c := range []struct {
			status []agent.FiberStatus
			limit  int
			want   string
		}{
			{nil, 0, "job 2 completed;job 1 dead;x  dead;job 0 completed;"},
			{nil, 3, "job 2 completed;job 1 dead;x  dead;"},
			{[]agent.FiberStatus{agent.FiberDead}, 0, "job 1 dead;x  dead;"},
			{[]agent.FiberStatus{agent.FiberDead}, 1, "job 1 dead;"},
			{[]agent.FiberStatus{agent.FiberDead, agent.FiberCompleted}, 3, "job 2 completed;job 1 dead;x  dead;"},
			{[]agent.FiberStatus{agent.FiberCompleted}, 0, "job 2 completed;job 0 completed;"},
			{[]agent.FiberStatus{agent.FiberPending, agent.FiberRunning}, 0, ""},
		} {
			do(t, h, func(ctx context.Context, a *fiberAgent) error {
				got := ""
				infos, err := a.Fibers().List(ctx, &agent.FiberQuery{Status: c.status, Limit: c.limit})
				for _, i := range infos {
					got += fmt.Sprintf("%s %s %s;", i.Name, i.Checkpoint, i.Status)
				}
				wantEqual(t, fmt.Sprint(c.status, c.limit), got, c.want)
				return err
			})
		}
	})
}
