package ledger_test

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
	"github.com/dohost/dohost/ledger"
)

// worker is an agent whose fiber, hooks and callbacks are set by a test.
type worker struct {
	*agent.Agent[struct{}]
	w *workerClass
}

type workerClass struct {
	*shop
	fiber       func(*worker, context.Context, *agent.Fiber[int]) error
	interrupted func(*worker, context.Context, *agent.InterruptedRun) error
	recovery    func(*worker, context.Context, []*agent.InterruptedFiber) error
	ended       func(*worker, context.Context, agent.FiberInfo) error
	scheduled   func(*worker, context.Context) error
}

const (
	workers   dohost.Namespace[worker] = "worker"
	workFiber agent.FiberKind[int]     = "work"
	workOnce  agent.Callback[string]   = "once"
)

func (w *workerClass) class() dohost.Class {
	return agent.Bind(workers,
		func(_ context.Context, a *agent.Agent[struct{}]) (*worker, error) { return &worker{a, w}, nil },
		&agent.Handlers[worker, struct{}]{
			Options:       agent.Options{MaxInterruptions: 2, StuckAfter: 5 * time.Second},
			Extensions:    []dohost.ClassExtension{ledger.Declare(&w.kind)},
			OnInterrupted: w.interrupted,
			OnRecovery:    w.recovery,
			OnFiberEnded:  w.ended,
		},
		agent.OnFiber(workFiber, func(o *worker, ctx context.Context, f *agent.Fiber[int]) error { return w.fiber(o, ctx, f) }, nil),
		agent.OnSchedule(workOnce, func(o *worker, ctx context.Context, _ string) error { return w.scheduled(o, ctx) }),
	)
}

func (o *worker) pay(ctx context.Context) error {
	_, err := ledger.Do(ctx, o.Object(), &o.w.kind, charge{"7", 4200}, o.w.request)
	return err
}

func (o *worker) pays(ctx context.Context, n int) error {
	for range n {
		if err := o.pay(ctx); err != nil {
			return err
		}
	}
	return nil
}

