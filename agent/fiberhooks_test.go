package agent_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/agent"
	"github.com/dohost/dohost/dohosttest"
)

var errTest = errors.New("no")

// kill ends the process, and starts it again.
func kill(h *dohosttest.Host) { h.Kill() }

// startEndingFibers starts three fibers. Within two seconds the first completes, the second fails, and the third is
// cancelled.
func startEndingFibers(t *testing.T, w *fiberTest, h *dohosttest.Host) (ids []string) {
	t.Helper()
	w.run = func(_ *fiberAgent, ctx context.Context, f *agent.Fiber[int]) error {
		if err := sleep(ctx, time.Second); err != nil {
			return err
		}
		if f.Checkpoint() == 1 {
			return errTest
		}
		return f.SetResult(fmt.Sprint("result ", f.Checkpoint()))
	}
	for i := range 3 {
		ids = append(ids, start(t, h, i, nil).ID)
	}
	do(t, h, func(ctx context.Context, a *fiberAgent) error {
		_, err := a.Fibers().Cancel(ctx, ids[2])
		return err
	})
	h.Advance(2 * time.Second)
	return ids
}

// The hook is called for completed and failed fibers, which expire later, and not for cancelled ones.
func TestFiberEndedHookRunsForCompletedAndFailed(t *testing.T) {
	w := &fiberTest{}
	w.ended = func(w *fiberAgent, ctx context.Context, i agent.FiberInfo) error {
		w.record("%s %s %s%s, checkpoint %s, ended %v", i.Name, i.Status, i.Result, i.Error, i.Checkpoint, !i.Ended.IsZero())
		return nil
	}
	runFiberTest(t, w, &agent.KindOptions{MaxRetries: -1}, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		ids := startEndingFibers(t, w, h)
		w.wantEvents(t, `1s job completed "result 0", checkpoint 0, ended true`, "1s job failed no, checkpoint 1, ended true")
		wantEqual(t, "cancelled", inspect(t, h, ids[2]).Status, agent.FiberCancelled)
		h.Advance(7 * 24 * time.Hour)
		for _, id := range ids {
			wantEqual(t, "forgotten", inspect(t, h, id).ID, "")
		}
		if _, set := alarm(t, h); set {
			t.Error("an alarm is left")
		}
		wantEqual(t, "told", len(w.events), 2)
	})
}

// If the hook's call is cut off or fails, a later incarnation calls it again; until then the row stays.
func TestFiberEndedHookRunsAtLeastOnce(t *testing.T) {
	w := &fiberTest{}
	tries := 0
	w.ended = func(w *fiberAgent, ctx context.Context, i agent.FiberInfo) error {
		tries++
		w.record("try %d", tries)
		switch err := dohost.Add(ctx, w.Storage(), "told", 1); {
		case err != nil:
			return err
		case tries == 1:
			return sleep(ctx, time.Hour) // and dies in it
		case tries == 2:
			panic("with what it has written")
		case tries == 3:
			return errTest
		}
		return nil
	}
	runFiberTest(t, w, &agent.KindOptions{KeepCompleted: time.Second}, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		w.run = func(*fiberAgent, context.Context, *agent.Fiber[int]) error { return nil }
		s := start(t, h, 0, nil)
		h.Advance(10 * time.Second)
		do(t, h, func(ctx context.Context, a *fiberAgent) error {
			n, err := a.Fibers().DeleteEnded(ctx, nil)
			wantEqual(t, "deleted", n, 0)
			return err
		})
		kill(h)
		h.Advance(3 * time.Minute)
		wantEqual(t, "the row", inspect(t, h, s.ID).Status, agent.FiberCompleted)
		h.Advance(time.Hour)
		w.wantEvents(t, "0s try 1", "~30s try 2", "~60s try 3", "~120s try 4")
		wantEqual(t, "the row", inspect(t, h, s.ID).ID, "")
		do(t, h, func(ctx context.Context, a *fiberAgent) error {
			n, _, err := dohost.Get[int](ctx, a.Storage(), "told")
			wantEqual(t, "written", n, 3) // by the first (committed by its Sleep), by the third, and by the last
			return err
		})
		if _, set := alarm(t, h); set {
			t.Error("an alarm is left")
		}
	})
}

