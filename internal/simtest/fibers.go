package simtest

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/agent"
	"github.com/dohost/dohost/dohosttest"
)

// steps is how many steps a fiber has.
const steps = 3

// fiberCheckpoint is the checkpoint of a fiber of these workloads.
type fiberCheckpoint struct {
	Name string
	Done int
}

// checkpointRecord has the checkpoints that fibers know to be durable. The steps before them must not be repeated.
type checkpointRecord struct {
	mu       sync.Mutex
	saved    map[string]int
	running  map[*fiberAgent]map[string]bool // fibers that an incarnation runs
	attempts map[string]int                  // the attempt number of the last call of a fiber's hook
	built    int                             // incarnations
	faults   []string
}

func (l *checkpointRecord) reset() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.saved, l.attempts, l.running, l.built, l.faults = map[string]int{}, map[string]int{}, map[*fiberAgent]map[string]bool{}, 0, nil
}

// constructed counts an incarnation.
func (l *checkpointRecord) constructed() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.built++
}

// maxHooks is the documented number of calls of a hook, each cut off by the end of its incarnation, after which a
// fiber is dead.
const maxHooks = 5

// retried records that a dead fiber gets its hook again, with attempts counted from one. It must have had maxHooks
// calls, each in an incarnation that has ended.
func (l *checkpointRecord) retried(id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.built <= maxHooks {
		l.faults = append(l.faults, fmt.Sprintf("%s is dead in incarnation %d: it cannot have had %d calls of its hook", id, l.built, maxHooks))
	}
	delete(l.attempts, id)
}

// recordSaved records that a checkpoint is durable.
func (l *checkpointRecord) recordSaved(p fiberCheckpoint) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.saved[p.Name] = max(l.saved[p.Name], p.Done)
}

// recordHook records a call of a hook, with a higher attempt than all calls before.
func (l *checkpointRecord) recordHook(i *agent.InterruptedRun) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if last, before := l.attempts[i.ID]; before && i.Attempt <= last {
		l.faults = append(l.faults, fmt.Sprintf("the hook of %s is called as number %d after number %d", i.Name, i.Attempt, last))
	}
	l.attempts[i.ID] = i.Attempt
}

// recordResume records the step that a fiber resumes from, once in an incarnation.
func (l *checkpointRecord) recordResume(s *fiberAgent, p fiberCheckpoint) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.running[s] == nil {
		l.running[s] = map[string]bool{}
	}
	if l.running[s][p.Name] {
		l.faults = append(l.faults, fmt.Sprintf("%s resumed twice in one incarnation", p.Name))
	}
	l.running[s][p.Name] = true
	if kept := l.saved[p.Name]; p.Done < kept {
		l.faults = append(l.faults, fmt.Sprintf("%s resumed from step %d, its checkpoint was %d", p.Name, p.Done, kept))
	}
}

func (l *checkpointRecord) err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.faults) == 0 {
		return nil
	}
	return errors.New(fmt.Sprint(l.faults))
}

// fiberAgent is an agent with fibers that do their steps outside.
type fiberAgent struct {
	*agent.Agent[none]
	bank   *dohosttest.FakeService
	record *checkpointRecord
}

var fiberAgents dohost.Namespace[fiberAgent] = "fiber-agent"

const stepsKind agent.FiberKind[fiberCheckpoint] = "study"

// start starts a fiber, once for each name.
func (s *fiberAgent) start(ctx context.Context, name string) (none, error) {
	_, err := agent.StartFiber(ctx, s, stepsKind, fiberCheckpoint{Name: name}, &agent.FiberOptions{Key: name})
	return none{}, err
}

func (s *fiberAgent) runFiber(ctx context.Context, f *agent.Fiber[fiberCheckpoint]) error {
	p := f.Checkpoint()
	s.record.recordResume(s, p)
	return s.runSteps(ctx, p, func(ctx context.Context, p fiberCheckpoint) error { return f.SaveCheckpoint(ctx, p) })
}

// runSteps does the remaining steps, and counts itself in its last batch.
func (s *fiberAgent) runSteps(ctx context.Context, p fiberCheckpoint, saveCheckpoint func(context.Context, fiberCheckpoint) error) error {
	for p.Done < steps {
		err := dohost.Await(ctx, func(ctx context.Context) error {
			return s.bank.Call(ctx, fmt.Sprintf("%s/%d", p.Name, p.Done), "")
		})
		if err != nil {
			return err
		}
		p.Done++
		if err := saveCheckpoint(ctx, p); err != nil {
			return err
		}
		s.record.recordSaved(p)
	}
	return dohost.Add(ctx, s.Storage(), p.Name, 1)
}

// finished returns how often a fiber of that name has completed.
func (s *fiberAgent) finished(ctx context.Context, name string) (int, error) {
	n, _, err := dohost.Get[int](ctx, s.Storage(), name)
	return n, err
}

// unfinished returns the number of fibers that have not ended, or are dead.
func (s *fiberAgent) unfinished(ctx context.Context, _ none) (int, error) {
	all, err := s.Fibers().List(ctx, &agent.FiberQuery{Status: []agent.FiberStatus{agent.FiberPending, agent.FiberRunning, agent.FiberDead}})
	return len(all), err
}

// retryDead passes dead fibers to their hook again, as an operator would, and returns their number.
func (s *fiberAgent) retryDead(ctx context.Context) (int, error) {
	dead, err := s.Fibers().List(ctx, &agent.FiberQuery{Status: []agent.FiberStatus{agent.FiberDead}})
	for _, f := range dead {
		s.record.retried(f.ID)
		if _, err := s.Fibers().Retry(ctx, f.ID); err != nil {
			return 0, err
		}
	}
	return len(dead), err
}

