package agent_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/agent"
	"github.com/dohost/dohost/dohosttest"
	"github.com/dohost/dohost/internal/kernel"
	"github.com/dohost/dohost/objectstore"
	"github.com/dohost/dohost/runtime"
)

const testCallback agent.Callback[string] = "errand"

// startLong and runLong start a fiber that outlives its incarnation.
func startLong(ctx context.Context, w *fiberAgent) error {
	_, err := agent.StartFiber(ctx, w, testKind, 0, nil)
	return err
}

func runLong(ctx context.Context, w *fiberAgent) error {
	return agent.RunFiber(ctx, w, "run", func(ctx context.Context) error { return sleep(ctx, time.Hour) })
}

// longFiberTest is a fiberTest with long fibers, and a hook that returns nil.
func longFiberTest() *fiberTest {
	w := &fiberTest{}
	w.run = func(_ *fiberAgent, ctx context.Context, _ *agent.Fiber[int]) error { return sleep(ctx, time.Hour) }
	w.hook = func(*fiberAgent, context.Context, *agent.InterruptedRun) error {
		w.record("hook")
		return nil
	}
	w.callback = func(_ *fiberAgent, ctx context.Context, text string) error {
		if err := sleep(ctx, 10*time.Second); err != nil {
			return err
		}
		w.record("%s", text)
		return nil
	}
	return w
}

// begin starts f in the agent, and does not wait for f.
func begin(h *dohosttest.Host, f func(ctx context.Context, w *fiberAgent) error) {
	h.Client(func(ctx context.Context) error { return fiberAgents.Get(h, "a").Do(ctx, f) })
	h.Advance(time.Second)
}

func nothing(context.Context, *fiberAgent) error { return nil }

// fillStore stores more in an agent than the store reads in advance.
func fillStore(ctx context.Context, w *fiberAgent) error {
	for i := range 40 {
		if err := dohost.Put(ctx, w.Storage(), fmt.Sprint(i), strings.Repeat("x", 300)); err != nil {
			return err
		}
	}
	return nil
}

// TestFiberRecoveryReadsAreBounded bounds the number of iterators over the store that an agent opens to resume one
// fiber, in an incarnation that a call or its alarm started. A small store is read once, or not at all if it is
// still cached. A large one is probed, then read for interrupted fibers, for payloads, for the first fiber to
// expire, and with each alarm for the first open fiber, unless the incarnation has just taken one up.
func TestFiberRecoveryReadsAreBounded(t *testing.T) {
	for _, c := range []struct {
		name      string
		begin     func(ctx context.Context, w *fiberAgent) error
		delivered bool // the alarm is delivered; else the object is called
		large     bool
		want      int64
	}{
		{"started, called", startLong, false, false, 0},
		{"started, by alarm", startLong, true, false, 1},
		{"run, called", runLong, false, false, 0},
		{"run, by alarm", runLong, true, false, 1},
		{"large, started, called", startLong, false, true, 4},
		{"large, started, by alarm", startLong, true, true, 6}, // the alarm looks for waiting rows, and sets itself
		{"large, run, called", runLong, false, true, 6},        // an alarm before the hook, and one after recovery
		{"large, run, by alarm", runLong, true, true, 6},
	} {
		t.Run(c.name, func(t *testing.T) {
			var reads objectstore.Reads
			w := longFiberTest()
			o := &dohosttest.Options{Classes: []dohost.Class{w.class(nil)}, Options: dohost.Options{IdleAfter: -1}}
			kernel.Tune(&o.Options, func(ro *runtime.Options) { ro.Store.Reads = &reads })
			dohosttest.Run(t, o, func(t *testing.T, h *dohosttest.Host) {
				if c.large {
					do(t, h, fillStore)
				}
				begin(h, c.begin)
				before := reads.Walks.Load()
				evict(h)
				if c.delivered {
					h.Advance(30 * time.Second)
				} else {
					do(t, h, nothing)
					h.Advance(time.Second)
				}
				wantEqual(t, "incarnations", h.Host().LiveCount(), 1)
				wantEqual(t, "iterators", reads.Walks.Load()-before, c.want)
			})
		})
	}
}