// Each call of OnFiberEnded is reported with its outcome: notified, a failure, or not notified after the last failure.
func TestFiberEndedHookReportsItsOutcome(t *testing.T) {
	for name, c := range map[string]struct {
		fails int // calls
		want  string
	}{
		"returns":      {0, "notified"},
		"fails once":   {1, "hook failed, notified"},
		"fails always": {9, "hook failed, hook failed, hook failed, hook failed, not notified"},
	} {
		t.Run(name, func(t *testing.T) {
			w, calls, log := &fiberTest{}, 0, &callbackLog{}
			w.run = func(*fiberAgent, context.Context, *agent.Fiber[int]) error { return nil }
			w.ended = func(*fiberAgent, context.Context, agent.FiberInfo) error {
				if calls++; calls <= c.fails {
					return errTest
				}
				return nil
			}
			o := &dohosttest.Options{Classes: []dohost.Class{w.class(nil)}, Options: dohost.Options{Listener: log.listener()}}
			dohosttest.Run(t, o, func(t *testing.T, h *dohosttest.Host) {
				start(t, h, 0, nil)
				h.Advance(time.Hour)
				var got []string
				for _, r := range log.reportsWith("fiber:notified") {
					_, outcome, _ := strings.Cut(r, " outcome=")
					got = append(got, strings.TrimSuffix(outcome, " err=no"))
				}
				wantEqual(t, "outcomes", strings.Join(got, ", "), c.want)
			})
		})
	}
}

// A hook that ends each incarnation is not called forever, and the fiber stays completed.
func TestFiberEndedHookRetriesAreBounded(t *testing.T) {
	for name, fail := range map[string]func() error{"error": func() error { return errTest }, "panic": func() error { panic("bug") }} {
		t.Run(name, func(t *testing.T) {
			w := &fiberTest{}
			w.ended = func(w *fiberAgent, ctx context.Context, i agent.FiberInfo) error {
				w.record("told")
				return fail()
			}
			runFiberTest(t, w, nil, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
				w.run = func(_ *fiberAgent, _ context.Context, f *agent.Fiber[int]) error { return f.SetResult(7) }
				s := start(t, h, 0, nil)
				h.Advance(20 * time.Hour)
				wantEqual(t, "told", len(w.events), 5)
				info := inspect(t, h, s.ID)
				wantEqual(t, "the fiber", joinValues(info.Status, string(info.Result), info.Error, info.Attempt), "completed 7  0")
				h.Advance(5 * time.Hour)
				wantEqual(t, "forgotten", inspect(t, h, s.ID).ID, "")
				wantEqual(t, "told", len(w.events), 5)
			})
		})
	}
}

// If a newer program does not have the hook, a pending call is dropped.
func TestFiberEndedHookRemovedDropsPendingCall(t *testing.T) {
	w := &fiberTest{ended: func(*fiberAgent, context.Context, agent.FiberInfo) error { return errTest }}
	runFiberTest(t, w, nil, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		w.run = func(*fiberAgent, context.Context, *agent.Fiber[int]) error { return nil }
		s := start(t, h, 0, nil)
		h.Advance(time.Second)
		h.Kill()
		w.ended = nil
		if err := h.Restart(w.class(nil)); err != nil {
			t.Fatal(err)
		}
		h.Advance(time.Second)
		wantEqual(t, "the row", inspect(t, h, s.ID).Status, agent.FiberCompleted)
		if d, set := alarm(t, h); !set || d < time.Hour {
			t.Errorf("it is to be told in %v", d)
		}
		h.Advance(25 * time.Hour)
		wantEqual(t, "forgotten", inspect(t, h, s.ID).ID, "")
		if _, set := alarm(t, h); set {
			t.Error("an alarm is left")
		}
	})
}