// run runs a fiber within this call, once for each name.
func (s *fiberAgent) run(ctx context.Context, name string) (none, error) {
	_, begun, err := dohost.Get[bool](ctx, s.Storage(), "begun "+name)
	if err != nil || begun {
		return none{}, err
	}
	if err := dohost.Put(ctx, s.Storage(), "begun "+name, true); err != nil {
		return none{}, err
	}
	return none{}, agent.RunFiber(ctx, s, "run "+name, func(ctx context.Context) error {
		return s.runSteps(ctx, fiberCheckpoint{Name: name}, saveCheckpoint)
	})
}

func saveCheckpoint(ctx context.Context, p fiberCheckpoint) error {
	return agent.SaveCheckpoint(ctx, p)
}

// resume resumes a fiber from its checkpoint.
func (s *fiberAgent) resume(ctx context.Context, i *agent.InterruptedRun) error {
	s.record.recordHook(i)
	p := fiberCheckpoint{Name: i.Name[len("run "):]}
	if _, err := i.Checkpoint(&p); err != nil {
		return err
	}
	s.record.recordResume(s, p)
	_, err := i.Resume(ctx, func(ctx context.Context) error { return s.runSteps(ctx, p, saveCheckpoint) })
	return err
}

// finish completes a fiber in the hook itself.
func (s *fiberAgent) finish(ctx context.Context, i *agent.InterruptedRun) error {
	s.record.recordHook(i)
	err := dohost.Await(ctx, func(ctx context.Context) error { return s.bank.Call(ctx, i.Name, "") })
	if err != nil {
		return err
	}
	return dohost.Add(ctx, s.Storage(), i.Name[len("run "):], 1)
}

// newFiberScenario is a scenario of an agent with fibers that begin starts.
func newFiberScenario(begin func(*fiberAgent, context.Context, string) (none, error), bank *dohosttest.FakeService, names []string,
	on *agent.Handlers[fiberAgent, none], check func() error, entries ...agent.Entry[fiberAgent]) dohosttest.Scenario {
	l := &checkpointRecord{}
	l.reset()
	return dohosttest.Scenario{
		Classes: []dohost.Class{agent.Bind(fiberAgents, func(_ context.Context, a *agent.Agent[none]) (*fiberAgent, error) {
			l.constructed()
			return &fiberAgent{a, bank, l}, nil
		}, on, entries...)},
		Services: []*dohosttest.FakeService{bank},
		Reset:    l.reset,
		Places:   objectPlaces,
		Run: func(ctx context.Context, h *dohosttest.Host) error {
			var clients []*dohosttest.Client
			for _, name := range names {
				clients = append(clients, h.Client(func(ctx context.Context) error {
					_, err := retryCall(ctx, fiberAgents.Get(h, "a"), begin, name)
					return err
				}))
			}
			var all error
			for _, c := range clients {
				all = errors.Join(all, c.Wait())
			}
			return all
		},
		Check: func(ctx context.Context, h *dohosttest.Host) error {
			dead, err := dohost.CallNoArg(ctx, fiberAgents.Get(h, "a"), (*fiberAgent).retryDead)
			if dead > 0 {
				err = errors.Join(err, h.WaitIdle(0))
			}
			for _, name := range names {
				n, err2 := dohost.Call(ctx, fiberAgents.Get(h, "a"), (*fiberAgent).finished, name)
				err = errors.Join(err, err2, differ("ends of fiber "+name, n, 1))
			}
			left, err2 := dohost.Call(ctx, fiberAgents.Get(h, "a"), (*fiberAgent).unfinished, none{})
			return errors.Join(err, err2, differ("fibers that are left", left, 0), check(), l.err())
		},
	}
}

// allSteps checks that each step of each fiber was done, and no other. The service has each
// effect once for any number of requests.
func allSteps(bank *dohosttest.FakeService, names []string) func() error {
	return func() (err error) {
		for _, name := range names {
			for i := range steps {
				err = errors.Join(err, bank.RanOnce(fmt.Sprintf("%s/%d", name, i)))
			}
		}
		return errors.Join(err, differ("steps that were done", len(bank.Keys()), steps*len(names)))
	}
}

// newFiber has fibers that resume from their checkpoints without a hook.
func newFiber() dohosttest.Scenario {
	bank, names := &dohosttest.FakeService{Idempotent: true}, []string{"x", "y"}
	return newFiberScenario((*fiberAgent).start, bank, names, nil, allSteps(bank, names),
		agent.OnFiber(stepsKind, (*fiberAgent).runFiber, &agent.KindOptions{MaxRetries: 1000, KeepCompleted: -1}))
}

// newFiberResumed has fibers of functions, which a hook resumes.
func newFiberResumed() dohosttest.Scenario {
	bank, names := &dohosttest.FakeService{Idempotent: true}, []string{"x", "y"}
	return newFiberScenario((*fiberAgent).run, bank, names, &agent.Handlers[fiberAgent, none]{OnInterrupted: (*fiberAgent).resume}, allSteps(bank, names))
}

// newFiberHook has a fiber that a hook completes. The hook's own effect happens at most
// once, because a fiber that has ended needs no hook.
func newFiberHook() dohosttest.Scenario {
	bank, names := &dohosttest.FakeService{Idempotent: true}, []string{"x"}
	return newFiberScenario((*fiberAgent).run, bank, names, &agent.Handlers[fiberAgent, none]{OnInterrupted: (*fiberAgent).finish}, func() error {
		if n := bank.Effects("run x"); n > 1 {
			return fmt.Errorf("the hook had its effect %d times", n)
		}
		return nil
	})
}
