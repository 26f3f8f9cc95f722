package agent_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/agent"
	"github.com/dohost/dohost/dohosttest"
	"github.com/dohost/dohost/internal/kernel"
	"github.com/dohost/dohost/objectstore"
	"github.com/dohost/dohost/runtime"
)

// interrupted interrupts a fiber of RunFiber, a second after its start.
func interrupted(t *testing.T, h *dohosttest.Host) {
	t.Helper()
	client := h.Client(func(ctx context.Context) error {
		return fiberAgents.Get(h, "a").Do(ctx, func(ctx context.Context, a *fiberAgent) error {
			return agent.RunFiber(ctx, a, "x", func(ctx context.Context) error { return sleep(ctx, time.Hour) })
		})
	})
	h.Advance(time.Second)
	evict(h)
	if err := client.Wait(); !errors.Is(err, dohost.ErrFenced) {
		t.Error(err)
	}
}

// Rows that do not fit into one batch are written back in several.
func TestFiberRecoveryOfManyLargeCheckpoints(t *testing.T) {
	const kind agent.FiberKind[string] = "large"
	runs := 0
	class := agent.Bind(fiberAgents, func(_ context.Context, a *agent.Agent[noState]) (*fiberAgent, error) { return &fiberAgent{a, nil}, nil }, nil,
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
		do(t, h, func(ctx context.Context, a *fiberAgent) error {
			if _, err := agent.StartFiber(ctx, a, kind, strings.Repeat("x", 2<<20), nil); !isLimit(err) {
				t.Error(err)
			}
			return nil
		})
		h.Advance(time.Second)
		evict(h)
		h.Advance(time.Minute)
		do(t, h, func(context.Context, *fiberAgent) error { return nil })
		wantEqual(t, "runs", runs, 40)
	})
}

// A result that is too large fails the fiber, and does not repeat its work.
func TestFiberFailsIfItsResultDoesNotFit(t *testing.T) {
	w := &fiberTest{}
	w.run = func(_ *fiberAgent, _ context.Context, f *agent.Fiber[int]) error {
		w.record("run")
		return f.SetResult(strings.Repeat("x", 3<<20))
	}
	runFiberTest(t, w, nil, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		s := start(t, h, 1, nil)
		h.Advance(time.Hour)
		info := inspect(t, h, s.ID)
		if info.Status != agent.FiberFailed || !strings.Contains(info.Error, "result") {
			t.Errorf("%v %q", info.Status, info.Error)
		}
		w.wantEvents(t, "0s run")
	})
}

func TestFiberResumedByHookCanBeCancelled(t *testing.T) {
	w := &fiberTest{}
	w.hook = func(a *fiberAgent, ctx context.Context, i *agent.InterruptedRun) error {
		id, err := i.Resume(ctx, func(context.Context) error { w.record("it ran"); return nil })
		if err != nil {
			return err
		}
		ok, err := a.Fibers().Cancel(ctx, id)
		w.record("cancelled %v", ok)
		return err
	}
	runFiberTest(t, w, nil, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		interrupted(t, h)
		h.Advance(time.Minute)
		w.wantEvents(t, "30s cancelled true")
	})
}

func TestFiberSurvivesRolledBackCancel(t *testing.T) {
	w := &fiberTest{}
	w.run = func(_ *fiberAgent, ctx context.Context, f *agent.Fiber[int]) error {
		err := sleep(ctx, 10*time.Minute)
		w.record("attempt %d ends: %v", f.Attempt, err)
		return err
	}
	runFiberTest(t, w, nil, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		s := start(t, h, 1, nil)
		h.Advance(time.Second)
		do(t, h, func(ctx context.Context, a *fiberAgent) error {
			no := errors.New("no")
			if err := dohost.Transaction(ctx, func(ctx context.Context) error {
				_, err := a.Fibers().Cancel(ctx, s.ID)
				return errors.Join(err, no)
			}); !errors.Is(err, no) {
				t.Error(err)
			}
			return nil
		})
		h.Advance(15 * time.Minute)
		w.wantEvents(t, "600s attempt 0 ends: <nil>")
	})
}

