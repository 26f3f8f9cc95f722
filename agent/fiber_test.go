package agent_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/agent"
	"github.com/dohost/dohost/dohosttest"
)

type noState struct{}

// fiberAgent is an agent with the fibers and hooks of a test.
type fiberAgent struct {
	*agent.Agent[noState]
	*fiberTest
}

// fiberTest is the test's part of all fiberAgents.
type fiberTest struct {
	run      func(w *fiberAgent, ctx context.Context, f *agent.Fiber[int]) error
	hook     func(w *fiberAgent, ctx context.Context, i *agent.InterruptedRun) error
	recovery func(w *fiberAgent, ctx context.Context, fs []*agent.InterruptedFiber) error
	ended    func(w *fiberAgent, ctx context.Context, i agent.FiberInfo) error
	callback func(w *fiberAgent, ctx context.Context, text string) error
	events   []string // each event with its second
	begun    time.Time
}

func (w *fiberTest) record(format string, args ...any) {
	at := int(time.Since(w.begun).Seconds())
	w.events = append(w.events, fmt.Sprintf("%ds ", at)+fmt.Sprintf(format, args...))
}

const (
	fiberAgents dohost.Namespace[fiberAgent] = "worker"
	testKind    agent.FiberKind[int]         = "job"
)

// handlers returns the handlers that the test has set. Tests replace them later, so they are looked up at each call.
func (w *fiberTest) handlers() *agent.Handlers[fiberAgent, noState] {
	h := &agent.Handlers[fiberAgent, noState]{}
	if w.hook != nil {
		h.OnInterrupted = func(wr *fiberAgent, ctx context.Context, i *agent.InterruptedRun) error { return w.hook(wr, ctx, i) }
	}
	if w.recovery != nil {
		h.OnRecovery = func(wr *fiberAgent, ctx context.Context, fs []*agent.InterruptedFiber) error {
			return w.recovery(wr, ctx, fs)
		}
	}
	if w.ended != nil {
		h.OnFiberEnded = func(wr *fiberAgent, ctx context.Context, i agent.FiberInfo) error { return w.ended(wr, ctx, i) }
	}
	return h
}

func (w *fiberTest) class(o *agent.KindOptions) dohost.Class {
	entries := []agent.Entry[fiberAgent]{
		agent.OnFiber(testKind, func(wr *fiberAgent, ctx context.Context, f *agent.Fiber[int]) error { return w.run(wr, ctx, f) }, o),
	}
	if w.callback != nil {
		entries = append(entries, agent.OnSchedule(testCallback, func(wr *fiberAgent, ctx context.Context, text string) error {
			return w.callback(wr, ctx, text)
		}))
	}
	return agent.Bind(fiberAgents, func(_ context.Context, a *agent.Agent[noState]) (*fiberAgent, error) { return &fiberAgent{a, w}, nil },
		w.handlers(), entries...)
}

// runFiberTest opens a host of fiberAgents in a bubble.
func runFiberTest(t *testing.T, w *fiberTest, o *agent.KindOptions, f func(t *testing.T, ctx context.Context, h *dohosttest.Host)) {
	t.Helper()
	dohosttest.Run(t, &dohosttest.Options{Classes: []dohost.Class{w.class(o)}}, func(t *testing.T, h *dohosttest.Host) {
		w.begun = time.Now()
		f(t, t.Context(), h)
	})
}

// do runs fn in the agent that the tests use.
func do(t *testing.T, h *dohosttest.Host, fn func(ctx context.Context, w *fiberAgent) error) {
	t.Helper()
	if err := fiberAgents.Get(h, "a").Do(t.Context(), fn); err != nil {
		t.Fatal(err)
	}
}

func start(t *testing.T, h *dohosttest.Host, checkpoint int, o *agent.FiberOptions) (s agent.Started) {
	t.Helper()
	do(t, h, func(ctx context.Context, w *fiberAgent) (err error) {
		s, err = agent.StartFiber(ctx, w, testKind, checkpoint, o)
		return err
	})
	return s
}

