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
	class := agent.Bind(workers, func(_ context.Context, a *agent.Agent[none]) (*worker, error) { return &worker{a, nil}, nil },
		&agent.Handlers[worker, none]{
			OnStart: func(_ *worker, ctx context.Context) error {
				if err := sleep(ctx, time.Millisecond); err != nil || !broken {
					return err
				}
				fails++
				return errNo
			},
		},
		agent.OnFiber(job, func(_ *worker, ctx context.Context, f *agent.Fiber[int]) error {
			runs++
			return sleep(ctx, time.Hour)
		}, nil))
	dohosttest.Run(t, &dohosttest.Options{Classes: []dohost.Class{class}}, func(t *testing.T, h *dohosttest.Host) {
		s := start(t, h, 0, nil)
		h.Advance(time.Second)
		evict(h)
		broken = true
		for range 10 {
			if err := workers.Get(h, "a").Do(t.Context(), nothing); err == nil {
				t.Error("the constructor has not failed")
			}
			h.Advance(15 * time.Second)
		}
		broken = false
		info := inspect(t, h, s.ID)
		h.Advance(time.Second)
		same(t, "the fiber", words(info.Status, info.Attempt), "running 1")
		same(t, "runs", runs, 2)
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
	onStart := func(*clerk, context.Context) error {
		if broken {
			return errNo
		}
		return nil
	}
	withClerkOf(t, dohost.Options{}, &clerkHandlers{OnStart: onStart}, func(t *testing.T, b *bench) {
		schedule(b, agent.After(time.Minute), note, "done", nil)
		b.Evict(clerks.Get(b, "a").ID(), dohost.EndFence)
		broken = true
		b.Advance(time.Hour)
		broken = false
		id := clerks.Get(b, "a").ID()
		shows(t, b.Host.Host(), id, `schedule waiting "note" [cancel] the schedule is waiting, but the agent's alarm is parked: constructor failed`)
		if revive {
			if ok, err := b.Host.Host().ReviveAlarm(t.Context(), id); !ok || err != nil {
				t.Errorf("revived: %v, %v", ok, err)
			}
		} else {
			b.do(func(context.Context, *clerk) error { return nil })
		}
		b.Advance(time.Minute)
		b.wrote("done")
	})
}