// A successor that ends incarnations without progress is given up like a failing hook.
func TestFiberResumesWithoutProgressAreBounded(t *testing.T) {
	w := &fiberTest{}
	w.hook = func(_ *fiberAgent, ctx context.Context, i *agent.InterruptedRun) error {
		w.record("hook %d", i.Attempt)
		_, err := i.Resume(ctx, func(context.Context) error { panic("poison") })
		return err
	}
	runFiberTest(t, w, nil, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		interrupted(t, h)
		h.Advance(2 * time.Hour)
		wantEqual(t, "runs of the hook", len(w.events), 5)
		do(t, h, func(ctx context.Context, a *fiberAgent) error {
			dead, err := a.Fibers().List(ctx, &agent.FiberQuery{Status: []agent.FiberStatus{agent.FiberDead}})
			wantEqual(t, "dead", len(dead), 1)
			return err
		})
	})
}

// TestFiberResumedRunReportsItsEnd lets the function of a resumed fiber return, and fail.
func TestFiberResumedRunReportsItsEnd(t *testing.T) {
	for status, result := range map[string]error{"completed": nil, "failed": errTest} {
		w := &fiberTest{}
		w.hook = func(_ *fiberAgent, ctx context.Context, i *agent.InterruptedRun) error {
			_, err := i.Resume(ctx, func(context.Context) error { return result })
			return err
		}
		var mu sync.Mutex
		var ends []string
		o := &dohosttest.Options{Classes: []dohost.Class{w.class(nil)}, Options: dohost.Options{Listener: dohost.Listener{
			Service: func(_ dohost.ID, event string, attrs ...slog.Attr) {
				mu.Lock()
				defer mu.Unlock()
				for _, a := range attrs {
					if event == "fiber:ended" && a.Key == "status" {
						ends = append(ends, a.Value.String())
					}
				}
			},
		}}}
		dohosttest.Run(t, o, func(t *testing.T, h *dohosttest.Host) {
			w.begun = time.Now()
			interrupted(t, h)
			h.Advance(time.Minute)
			wantEqual(t, "reported ends", fmt.Sprint(ends), "["+status+"]")
		})
	}
}

// A busy agent does not postpone the work of its alarm.
func TestAlarmIsNotPostponedByBusyAgent(t *testing.T) {
	w := &fiberTest{hook: func(w *fiberAgent, _ context.Context, _ *agent.InterruptedRun) error {
		w.record("told")
		return errors.New("no")
	}}
	runFiberTest(t, w, nil, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		interrupted(t, h)
		h.Advance(time.Hour)
		do(t, h, func(ctx context.Context, a *fiberAgent) error {
			dead, err := a.Fibers().List(ctx, &agent.FiberQuery{Status: []agent.FiberStatus{agent.FiberDead}})
			if err != nil || len(dead) != 1 {
				return fmt.Errorf("%d dead, %w", len(dead), err)
			}
			_, err = a.Fibers().Retry(ctx, dead[0].ID)
			return err
		})
		w.events = nil
		for range 10 {
			h.Advance(900 * time.Millisecond)
			do(t, h, func(ctx context.Context, a *fiberAgent) error {
				release, err := a.KeepAlive(ctx)
				return errors.Join(err, release(ctx))
			})
		}
		wantEqual(t, "told", len(w.events), 1)
	})
}

// If recovery gives up a fiber, its waiters are notified.
func TestFiberWaitEndsWhenRecoveryGivesUp(t *testing.T) {
	w := &fiberTest{
		run: func(_ *fiberAgent, ctx context.Context, _ *agent.Fiber[int]) error { return sleep(ctx, 100*time.Hour) },
		hook: func(_ *fiberAgent, ctx context.Context, _ *agent.InterruptedRun) error {
			return sleep(ctx, time.Minute)
		},
	}
	runFiberTest(t, w, &agent.KindOptions{MaxRetries: -1}, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		client := h.Client(func(ctx context.Context) error {
			return fiberAgents.Get(h, "a").Do(ctx, func(ctx context.Context, a *fiberAgent) error {
				return agent.RunFiber(ctx, a, "x", func(ctx context.Context) error { return sleep(ctx, time.Hour) })
			})
		})
		h.Advance(time.Second)
		s := start(t, h, 1, nil) // after a hook that uses up the constructor's time
		h.Advance(time.Second)
		evict(h)
		_ = client.Wait()
		do(t, h, func(ctx context.Context, a *fiberAgent) error {
			ctx, cancel := context.WithTimeout(ctx, 10*time.Minute)
			defer cancel()
			info, ok, err := a.Fibers().Wait(ctx, s.ID)
			wantEqual(t, "waited", joinValues(info.Status, ok), "failed true")
			return err
		})
	})
}

