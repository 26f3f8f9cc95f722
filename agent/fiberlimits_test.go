package agent_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/agent"
	"github.com/dohost/dohost/dohosttest"
	"github.com/dohost/dohost/objectstore"
	"github.com/dohost/dohost/runtime"
)

// interrupted interrupts a fiber of RunFiber, a second after its start.
func interrupted(t *testing.T, h *dohosttest.Host) {
	t.Helper()
	client := h.Client(func(ctx context.Context) error {
		return workers.Get(h, "a").Do(ctx, func(ctx context.Context, a *worker) error {
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
	class := agent.Bind(workers, func(_ context.Context, a *agent.Agent[none]) (*worker, error) { return &worker{a, nil}, nil }, nil,
		agent.OnFiber(kind, func(_ *worker, ctx context.Context, f *agent.Fiber[string]) error {
			runs++
			return sleep(ctx, time.Hour)
		}, nil))
	dohosttest.Run(t, &dohosttest.Options{Classes: []dohost.Class{class}}, func(t *testing.T, h *dohosttest.Host) {
		for range 20 {
			do(t, h, func(ctx context.Context, a *worker) error {
				_, err := agent.StartFiber(ctx, a, kind, strings.Repeat("x", 1<<20), nil)
				return err
			})
		}
		do(t, h, func(ctx context.Context, a *worker) error {
			if _, err := agent.StartFiber(ctx, a, kind, strings.Repeat("x", 2<<20), nil); !isLimit(err) {
				t.Error(err)
			}
			return nil
		})
		h.Advance(time.Second)
		evict(h)
		h.Advance(time.Minute)
		do(t, h, func(context.Context, *worker) error { return nil })
		same(t, "runs", runs, 40)
	})
}

// A result that is too large fails the fiber, and does not repeat its work.
func TestFiberFailsIfItsResultDoesNotFit(t *testing.T) {
	w := &shift{}
	w.run = func(_ *worker, _ context.Context, f *agent.Fiber[int]) error {
		w.note("run")
		return f.SetResult(strings.Repeat("x", 3<<20))
	}
	atWork(t, w, nil, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		s := start(t, h, 1, nil)
		h.Advance(time.Hour)
		info := inspect(t, h, s.ID)
		if info.Status != agent.FiberFailed || !strings.Contains(info.Error, "result") {
			t.Errorf("%v %q", info.Status, info.Error)
		}
		w.happened(t, "0s run")
	})
}

func TestFiberResumedByHookCanBeCancelled(t *testing.T) {
	w := &shift{}
	w.hook = func(a *worker, ctx context.Context, i *agent.Interrupted) error {
		id, err := i.Resume(ctx, func(context.Context) error { w.note("it ran"); return nil })
		if err != nil {
			return err
		}
		ok, err := a.Fibers().Cancel(ctx, id)
		w.note("cancelled %v", ok)
		return err
	}
	atWork(t, w, nil, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		interrupted(t, h)
		h.Advance(time.Minute)
		w.happened(t, "30s cancelled true")
	})
}

func TestFiberSurvivesRolledBackCancel(t *testing.T) {
	w := &shift{}
	w.run = func(_ *worker, ctx context.Context, f *agent.Fiber[int]) error {
		err := sleep(ctx, 10*time.Minute)
		w.note("attempt %d ends: %v", f.Attempt, err)
		return err
	}
	atWork(t, w, nil, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		s := start(t, h, 1, nil)
		h.Advance(time.Second)
		do(t, h, func(ctx context.Context, a *worker) error {
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
		w.happened(t, "600s attempt 0 ends: <nil>")
	})
}

// A successor that ends incarnations without progress is given up like a failing hook.
func TestFiberResumesWithoutProgressAreBounded(t *testing.T) {
	w := &shift{}
	w.hook = func(_ *worker, ctx context.Context, i *agent.Interrupted) error {
		w.note("hook %d", i.Attempt)
		_, err := i.Resume(ctx, func(context.Context) error { panic("poison") })
		return err
	}
	atWork(t, w, nil, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		interrupted(t, h)
		h.Advance(2 * time.Hour)
		same(t, "runs of the hook", len(w.events), 5)
		do(t, h, func(ctx context.Context, a *worker) error {
			dead, err := a.Fibers().ListDead(ctx, 0)
			same(t, "dead", len(dead), 1)
			return err
		})
	})
}

// A busy agent does not postpone the work of its alarm.
func TestAlarmIsNotPostponedByBusyAgent(t *testing.T) {
	w := &shift{hook: func(w *worker, _ context.Context, _ *agent.Interrupted) error {
		w.note("told")
		return errors.New("no")
	}}
	atWork(t, w, nil, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		interrupted(t, h)
		h.Advance(time.Hour)
		do(t, h, func(ctx context.Context, a *worker) error {
			dead, err := a.Fibers().ListDead(ctx, 0)
			if err != nil || len(dead) != 1 {
				return fmt.Errorf("%d dead, %w", len(dead), err)
			}
			_, err = a.Fibers().RetryDead(ctx, dead[0].ID)
			return err
		})
		w.events = nil
		for range 10 {
			h.Advance(900 * time.Millisecond)
			do(t, h, func(ctx context.Context, a *worker) error {
				release, err := a.KeepAlive(ctx)
				return errors.Join(err, release(ctx))
			})
		}
		same(t, "told", len(w.events), 1)
	})
}

// If recovery gives up a fiber, its waiters are notified.
func TestFiberWaitEndsWhenRecoveryGivesUp(t *testing.T) {
	w := &shift{
		run:  func(_ *worker, ctx context.Context, _ *agent.Fiber[int]) error { return sleep(ctx, 100*time.Hour) },
		hook: func(_ *worker, ctx context.Context, _ *agent.Interrupted) error { return sleep(ctx, time.Minute) },
	}
	atWork(t, w, &agent.KindOptions{MaxRetries: -1}, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		client := h.Client(func(ctx context.Context) error {
			return workers.Get(h, "a").Do(ctx, func(ctx context.Context, a *worker) error {
				return agent.RunFiber(ctx, a, "x", func(ctx context.Context) error { return sleep(ctx, time.Hour) })
			})
		})
		h.Advance(time.Second)
		s := start(t, h, 1, nil) // after a hook that uses up the constructor's time
		h.Advance(time.Second)
		evict(h)
		_ = client.Wait()
		do(t, h, func(ctx context.Context, a *worker) error {
			ctx, cancel := context.WithTimeout(ctx, 10*time.Minute)
			defer cancel()
			info, ok, err := a.Fibers().Wait(ctx, s.ID)
			same(t, "waited", words(info.Status, ok), "failed true")
			return err
		})
	})
}