func inspect(t *testing.T, h *dohosttest.Host, id string) (info agent.FiberInfo) {
	t.Helper()
	do(t, h, func(ctx context.Context, w *fiberAgent) (err error) {
		info, _, err = w.Fibers().Get(ctx, id)
		return err
	})
	return info
}

func evict(h *dohosttest.Host) { h.Evict(fiberAgents.Get(h, "a").ID(), dohost.EndFence) }

// alarm returns the time from now to the agent's alarm.
func alarm(t *testing.T, h *dohosttest.Host) (d time.Duration, set bool) {
	t.Helper()
	info, err := h.Host().Inspect(t.Context(), fiberAgents.Get(h, "a").ID())
	if err != nil {
		t.Fatal(err)
	}
	return time.Until(info.Alarm).Round(time.Second), !info.Alarm.IsZero()
}

func wantEqual[T comparable](t *testing.T, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

// joinValues joins values for comparison.
func joinValues(all ...any) string { return strings.TrimSpace(fmt.Sprintln(all...)) }

// wantEvents compares the events with want. A time in want is that of an event, as 31s; or, as +31s, that time after the
// event above; or, as ~30s, that of a call of a hook whose delay of 30 s has begun at the event above and is up to 25 %
// longer. 7s~30s is such a call whose delay has begun at 7s.
func (w *fiberTest) wantEvents(t *testing.T, want ...string) {
	t.Helper()
	equal, above := len(w.events) == len(want), 0
	for i := 0; equal && i < len(want); i++ {
		when, text, _ := strings.Cut(want[i], " ")
		gotWhen, gotText, _ := strings.Cut(w.events[i], " ")
		first, last := wantedSeconds(t, when, above)
		above = seconds(t, gotWhen)
		equal = first <= above && above <= last && gotText == text
	}
	if !equal {
		t.Errorf("happened:\n%s\nwant:\n%s", strings.Join(w.events, "\n"), strings.Join(want, "\n"))
	}
}

// wantedSeconds returns the bounds of a time in the form of wantEvents, in whole seconds.
func wantedSeconds(t *testing.T, when string, above int) (first, last int) {
	t.Helper()
	begun, delay, hook := strings.Cut(when, "~")
	switch {
	case hook && begun != "":
		above = seconds(t, begun)
	case !hook && strings.HasPrefix(when, "+"):
		first = above + seconds(t, when)
		return first, first
	case !hook:
		first = seconds(t, when)
		return first, first
	}
	first = above + seconds(t, delay)
	return first, first + (seconds(t, delay)+3)/4
}

func seconds(t *testing.T, when string) int {
	t.Helper()
	n, err := strconv.Atoi(strings.TrimSuffix(when, "s"))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func sleep(ctx context.Context, d time.Duration) error { return dohost.Sleep(ctx, d) }

// A fiber of RunFiber is listed while it runs, and leaves no row.
func TestRunFiberLeavesNoRow(t *testing.T) {
	w := &fiberTest{}
	runFiberTest(t, w, nil, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		for _, failure := range []error{nil, errors.New("no luck")} {
			var during, after agent.FiberInfo
			var id string
			do(t, h, func(ctx context.Context, a *fiberAgent) error {
				v, err := agent.RunFiberValue(ctx, a, "sum", func(ctx context.Context) (v int, err error) {
					id, _ = agent.FiberID(ctx)
					if err := agent.SaveCheckpoint(ctx, 41); err != nil {
						return 0, err
					}
					during, _, err = a.Fibers().Get(ctx, id)
					return 42, errors.Join(err, failure)
				})
				want := 42
				if failure != nil {
					want = 0
				}
				if !errors.Is(err, failure) || v != want {
					t.Errorf("%d, %v", v, err)
				}
				after, _, err = a.Fibers().Get(ctx, id)
				return err
			})
			wantEqual(t, "during", joinValues(during.Name, during.Status, string(during.Checkpoint)), "sum running 41")
			wantEqual(t, "after", after.ID, "")
			if d, set := alarm(t, h); set {
				t.Errorf("an alarm is left, in %v", d)
			}
		}
	})
}

// The end of an incarnation is not a failure of the fiber, and a failure is not an interruption.
func TestFiberInterruptionIsNotAFailure(t *testing.T) {
	w := &fiberTest{hook: func(w *fiberAgent, _ context.Context, i *agent.InterruptedRun) error {
		var saved string
		ok, err := i.Checkpoint(&saved)
		w.record("%s interrupted at %q %v, attempt %d", i.Name, saved, ok, i.Attempt)
		return err
	}}
	runFiberTest(t, w, nil, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		long := func(name string) *dohosttest.Client {
			return h.Client(func(ctx context.Context) error {
				return fiberAgents.Get(h, "a").Do(ctx, func(ctx context.Context, a *fiberAgent) error {
					return agent.RunFiber(ctx, a, name, func(ctx context.Context) error {
						if name != "bare" {
							if err := agent.SaveCheckpoint(ctx, "half of "+name); err != nil {
								return err
							}
						}
						return sleep(ctx, time.Hour)
					})
				})
			})
		}
		a, b, c := long("first"), long("bare"), long("last")
		h.Advance(time.Minute)
		evict(h)
		for _, client := range []*dohosttest.Client{a, b, c} {
			if err := client.Wait(); !errors.Is(err, dohost.ErrFenced) {
				t.Error(err)
			}
		}
		h.Advance(time.Minute) // without a request
		w.wantEvents(t, `60s first interrupted at "half of first" true, attempt 0`, `60s bare interrupted at "" false, attempt 0`,
			`60s last interrupted at "half of last" true, attempt 0`)
		if _, set := alarm(t, h); set {
			t.Error("an alarm is left")
		}
	})
}