// If the hook restarts the fiber, it is called again after the fiber's next end, by one call at a time.
func TestFiberEndedHookMayRestartTheFiber(t *testing.T) {
	w := &fiberTest{}
	in := 0
	w.ended = func(w *fiberAgent, ctx context.Context, i agent.FiberInfo) error {
		in++
		defer func() { in-- }()
		w.record("%s, %d at a time", i.Status, in)
		if i.Status == agent.FiberCompleted {
			return nil
		}
		if ok, err := w.Fibers().Restart(ctx, i.ID); err != nil || !ok {
			return fmt.Errorf("%v, %w", ok, err)
		}
		if info, _, err := w.Fibers().Wait(ctx, i.ID); err != nil || info.Status != agent.FiberCompleted {
			return fmt.Errorf("%v, %w", info.Status, err)
		}
		return sleep(ctx, 10*time.Second)
	}
	runFiberTest(t, w, &agent.KindOptions{MaxRetries: -1}, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		runs := 0
		w.run = func(*fiberAgent, context.Context, *agent.Fiber[int]) error {
			if runs++; runs == 1 {
				return errTest
			}
			return nil
		}
		start(t, h, 0, nil)
		h.Advance(5 * time.Minute)
		w.wantEvents(t, "0s failed, 1 at a time", "31s completed, 1 at a time")
	})
}

// startThreeFibers starts three fibers that take a minute.
func startThreeFibers(t *testing.T, w *fiberTest, h *dohosttest.Host) (ids []string) {
	t.Helper()
	w.run = func(w *fiberAgent, ctx context.Context, f *agent.Fiber[int]) error {
		if f.Attempt > 0 {
			w.record("%d resumed, attempt %d", f.Checkpoint(), f.Attempt)
		}
		return sleep(ctx, time.Minute)
	}
	for i := range 3 {
		ids = append(ids, start(t, h, i, nil).ID)
	}
	h.Advance(time.Second)
	return ids
}

// states returns the statuses of fibers.
func states(t *testing.T, h *dohosttest.Host, ids []string) (got string) {
	t.Helper()
	for _, id := range ids {
		info := inspect(t, h, id)
		got += fmt.Sprintf("%s %d %s;", info.Status, info.Attempt, info.Error)
	}
	return got
}

// S-14: OnRecovery skips one of three fibers.
func TestFiberRecoveryHookSkipsOneOfThree(t *testing.T) {
	w := &fiberTest{}
	w.recovery = func(w *fiberAgent, ctx context.Context, fs []*agent.InterruptedFiber) error {
		var at []int
		for _, f := range fs {
			var n int
			if _, err := f.Checkpoint(&n); err != nil {
				return err
			}
			at = append(at, n)
			if n == 1 {
				continue
			}
			if err := f.Resume(ctx); err != nil {
				return err
			}
			if err := f.Resume(ctx); !errors.Is(err, agent.ErrFiberDone) {
				return fmt.Errorf("resumed again: %w", err)
			}
		}
		w.record("%d of %s, attempt %d", at, fs[0].Kind, fs[0].Attempt)
		return nil
	}
	runFiberTest(t, w, nil, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		ids := startThreeFibers(t, w, h)
		kill(h)
		h.Advance(2 * time.Minute)
		w.wantEvents(t, "1s [0 1 2] of job, attempt 1", "1s 0 resumed, attempt 1", "1s 2 resumed, attempt 1")
		wantEqual(t, "states", states(t, h, ids), "completed 1 ;failed 1 agent: OnRecovery returned without a decision about the fiber;completed 1 ;")
	})
}