func TestKeepAliveNeedsTheTurn(t *testing.T) {
	runFiberTest(t, &fiberTest{}, nil, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		do(t, h, func(ctx context.Context, a *fiberAgent) error {
			release, err := a.KeepAlive(ctx)
			if err != nil {
				return err
			}
			err = dohost.Await(ctx, func(outside context.Context) error {
				_, err := a.KeepAlive(outside)
				if err2 := release(outside); !errors.Is(err, runtime.ErrNoTurn) || !errors.Is(err2, runtime.ErrNoTurn) {
					t.Error(err, err2)
				}
				return nil
			})
			return errors.Join(err, release(ctx))
		})
		if _, set := alarm(t, h); set {
			t.Error("an alarm is left")
		}
	})
}

// runOnSmallDisk runs a host of fiberAgents on a disk that can be full.
func runOnSmallDisk(t *testing.T, w *fiberTest, o dohost.Options, f func(t *testing.T, h *dohost.Host, disk *objectstore.FS)) {
	t.Helper()
	runClassOnSmallDisk(t, w, w.class(nil), o, f)
}

func runClassOnSmallDisk(
	t *testing.T, w *fiberTest, class dohost.Class, o dohost.Options, f func(t *testing.T, h *dohost.Host, disk *objectstore.FS),
) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		fs := objectstore.NewMemFS()
		fs.SetFree(1 << 40)
		w.begun = time.Now()
		h, err := dohost.Open("data", kernel.OnFS(&o, fs), class)
		if err != nil {
			t.Fatal(err)
		}
		f(t, h, fs)
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	})
}