func TestKeepAliveNeedsTheTurn(t *testing.T) {
	atWork(t, &shift{}, nil, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		do(t, h, func(ctx context.Context, a *worker) error {
			release, err := a.KeepAlive(ctx)
			if err != nil {
				return err
			}
			err = dohost.Await(ctx, func(away context.Context) error {
				_, err := a.KeepAlive(away)
				if err2 := release(away); !errors.Is(err, runtime.ErrNoTurn) || !errors.Is(err2, runtime.ErrNoTurn) {
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

// narrow is a host of workers on a disk that can be full.
func narrow(t *testing.T, w *shift, o dohost.Options, f func(t *testing.T, h *dohost.Host, disk *objectstore.FS)) {
	t.Helper()
	onNarrow(t, w, w.class(nil), o, f)
}

func onNarrow(
	t *testing.T, w *shift, class dohost.Class, o dohost.Options, f func(t *testing.T, h *dohost.Host, disk *objectstore.FS),
) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		o.FS = objectstore.NewMemFS()
		o.FS.SetFree(1 << 40)
		w.begun = time.Now()
		h, err := dohost.Open("data", &o, class)
		if err != nil {
			t.Fatal(err)
		}
		f(t, h, o.FS)
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	})
}

// Unfinished work is not given up for lack of space.
func TestFiberSurvivesFullDisk(t *testing.T) {
	w := &shift{}
	w.run = func(_ *worker, ctx context.Context, f *agent.Fiber[int]) error {
		if err := sleep(ctx, 10*time.Second); err != nil {
			return err
		}
		if f.Attempt == 0 {
			return errors.New("no luck, once")
		}
		return nil
	}
	narrow(t, w, dohost.Options{}, func(t *testing.T, h *dohost.Host, disk *objectstore.FS) {
		a := workers.Get(h, "a")
		var s agent.Started
		if err := a.Do(t.Context(), func(ctx context.Context, w *worker) (err error) {
			s, err = agent.StartFiber(ctx, w, job, 1, nil)
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
		if err := a.Do(t.Context(), func(ctx context.Context, w *worker) error {
			info, _, err := w.Fibers().Get(ctx, s.ID)
			same(t, "the fiber", info.Status, agent.FiberCompleted)
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
			w := &shift{}
			var attempts []int
			w.run = func(_ *worker, ctx context.Context, f *agent.Fiber[int]) error {
				attempts = append(attempts, f.Attempt)
				if err := sleep(ctx, 10*time.Second); err != nil || f.Attempt > 0 {
					return err
				}
				return errors.New("no luck, once")
			}
			narrow(t, w, dohost.Options{}, func(t *testing.T, h *dohost.Host, disk *objectstore.FS) {
				a := workers.Get(h, "a")
				var s agent.Started
				err := a.Do(t.Context(), func(ctx context.Context, w *worker) (err error) {
					s, err = agent.StartFiber(ctx, w, job, 1, nil)
					return err
				})
				time.Sleep(time.Second)
				disk.SetFree(0)
				time.Sleep(11500 * time.Millisecond) // the agent looks for room once a second
				disk.SetFree(1 << 40)
				time.Sleep(200 * time.Millisecond) // and the store ten times a second
				if want == agent.FiberCancelled {
					err = errors.Join(err, a.Do(t.Context(), func(ctx context.Context, w *worker) error {
						_, err := w.Fibers().Cancel(ctx, s.ID)
						return err
					}))
				}
				time.Sleep(time.Minute)
				err = errors.Join(err, a.Do(t.Context(), func(ctx context.Context, w *worker) error {
					info, _, err := w.Fibers().Get(ctx, s.ID)
					same(t, "the fiber", info.Status, want)
					return err
				}))
				same(t, "its calls", fmt.Sprint(attempts), calls)
				if err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// If the disk or the task limit has no room for a hook call, the alarm rings once a second and not immediately.
func TestAlarmDoesNotSpinWithoutSpaceOrTasks(t *testing.T) {
	for name, full := range map[string]bool{"disk": true, "tasks": false} {
		t.Run(name, func(t *testing.T) {
			w := &shift{hook: func(*worker, context.Context, *agent.Interrupted) error { return errors.New("no") }}
			o := dohost.Options{}
			if !full {
				o.MaxEvents = 2
			}
			narrow(t, w, o, func(t *testing.T, h *dohost.Host, disk *objectstore.FS) {
				a := workers.Get(h, "a")
				ended := make(chan error)
				go func() {
					ended <- a.Do(t.Context(), func(ctx context.Context, w *worker) error {
						return agent.RunFiber(ctx, w, "x", func(ctx context.Context) error { return sleep(ctx, time.Hour) })
					})
				}()
				time.Sleep(time.Second)
				h.Evict(a.ID(), dohost.EndFence)
				<-ended
				if err := a.Do(t.Context(), func(ctx context.Context, w *worker) error { // the hook fails, for the first time
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
	rings := 0
	w := &shift{hook: func(*worker, context.Context, *agent.Interrupted) error { return errNo }}
	o := &dohosttest.Options{Classes: []dohost.Class{w.class(nil)}, Options: dohost.Options{
		Listener: dohost.Listener{AlarmEnded: func(runtime.Alarm) { rings++ }},
	}}
	dohosttest.Run(t, o, func(t *testing.T, h *dohosttest.Host) {
		for range 4 {
			begin(h, func(ctx context.Context, w *worker) error {
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
		h.Advance(35 * time.Second) // and for the second
		rings = 0
		h.Advance(50 * time.Second) // the third is after a minute
		same(t, "rings of the alarm", rings, 1)
	})
}

// A result that is too large for the row fails the fiber on a full disk too, once there is space.
func TestFiberFailsIfItsResultDoesNotFitOnFullDisk(t *testing.T) {
	w := &shift{}
	w.run = func(w *worker, ctx context.Context, f *agent.Fiber[int]) error {
		w.note("run")
		if err := sleep(ctx, 10*time.Second); err != nil {
			return err
		}
		return f.SetResult(strings.Repeat("x", 3<<20))
	}
	narrow(t, w, dohost.Options{}, func(t *testing.T, h *dohost.Host, disk *objectstore.FS) {
		a := workers.Get(h, "a")
		var s agent.Started
		err := a.Do(t.Context(), func(ctx context.Context, w *worker) (err error) {
			s, err = agent.StartFiber(ctx, w, job, 1, nil)
			return err
		})
		fullForAWhile(disk)
		err = errors.Join(err, a.Do(t.Context(), func(ctx context.Context, w *worker) error {
			info, _, err := w.Fibers().Get(ctx, s.ID)
			if info.Status != agent.FiberFailed || !strings.Contains(info.Error, "result") {
				t.Errorf("%v %q", info.Status, info.Error)
			}
			return err
		}))
		if err != nil {
			t.Error(err)
		}
		w.happened(t, "0s run")
	})
}

// A fiber that ends on a full disk keeps its last checkpoint for a restart.
func TestFiberKeepsLastCheckpointOnFullDisk(t *testing.T) {
	w := &shift{}
	w.run = func(w *worker, ctx context.Context, f *agent.Fiber[int]) error {
		if err := f.SaveCheckpoint(ctx, 7); err != nil {
			return err
		}
		return errors.Join(sleep(ctx, 10*time.Second), errNo)
	}
	class := w.class(&agent.KindOptions{MaxRetries: -1})
	onNarrow(t, w, class, dohost.Options{}, func(t *testing.T, h *dohost.Host, disk *objectstore.FS) {
		a := workers.Get(h, "a")
		var s agent.Started
		err := a.Do(t.Context(), func(ctx context.Context, w *worker) (err error) {
			s, err = agent.StartFiber(ctx, w, job, 1, nil)
			return err
		})
		fullForAWhile(disk)
		err = errors.Join(err, a.Do(t.Context(), func(ctx context.Context, w *worker) error {
			info, _, err := w.Fibers().Get(ctx, s.ID)
			same(t, "the fiber", words(info.Status, string(info.Checkpoint)), "failed 7")
			return err
		}))
		if err != nil {
			t.Error(err)
		}
	})
}

// fill writes until the batch has no room for another byte.
func fill(ctx context.Context, w *worker) error {
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
	w := &shift{}
	w.hook = func(wr *worker, ctx context.Context, _ *agent.Interrupted) error {
		w.note("hook")
		return fill(ctx, wr)
	}
	atWork(t, w, nil, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		interrupted(t, h)
		do(t, h, nothing)
		h.Advance(time.Hour)
		w.happened(t, "1s hook")
	})
}

// TestFiberResumedTwiceRunsOnce rolls back the first resume. The fiber's writes fill their batch, so
// its end is a batch of its own.
func TestFiberResumedTwiceRunsOnce(t *testing.T) {
	w := &shift{}
	w.run = func(wr *worker, ctx context.Context, f *agent.Fiber[int]) error {
		if f.Attempt == 0 {
			return sleep(ctx, time.Hour)
		}
		w.note("run")
		return fill(ctx, wr)
	}
	w.recovery = func(_ *worker, ctx context.Context, fs []*agent.InterruptedFiber) error {
		err := dohost.Transaction(ctx, func(ctx context.Context) error { return errors.Join(fs[0].Resume(ctx), errNo) })
		if !errors.Is(err, errNo) {
			return err
		}
		return fs[0].Resume(ctx)
	}
	atWork(t, w, nil, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		s := start(t, h, 0, nil)
		h.Advance(time.Second)
		evict(h)
		info := inspect(t, h, s.ID)
		h.Advance(time.Minute)
		info = inspect(t, h, s.ID)
		same(t, "the fiber", info.Status, agent.FiberCompleted)
		w.happened(t, "1s run")
	})
}

// A hook is called on time in an incarnation that had no room for all fibers when it began.
func TestFiberInterruptedHookIsOnTimeAfterOverload(t *testing.T) {
	w := &shift{}
	w.hook = func(*worker, context.Context, *agent.Interrupted) error { w.note("hook"); return errNo }
	w.run = func(_ *worker, ctx context.Context, f *agent.Fiber[int]) error {
		if f.Attempt > 0 && f.Checkpoint() == 0 {
			return nil
		}
		return sleep(ctx, time.Hour)
	}
	busy := false
	class := agent.Bind(workers, func(ctx context.Context, a *agent.Agent[none]) (*worker, error) {
		if busy {
			return &worker{a, w}, a.Object().Go(ctx, "pause", func(ctx context.Context) error { return sleep(ctx, time.Second/2) })
		}
		return &worker{a, w}, nil
	}, &agent.Handlers[worker, none]{
		OnInterrupted: func(wr *worker, ctx context.Context, i *agent.Interrupted) error { return w.hook(wr, ctx, i) },
	}, agent.OnFiber(job, func(wr *worker, ctx context.Context, f *agent.Fiber[int]) error { return w.run(wr, ctx, f) }, nil))
	o := &dohosttest.Options{Classes: []dohost.Class{class}, Options: dohost.Options{MaxEvents: 2}}
	dohosttest.Run(t, o, func(t *testing.T, h *dohosttest.Host) {
		w.begun = time.Now()
		interrupted(t, h)
		do(t, h, nothing)
		h.Advance(34 * time.Second) // the hook has failed twice, and is due in a minute
		for n := range 2 {
			start(t, h, n, nil)
		}
		h.Advance(10 * time.Second)
		evict(h)
		busy = true
		do(t, h, nothing)
		h.Advance(time.Minute)
		w.happened(t, "1s hook", "31s hook", "91s hook")
	})
}

// fullForAWhile fills the disk after a second, and later frees it again.
func fullForAWhile(disk *objectstore.FS) {
	time.Sleep(time.Second)
	disk.SetFree(0)
	time.Sleep(15 * time.Second)
	disk.SetFree(1 << 40)
	time.Sleep(time.Minute)
}