// A failing hook is called again with the fibers without a decision, across ends of processes too, up to a
// limit.
func TestFiberRecoveryHookRetriesAreBounded(t *testing.T) {
	w := &fiberTest{}
	tries := 0
	w.recovery = func(w *fiberAgent, ctx context.Context, fs []*agent.InterruptedFiber) error {
		tries++
		w.record("try %d of %d", tries, len(fs))
		switch tries {
		case 1:
			return errors.Join(fs[1].Resume(ctx), errTest)
		case 2:
			return sleep(ctx, time.Hour) // and dies in it
		case 3:
			panic("bug")
		case 6:
			return errors.Join(fs[0].Complete(ctx, "by hand"), checkReason(fs[1].Fail(ctx, nil)), fs[1].Fail(ctx, errors.New("why not")))
		}
		return errTest
	}
	runFiberTest(t, w, nil, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		ids := startThreeFibers(t, w, h)
		kill(h)
		h.Advance(59 * time.Second)
		wantEqual(t, "states", states(t, h, ids), "running 0 no;running 1 ;running 0 no;")
		h.Advance(11 * time.Second)
		wantEqual(t, "states", states(t, h, ids[1:2]), "completed 1 ;")
		kill(h)
		h.Advance(time.Hour)
		w.wantEvents(t, "1s try 1 of 3", "1s 1 resumed, attempt 1", "~30s try 2 of 2", "~60s try 3 of 2", "~120s try 4 of 2", "~240s try 5 of 2")
		var dead []agent.FiberInfo
		do(t, h, func(ctx context.Context, a *fiberAgent) (err error) {
			dead, err = a.Fibers().List(ctx, &agent.FiberQuery{Status: []agent.FiberStatus{agent.FiberDead}})
			for _, d := range dead {
				if ok, err := a.Fibers().Retry(ctx, d.ID); err != nil || !ok {
					return fmt.Errorf("%v, %w", ok, err)
				}
			}
			return err
		})
		wantEqual(t, "dead", len(dead), 2)
		h.Advance(time.Minute)
		wantEqual(t, "states", states(t, h, ids), "completed 1 no;completed 1 ;failed 1 why not;")
		wantEqual(t, "result", string(inspect(t, h, ids[0]).Result), `"by hand"`)
		if d, set := alarm(t, h); !set || d < time.Hour {
			t.Errorf("an alarm is left, in %v", d)
		}
	})
}

// A fiber that was interrupted too often has failed, and is not passed to the hook.
func TestFiberRecoveryHookGetsNoExhaustedFibers(t *testing.T) {
	w := &fiberTest{}
	w.recovery = func(w *fiberAgent, ctx context.Context, fs []*agent.InterruptedFiber) error {
		w.record("%d", len(fs))
		for _, f := range fs {
			if err := f.Resume(ctx); err != nil {
				return err
			}
		}
		return nil
	}
	w.ended = func(w *fiberAgent, _ context.Context, i agent.FiberInfo) error {
		w.record("told of %s: %s", i.Status, i.Error)
		return nil
	}
	runFiberTest(t, w, &agent.KindOptions{MaxRetries: 1}, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		w.run = func(w *fiberAgent, ctx context.Context, f *agent.Fiber[int]) error { return sleep(ctx, time.Hour) }
		a := start(t, h, 0, nil)
		h.Advance(time.Second)
		kill(h)
		b := start(t, h, 1, nil)
		h.Advance(time.Second)
		kill(h)
		h.Advance(time.Minute)
		wantEqual(t, "states", states(t, h, []string{a.ID, b.ID}), "failed 2 max retries exceeded;running 1 ;")
		w.wantEvents(t, "1s 1", "2s 1", "2s told of failed: max retries exceeded")
	})
}

// The constructor gives the hook ten seconds; after that it is a task, one at a time.
func TestFiberRecoveryHookHasTenSecondsInConstructor(t *testing.T) {
	w := &fiberTest{}
	in := 0
	var kept *agent.InterruptedFiber
	w.recovery = func(w *fiberAgent, ctx context.Context, fs []*agent.InterruptedFiber) error {
		in++
		defer func() { in-- }()
		w.record("%d fibers, %d at a time", len(fs), in)
		kept = fs[0]
		if err := sleep(ctx, 2*time.Minute); err != nil {
			return err
		}
		for _, f := range fs {
			if err := f.Resume(ctx); err != nil {
				w.record("%v", err)
			}
		}
		return nil
	}
	runFiberTest(t, w, nil, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		ids := startThreeFibers(t, w, h)
		evict(h)
		do(t, h, func(ctx context.Context, a *fiberAgent) error { w.record("served"); return nil })
		h.Advance(time.Minute)
		do(t, h, func(ctx context.Context, a *fiberAgent) error {
			_, err := a.Fibers().Cancel(ctx, ids[1])
			return err
		})
		h.Advance(10 * time.Minute)
		w.wantEvents(t, "1s 3 fibers, 1 at a time", "11s served", "1s~30s 3 fibers, 1 at a time",
			"+120s agent: the fiber has ended", "+0s 0 resumed, attempt 1", "+0s 2 resumed, attempt 1")
		wantEqual(t, "states", states(t, h, ids), "completed 1 context deadline exceeded;cancelled 0 context deadline exceeded;"+
			"completed 1 context deadline exceeded;")
		do(t, h, func(ctx context.Context, a *fiberAgent) error {
			if err := kept.Resume(ctx); !errors.Is(err, agent.ErrFiberDone) {
				t.Errorf("resumed after the hook: %v", err)
			}
			return nil
		})
	})
}

