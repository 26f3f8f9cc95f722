package chat_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/agent"
	"github.com/dohost/dohost/chat"
	"github.com/dohost/dohost/dohosttest"
	"github.com/dohost/dohost/internal/pointtest"
	"github.com/dohost/dohost/ledger"
)

// workerShop has a worker with a tool of each policy, and a nested worker. Its services are the judges.
type workerShop struct {
	once, again, found dohosttest.FakeService
	worker             *chat.Worker[workerInput, report]

	mu sync.Mutex
	// asked counts the questions to the model by their run and step, and recorded has those whose answer is durable.
	asked    map[[2]int]int
	recorded map[[2]int]bool
	errs     []error
}

// workerInput is the input of a run. Run is the number of the run if runs are to be distinguished.
type workerInput struct {
	Run int `json:"run"`
}

type report struct {
	Done int `json:"done"`
}

// stepsOfRun is the number of answers of the model in a run.
const stepsOfRun = 4

func newWorkerShop(durable bool) *workerShop {
	s := &workerShop{}
	s.again.Idempotent = true
	s.reset()
	find := func(ctx context.Context, _ json.RawMessage) (any, ledger.Answer, error) {
		if c, _ := chat.CallFrom(ctx); s.found.Effects(c.Key) > 0 {
			return "receipt", ledger.AnswerDone, nil
		}
		return nil, ledger.AnswerNotDone, nil
	}
	again := s.tool("again", ledger.PolicyIdempotent, &s.again)
	found := s.tool("found", ledger.PolicyReconcile, &s.found)
	found.Find = find
	steps := inSteps("helped", []string{"again:1", "again:1"})
	helper := &chat.Worker[workerInput, string]{Name: "helper", Durable: durable, Tools: []chat.Tool{again}, Model: promptModel(func(p *chat.Prompt) []chat.Chunk {
		s.record(runOf(p), 2)
		return steps(p)
	})}
	s.worker = &chat.Worker[workerInput, report]{
		Name: "worker", Durable: durable, Tools: []chat.Tool{s.tool("once", 0, &s.once), again, found, helper.Tool()}, Model: promptModel(s.answer),
	}
	return s
}

func (s *workerShop) reset() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked, s.recorded, s.errs = map[[2]int]int{}, map[[2]int]bool{}, nil
}

// tool is a tool that requests an effect with the key of its call.
func (s *workerShop) tool(name string, p ledger.Policy, service *dohosttest.FakeService) chat.Tool {
	return chat.Tool{ToolSpec: chat.ToolSpec{Name: name}, Policy: p, Run: func(ctx context.Context, input json.RawMessage) (any, error) {
		c, _ := chat.CallFrom(ctx)
		var of struct{ Of string }
		if err := json.Unmarshal(input, &of); err != nil {
			return nil, err
		}
		var run, step int
		if n, _ := fmt.Sscanf(of.Of, "%d.%d", &run, &step); n == 2 {
			s.record(run, step)
		}
		return "receipt", dohost.Await(ctx, func(ctx context.Context) error { return service.Call(ctx, c.Key, name) })
	}}
}

// record records that an answer is durable, since later work has begun.
func (s *workerShop) record(run, step int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.recorded[[2]int{run, step}] = true
}

// runOf returns the number of the run in the input.
func runOf(p *chat.Prompt) int {
	var in workerInput
	if err := json.Unmarshal([]byte(p.Messages[0].PlainText()), &in); err != nil {
		panic(err)
	}
	return in.Run
}