// Recovery needs no request: when the process has restarted, the fibers resume immediately.
func TestFiberResumesWhenTheHostStarts(t *testing.T) {
	w := &fiberTest{}
	w.run = func(_ *fiberAgent, ctx context.Context, f *agent.Fiber[int]) error {
		w.record("attempt %d from %d", f.Attempt, f.Checkpoint())
		for n := f.Checkpoint(); n < 3; n++ {
			if err := f.SaveCheckpoint(ctx, n+1); err != nil {
				return err
			}
			if err := sleep(ctx, 10*time.Second); err != nil {
				return err
			}
		}
		return f.SetResult("done")
	}
	runFiberTest(t, w, nil, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		s := start(t, h, 0, nil)
		h.Advance(15 * time.Second)
		h.Kill()
		h.Advance(15 * time.Second)
		w.wantEvents(t, "0s attempt 0 from 0", "15s attempt 1 from 2")
		info := inspect(t, h, s.ID)
		wantEqual(t, "the fiber", joinValues(info.Status, string(info.Result), info.Attempt), `completed "done" 1`)
	})
}

// A failed method is called again immediately, up to a limit; panics and ends count like errors.
func TestFiberRetriesAreBounded(t *testing.T) {
	w := &fiberTest{}
	runFiberTest(t, w, nil, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		calls := 0
		var before context.Context
		w.run = func(_ *fiberAgent, ctx context.Context, f *agent.Fiber[int]) error {
			calls++
			if before != nil {
				if err := agent.SaveCheckpoint(before, 9); !errors.Is(err, agent.ErrFiberDone) {
					t.Errorf("a call after its end may save a checkpoint: %v", err)
				}
			}
			before = ctx
			return fmt.Errorf("failure %d", f.Attempt)
		}
		s := start(t, h, 0, nil)
		h.Advance(time.Second)
		info := inspect(t, h, s.ID)
		wantEqual(t, "failing", joinValues(calls, info.Status, info.Error), "4 failed failure 3")

		calls = 0
		w.run = func(*fiberAgent, context.Context, *agent.Fiber[int]) error {
			calls++
			panic("bug")
		}
		s = start(t, h, 0, nil)
		h.Advance(5 * time.Minute)
		info = inspect(t, h, s.ID)
		wantEqual(t, "panicking", joinValues(calls, info.Status, info.Error), "4 failed max retries exceeded")

		calls = 0
		w.run = func(_ *fiberAgent, ctx context.Context, _ *agent.Fiber[int]) error {
			calls++
			return sleep(ctx, time.Hour)
		}
		s = start(t, h, 0, nil)
		for range 4 {
			h.Advance(time.Second)
			h.Kill()
		}
		h.Advance(time.Second)
		info = inspect(t, h, s.ID)
		wantEqual(t, "killed", joinValues(calls, info.Status, info.Error), "4 failed max retries exceeded")
	})
}