// A hook that has failed before does not delay the constructor again.
func TestFiberRecoveryHookRetryRunsOutsideConstructor(t *testing.T) {
	w := &fiberTest{}
	w.recovery = func(w *fiberAgent, ctx context.Context, fs []*agent.InterruptedFiber) error {
		_, gate := ctx.Deadline()
		w.record("in the gate: %v", gate)
		return errTest
	}
	runFiberTest(t, w, nil, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		startThreeFibers(t, w, h)
		kill(h)
		h.Advance(30*time.Second + 10*time.Millisecond) // the next alarm is that of the hook
		evict(h)
		h.Advance(20 * time.Second)
		w.wantEvents(t, "1s in the gate: true", "~30s in the gate: false")
	})
}

// Hooks that fail together in several agents are called again at different times, and for each fiber of an agent that
// OnInterrupted or OnFiberEnded is about.
func TestFiberHooksThatFailTogetherRetryApart(t *testing.T) {
	const agents, fibers = 3, 2
	w, begun := &fiberTest{}, time.Time{}
	var delays []time.Duration
	w.hook = func(_ *fiberAgent, _ context.Context, i *agent.InterruptedRun) error {
		if i.Attempt == 1 {
			delays = append(delays, time.Since(begun))
			return nil
		}
		return errTest
	}
	runFiberTest(t, w, nil, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		for i := range agents * fibers {
			h.Client(func(ctx context.Context) error {
				return fiberAgents.Get(h, fmt.Sprint(i%agents)).Do(ctx, func(ctx context.Context, a *fiberAgent) error {
					return agent.RunFiber(ctx, a, "x", func(ctx context.Context) error { return sleep(ctx, time.Hour) })
				})
			})
		}
		h.Advance(time.Second)
		begun = time.Now()
		kill(h)
		h.Advance(time.Minute)
	})
	slices.Sort(delays)
	apart := slices.Compact(slices.Clone(delays))
	if len(delays) != agents*fibers || len(apart) != len(delays) || delays[0] < 30*time.Second || delays[len(delays)-1] > 37500*time.Millisecond {
		t.Errorf("delays of the second calls: %v", delays)
	}
}

// A fiber with a failed OnInterrupted does not keep OnRecovery out of the constructor.
func TestFiberRecoveryHookIgnoresFailedInterruptedHook(t *testing.T) {
	w := &fiberTest{}
	w.hook = func(*fiberAgent, context.Context, *agent.InterruptedRun) error {
		w.record("hook")
		return errTest
	}
	w.recovery = func(w *fiberAgent, ctx context.Context, fs []*agent.InterruptedFiber) error {
		_, gate := ctx.Deadline()
		w.record("%d in the gate: %v", len(fs), gate)
		return fs[0].Resume(ctx)
	}
	w.run = func(w *fiberAgent, ctx context.Context, f *agent.Fiber[int]) error { return sleep(ctx, time.Hour) }
	runFiberTest(t, w, nil, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		interrupted(t, h)
		do(t, h, nothing) // the hook fails
		start(t, h, 1, nil)
		h.Advance(30*time.Second + 10*time.Millisecond) // the next alarm is that of the first hook
		evict(h)
		h.Advance(20 * time.Second)
		w.wantEvents(t, "1s hook", "~30s 1 in the gate: true", "+0s hook")
	})
}

