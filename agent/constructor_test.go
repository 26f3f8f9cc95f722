package agent_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/agent"
	"github.com/dohost/dohost/dohosttest"
)

// TestFiberNotInterruptedByFailingConstructor makes OnStart fail for a while, after it has waited. A fiber that
// could not resume in that time has not been interrupted again.
func TestFiberNotInterruptedByFailingConstructor(t *testing.T) {
	runs, fails, broken := 0, 0, false
	class := agent.Bind(fiberAgents, func(_ context.Context, a *agent.Agent[noState]) (*fiberAgent, error) { return &fiberAgent{a, nil}, nil },
		&agent.Handlers[fiberAgent, noState]{
			OnStart: func(_ *fiberAgent, ctx context.Context) error {
				if err := sleep(ctx, time.Millisecond); err != nil || !broken {
					return err
				}
				fails++
				return errTest
			},
		},
		agent.OnFiber(testKind, func(_ *fiberAgent, ctx context.Context, f *agent.Fiber[int]) error {
			runs++
			return sleep(ctx, time.Hour)
		}, nil))
	dohosttest.Run(t, &dohosttest.Options{Classes: []dohost.Class{class}}, func(t *testing.T, h *dohosttest.Host) {
		s := start(t, h, 0, nil)
		h.Advance(time.Second)
		evict(h)
		broken = true
		for range 10 {
			if err := fiberAgents.Get(h, "a").Do(t.Context(), nothing); err == nil {
				t.Error("the constructor has not failed")
			}
			h.Advance(15 * time.Second)
		}
		broken = false
		info := inspect(t, h, s.ID)
		h.Advance(time.Second)
		wantEqual(t, "the fiber", joinValues(info.Status, info.Attempt), "running 1")
		wantEqual(t, "runs", runs, 2)
		if fails < 5 {
			t.Errorf("%d constructors failed", fails)
		}
	})
}

// TestScheduleRunsAfterParkedAlarm parks the alarm with seven failing constructors. The schedule runs after the next
// event, or after the alarm is revived.
func TestScheduleRunsAfterParkedAlarm(t *testing.T) {
	for _, revive := range []bool{false, true} {
		t.Run(fmt.Sprint("revived: ", revive), func(t *testing.T) { scheduleOfAParkedAlarm(t, revive) })
	}
}

func scheduleOfAParkedAlarm(t *testing.T, revive bool) {
	broken := false
	onStart := func(*callbackAgent, context.Context) error {
		if broken {
			return errTest
		}
		return nil
	}
	runCallbackTestWith(t, dohost.Options{}, &callbackHandlers{OnStart: onStart}, func(t *testing.T, b *callbackTest) {
		schedule(b, agent.After(time.Minute), appendLine, "done", nil)
		b.Evict(callbackAgents.Get(b, "a").ID(), dohost.EndFence)
		broken = true
		b.Advance(time.Hour)
		broken = false
		id := callbackAgents.Get(b, "a").ID()
		wantDetails(t, b.Host.Host(), id, `schedule waiting "note" [cancel] the schedule is waiting, but the agent's alarm is parked: constructor failed`)
		if revive {
			if ok, err := b.Host.Host().ReviveAlarm(t.Context(), id); !ok || err != nil {
				t.Errorf("revived: %v, %v", ok, err)
			}
		} else {
			b.do(func(context.Context, *callbackAgent) error { return nil })
		}
		b.Advance(time.Minute)
		b.wantLines("done")
	})
}
