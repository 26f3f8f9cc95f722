package agent_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/agent"
	"github.com/dohost/dohost/dohosttest"
	"github.com/dohost/dohost/internal/pointtest"
)

// hookAgent is an agent with fibers that are interrupted, and hooks that record their calls.
type hookAgent struct {
	*agent.Agent[noState]
	log *hookLog
}

const (
	hookAgents dohost.Namespace[hookAgent] = "fiberhooks"
	hookKind   agent.FiberKind[int]        = "shift"
	// skipped is the fiber without a decision of the recovery hook.
	skipped = 1
)

// hookLog is the record that outlives the agents' incarnations.
type hookLog struct {
	mu       sync.Mutex
	notified map[string][]string // by fiber: the ends that its hook has seen
	errs     []string
}

func (w *hookLog) reset() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.notified, w.errs = map[string][]string{}, nil
}

func (w *hookLog) errorf(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.errs = append(w.errs, fmt.Sprintf(format, args...))
}

// outcome returns the status, run, result and error of a fiber.
func outcome(i agent.FiberInfo) string {
	return joinValues(i.Status, i.Attempt, string(i.Result), i.Error)
}

func (w *hookLog) class() dohost.Class {
	return agent.Bind(hookAgents, func(_ context.Context, a *agent.Agent[noState]) (*hookAgent, error) { return &hookAgent{a, w}, nil },
		&agent.Handlers[hookAgent, noState]{OnRecovery: (*hookAgent).recover, OnFiberEnded: (*hookAgent).ended},
		agent.OnFiber(hookKind, func(n *hookAgent, ctx context.Context, f *agent.Fiber[int]) error {
			if err := dohost.Sleep(ctx, 2*time.Second); err != nil {
				return err
			}
			return errors.Join(f.SetResult(f.Attempt), dohost.Add(ctx, n.Storage(), "ended/"+f.ID, 1))
		}, &agent.KindOptions{MaxRetries: 1000, KeepCompleted: -1, KeepFailed: -1}))
}

// recover resumes all but one, one after the other, and records the skipped one in its last batch.
func (n *hookAgent) recover(ctx context.Context, fs []*agent.InterruptedFiber) error {
	last, skippedOne := -1, false
	for _, f := range fs {
		var at int
		if _, err := f.Checkpoint(&at); err != nil {
			return err
		}
		if at <= last {
			n.log.errorf("fiber %d comes after %d", at, last)
		}
		if last = at; at == skipped {
			skippedOne = true
			continue
		}
		if err := f.Resume(ctx); err != nil {
			return err
		}
		if err := dohost.Sleep(ctx, time.Second); err != nil {
			return err
		}
	}
	if !skippedOne {
		return nil
	}
	return dohost.Add(ctx, n.Storage(), "left", 1)
}

// ended records an end outside, and in its last batch.
func (n *hookAgent) ended(ctx context.Context, i agent.FiberInfo) error {
	n.log.mu.Lock()
	n.log.notified[i.ID] = append(n.log.notified[i.ID], outcome(i))
	n.log.mu.Unlock()
	if err := dohost.Sleep(ctx, time.Second); err != nil {
		return err
	}
	return dohost.Add(ctx, n.Storage(), "notified/"+i.ID, 1)
}

// checkCounts compares the agent's counts with the expected ones.
func (n *hookAgent) checkCounts(ctx context.Context, want map[string]int) (err error) {
	for key, w := range want {
		got, _, err2 := dohost.Get[int](ctx, n.Storage(), key)
		if err = errors.Join(err, err2); got != w {
			err = errors.Join(err, fmt.Errorf("%s is %d, not %d", key, got, w))
		}
	}
	return err
}

// check expects the skipped fiber to have failed and the others to have completed, with each end recorded once
// on the disk, and outside as on the disk.
func (n *hookAgent) check(ctx context.Context) error {
	all, err := n.Fibers().List(ctx, nil)
	if err != nil || len(all) != 3 {
		return fmt.Errorf("%d fibers, %w", len(all), err)
	}
	n.log.mu.Lock()
	defer n.log.mu.Unlock()
	for _, text := range n.log.errs {
		err = errors.Join(err, errors.New(text))
	}
	want := map[string]int{"left": 1}
	for _, i := range all {
		status, ended := agent.FiberCompleted, 1
		if string(i.Checkpoint) == fmt.Sprint(skipped) {
			status, ended = agent.FiberFailed, 0
		}
		if i.Status != status || i.Attempt == 0 {
			err = errors.Join(err, fmt.Errorf("fiber %s is %s", i.Checkpoint, outcome(i)))
		}
		want["notified/"+i.ID], want["ended/"+i.ID] = 1, ended
		if len(n.log.notified[i.ID]) == 0 {
			err = errors.Join(err, fmt.Errorf("OnFiberEnded was not called for fiber %s", i.Checkpoint))
		}
		for _, got := range n.log.notified[i.ID] {
			if got != outcome(i) {
				err = errors.Join(err, fmt.Errorf("fiber %s is %s, OnFiberEnded got %s", i.Checkpoint, outcome(i), got))
			}
		}
	}
	if _, set, err2 := n.Object().GetAlarm(ctx); set || err2 != nil {
		err = errors.Join(err, err2, fmt.Errorf("an alarm is set: %v", set))
	}
	return errors.Join(err, n.checkCounts(ctx, want))
}

func TestFiberHooksAtEveryPoint(t *testing.T) {
	w := &hookLog{}
	s := dohosttest.Scenario{
		Classes: []dohost.Class{w.class()},
		Reset:   w.reset,
		Places:  pointtest.Places(),
		Run: func(ctx context.Context, h *dohosttest.Host) error {
			stub := hookAgents.Get(h, "a")
			err := dohost.Retry(ctx, &dohost.RetryPolicy{ShouldRetry: pointtest.RetryIdempotent}, func(ctx context.Context) error {
				return stub.Do(ctx, func(ctx context.Context, n *hookAgent) error {
					return dohost.Transaction(ctx, func(ctx context.Context) (err error) {
						for i := range 3 {
							_, err2 := agent.StartFiber(ctx, n, hookKind, i, &agent.FiberOptions{Key: fmt.Sprint("k", i)})
							err = errors.Join(err, err2)
						}
						return err
					})
				})
			})
			h.Advance(time.Second)
			h.Evict(stub.ID(), dohost.EndFence)
			return err
		},
		Check: func(ctx context.Context, h *dohosttest.Host) error {
			return hookAgents.Get(h, "a").Do(ctx, func(ctx context.Context, n *hookAgent) error { return n.check(ctx) })
		},
	}
	dohosttest.EveryPoint(t, pointtest.Scenario(s, 50, 60))
}