// There is one call of the hook at a time, also for a dead fiber that is retried during the call.
func TestFiberRecoveryHookRunsOneAtATime(t *testing.T) {
	w := &fiberTest{}
	in, poison := 0, true
	w.recovery = func(w *fiberAgent, ctx context.Context, fs []*agent.InterruptedFiber) error {
		if poison {
			return errTest
		}
		in++
		defer func() { in-- }()
		w.record("%d of %d at a time", len(fs), in)
		return sleep(ctx, time.Minute)
	}
	runFiberTest(t, w, nil, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		ids := startThreeFibers(t, w, h)
		kill(h)
		h.Advance(time.Hour)
		poison = false
		for _, id := range ids[:2] {
			do(t, h, func(ctx context.Context, a *fiberAgent) error {
				_, err := a.Fibers().Retry(ctx, id)
				return err
			})
			h.Advance(5 * time.Second)
		}
		h.Advance(5 * time.Minute)
		wantEqual(t, "calls", len(w.events), 2)
		for _, e := range w.events {
			if !strings.HasSuffix(e, "1 of 1 at a time") {
				t.Error(e)
			}
		}
	})
}

// Fibers too large for one batch are all decided about.
func TestFiberRecoveryHookDecidesAllLargeFibers(t *testing.T) {
	const kind agent.FiberKind[string] = "large"
	for name, resumes := range map[string]bool{"resumed": true, "left": false} {
		t.Run(name, func(t *testing.T) {
			runs, calls := 0, 0
			class := agent.Bind(fiberAgents, func(_ context.Context, a *agent.Agent[noState]) (*fiberAgent, error) { return &fiberAgent{a, nil}, nil },
				&agent.Handlers[fiberAgent, noState]{
					OnRecovery: func(_ *fiberAgent, ctx context.Context, fs []*agent.InterruptedFiber) error {
						calls++
						wantEqual(t, "handed over", len(fs), 20)
						for _, f := range fs {
							if err := f.Resume(ctx); resumes && err != nil {
								return err
							}
							if !resumes {
								break
							}
						}
						return nil
					},
				},
				agent.OnFiber(kind, func(_ *fiberAgent, ctx context.Context, f *agent.Fiber[string]) error {
					runs++
					return sleep(ctx, time.Hour)
				}, nil))
			dohosttest.Run(t, &dohosttest.Options{Classes: []dohost.Class{class}}, func(t *testing.T, h *dohosttest.Host) {
				for range 20 {
					do(t, h, func(ctx context.Context, a *fiberAgent) error {
						_, err := agent.StartFiber(ctx, a, kind, strings.Repeat("x", 1<<20), nil)
						return err
					})
				}
				h.Advance(time.Second)
				evict(h)
				h.Advance(time.Minute)
				var failed []agent.FiberInfo
				do(t, h, func(ctx context.Context, a *fiberAgent) (err error) {
					failed, err = a.Fibers().List(ctx, &agent.FiberQuery{Status: []agent.FiberStatus{agent.FiberFailed}})
					return err
				})
				want := "40 1 0"
				if !resumes {
					want = "21 1 19"
				}
				wantEqual(t, "runs, calls, failed", joinValues(runs, calls, len(failed)), want)
			})
		})
	}
}