// A hook that always fails is called five times, with growing delays, across ends of processes too; between the
// calls the agent serves requests.
func TestFiberInterruptedHookRetriesAreBounded(t *testing.T) {
	w := &fiberTest{}
	w.hook = func(_ *fiberAgent, ctx context.Context, i *agent.InterruptedRun) error {
		w.record("hook %d", i.Attempt)
		switch i.Attempt {
		case 2:
			return sleep(ctx, time.Hour) // and dies during the call
		case 3:
			panic("before it has given up the turn once")
		}
		return errors.New("not today")
	}
	runFiberTest(t, w, nil, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		client := h.Client(func(ctx context.Context) error {
			return fiberAgents.Get(h, "a").Do(ctx, func(ctx context.Context, a *fiberAgent) error {
				return agent.RunFiber(ctx, a, "x", func(ctx context.Context) error { return sleep(ctx, time.Hour) })
			})
		})
		h.Advance(time.Second)
		h.Kill()
		if err := client.Wait(); err == nil {
			t.Error("the caller was answered")
		}
		h.Advance(130 * time.Second)
		h.Kill() // during the third call
		h.Advance(time.Hour)
		w.wantEvents(t, "1s hook 0", "~30s hook 1", "~60s hook 2", "~120s hook 3", "~240s hook 4")
		var dead []agent.FiberInfo
		look := func() {
			t.Helper()
			do(t, h, func(ctx context.Context, a *fiberAgent) (err error) {
				dead, err = a.Fibers().List(ctx, &agent.FiberQuery{Status: []agent.FiberStatus{agent.FiberDead}})
				return err
			})
		}
		look()
		wantEqual(t, "dead", joinValues(len(dead), dead[0].Name, dead[0].Error, dead[0].Attempt), "1 x not today 5")
		if _, set := alarm(t, h); set {
			t.Error("an alarm is left")
		}
		w.events = nil
		w.hook = func(_ *fiberAgent, ctx context.Context, i *agent.InterruptedRun) error {
			w.record("again %d", i.Attempt)
			return nil
		}
		do(t, h, func(ctx context.Context, a *fiberAgent) error {
			if ok, err := a.Fibers().Retry(ctx, dead[0].ID); err != nil || !ok {
				return fmt.Errorf("%v, %v", ok, err)
			}
			return nil
		})
		h.Advance(time.Minute)
		look()
		wantEqual(t, "dead", len(dead), 0)
		w.wantEvents(t, "3732s again 0")
	})
}

// A fiber has a row before its first step, so a panic there does not lose it.
func TestFiberThatPanicsImmediatelyIsInterrupted(t *testing.T) {
	w := &fiberTest{hook: func(w *fiberAgent, _ context.Context, i *agent.InterruptedRun) error {
		w.record("%s interrupted", i.Name)
		return nil
	}}
	runFiberTest(t, w, nil, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		err := fiberAgents.Get(h, "a").Do(ctx, func(ctx context.Context, a *fiberAgent) error {
			return agent.RunFiber(ctx, a, "x", func(context.Context) error { panic("bug") })
		})
		if !errors.Is(err, dohost.ErrFenced) {
			t.Error(err)
		}
		h.Advance(time.Minute)
		w.wantEvents(t, "30s x interrupted")
	})
}

// A fiber that its hook has resumed stays resumed if the hook then fails.
func TestFiberResumeTakesEffectIfHookFails(t *testing.T) {
	w := &fiberTest{}
	w.hook = func(_ *fiberAgent, ctx context.Context, i *agent.InterruptedRun) error {
		w.record("hook %d", i.Attempt)
		_, err := i.Resume(ctx, func(ctx context.Context) error {
			w.record("successor")
			return nil
		})
		_, again := i.Resume(ctx, nil)
		if !errors.Is(again, agent.ErrFiberDone) {
			t.Error(again)
		}
		return errors.Join(err, errors.New("too late"))
	}
	runFiberTest(t, w, nil, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		interrupted(t, h)
		h.Advance(time.Hour)
		w.wantEvents(t, "30s hook 0", "30s successor")
	})
}

