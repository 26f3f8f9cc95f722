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

// studyNotes is the checkpoint of a fiber of these workloads.
type studyNotes struct {
	Name string
	Done int
}

// ledger has the checkpoints that fibers know to be durable. The steps before them must not be repeated.
type ledger struct {
	mu     sync.Mutex
	kept   map[string]int
	begun  map[*scholar]map[string]bool // fibers that an incarnation runs
	asked  map[string]int               // the attempt number of the last call of a fiber's hook
	built  int                          // incarnations
	faults []string
}

func (l *ledger) reset() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.kept, l.asked, l.begun, l.built, l.faults = map[string]int{}, map[string]int{}, map[*scholar]map[string]bool{}, 0, nil
}

// constructed counts an incarnation.
func (l *ledger) constructed() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.built++
}

// maxHooks is the documented number of calls of a hook, each cut off by the end of its incarnation, after which a
// fiber is dead.
const maxHooks = 5

// retried records that a dead fiber gets its hook again, with attempts counted from one. It must have had maxHooks
// calls, each in an incarnation that has ended.
func (l *ledger) retried(id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.built <= maxHooks {
		l.faults = append(l.faults, fmt.Sprintf("%s is dead in incarnation %d: it cannot have had %d calls of its hook", id, l.built, maxHooks))
	}
	delete(l.asked, id)
}

// stashed records that a checkpoint is durable.
func (l *ledger) stashed(p studyNotes) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.kept[p.Name] = max(l.kept[p.Name], p.Done)
}

// hooked records a call of a hook, with a higher attempt than all calls before.
func (l *ledger) hooked(i *agent.Interrupted) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if last, before := l.asked[i.ID]; before && i.Attempt <= last {
		l.faults = append(l.faults, fmt.Sprintf("the hook of %s is called as number %d after number %d", i.Name, i.Attempt, last))
	}
	l.asked[i.ID] = i.Attempt
}

// begins records the step that a fiber resumes from, once in an incarnation.
func (l *ledger) begins(s *scholar, p studyNotes) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.begun[s] == nil {
		l.begun[s] = map[string]bool{}
	}
	if l.begun[s][p.Name] {
		l.faults = append(l.faults, fmt.Sprintf("%s is gone on with twice in one incarnation", p.Name))
	}
	l.begun[s][p.Name] = true
	if kept := l.kept[p.Name]; p.Done < kept {
		l.faults = append(l.faults, fmt.Sprintf("%s goes on from step %d, and had stashed %d", p.Name, p.Done, kept))
	}
}

func (l *ledger) wrong() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.faults) == 0 {
		return nil
	}
	return errors.New(fmt.Sprint(l.faults))
}

// scholar is an agent with fibers that do their steps outside.
type scholar struct {
	*agent.Agent[none]
	bank   *dohosttest.FakeService
	ledger *ledger
}

var scholars dohost.Namespace[scholar] = "scholar"

const study agent.FiberKind[studyNotes] = "study"

// start starts a fiber, once for each name.
func (s *scholar) start(ctx context.Context, name string) (none, error) {
	_, err := agent.StartFiber(ctx, s, study, studyNotes{Name: name}, &agent.FiberOptions{Key: name})
	return none{}, err
}

func (s *scholar) study(ctx context.Context, f *agent.Fiber[studyNotes]) error {
	p := f.Checkpoint()
	s.ledger.begins(s, p)
	return s.walk(ctx, p, func(ctx context.Context, p studyNotes) error { return f.SaveCheckpoint(ctx, p) })
}

// walk does the remaining steps, and counts itself in its last batch.
func (s *scholar) walk(ctx context.Context, p studyNotes, stash func(context.Context, studyNotes) error) error {
	for p.Done < steps {
		err := dohost.Await(ctx, func(ctx context.Context) error {
			return s.bank.Call(ctx, fmt.Sprintf("%s/%d", p.Name, p.Done), "")
		})
		if err != nil {
			return err
		}
		p.Done++
		if err := stash(ctx, p); err != nil {
			return err
		}
		s.ledger.stashed(p)
	}
	return dohost.Add(ctx, s.Storage(), p.Name, 1)
}

// finished returns how often a fiber of that name has completed.
func (s *scholar) finished(ctx context.Context, name string) (int, error) {
	n, _, err := dohost.Get[int](ctx, s.Storage(), name)
	return n, err
}

// left returns the number of fibers that have not ended, or are dead.
func (s *scholar) left(ctx context.Context, _ none) (int, error) {
	all, err := s.Fibers().List(ctx, &agent.FiberQuery{Status: []agent.FiberStatus{agent.FiberPending, agent.FiberRunning}})
	if err != nil {
		return 0, err
	}
	dead, err := s.Fibers().ListDead(ctx, 0)
	return len(all) + len(dead), err
}