// An unfinished fiber that is restarted resumes from its checkpoint, with all its attempts.
func TestFiberRestartResumesFromCheckpoint(t *testing.T) {
	w := &fiberTest{}
	runFiberTest(t, w, &agent.KindOptions{MaxRetries: 1}, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		fails := true
		w.run = func(w *fiberAgent, ctx context.Context, f *agent.Fiber[int]) error {
			w.record("attempt %d from %d", f.Attempt, f.Checkpoint())
			if err := f.SaveCheckpoint(ctx, f.Checkpoint()+1); err != nil {
				return err
			}
			if fails {
				return errTest
			}
			return nil
		}
		restart := func(id string) (ok bool) {
			t.Helper()
			do(t, h, func(ctx context.Context, a *fiberAgent) (err error) {
				ok, err = a.Fibers().Restart(ctx, id)
				return err
			})
			return ok
		}
		s := start(t, h, 0, nil)
		h.Advance(time.Second)
		wantEqual(t, "restarted", restart(s.ID), true)
		h.Advance(time.Second)
		fails = false
		wantEqual(t, "again", joinValues(restart(s.ID), restart(s.ID)), "true false")
		h.Advance(time.Second)
		w.wantEvents(t, "0s attempt 0 from 0", "0s attempt 1 from 1", "1s attempt 0 from 2", "1s attempt 1 from 3", "2s attempt 0 from 4")
		wantEqual(t, "states", states(t, h, []string{s.ID}), "completed 0 ;")
		wantEqual(t, "completed or unknown", joinValues(restart(s.ID), restart("unknown")), "false false")
		h.Advance(25 * time.Hour)
		wantEqual(t, "forgotten", inspect(t, h, s.ID).ID, "")
	})
}

// A cancelled call neither ends the restarted fiber, nor saves a checkpoint for it, nor runs concurrently with
// it.
func TestFiberRestartWhileCancelledCallRuns(t *testing.T) {
	w := &fiberTest{}
	w.ended = func(w *fiberAgent, _ context.Context, i agent.FiberInfo) error {
		w.record("told of %s %s", i.Status, i.Result)
		return nil
	}
	runFiberTest(t, w, nil, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		calls, in := 0, 0
		w.run = func(w *fiberAgent, ctx context.Context, f *agent.Fiber[int]) error {
			calls++
			call := calls
			in++
			defer func() { in-- }()
			w.record("call %d, %d at a time", call, in)
			if err := sleep(context.WithoutCancel(ctx), 10*time.Second); err != nil {
				return err
			}
			if err := f.SaveCheckpoint(context.WithoutCancel(ctx), call); err != nil {
				w.record("call %d: %v", call, err)
			}
			return f.SetResult(call)
		}
		s := start(t, h, 0, nil)
		h.Advance(time.Second)
		for range 2 {
			do(t, h, func(ctx context.Context, a *fiberAgent) error {
				was, err := a.Fibers().Cancel(ctx, s.ID)
				ok, err2 := a.Fibers().Restart(ctx, s.ID)
				wantEqual(t, "cancelled and restarted", joinValues(was, ok), "true true")
				return errors.Join(err, err2)
			})
			h.Advance(time.Second)
		}
		h.Advance(time.Minute)
		w.wantEvents(t, "0s call 1, 1 at a time", "10s call 1: agent: the fiber has ended", "10s call 2, 1 at a time", "20s told of completed 2")
		wantEqual(t, "the fiber", joinValues(string(inspect(t, h, s.ID).Checkpoint)), "2")
	})
}

// A restarted fiber does not expire at its old time.
func TestFiberRestartStopsExpiry(t *testing.T) {
	w := &fiberTest{run: func(_ *fiberAgent, ctx context.Context, _ *agent.Fiber[int]) error { return sleep(ctx, 30*time.Hour) }}
	runFiberTest(t, w, nil, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		s := start(t, h, 0, nil)
		h.Advance(time.Second)
		do(t, h, func(ctx context.Context, a *fiberAgent) error {
			_, err := a.Fibers().Cancel(ctx, s.ID)
			_, err2 := a.Fibers().Restart(ctx, s.ID)
			return errors.Join(err, err2)
		})
		h.Advance(31 * time.Hour)
		wantEqual(t, "the fiber", inspect(t, h, s.ID).Status, agent.FiberCompleted)
	})
}