// A hanging hook delays the agent for as long as a constructor may take, and only once.
func TestFiberInterruptedHookHangDelaysAgentOnce(t *testing.T) {
	w := &fiberTest{}
	var hang chan struct{}
	w.hook = func(_ *fiberAgent, ctx context.Context, i *agent.InterruptedRun) error {
		w.record("hook %d", i.Attempt)
		return dohost.Await(context.WithoutCancel(ctx), func(context.Context) error { <-hang; return nil })
	}
	runFiberTest(t, w, nil, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		hang = make(chan struct{})
		interrupted(t, h)
		for fiberAgents.Get(h, "a").Do(ctx, func(context.Context, *fiberAgent) error { return nil }) != nil {
			h.Advance(time.Second)
		}
		if took := time.Since(w.begun); took > 40*time.Second {
			t.Errorf("the agent did not serve for %v", took)
		}
		close(hang)
		h.Advance(time.Hour)
		if n := len(w.events); n != 2 { // the second call is in a task, and returns
			t.Errorf("%d runs of the hook: %v", n, w.events)
		}
	})
}

// If the constructor has no time left for interrupted fibers, the alarm handles them.
func TestFiberInterruptedHooksHaveTenSecondsInConstructor(t *testing.T) {
	w := &fiberTest{}
	w.hook = func(_ *fiberAgent, ctx context.Context, i *agent.InterruptedRun) error {
		w.record("hook of %s", i.Name)
		return sleep(ctx, 6*time.Second)
	}
	runFiberTest(t, w, nil, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		var clients []*dohosttest.Client
		for i := range 4 {
			clients = append(clients, h.Client(func(ctx context.Context) error {
				return fiberAgents.Get(h, "a").Do(ctx, func(ctx context.Context, a *fiberAgent) error {
					return agent.RunFiber(ctx, a, fmt.Sprint(i), func(ctx context.Context) error { return sleep(ctx, time.Hour) })
				})
			}))
		}
		h.Advance(time.Second)
		evict(h)
		for _, c := range clients {
			_ = c.Wait()
		}
		do(t, h, func(context.Context, *fiberAgent) error { w.record("served"); return nil })
		h.Advance(2 * time.Minute)
		// The second hook got the rest of the time, and is called again like a failed one.
		w.wantEvents(t, "1s hook of 0", "7s hook of 1", "11s served", "12s hook of 2", "12s hook of 3", "7s~30s hook of 1")
	})
}

func TestFiberKeyMakesStartIdempotent(t *testing.T) {
	const other agent.FiberKind[string] = "job"
	w := &fiberTest{run: func(_ *fiberAgent, ctx context.Context, _ *agent.Fiber[int]) error { return sleep(ctx, time.Minute) }}
	runFiberTest(t, w, nil, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		a := start(t, h, 1, &agent.FiberOptions{Key: "k"})
		b := start(t, h, 2, &agent.FiberOptions{Key: "k"})
		c := start(t, h, 3, nil)
		if !a.Accepted || b.Accepted || !c.Accepted || a.ID != b.ID || c.ID == a.ID {
			t.Error(a, b, c)
		}
		do(t, h, func(ctx context.Context, w *fiberAgent) error {
			info, ok, err := w.Fibers().GetByKey(ctx, "k")
			if err != nil || !ok || info.ID != a.ID || string(info.Checkpoint) != "1" {
				t.Error(info, ok, err)
			}
			if _, err := agent.StartFiber(ctx, w, other, "x", nil); err == nil || !strings.Contains(err.Error(), "checkpoint") {
				t.Error(err)
			}
			if _, err := agent.StartFiber(ctx, w, agent.FiberKind[int]("unknown"), 1, nil); err == nil || !strings.Contains(err.Error(), `"unknown"`) {
				t.Error(err)
			}
			if _, err := agent.StartFiber(ctx, w, testKind, 1, &agent.FiberOptions{Key: strings.Repeat("k", 300)}); !isLimit(err) {
				t.Error(err)
			}
			if err := agent.RunFiber(ctx, w, "", func(context.Context) error { return nil }); !isLimit(err) {
				t.Error(err)
			}
			// A rolled-back start starts nothing.
			err = dohost.Transaction(ctx, func(ctx context.Context) error {
				_, err := agent.StartFiber(ctx, w, testKind, 9, &agent.FiberOptions{Key: "gone"})
				return errors.Join(err, errors.New("no"))
			})
			if _, ok, err2 := w.Fibers().GetByKey(ctx, "gone"); err == nil || ok || err2 != nil {
				t.Error(ok, err, err2)
			}
			return nil
		})
	})
}