// TestKeepAliveHeartbeatOpensNoIterators is about an agent that is kept alive and has no other work.
func TestKeepAliveHeartbeatOpensNoIterators(t *testing.T) {
	var reads objectstore.Reads
	deliveries := 0
	o := &dohosttest.Options{Classes: []dohost.Class{longFiberTest().class(nil)}, Options: dohost.Options{
		Listener: dohost.Listener{AlarmEnded: func(runtime.Alarm) { deliveries++ }},
	}}
	kernel.Tune(&o.Options, func(ro *runtime.Options) { ro.Store.Reads = &reads })
	dohosttest.Run(t, o, func(t *testing.T, h *dohosttest.Host) {
		do(t, h, func(ctx context.Context, w *fiberAgent) error {
			_, err := w.KeepAlive(ctx)
			return err
		})
		h.Advance(31 * time.Second) // the first heartbeat finds no rows
		before := reads.Walks.Load()
		h.Advance(time.Minute)
		wantEqual(t, "deliveries of the alarm", deliveries, 3)
		wantEqual(t, "iterators", reads.Walks.Load()-before, 0)
	})
}

// TestAlarmIsSetForWorkAddedAfterRecovery starts work in an agent that has found that it has none.
func TestAlarmIsSetForWorkAddedAfterRecovery(t *testing.T) {
	for _, c := range []struct {
		name  string
		begin func(ctx context.Context, w *fiberAgent) error
		alarm time.Duration
		want  []string // within a minute
	}{
		{"schedule", func(ctx context.Context, w *fiberAgent) error {
			_, err := agent.Schedule(ctx, w, agent.After(20*time.Second), testCallback, "errand", nil)
			return err
		}, 19 * time.Second, []string{"30s errand"}},
		{"item", func(ctx context.Context, w *fiberAgent) error {
			_, err := agent.Enqueue(ctx, w, testCallback, "errand", nil)
			return err
		}, 29 * time.Second, []string{"10s errand"}},
		{"started fiber", startLong, 29 * time.Second, nil},
		{"run fiber", runLong, 29 * time.Second, nil},
		{"restarted fiber", func(ctx context.Context, w *fiberAgent) error {
			all, err := w.Fibers().List(ctx, nil)
			if err != nil || len(all) != 1 {
				return errors.Join(err, errors.New("want one fiber"))
			}
			_, err = w.Fibers().Restart(ctx, all[0].ID)
			return err
		}, 29 * time.Second, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := longFiberTest()
			runFiberTest(t, w, &agent.KindOptions{KeepCompleted: -1}, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
				s := start(t, h, 0, nil)
				do(t, h, func(ctx context.Context, w *fiberAgent) error {
					_, err := w.Fibers().Cancel(ctx, s.ID)
					return err
				})
				begin(h, runLong)
				evict(h)
				do(t, h, nothing)
				w.wantEvents(t, "1s hook")
				if _, set := alarm(t, h); set {
					t.Fatal("there is an alarm for nothing")
				}
				w.events, w.begun = nil, time.Now()
				begin(h, c.begin)
				if at, set := alarm(t, h); !set || at != c.alarm {
					t.Errorf("the alarm is due in %v (%v), want %v", at, set, c.alarm)
				}
				h.Advance(time.Minute)
				w.wantEvents(t, c.want...)
			})
		})
	}
}