// test starts work, lets it end, and returns the positions of the operations, without the random parts.
func (w *workerClass) test(t *testing.T, start func(context.Context, *worker) error, during ...func(t *testing.T, h *dohosttest.Host)) (positions []string) {
	dohosttest.Run(t, &dohosttest.Options{
		Classes: []dohost.Class{w.class()}, Services: []*dohosttest.FakeService{&w.bank},
	}, func(t *testing.T, h *dohosttest.Host) {
		o := workers.Get(h, "7")
		if err := o.Do(t.Context(), func(ctx context.Context, o *worker) error { return start(ctx, o) }); err != nil && !errors.Is(err, dohost.ErrFenced) {
			t.Fatal(err)
		}
		for _, f := range during {
			f(t, h)
		}
		h.Advance(20 * time.Second)
		err := o.Do(t.Context(), func(ctx context.Context, o *worker) error {
			for op, err := range ledger.All(ctx, o.Object()) {
				if err != nil {
					return err
				}
				positions = append(positions, shortened(op.Position, op.Scope))
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	})
	slices.Sort(positions)
	return positions
}

// shortened replaces IDs and times.
func shortened(position, scope string) string {
	parts := strings.Split(position, "/")
	for i, p := range parts {
		switch {
		case len(p) == 26:
			parts[i] = "id"
		case len(p) == 18:
			parts[i] = "due"
		}
	}
	if scope != "" {
		parts = append(parts, "scope "+scope)
	}
	return strings.Join(parts, "/")
}

func startWork(ctx context.Context, o *worker) error {
	_, err := agent.StartFiber(ctx, o, workFiber, 0, nil)
	return err
}

// aMinute lets the alarm wake the agent after an interruption.
func aMinute(_ *testing.T, h *dohosttest.Host) { h.Advance(time.Minute) }

func newWorker() *workerClass { return &workerClass{shop: newShop(ledger.PolicyIdempotent)} }

func expect(t *testing.T, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("the operations have the positions %q, want %q", got, want)
	}
}

// TestCheckpointsSeparateEqualOperations saves equal checkpoints and sets one that is rolled back.
func TestCheckpointsSeparateEqualOperations(t *testing.T) {
	w := newWorker()
	undone := errors.New("undone")
	w.fiber = func(o *worker, ctx context.Context, f *agent.Fiber[int]) error {
		if err := o.pays(ctx, 2); err != nil {
			return err
		}
		for range 2 {
			if err := errors.Join(f.SaveCheckpoint(ctx, 0), o.pay(ctx)); err != nil {
				return err
			}
		}
		err := dohost.Transaction(ctx, func(ctx context.Context) error {
			return errors.Join(f.SetCheckpoint(ctx, 1), undone)
		})
		if !errors.Is(err, undone) {
			return err
		}
		return errors.Join(o.pay(ctx), f.SetCheckpoint(ctx, 2), o.pay(ctx))
	}
	expect(t, w.test(t, startWork), "fiber/id/0/0", "fiber/id/0/1", "fiber/id/1/0", "fiber/id/2/0", "fiber/id/2/1", "fiber/id/3/0")
}

// TestDoThatFailsKeepsItsPlace repeats a Do that has failed in the code of the fiber, in the next call of the method, and after a
// restart of the fiber.
func TestDoThatFailsKeepsItsPlace(t *testing.T) {
	w := newWorker()
	w.kind.MaxAttempts = 1
	w.before = failures(3, ledger.NoEffect(errTimeout))
	calls := 0
	w.fiber = func(o *worker, ctx context.Context, f *agent.Fiber[int]) error {
		if calls++; calls == 1 {
			return errors.Join(o.pay(ctx), o.pay(ctx), o.pay(ctx))
		}
		err := o.pays(ctx, 2)
		if calls < 4 {
			return errors.Join(err, errTimeout)
		}
		return err
	}
	expect(t, w.test(t, startWork), "fiber/id/0/0", "fiber/id/0/1")
	if calls < 4 || w.bank.Total() != 2 {
		t.Errorf("%d charges in %d calls of the method", w.bank.Total(), calls)
	}
}

// TestScopesInPositions sets scopes around a fiber and in it, and removes the position.
func TestScopesInPositions(t *testing.T) {
	w := newWorker()
	got := w.test(t, func(ctx context.Context, o *worker) error {
		ctx = ledger.Scope(ctx, "outer")
		return errors.Join(o.pay(ctx), agent.RunFiber(ctx, o, "x/y", func(ctx context.Context) error {
			none := dohost.NewWorkPosition("", nil).Context(ctx)
			return errors.Join(o.pay(ctx), o.pays(ledger.Scope(ctx, "a"), 2), o.pay(ledger.Scope(ctx, "b")), o.pays(none, 2),
				agent.RunFiber(ctx, o, "x/y", func(ctx context.Context) error { return o.pay(ctx) }),
				agent.RunFiber(none, o, "z", func(ctx context.Context) error { return o.pay(ctx) }))
		}))
	})
	expect(t, got, "", "/scope outer", "fiber/id/0/0", "fiber/id/0/0", `fiber/id/0/0/fiber/"x/y"/0/0`, "fiber/id/0/0/scope a",
		"fiber/id/0/0/scope b", "fiber/id/0/1/scope a")
}

// TestTasksHaveNoPosition makes operations in tasks that a fiber starts, and in an Await.
func TestTasksHaveNoPosition(t *testing.T) {
	w := newWorker()
	var refused error
	w.fiber = func(o *worker, ctx context.Context, f *agent.Fiber[int]) error {
		for range 2 {
			if err := o.Object().Go(ctx, "task", func(ctx context.Context) error { return o.pay(ctx) }); err != nil {
				return err
			}
		}
		return dohost.Await(ctx, func(ctx context.Context) error {
			refused = o.pay(ctx)
			return nil
		})
	}
	expect(t, w.test(t, startWork), "")
	if !errors.Is(refused, dohost.ErrMisuse) {
		t.Errorf("Do in an Await: %v", refused)
	}
}

// TestHooksOfFibers makes operations in OnRecovery and in OnFiberEnded.
func TestHooksOfFibers(t *testing.T) {
	w := newWorker()
	w.fiber = func(o *worker, ctx context.Context, f *agent.Fiber[int]) error {
		if f.Attempt == 0 {
			err := errors.Join(f.SaveCheckpoint(ctx, 1), o.pay(ctx))
			return errors.Join(err, o.Object().Abort(ctx, errTimeout, nil))
		}
		return o.pays(ctx, 2)
	}
	w.recovery = func(o *worker, ctx context.Context, fs []*agent.InterruptedFiber) error {
		return errors.Join(o.pay(ctx), o.pay(fs[0].Position().Context(ctx)), fs[0].Resume(ctx))
	}
	w.ended = func(o *worker, ctx context.Context, info agent.FiberInfo) error {
		if err := o.pay(ctx); err != nil || len(w.calls()) > 4 {
			return err
		}
		return errTimeout
	}
	got := w.test(t, startWork, aMinute)
	expect(t, got, "", "fiber/id/1/0", "fiber/id/1/1", "fiber/id/end/1/0")
}

// TestRunThatIsResumedKeepsItsPosition makes operations in a fiber that a request runs, in OnInterrupted, and in the function that resumes
// the fiber.
func TestRunThatIsResumedKeepsItsPosition(t *testing.T) {
	w := newWorker()
	w.interrupted = func(o *worker, ctx context.Context, i *agent.InterruptedRun) error {
		_, err := i.Resume(ctx, func(ctx context.Context) error { return o.pays(ctx, 2) })
		return errors.Join(err, o.pay(ctx))
	}
	got := w.test(t, func(ctx context.Context, o *worker) error {
		return agent.RunFiber(ctx, o, "run", func(ctx context.Context) error {
			err := errors.Join(o.pay(ctx), agent.SaveCheckpoint(ctx, 1), o.pay(ctx))
			return errors.Join(err, o.Object().Abort(ctx, errTimeout, nil))
		})
	}, aMinute)
	expect(t, got, "fiber/id/0/0", "fiber/id/1/0", "fiber/id/1/1")
}

// TestScheduleThatIsDeadKeepsItsPosition ends the process in each run of a schedule until it is a dead letter, and retries that.
func TestScheduleThatIsDeadKeepsItsPosition(t *testing.T) {
	w := newWorker()
	runs := 0
	w.scheduled = func(o *worker, ctx context.Context) error {
		if err := o.pay(ctx); err != nil {
			return err
		}
		if runs++; runs <= 2 {
			return o.Object().Abort(ctx, errTimeout, nil)
		}
		return nil
	}
	got := w.test(t, func(ctx context.Context, o *worker) error {
		_, err := agent.Schedule(ctx, o, agent.After(0), workOnce, "", nil)
		return err
	}, func(t *testing.T, h *dohosttest.Host) {
		h.Advance(5 * time.Minute)
		err := workers.Get(h, "7").Do(t.Context(), func(ctx context.Context, o *worker) error {
			dead, err := o.DeadLetters().List(ctx, 0)
			if err != nil || len(dead) != 1 {
				return fmt.Errorf("dead letters: %v, %w", dead, err)
			}
			_, err = o.DeadLetters().Retry(ctx, dead[0].ID)
			return err
		})
		if err != nil {
			t.Error(err)
		}
	})
	if expect(t, got, "schedule/id/due/0"); runs != 3 {
		t.Errorf("%d runs, want 3", runs)
	}
}