// answer is the model of the worker. Its steps call the tools, with the run and the step as their input.
func (s *workerShop) answer(p *chat.Prompt) (list []chat.Chunk) {
	run, step := runOf(p), 0
	if run == 1 {
		s.record(0, stepsOfRun-1)
	}
	for _, part := range p.Partial.Parts {
		if part.Type() == "step-start" {
			step++
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	at := [2]int{run, step}
	if s.recorded[at] && s.worker.Durable {
		s.errs = append(s.errs, fmt.Errorf("the model was asked again for the answer %d of run %d, which is recorded", step, run))
	}
	s.asked[at]++
	attempt := s.asked[at]
	call := func(tools ...string) {
		for i, tool := range tools {
			list = append(list, chat.ToolInput(fmt.Sprintf("%s-%d-%d-%d", tool, step, attempt, i), tool, fmt.Sprintf(`{"of":"%d.%d"}`, run, step)))
		}
	}
	switch step {
	case 0:
		call("once", "again", "again")
	case 1:
		call("found")
	case 2:
		list = []chat.Chunk{chat.ToolInput(fmt.Sprint("helper-", attempt), "helper", fmt.Sprintf(`{"run":%d}`, run))}
	default:
		return says(fmt.Sprintf(`{"done":%d}`, len(callsOf(p))))
	}
	return list
}

const twoRuns agent.FiberKind[int] = "two"

// class returns a class whose fiber runs the worker twice. distinct gives the runs different inputs.
func (s *workerShop) class(distinct bool) dohost.Class {
	return agent.Bind(workerAgents, func(_ context.Context, a *agent.Agent[struct{}]) (*workerAgent, error) { return &workerAgent{a}, nil },
		&agent.Handlers[workerAgent, struct{}]{
			Options:    agent.Options{MaxInterruptions: -1},
			Extensions: []dohost.ClassExtension{ledger.Declare(s.worker.Kinds()...)},
		},
		agent.OnFiber(twoRuns, func(c *workerAgent, ctx context.Context, _ *agent.Fiber[int]) error {
			for i := range 2 {
				in := workerInput{}
				if distinct {
					in.Run = i
				}
				out, err := s.worker.Run(ctx, c, in)
				if err != nil {
					return err
				}
				if err := dohost.Put(ctx, c.Storage(), fmt.Sprint("report ", i), out.Done); err != nil {
					return err
				}
			}
			return nil
		}, &agent.KindOptions{KeepCompleted: -1, KeepFailed: -1}),
	)
}

// work starts the fiber, and waits for its end.
func (s *workerShop) work(ctx context.Context, h *dohosttest.Host) error {
	return dohost.Retry(ctx, &dohost.RetryPolicy{ShouldRetry: pointtest.RetryIdempotent}, func(ctx context.Context) error {
		return workerAgents.Get(h, "7").Do(ctx, func(ctx context.Context, c *workerAgent) error {
			started, err := agent.StartFiber(ctx, c, twoRuns, 0, &agent.FiberOptions{Key: "two"})
			if err != nil {
				return err
			}
			info, _, err := c.Fibers().Wait(ctx, started.ID)
			if err == nil && info.Status != agent.FiberCompleted {
				err = fmt.Errorf("the fiber is %s: %s", info.Status, info.Error)
			}
			return err
		})
	})
}

// check compares the services with the operations.
func (s *workerShop) check(ctx context.Context, h *dohosttest.Host) error {
	var errs []error
	err := workerAgents.Get(h, "7").Do(ctx, func(ctx context.Context, c *workerAgent) error {
		unknown := 0
		for op, err := range ledger.All(ctx, c.Object()) {
			switch {
			case err != nil:
				return err
			case op.Kind == "worker/once" && op.Status == ledger.StatusUnknown:
				unknown++
			case op.Status != ledger.StatusCompleted || op.Position == "":
				errs = append(errs, fmt.Errorf("the operation %+v", op))
			case op.Kind == "worker/once" && s.once.Effects(string(op.ID)) != 1:
				errs = append(errs, fmt.Errorf("%d effects of the completed operation %s", s.once.Effects(string(op.ID)), op.ID))
			}
		}
		for i := range 2 {
			// A call is reported also if its outcome is unknown.
			if n, _, err := dohost.Get[int](ctx, c.Storage(), fmt.Sprint("report ", i)); n != 5 || err != nil {
				errs = append(errs, fmt.Errorf("report %d has %d calls, %w", i, n, err))
			}
		}
		if n := s.once.Total(); n > 2 || n+unknown < 2 {
			errs = append(errs, fmt.Errorf("once: %d effects, %d unknown outcomes", n, unknown))
		}
		for _, key := range s.once.Keys() {
			if n := s.once.Effects(key); n > 1 {
				errs = append(errs, fmt.Errorf("once: %d effects of %s", n, key))
			}
		}
		return nil
	})
	// Each run calls again twice itself and twice in the nested worker, and found once.
	if a, f := s.again.Total(), s.found.Total(); a != 8 || f != 2 || len(s.again.Keys()) != 8 || len(s.found.Keys()) != 2 {
		errs = append(errs, fmt.Errorf("again: %d effects of %d keys, want 8; found: %d of %d, want 2", a, len(s.again.Keys()), f, len(s.found.Keys())))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return errors.Join(append(append(errs, s.errs...), err)...)
}

// scenario ends the agent at all points of the work.
func (s *workerShop) scenario(distinct bool) dohosttest.Scenario {
	sc := variant(scenario(&countingState{}, &testClients{}, s.class(distinct)))
	sc.FullDisk = false // a tool's own write fails, and the worker reports the error
	sc.Services = []*dohosttest.FakeService{&s.once, &s.again, &s.found}
	sc.Run, sc.Check, sc.Reset, sc.SettleTime = s.work, s.check, s.reset, time.Minute
	return sc
}

// TestWorkerInFiberAtEveryPoint runs a worker twice with the same input. Its answers are not recorded, so the model is asked again
// after an interruption.
func TestWorkerInFiberAtEveryPoint(t *testing.T) {
	t.Parallel()
	s := newWorkerShop(false)
	dohosttest.EveryPoint(t, s.scenario(false))
}

// TestWorkerDurableAtEveryPoint runs a durable worker with two inputs: the model is not asked again for a recorded answer.
func TestWorkerDurableAtEveryPoint(t *testing.T) {
	t.Parallel()
	s := newWorkerShop(true)
	dohosttest.EveryPoint(t, s.scenario(true))
}

// TestWorkerInAnswerAtEveryPoint answers with a worker as a tool, which the model calls twice with the same input.
func TestWorkerInAnswerAtEveryPoint(t *testing.T) {
	t.Parallel()
	s := newWorkerShop(false)
	type input struct {
		Of string `json:"of"`
	}
	w := &chat.Worker[input, string]{
		Name: "worker", Tools: []chat.Tool{s.tool("once", 0, &s.once), s.tool("again", ledger.PolicyIdempotent, &s.again)},
		Model: inSteps("done", []string{"once", "again"}, []string{"again"}),
	}
	m := &stepsModel{steps: [][]string{{"worker", "worker"}}}
	all := &testClients{}
	sc := variant(scenario(&countingState{}, all, toolClass(m, chat.Options{}, func(*countingAgent) []chat.Tool { return []chat.Tool{w.Tool()} })))
	sc.FullDisk = false // a tool's own write fails, and the worker reports the error
	sc.Services = []*dohosttest.FakeService{&s.once, &s.again}
	reset := sc.Reset
	sc.Reset = func() { reset(); m.asked = 0 }
	sc.Run = func(ctx context.Context, h *dohosttest.Host) error { return all.join(h, "asker").askAll(ctx, "one") }
	sc.Check = func(ctx context.Context, h *dohosttest.Host) error {
		if answer, states := answerOf(t, ctx, h); answer.PlainText() != "done " || states["worker"] != "completed" {
			return fmt.Errorf("the reply is %q, and the worker %s", answer.PlainText(), states["worker"])
		}
		for _, key := range s.once.Keys() {
			if n := s.once.Effects(key); n > 1 {
				return fmt.Errorf("once: %d effects of %s", n, key)
			}
		}
		if o, a := s.once.Total(), s.again.Total(); o > 2 || a != 4 || len(s.again.Keys()) != 4 {
			return fmt.Errorf("once: %d effects, want at most 2; again: %d of %d keys, want 4", o, a, len(s.again.Keys()))
		}
		return nil
	}
	dohosttest.EveryPoint(t, sc)
}