// TestAlarmStaysSetAfterRolledBackDeletion deletes all of an agent's work, in a Transaction that fails.
func TestAlarmStaysSetAfterRolledBackDeletion(t *testing.T) {
	w := longFiberTest()
	runFiberTest(t, w, nil, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		for _, c := range []struct {
			name       string
			come, take func(ctx context.Context, w *fiberAgent) error
			alarm      time.Duration
		}{
			{"schedule", func(ctx context.Context, w *fiberAgent) error {
				_, err := agent.Schedule(ctx, w, agent.After(time.Hour), testCallback, "errand", nil)
				return err
			}, func(ctx context.Context, w *fiberAgent) error {
				all, err := w.Schedules().List(ctx, nil)
				if err != nil {
					return err
				}
				_, err = w.Schedules().Cancel(ctx, all[0].ID)
				return err
			}, time.Hour},
			{"fiber", startLong, func(ctx context.Context, w *fiberAgent) error {
				all, err := w.Fibers().List(ctx, nil)
				if err != nil {
					return err
				}
				_, err = w.Fibers().Cancel(ctx, all[0].ID)
				return err
			}, 30 * time.Second},
		} {
			do(t, h, c.come)
			evict(h)
			do(t, h, func(ctx context.Context, w *fiberAgent) error {
				failed := errors.New("no")
				err := dohost.Transaction(ctx, func(ctx context.Context) error { return errors.Join(c.take(ctx, w), failed) })
				if !errors.Is(err, failed) {
					return err
				}
				release, err := w.KeepAlive(ctx)
				if err != nil {
					return err
				}
				return release(ctx)
			})
			at, _ := alarm(t, h)
			wantEqual(t, c.name, at, c.alarm)
		}
	})
}

// TestRowsWakeReadsAreBounded wakes many calls of an object that was not in memory. The alarm is set once for all of them: each time reads the
// index up to the first row without a task, and there is none. The object is too large to be read whole.
func TestRowsWakeReadsAreBounded(t *testing.T) {
	const rows, woken = 500, 20
	var reads objectstore.Reads
	var ids []string
	o := &postOffice{deliver: func(p *postman, ctx context.Context, l letter) error {
		ids = append(ids, p.Rows().CallID(ctx))
		return &agent.PostponeError{After: time.Hour, Err: errors.New("closed")}
	}}
	ho := &dohosttest.Options{Classes: []dohost.Class{postClass(o)}}
	kernel.Tune(&ho.Options, func(ro *runtime.Options) { ro.Store.Reads = &reads })
	dohosttest.Run(t, ho, func(t *testing.T, h *dohosttest.Host) {
		ctx := t.Context()
		for i := range rows {
			if err := post(ctx, h, fmt.Sprint(i)); err != nil {
				t.Fatal(err)
			}
		}
		h.Advance(time.Minute)
		wantEqual(t, "calls", len(ids), rows)
		h.EvictAll()
		inPost(t, ctx, h, func(ctx context.Context, p *postman) error {
			before := reads.Steps.Load()
			err := p.Rows().Wake(ctx, ids[:woken]...)
			if n := reads.Steps.Load() - before; n == 0 || n > 8*rows {
				t.Errorf("%d wake-ups read %d entries, want 1 to %d", woken, n, 8*rows)
			}
			return err
		})
		ids = nil
		h.Advance(time.Second)
		wantEqual(t, "calls", len(ids), woken)
	})
}

// TestFiberRecoveryCommits counts the commits of the recovery of an interrupted function after a restart: the charge of the call of
// OnInterrupted, and its outcome, which deletes the row and the alarm. The alarm's handler then finds nothing to do.
func TestFiberRecoveryCommits(t *testing.T) {
	w := longFiberTest()
	runFiberTest(t, w, nil, func(t *testing.T, _ context.Context, h *dohosttest.Host) {
		begin(h, runLong)
		h.Kill()
		h.Advance(time.Minute)
		w.wantEvents(t, "1s hook")
		if n := h.Host().Stats().Records; n != 2 {
			t.Errorf("%d commits since the restart; want 2", n)
		}
		if in, set := alarm(t, h); set {
			t.Errorf("an alarm is set, in %v", in)
		}
	})
}