// Unfinished work is not given up for lack of space.
func TestFiberSurvivesFullDisk(t *testing.T) {
	w := &fiberTest{}
	w.run = func(_ *fiberAgent, ctx context.Context, f *agent.Fiber[int]) error {
		if err := sleep(ctx, 10*time.Second); err != nil {
			return err
		}
		if f.Attempt == 0 {
			return errors.New("no luck, once")
		}
		return nil
	}
	runOnSmallDisk(t, w, dohost.Options{}, func(t *testing.T, h *dohost.Host, disk *objectstore.FS) {
		a := fiberAgents.Get(h, "a")
		var s agent.Started
		if err := a.Do(t.Context(), func(ctx context.Context, w *fiberAgent) (err error) {
			s, err = agent.StartFiber(ctx, w, testKind, 1, nil)
			return err
		}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		disk.SetFree(0)
		time.Sleep(15 * time.Second)
		h.Evict(a.ID(), dohost.EndFence)
		disk.SetFree(1 << 40)
		time.Sleep(5 * time.Minute)
		if err := a.Do(t.Context(), func(ctx context.Context, w *fiberAgent) error {
			info, _, err := w.Fibers().Get(ctx, s.ID)
			wantEqual(t, "the fiber", info.Status, agent.FiberCompleted)
			return err
		}); err != nil {
			t.Error(err)
		}
	})
}

// A failure that could not be written counts once later, and does not undo an earlier cancellation.
func TestFiberFailureOnFullDiskCountsOnce(t *testing.T) {
	for want, calls := range map[agent.FiberStatus]string{agent.FiberCompleted: "[0 1]", agent.FiberCancelled: "[0]"} {
		t.Run(string(want), func(t *testing.T) {
			w := &fiberTest{}
			var attempts []int
			w.run = func(_ *fiberAgent, ctx context.Context, f *agent.Fiber[int]) error {
				attempts = append(attempts, f.Attempt)
				if err := sleep(ctx, 10*time.Second); err != nil || f.Attempt > 0 {
					return err
				}
				return errors.New("no luck, once")
			}
			runOnSmallDisk(t, w, dohost.Options{}, func(t *testing.T, h *dohost.Host, disk *objectstore.FS) {
				a := fiberAgents.Get(h, "a")
				var s agent.Started
				err := a.Do(t.Context(), func(ctx context.Context, w *fiberAgent) (err error) {
					s, err = agent.StartFiber(ctx, w, testKind, 1, nil)
					return err
				})
				time.Sleep(time.Second)
				disk.SetFree(0)
				time.Sleep(11500 * time.Millisecond) // the agent looks for room once a second
				disk.SetFree(1 << 40)
				time.Sleep(200 * time.Millisecond) // and the store ten times a second
				if want == agent.FiberCancelled {
					err = errors.Join(err, a.Do(t.Context(), func(ctx context.Context, w *fiberAgent) error {
						_, err := w.Fibers().Cancel(ctx, s.ID)
						return err
					}))
				}
				time.Sleep(time.Minute)
				err = errors.Join(err, a.Do(t.Context(), func(ctx context.Context, w *fiberAgent) error {
					info, _, err := w.Fibers().Get(ctx, s.ID)
					wantEqual(t, "the fiber", info.Status, want)
					return err
				}))
				wantEqual(t, "its calls", fmt.Sprint(attempts), calls)
				if err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// If the disk or the task limit has no room for a hook call, the alarm fires once a second and not immediately.
func TestAlarmDoesNotSpinWithoutSpaceOrTasks(t *testing.T) {
	for name, full := range map[string]bool{"disk": true, "tasks": false} {
		t.Run(name, func(t *testing.T) {
			w := &fiberTest{hook: func(*fiberAgent, context.Context, *agent.InterruptedRun) error { return errors.New("no") }}
			o := dohost.Options{}
			if !full {
				o.MaxEvents = 2
			}
			runOnSmallDisk(t, w, o, func(t *testing.T, h *dohost.Host, disk *objectstore.FS) {
				a := fiberAgents.Get(h, "a")
				ended := make(chan error)
				go func() {
					ended <- a.Do(t.Context(), func(ctx context.Context, w *fiberAgent) error {
						return agent.RunFiber(ctx, w, "x", func(ctx context.Context) error { return sleep(ctx, time.Hour) })
					})
				}()
				time.Sleep(time.Second)
				h.Evict(a.ID(), dohost.EndFence)
				<-ended
				if err := a.Do(t.Context(), func(ctx context.Context, w *fiberAgent) error { // the hook fails, for the first time
					for range 2 {
						if err := w.Object().Go(ctx, "pause", func(ctx context.Context) error { return sleep(ctx, time.Minute) }); !full && err != nil {
							return err
						}
					}
					return nil
				}); err != nil {
					t.Fatal(err)
				}
				if full {
					disk.SetFree(0)
				}
				time.Sleep(25 * time.Second)
				before := h.Stats().Records
				time.Sleep(15 * time.Second) // the hook is due after five
				if n := h.Stats().Records - before; n < 3 || n > 100 {
					t.Errorf("%d records in 15 s", n)
				}
				disk.SetFree(1 << 40)
			})
		})
	}
}

// Rows that wait are not read before they are due, even if they are large.
func TestAlarmDoesNotSpinForLargeCheckpoints(t *testing.T) {
	deliveries := 0
	w := &fiberTest{hook: func(*fiberAgent, context.Context, *agent.InterruptedRun) error { return errTest }}
	o := &dohosttest.Options{Classes: []dohost.Class{w.class(nil)}, Options: dohost.Options{
		Listener: dohost.Listener{AlarmEnded: func(runtime.Alarm) { deliveries++ }},
	}}
	dohosttest.Run(t, o, func(t *testing.T, h *dohosttest.Host) {
		for range 4 {
			begin(h, func(ctx context.Context, w *fiberAgent) error {
				return agent.RunFiber(ctx, w, "x", func(ctx context.Context) error {
					if err := agent.SaveCheckpoint(ctx, strings.Repeat("x", 3<<19)); err != nil {
						return err
					}
					return sleep(ctx, time.Hour)
				})
			})
		}
		evict(h)
		do(t, h, nothing)           // the hooks fail for the first time
		h.Advance(40 * time.Second) // and for the second
		deliveries = 0
		h.Advance(45 * time.Second) // the third is after a minute
		wantEqual(t, "deliveries of the alarm", deliveries, 1)
	})
}

// A result that is too large for the row fails the fiber on a full disk too, once there is space.
func TestFiberFailsIfItsResultDoesNotFitOnFullDisk(t *testing.T) {
	w := &fiberTest{}
	w.run = func(w *fiberAgent, ctx context.Context, f *agent.Fiber[int]) error {
		w.record("run")
		if err := sleep(ctx, 10*time.Second); err != nil {
			return err
		}
		return f.SetResult(strings.Repeat("x", 3<<20))
	}
	runOnSmallDisk(t, w, dohost.Options{}, func(t *testing.T, h *dohost.Host, disk *objectstore.FS) {
		a := fiberAgents.Get(h, "a")
		var s agent.Started
		err := a.Do(t.Context(), func(ctx context.Context, w *fiberAgent) (err error) {
			s, err = agent.StartFiber(ctx, w, testKind, 1, nil)
			return err
		})
		fillDiskTemporarily(disk)
		err = errors.Join(err, a.Do(t.Context(), func(ctx context.Context, w *fiberAgent) error {
			info, _, err := w.Fibers().Get(ctx, s.ID)
			if info.Status != agent.FiberFailed || !strings.Contains(info.Error, "result") {
				t.Errorf("%v %q", info.Status, info.Error)
			}
			return err
		}))
		if err != nil {
			t.Error(err)
		}
		w.wantEvents(t, "0s run")
	})
}

// A fiber that ends on a full disk keeps its last checkpoint for a restart.
func TestFiberKeepsLastCheckpointOnFullDisk(t *testing.T) {
	w := &fiberTest{}
	w.run = func(w *fiberAgent, ctx context.Context, f *agent.Fiber[int]) error {
		if err := f.SaveCheckpoint(ctx, 7); err != nil {
			return err
		}
		return errors.Join(sleep(ctx, 10*time.Second), errTest)
	}
	class := w.class(&agent.KindOptions{MaxRetries: -1})
	runClassOnSmallDisk(t, w, class, dohost.Options{}, func(t *testing.T, h *dohost.Host, disk *objectstore.FS) {
		a := fiberAgents.Get(h, "a")
		var s agent.Started
		err := a.Do(t.Context(), func(ctx context.Context, w *fiberAgent) (err error) {
			s, err = agent.StartFiber(ctx, w, testKind, 1, nil)
			return err
		})
		fillDiskTemporarily(disk)
		err = errors.Join(err, a.Do(t.Context(), func(ctx context.Context, w *fiberAgent) error {
			info, _, err := w.Fibers().Get(ctx, s.ID)
			wantEqual(t, "the fiber", joinValues(info.Status, string(info.Checkpoint)), "failed 7")
			return err
		}))
		if err != nil {
			t.Error(err)
		}
	})
}

// TestFiberHookIsCalledAfterFullDisk fills the disk while a hook and a schedule are due: the alarm fails, because the
// schedule's run cannot be written, and the hook is called nevertheless, at the latest when there is space.
func TestFiberHookIsCalledAfterFullDisk(t *testing.T) {
	w, fails := &fiberTest{}, 1
	w.run = func(*fiberAgent, context.Context, *agent.Fiber[int]) error { return nil }
	w.callback = func(*fiberAgent, context.Context, string) error { return nil }
	w.ended = func(w *fiberAgent, _ context.Context, _ agent.FiberInfo) error {
		w.record("ended")
		fails--
		if fails >= 0 {
			return errTest
		}
		return nil
	}
	runOnSmallDisk(t, w, dohost.Options{}, func(t *testing.T, h *dohost.Host, disk *objectstore.FS) {
		err := fiberAgents.Get(h, "a").Do(t.Context(), func(ctx context.Context, w *fiberAgent) error {
			_, err := agent.StartFiber(ctx, w, testKind, 1, nil)
			_, err2 := agent.Schedule(ctx, w, agent.After(29*time.Second), testCallback, "errand", nil)
			return errors.Join(err, err2)
		})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		synctest.Wait() // orders the hook before this goroutine for the race detector
		w.wantEvents(t, "0s ended")
		disk.SetFree(0)
		time.Sleep(2 * time.Minute)
		disk.SetFree(1 << 40)
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		calls := 0
		for _, e := range w.events {
			if strings.HasSuffix(e, "ended") {
				calls++
			}
		}
		wantEqual(t, "calls of the hook", calls, 2)
	})
}

// fillBatch writes until the batch has no room for another byte.
func fillBatch(ctx context.Context, w *fiberAgent) error {
	for size, n := 1<<20, 0; size > 0; n++ {
		switch err := dohost.Put(ctx, w.Storage(), fmt.Sprintf("%08d", n), string(make([]byte, size))); {
		case err == nil:
		case isLimit(err):
			size /= 2
		default:
			return err
		}
	}
	return nil
}

// A hook that has filled its batch has succeeded, and is not called again.
func TestFiberInterruptedHookMayFillItsBatch(t *testing.T) {
	w := &fiberTest{}
	w.hook = func(wr *fiberAgent, ctx context.Context, _ *agent.InterruptedRun) error {
		w.record("hook")
		return fillBatch(ctx, wr)
	}
	runFiberTest(t, w, nil, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		interrupted(t, h)
		do(t, h, nothing)
		h.Advance(time.Hour)
		w.wantEvents(t, "1s hook")
	})
}

// TestFiberResumedTwiceRunsOnce rolls back the first resume. The fiber's writes fill their batch, so
// its end is a batch of its own.
func TestFiberResumedTwiceRunsOnce(t *testing.T) {
	w := &fiberTest{}
	w.run = func(wr *fiberAgent, ctx context.Context, f *agent.Fiber[int]) error {
		if f.Attempt == 0 {
			return sleep(ctx, time.Hour)
		}
		w.record("run")
		return fillBatch(ctx, wr)
	}
	w.recovery = func(_ *fiberAgent, ctx context.Context, fs []*agent.InterruptedFiber) error {
		err := dohost.Transaction(ctx, func(ctx context.Context) error { return errors.Join(fs[0].Resume(ctx), errTest) })
		if !errors.Is(err, errTest) {
			return err
		}
		return fs[0].Resume(ctx)
	}
	runFiberTest(t, w, nil, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		s := start(t, h, 0, nil)
		h.Advance(time.Second)
		evict(h)
		info := inspect(t, h, s.ID)
		h.Advance(time.Minute)
		info = inspect(t, h, s.ID)
		wantEqual(t, "the fiber", info.Status, agent.FiberCompleted)
		w.wantEvents(t, "1s run")
	})
}

// A hook is called on time in an incarnation that had no room for all fibers when it began.
func TestFiberInterruptedHookIsOnTimeAfterOverload(t *testing.T) {
	w := &fiberTest{}
	w.hook = func(*fiberAgent, context.Context, *agent.InterruptedRun) error { w.record("hook"); return errTest }
	w.run = func(_ *fiberAgent, ctx context.Context, f *agent.Fiber[int]) error {
		if f.Attempt > 0 && f.Checkpoint() == 0 {
			return nil
		}
		return sleep(ctx, time.Hour)
	}
	busy := false
	class := agent.Bind(fiberAgents, func(ctx context.Context, a *agent.Agent[noState]) (*fiberAgent, error) {
		if busy {
			return &fiberAgent{a, w}, a.Object().Go(ctx, "pause", func(ctx context.Context) error { return sleep(ctx, time.Second/2) })
		}
		return &fiberAgent{a, w}, nil
	}, &agent.Handlers[fiberAgent, noState]{
		OnInterrupted: func(wr *fiberAgent, ctx context.Context, i *agent.InterruptedRun) error { return w.hook(wr, ctx, i) },
	}, agent.OnFiber(testKind, func(wr *fiberAgent, ctx context.Context, f *agent.Fiber[int]) error { return w.run(wr, ctx, f) }, nil))
	o := &dohosttest.Options{Classes: []dohost.Class{class}, Options: dohost.Options{MaxEvents: 2}}
	dohosttest.Run(t, o, func(t *testing.T, h *dohosttest.Host) {
		w.begun = time.Now()
		interrupted(t, h)
		do(t, h, nothing)
		h.Advance(38 * time.Second) // the hook has failed twice, and is due in a minute
		for n := range 2 {
			start(t, h, n, nil)
		}
		h.Advance(17 * time.Second) // so that no heartbeat is within the jitter of the third call
		evict(h)
		busy = true
		do(t, h, nothing)
		h.Advance(70 * time.Second)
		w.wantEvents(t, "1s hook", "~30s hook", "~60s hook")
	})
}

// fillDiskTemporarily fills the disk after a second, and later frees it again.
func fillDiskTemporarily(disk *objectstore.FS) {
	time.Sleep(time.Second)
	disk.SetFree(0)
	time.Sleep(15 * time.Second)
	disk.SetFree(1 << 40)
	time.Sleep(time.Minute)
}