func isLimit(err error) bool {
	_, ok := errors.AsType[*dohost.LimitError](err)
	return ok
}

// Every waiter is notified, also if another caller cancels the fiber.
func TestFiberWaitAndCancel(t *testing.T) {
	w := &fiberTest{run: func(_ *fiberAgent, ctx context.Context, f *agent.Fiber[int]) error {
		if err := sleep(ctx, time.Duration(f.Checkpoint())*time.Second); err != nil {
			return err
		}
		return f.SetResult(f.Checkpoint())
	}}
	runFiberTest(t, w, nil, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		wait := func(id string) *dohosttest.Client {
			return h.Client(func(ctx context.Context) error {
				return fiberAgents.Get(h, "a").Do(ctx, func(ctx context.Context, a *fiberAgent) error {
					info, ok, err := a.Fibers().Wait(ctx, id)
					w.record("%v %s%s", ok, info.Status, info.Result)
					return err
				})
			})
		}
		quick, slow := start(t, h, 5, nil), start(t, h, 60, nil)
		clients := []*dohosttest.Client{wait(quick.ID), wait(quick.ID), wait(slow.ID), wait("unknown")}
		h.Advance(10 * time.Second)
		cancel := func(id string) (was bool) {
			t.Helper()
			do(t, h, func(ctx context.Context, a *fiberAgent) (err error) {
				was, err = a.Fibers().Cancel(ctx, id)
				return err
			})
			return was
		}
		wantEqual(t, "cancelled", joinValues(cancel(slow.ID), cancel(slow.ID), cancel(quick.ID), cancel("unknown")), "true false false false")
		for _, c := range clients {
			if err := c.Wait(); err != nil {
				t.Error(err)
			}
		}
		w.wantEvents(t, "0s false ", "5s true completed5", "5s true completed5", "10s true cancelled")
		h.Kill()
		h.Advance(2 * time.Minute)
		info := inspect(t, h, slow.ID)
		wantEqual(t, "after a restart", joinValues(info.Status, info.Attempt), "cancelled 0")
	})
}

// Ended fibers are kept for the retention period of their kind, and can be listed until then.
func TestFiberExpiresAfterRetention(t *testing.T) {
	w := &fiberTest{run: func(_ *fiberAgent, _ context.Context, f *agent.Fiber[int]) error {
		if f.Checkpoint() == 2 {
			return errors.New("no luck")
		}
		return nil
	}}
	runFiberTest(t, w, &agent.KindOptions{MaxRetries: -1}, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		for i := range 4 {
			start(t, h, i, nil)
		}
		list := func(q *agent.FiberQuery) (got string) {
			t.Helper()
			do(t, h, func(ctx context.Context, a *fiberAgent) error {
				infos, err := a.Fibers().List(ctx, q)
				for _, i := range infos {
					got += fmt.Sprintf("%s %s;", i.Checkpoint, i.Status)
				}
				return err
			})
			return got
		}
		h.Advance(time.Minute)
		wantEqual(t, "all", list(nil), "3 completed;2 failed;1 completed;0 completed;")
		wantEqual(t, "some", list(&agent.FiberQuery{Status: []agent.FiberStatus{agent.FiberCompleted}, Limit: 2}), "3 completed;1 completed;")
		wantEqual(t, "none", list(&agent.FiberQuery{Kind: "other"}), "")
		do(t, h, func(ctx context.Context, a *fiberAgent) error {
			if _, err := a.Fibers().List(ctx, &agent.FiberQuery{Limit: 101}); err == nil {
				t.Error("101 were listed")
			}
			n, err := a.Fibers().DeleteEnded(ctx, &agent.FiberQuery{Status: []agent.FiberStatus{agent.FiberCompleted}, Limit: 1})
			wantEqual(t, "deleted", n, 1)
			return err
		})
		wantEqual(t, "the oldest was deleted", list(nil), "3 completed;2 failed;1 completed;")
		h.Advance(24 * time.Hour)
		wantEqual(t, "after a day", list(nil), "2 failed;")
		h.Advance(6 * 24 * time.Hour)
		wantEqual(t, "after a week", list(nil), "")
		if _, set := alarm(t, h); set {
			t.Error("an alarm is left")
		}
	})
}

