package agent_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/agent"
	"github.com/dohost/dohost/dohosttest"
)

// TestRunFiberThatPanicsUnderRecoverHasFailed recovers from a panic of a fiber's function, as middleware does, and ends
// another function with Goexit.
func TestRunFiberThatPanicsUnderRecoverHasFailed(t *testing.T) {
	w := &fiberTest{hook: func(w *fiberAgent, _ context.Context, i *agent.InterruptedRun) error {
		w.record("%s interrupted", i.Name)
		return nil
	}}
	runFiberTest(t, w, nil, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		ids := map[string]string{}
		err := fiberAgents.Get(h, "a").Do(ctx, func(ctx context.Context, a *fiberAgent) error {
			run := func(fn func()) (id string) {
				ended := make(chan struct{})
				go func() {
					defer close(ended)
					defer func() { _ = recover() }() // the panic of the test
					err := agent.RunFiber(ctx, a, "job", func(ctx context.Context) error {
						id, _ = agent.FiberID(ctx)
						fn()
						return nil
					})
					t.Errorf("RunFiber has returned: %v", err)
				}()
				<-ended
				return id
			}
			for name, fn := range map[string]func(){"panic": func() { panic("bad input") }, "Goexit": runtime.Goexit} {
				ids[name] = run(fn)
			}
			return nil
		})
		err2 := fiberAgents.Get(h, "a").Do(ctx, func(ctx context.Context, a *fiberAgent) error {
			for name, id := range ids {
				if _, ok, err := a.Fibers().Get(ctx, id); id == "" || ok || err != nil {
					t.Errorf("%s: fiber %q: %t, %v", name, id, ok, err)
				}
			}
			return nil
		})
		if err := errors.Join(err, err2); err != nil {
			t.Error(err)
		}
		if in, set := alarm(t, h); set {
			t.Errorf("an alarm is set, in %v", in)
		}
		evict(h)
		h.Advance(time.Hour)
		w.wantEvents(t)
	})
}

// TestRunFiberThatPanicsIsInterrupted has a function that panics, and a caller that commits while the panic unwinds.
func TestRunFiberThatPanicsIsInterrupted(t *testing.T) {
	w := &fiberTest{hook: func(w *fiberAgent, _ context.Context, i *agent.InterruptedRun) error {
		w.record("%s interrupted", i.Name)
		return nil
	}}
	runFiberTest(t, w, nil, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		err := fiberAgents.Get(h, "a").Do(ctx, func(ctx context.Context, a *fiberAgent) error {
			defer func() {
				if err := a.Object().Storage().Sync(ctx); err != nil {
					t.Error(err)
				}
			}()
			return agent.RunFiber(ctx, a, "job", func(context.Context) error { panic("bad input") })
		})
		if !errors.Is(err, dohost.ErrFenced) {
			t.Error(err)
		}
		h.Advance(time.Hour)
		w.wantEvents(t, "30s job interrupted")
	})
}

func TestRunFiberRefusesNilFunction(t *testing.T) {
	runFiberTest(t, &fiberTest{}, nil, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		err := fiberAgents.Get(h, "a").Do(ctx, func(ctx context.Context, a *fiberAgent) error {
			_, err := agent.RunFiberValue[int](ctx, a, "job", nil)
			return errors.Join(agent.RunFiber(ctx, a, "job", nil), err)
		})
		if n := strings.Count(fmt.Sprint(err), `RunFiber of "job" without a function`); n != 2 || errors.Is(err, dohost.ErrFenced) {
			t.Error(err)
		}
	})
}