// A fiber without a method, or a dead one, can be restarted too.
func TestFiberRestartOfDeadOrUnknownKind(t *testing.T) {
	w := &fiberTest{recovery: func(*fiberAgent, context.Context, []*agent.InterruptedFiber) error { return errTest }}
	runFiberTest(t, w, nil, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		ids := startThreeFibers(t, w, h)
		kill(h)
		h.Advance(time.Hour)
		w.events = nil
		do(t, h, func(ctx context.Context, a *fiberAgent) error {
			dead, err := a.Fibers().List(ctx, &agent.FiberQuery{Status: []agent.FiberStatus{agent.FiberDead}})
			wantEqual(t, "dead", len(dead), 3)
			ok, err2 := a.Fibers().Restart(ctx, ids[0])
			wantEqual(t, "restarted", ok, true)
			_, err3 := a.Fibers().Cancel(ctx, ids[1])
			dead, err4 := a.Fibers().List(ctx, &agent.FiberQuery{Status: []agent.FiberStatus{agent.FiberDead}})
			wantEqual(t, "dead", len(dead), 1)
			ok, err5 := a.Fibers().Delete(ctx, ids[2])
			wantEqual(t, "buried", ok, true)
			return errors.Join(err, err2, err3, err4, err5)
		})
		h.Advance(time.Second)
		newer := agent.Bind(fiberAgents, func(_ context.Context, a *agent.Agent[noState]) (*fiberAgent, error) { return &fiberAgent{a, w}, nil }, nil)
		if h.Kill(); h.Restart(newer) != nil {
			t.Fatal("no restart")
		}
		h.Advance(time.Second)
		wantEqual(t, "the fiber", inspect(t, h, ids[0]).Status, agent.FiberInterrupted)
		do(t, h, func(ctx context.Context, a *fiberAgent) error {
			if ok, err := a.Fibers().Restart(ctx, ids[0]); ok || err == nil || !strings.Contains(err.Error(), `no fiber kind "job"`) {
				t.Error(ok, err)
			}
			return nil
		})
		if h.Kill(); h.Restart(w.class(nil)) != nil {
			t.Fatal("no restart")
		}
		do(t, h, func(ctx context.Context, a *fiberAgent) error {
			ok, err := a.Fibers().Restart(ctx, ids[0])
			wantEqual(t, "restarted", ok, true)
			return err
		})
		h.Advance(2 * time.Minute)
		wantEqual(t, "the fiber", states(t, h, ids[:2]), "completed 0 ;cancelled 0 no;")
	})
}

// A restart that is rolled back has no effect.
func TestFiberRestartRolledBack(t *testing.T) {
	w := &fiberTest{}
	runFiberTest(t, w, &agent.KindOptions{MaxRetries: -1}, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		w.run = func(w *fiberAgent, ctx context.Context, f *agent.Fiber[int]) error { w.record("run"); return errTest }
		s := start(t, h, 0, nil)
		h.Advance(time.Second)
		do(t, h, func(ctx context.Context, a *fiberAgent) error {
			err := dohost.Transaction(ctx, func(ctx context.Context) error {
				_, err := a.Fibers().Restart(ctx, s.ID)
				return errors.Join(err, errTest)
			})
			if !errors.Is(err, errTest) {
				t.Error(err)
			}
			return nil
		})
		h.Advance(time.Minute)
		w.wantEvents(t, "0s run")
		wantEqual(t, "the fiber", states(t, h, []string{s.ID}), "failed 1 no;")
	})
}

// Programs cannot use reserved names.
func TestFiberReservedNames(t *testing.T) {
	w := &fiberTest{}
	runFiberTest(t, w, nil, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		do(t, h, func(ctx context.Context, a *fiberAgent) error {
			err := agent.RunFiber(ctx, a, "dohost.chat", func(context.Context) error { return nil })
			if err == nil || !strings.Contains(err.Error(), `"dohost.chat": names that begin with "dohost."`) {
				t.Error(err)
			}
			return nil
		})
	})
	class := agent.Bind(fiberAgents, func(_ context.Context, a *agent.Agent[noState]) (*fiberAgent, error) { return &fiberAgent{a, w}, nil }, nil,
		agent.OnFiber(agent.FiberKind[int]("dohost.chat"), func(*fiberAgent, context.Context, *agent.Fiber[int]) error { return nil }, nil))
	if _, err := dohost.Open(t.TempDir(), nil, class); err == nil || !strings.Contains(err.Error(), `names that begin with "dohost."`) {
		t.Error(err)
	}
}

// checkReason returns an error if a fiber can fail without a reason.
func checkReason(err error) error {
	if err == nil {
		return errors.New("a fiber has failed without a reason")
	}
	return nil
}