// If a newer program does not have a fiber's kind, the fiber waits for an operator's decision.
func TestFiberOfUnknownKindIsKept(t *testing.T) {
	w := &fiberTest{run: func(_ *fiberAgent, ctx context.Context, _ *agent.Fiber[int]) error { return sleep(ctx, time.Hour) }}
	runFiberTest(t, w, nil, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		s := start(t, h, 7, nil)
		h.Advance(time.Second)
		newer := agent.Bind(fiberAgents, func(_ context.Context, a *agent.Agent[noState]) (*fiberAgent, error) { return &fiberAgent{a, w}, nil }, nil)
		h.Kill()
		if err := h.Restart(newer); err != nil {
			t.Fatal(err)
		}
		h.Advance(time.Minute)
		info := inspect(t, h, s.ID)
		wantEqual(t, "the fiber", joinValues(info.Status, string(info.Checkpoint)), "interrupted 7")
		do(t, h, func(ctx context.Context, a *fiberAgent) error {
			if n, err := a.Fibers().DeleteEnded(ctx, nil); n != 0 || err != nil {
				t.Errorf("%d deleted, %v", n, err)
			}
			if _, err := a.Fibers().SetStatus(ctx, s.ID, agent.FiberRunning); err == nil {
				t.Error("resolved as running")
			}
			if ok, err := a.Fibers().SetStatus(ctx, s.ID, agent.FiberCompleted); !ok || err != nil {
				t.Error(ok, err)
			}
			return nil
		})
		h.Advance(25 * time.Hour)
		wantEqual(t, "forgotten", inspect(t, h, s.ID).ID, "")
	})
}

func TestFiberCheckpointNeedsFiberContext(t *testing.T) {
	w := &fiberTest{}
	runFiberTest(t, w, nil, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		var kept context.Context
		do(t, h, func(ctx context.Context, a *fiberAgent) error {
			if err := agent.SaveCheckpoint(ctx, 1); !errors.Is(err, dohost.ErrMisuse) {
				t.Error(err)
			}
			err := agent.RunFiber(ctx, a, "outer", func(outer context.Context) error {
				kept = outer
				err := agent.RunFiber(outer, a, "inner", func(inner context.Context) error {
					return errors.Join(agent.SaveCheckpoint(inner, "inner"), agent.SaveCheckpoint(outer, "outer"))
				})
				if err != nil {
					return err
				}
				id, _ := agent.FiberID(outer)
				info, _, err := a.Fibers().Get(outer, id)
				wantEqual(t, "each has its own", string(info.Checkpoint), `"outer"`)
				// Inside an Await, SaveCheckpoint acquires the turn itself.
				err2 := dohost.Await(outer, func(ctx context.Context) error { return agent.SaveCheckpoint(ctx, "away") })
				info, _, err3 := a.Fibers().Get(outer, id)
				wantEqual(t, "from an Await", string(info.Checkpoint), `"away"`)
				return errors.Join(err, err2, err3, agent.SaveCheckpoint(outer, func() {}))
			})
			if err == nil || !strings.Contains(err.Error(), "unsupported type") {
				t.Error(err)
			}
			if err := agent.SaveCheckpoint(kept, 1); !errors.Is(err, agent.ErrFiberDone) {
				t.Error(err)
			}
			return nil
		})
	})
}