// retryDead passes dead fibers to their hook again, as an operator would, and returns their number.
func (s *scholar) retryDead(ctx context.Context) (int, error) {
	dead, err := s.Fibers().ListDead(ctx, 0)
	for _, f := range dead {
		s.ledger.retried(f.ID)
		if _, err := s.Fibers().RetryDead(ctx, f.ID); err != nil {
			return 0, err
		}
	}
	return len(dead), err
}

// run runs a fiber within this call, once for each name.
func (s *scholar) run(ctx context.Context, name string) (none, error) {
	_, begun, err := dohost.Get[bool](ctx, s.Storage(), "begun "+name)
	if err != nil || begun {
		return none{}, err
	}
	if err := dohost.Put(ctx, s.Storage(), "begun "+name, true); err != nil {
		return none{}, err
	}
	return none{}, agent.RunFiber(ctx, s, "run "+name, func(ctx context.Context) error {
		return s.walk(ctx, studyNotes{Name: name}, stashHere)
	})
}

func stashHere(ctx context.Context, p studyNotes) error { return agent.SaveCheckpoint(ctx, p) }

// goOn resumes a fiber from its checkpoint.
func (s *scholar) goOn(ctx context.Context, i *agent.Interrupted) error {
	s.ledger.hooked(i)
	p := studyNotes{Name: i.Name[len("run "):]}
	if _, err := i.Checkpoint(&p); err != nil {
		return err
	}
	s.ledger.begins(s, p)
	_, err := i.Resume(ctx, func(ctx context.Context) error { return s.walk(ctx, p, stashHere) })
	return err
}

// finish completes a fiber in the hook itself.
func (s *scholar) finish(ctx context.Context, i *agent.Interrupted) error {
	s.ledger.hooked(i)
	err := dohost.Await(ctx, func(ctx context.Context) error { return s.bank.Call(ctx, i.Name, "") })
	if err != nil {
		return err
	}
	return dohost.Add(ctx, s.Storage(), i.Name[len("run "):], 1)
}

// newScholar is a scenario of an agent with fibers that begin starts.
func newScholar(begin func(*scholar, context.Context, string) (none, error), bank *dohosttest.FakeService, names []string,
	on *agent.Handlers[scholar, none], check func() error, entries ...agent.Entry[scholar]) dohosttest.Scenario {
	l := &ledger{}
	l.reset()
	return dohosttest.Scenario{
		Classes: []dohost.Class{agent.Bind(scholars, func(_ context.Context, a *agent.Agent[none]) (*scholar, error) {
			l.constructed()
			return &scholar{a, bank, l}, nil
		}, on, entries...)},
		Services: []*dohosttest.FakeService{bank},
		Reset:    l.reset,
		Places:   turns,
		Run: func(ctx context.Context, h *dohosttest.Host) error {
			var clients []*dohosttest.Client
			for _, name := range names {
				clients = append(clients, h.Client(func(ctx context.Context) error {
					_, err := ask(ctx, scholars.Get(h, "a"), begin, name)
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
			dead, err := dohost.CallNoArg(ctx, scholars.Get(h, "a"), (*scholar).retryDead)
			if dead > 0 {
				err = errors.Join(err, h.WaitIdle(0))
			}
			for _, name := range names {
				n, err2 := dohost.Call(ctx, scholars.Get(h, "a"), (*scholar).finished, name)
				err = errors.Join(err, err2, differ("ends of fiber "+name, n, 1))
			}
			left, err2 := dohost.Call(ctx, scholars.Get(h, "a"), (*scholar).left, none{})
			return errors.Join(err, err2, differ("fibers that are left", left, 0), check(), l.wrong())
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

// newStudying has fibers that resume from their checkpoints without a hook.
func newStudying() dohosttest.Scenario {
	bank, names := &dohosttest.FakeService{Idempotent: true}, []string{"x", "y"}
	return newScholar((*scholar).start, bank, names, nil, allSteps(bank, names),
		agent.OnFiber(study, (*scholar).study, &agent.KindOptions{MaxRetries: 1000, KeepCompleted: -1}))
}

// newResuming has fibers of functions, which a hook resumes.
func newResuming() dohosttest.Scenario {
	bank, names := &dohosttest.FakeService{Idempotent: true}, []string{"x", "y"}
	return newScholar((*scholar).run, bank, names, &agent.Handlers[scholar, none]{OnInterrupted: (*scholar).goOn}, allSteps(bank, names))
}

// newFinishing has a fiber that a hook completes. The hook's own effect happens at most
// once, because a fiber that has ended needs no hook.
func newFinishing() dohosttest.Scenario {
	bank, names := &dohosttest.FakeService{Idempotent: true}, []string{"x"}
	return newScholar((*scholar).run, bank, names, &agent.Handlers[scholar, none]{OnInterrupted: (*scholar).finish}, func() error {
		if n := bank.Effects("run x"); n > 1 {
			return fmt.Errorf("the hook had its effect %d times", n)
		}
		return nil
	})
}