// An agent that is kept alive is not idle, wakes once after an end, and can be evicted after the release.
func TestKeepAlive(t *testing.T) {
	w := &fiberTest{}
	runFiberTest(t, w, nil, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		id := fiberAgents.Get(h, "a").ID()
		var first, second func(context.Context) error
		do(t, h, func(ctx context.Context, a *fiberAgent) (err error) {
			if first, err = a.KeepAlive(ctx); err != nil {
				return err
			}
			second, err = a.KeepAlive(ctx)
			return err
		})
		h.Advance(10*time.Minute + time.Second)
		if !h.Host().IsLive(id) || len(h.Host().Pins(id)) != 1 {
			t.Errorf("live %v, pins %v", h.Host().IsLive(id), h.Host().Pins(id))
		}
		for _, release := range []func(context.Context) error{first, first} {
			do(t, h, func(ctx context.Context, _ *fiberAgent) error { return release(ctx) })
		}
		if d, set := alarm(t, h); !set || d > 30*time.Second {
			t.Errorf("heartbeat in %v, %v", d, set)
		}
		do(t, h, func(ctx context.Context, _ *fiberAgent) error { return second(ctx) })
		if d, set := alarm(t, h); set {
			t.Errorf("an alarm is left, in %v", d)
		}
		h.Advance(141 * time.Second)
		if h.Host().IsLive(id) {
			t.Error("it is still in memory")
		}
		// The end of an incarnation ends its KeepAlive calls: the heartbeat comes once more.
		do(t, h, func(ctx context.Context, a *fiberAgent) (err error) {
			first, err = a.KeepAlive(ctx)
			return err
		})
		evict(h)
		do(t, h, func(ctx context.Context, _ *fiberAgent) error { return first(ctx) })
		if _, set := alarm(t, h); !set {
			t.Error("no alarm is left to wake it")
		}
		h.Advance(31 * time.Second)
		if _, set := alarm(t, h); set {
			t.Error("the heartbeat continues without a holder")
		}
		failure := errors.New("no luck")
		do(t, h, func(ctx context.Context, a *fiberAgent) error {
			err := agent.KeepAliveWhile(ctx, a, func(ctx context.Context) error {
				if _, set, err := a.Object().GetAlarm(ctx); !set || err != nil {
					t.Errorf("in KeepAliveWhile: an alarm is set: %t, %v", set, err)
				}
				return failure
			})
			if err != failure {
				t.Errorf("KeepAliveWhile: %v", err)
			}
			return nil
		})
		if _, set := alarm(t, h); set {
			t.Error("an alarm is left")
		}
	})
}

// No fiber, schedule or item has an empty id: a client may ask for one.
func TestIDThatIsEmptyMatchesNoFiberOrItem(t *testing.T) {
	runFiberTest(t, &fiberTest{}, nil, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		do(t, h, func(ctx context.Context, w *fiberAgent) error {
			_, inspected, err := w.Fibers().Get(ctx, "")
			_, waited, err2 := w.Fibers().Wait(ctx, "")
			cancelled, err3 := w.Fibers().Cancel(ctx, "")
			restarted, err4 := w.Fibers().Restart(ctx, "")
			resolved, err5 := w.Fibers().SetStatus(ctx, "", agent.FiberFailed)
			retried, err6 := w.Fibers().Retry(ctx, "")
			deleted, err7 := w.Fibers().Delete(ctx, "")
			if inspected || waited || cancelled || restarted || resolved || retried || deleted {
				t.Error("there is a fiber without an id")
			}
			return errors.Join(err, err2, err3, err4, err5, err6, err7)
		})
		for _, a := range []dohost.Action{dohost.ActionCancel, dohost.ActionRetry, dohost.ActionDelete} {
			if done, err := h.Host().Operate(ctx, fiberAgents.Get(h, "a").ID(), &dohost.AdminRequest{Action: a, Kind: "fiber", ID: ""}); done || err != nil {
				t.Errorf("%s: %t, %v", a, done, err)
			}
		}
	})
}
