package chat_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/agent"
	"github.com/dohost/dohost/chat"
	"github.com/dohost/dohost/dohosttest"
	"github.com/dohost/dohost/ledger"
)

// keyTool is a tool that records the keys of its calls. It returns an error while fail returns one.
func keyTool(name string, p ledger.Policy, keys *[]string, fail func(run int) error) chat.Tool {
	return chat.Tool{ToolSpec: chat.ToolSpec{Name: name}, Policy: p, Run: func(ctx context.Context, _ json.RawMessage) (any, error) {
		c, _ := chat.CallFrom(ctx)
		*keys = append(*keys, c.Key)
		if fail != nil {
			if err := fail(len(*keys)); err != nil {
				return nil, err
			}
		}
		return len(*keys), nil
	}}
}

func TestWorkerCallsOfAStepRunConcurrently(t *testing.T) {
	running, most := 0, 0
	tool := chat.Tool{ToolSpec: chat.ToolSpec{Name: "a"}, Run: func(ctx context.Context, _ json.RawMessage) (any, error) {
		running++
		most = max(most, running)
		defer func() { running-- }()
		return 1, dohost.Sleep(ctx, time.Second)
	}}
	w := &chat.Worker[string, string]{Name: "busy", Tools: []chat.Tool{tool}, Model: inSteps("done", slices.Repeat([]string{"a"}, 20), []string{"a"})}
	inWorkerAgent(t, func(t *testing.T, ctx context.Context, c *workerAgent) {
		begun := time.Now()
		if out, err := w.Run(ctx, c, "go"); out != "done" || err != nil || most != 16 || time.Since(begun) != 3*time.Second {
			t.Errorf("%q, %v, at most %d calls ran concurrently, %v", out, err, most, time.Since(begun))
		}
	})
}

// TestWorkerCallContext reads the values of the caller's context, the call and the storage in a tool.
func TestWorkerCallContext(t *testing.T) {
	type key struct{}
	var calls []chat.Call
	inWorkerAgent(t, func(t *testing.T, ctx context.Context, c *workerAgent) {
		tool := chat.Tool{ToolSpec: chat.ToolSpec{Name: "a"}, Run: func(ctx context.Context, input json.RawMessage) (any, error) {
			call, ok := chat.CallFrom(ctx)
			if !ok || ctx.Value(key{}) != "mine" || call.Tool != "a" || call.Input != string(input) || call.State != chat.CallRunning || len(call.Digest) != 64 {
				t.Errorf("%+v, %t, %v", call, ok, ctx.Value(key{}))
			}
			calls = append(calls, call)
			return nil, dohost.Put(ctx, c.Storage(), call.Key, true)
		}}
		w := &chat.Worker[string, string]{Name: "w", Tools: []chat.Tool{tool}, Model: inSteps("done", []string{"a:1", "a:1", "a:2"})}
		if _, err := w.Run(context.WithValue(ctx, key{}, "mine"), c, "go"); err != nil {
			t.Error(err)
		}
		operations := map[string]ledger.Operation{}
		for _, op := range operationsOf(t, ctx, c) {
			operations[string(op.ID)] = op
		}
		if len(operations) != 3 || len(calls) != 3 {
			t.Fatalf("%d operations of %d calls", len(operations), len(calls))
		}
		for _, call := range calls {
			written, _, err := dohost.Get[bool](ctx, c.Storage(), call.Key)
			if op := operations[call.Key]; !written || err != nil || op.Kind != "w/a" || op.Status != ledger.StatusCompleted || string(op.Result) != "null" {
				t.Errorf("%t, %v, %+v", written, err, op)
			}
		}
	})
}

// TestWorkerEqualRuns runs a worker again with the same input: without a position, in a scope, and in durable work.
func TestWorkerEqualRuns(t *testing.T) {
	var keys []string
	w := &chat.Worker[string, string]{
		Name: "w", Tools: []chat.Tool{keyTool("a", ledger.PolicyIdempotent, &keys, nil)}, Model: inSteps("done", []string{"a:1", "a:1"}, []string{"a:1"}),
	}
	inWorkerAgent(t, func(t *testing.T, ctx context.Context, c *workerAgent) {
		run := func(ctx context.Context, input string) (n int) {
			t.Helper()
			before := len(keys)
			if _, err := w.Run(ctx, c, input); err != nil {
				t.Error(err)
			}
			return len(keys) - before
		}
		position := func(name string) context.Context {
			return dohost.NewWorkPosition(name, func(context.Context) (uint64, error) { return 1, nil }).Context(ctx)
		}
		first, second, scoped := position("work"), position("work"), ledger.Scope(ctx, "march")
		for name, test := range map[string]struct{ got, want int }{
			"a request":                            {run(ctx, "7"), 3},
			"an equal request":                     {run(ctx, "7"), 0},
			"another input":                        {run(ctx, "8"), 3},
			"in a scope":                           {run(scoped, "7"), 3},
			"again in the scope":                   {run(scoped, "7"), 0},
			"in work":                              {run(first, "7"), 3},
			"an equal run in work":                 {run(first, "7"), 3},
			"another input in work":                {run(first, "8"), 3},
			"in a scope in work":                   {run(ledger.Scope(first, "march"), "7"), 3},
			"the work again":                       {run(second, "7"), 0},
			"the work again, its second equal run": {run(second, "7"), 0},
			"the work again, a third one":          {run(second, "7"), 3},
			"the work again, in the scope":         {run(ledger.Scope(second, "march"), "7"), 0},
			"other work":                           {run(position("work/2"), "7"), 3},
		} {
			if test.got != test.want {
				t.Errorf("%s: %d calls of the tool, want %d", name, test.got, test.want)
			}
		}
		if distinct := slices.Compact(slices.Sorted(slices.Values(keys))); len(distinct) != len(keys) {
			t.Errorf("%d keys of %d calls", len(distinct), len(keys))
		}
	})
}

// TestWorkerEqualRunsInHandler runs a worker in the handler of a reply: equal runs in one scope are one run.
func TestWorkerEqualRunsInHandler(t *testing.T) {
	var keys []string
	w := &chat.Worker[string, string]{Name: "w", Tools: []chat.Tool{keyTool("a", 0, &keys, nil)}, Model: inSteps("done", []string{"a:1"})}
	tm := &team{think: func(ctx context.Context, m *member, _ *chat.Reply) error {
		for _, ctx := range []context.Context{ctx, ctx, ledger.Scope(ctx, "second"), ledger.Scope(ctx, "second")} {
			if _, err := w.Run(ctx, m, "go"); err != nil {
				return err
			}
		}
		return nil
	}}
	runTeam(t, tm, func(t *testing.T, h *dohosttest.Host) {
		if err := askMember(t.Context(), h, "a", "hi"); err != nil {
			t.Fatal(err)
		}
		h.Advance(10 * time.Second)
		wantTranscript(t, h, "a", "user: hi", "assistant: a says hi")
		if len(keys) != 2 {
			t.Errorf("the tool has run %d times, want once in each scope", len(keys))
		}
	})
}

// TestWorkerErrorsOfTools has tools whose first run returns an error. The model gets it and makes an equal call. Then the worker
// runs again.
func TestWorkerErrorsOfTools(t *testing.T) {
	refused := errors.New("refused")
	found := func(context.Context, json.RawMessage) (any, ledger.Answer, error) {
		return nil, ledger.AnswerNotDone, nil
	}
	const unknown = "Whether the call took effect is not known. refused"
	for name, test := range map[string]struct {
		policy  ledger.Policy
		err     error
		results [2]string // for the model, in each run of the worker
		runs    [2]int    // of the tool, after each run of the worker
		keys    int       // of the runs of the tool
		status  ledger.Status
	}{
		"at most once":             {0, refused, [2]string{unknown + ", " + unknown, unknown + ", " + unknown}, [2]int{1, 1}, 1, ledger.StatusUnknown},
		"at most once, and proven": {0, ledger.NoEffect(refused), [2]string{"refused, 2", "2, 3"}, [2]int{2, 3}, 2, ledger.StatusCompleted},
		"idempotent":               {ledger.PolicyIdempotent, refused, [2]string{"refused, 2", "2, 3"}, [2]int{2, 3}, 2, ledger.StatusCompleted},
		"reconcile":                {ledger.PolicyReconcile, refused, [2]string{"2, 3", "2, 3"}, [2]int{3, 3}, 2, ledger.StatusCompleted},
	} {
		t.Run(name, func(t *testing.T) {
			var keys, results []string
			tool := keyTool("a", test.policy, &keys, func(run int) error {
				if run == 1 {
					return test.err
				}
				return nil
			})
			if test.policy == ledger.PolicyReconcile {
				tool.Find = found
			}
			steps := inSteps("done", []string{"a:1"}, []string{"a:1"})
			w := &chat.Worker[string, string]{Name: "w", Tools: []chat.Tool{tool}, Model: promptModel(func(p *chat.Prompt) []chat.Chunk {
				results = nil
				for _, part := range callsOf(p) {
					results = append(results, part.Text("errorText")+string(part.Member("output")))
				}
				return steps(p)
			})}
			inWorkerAgent(t, func(t *testing.T, ctx context.Context, c *workerAgent) {
				for i, want := range test.results {
					if out, err := w.Run(ctx, c, "go"); out != "done" || err != nil {
						t.Errorf("%q, %v", out, err)
					}
					if got := strings.Join(results, ", "); got != want || len(keys) != test.runs[i] {
						t.Errorf("run %d: the model gets %q after %d runs of the tool, want %q after %d", i, got, len(keys), want, test.runs[i])
					}
				}
				distinct := slices.Compact(slices.Sorted(slices.Values(keys)))
				all := operationsOf(t, ctx, c)
				if len(distinct) != test.keys || len(all) != test.keys || all[0].Status != test.status {
					t.Errorf("%d keys, want %d; %+v", len(distinct), test.keys, all)
				}
			})
		})
	}
}

// TestWorkerInputWithoutCanonicalForm has calls whose input cannot identify an operation. The model gets an error for each.
func TestWorkerInputWithoutCanonicalForm(t *testing.T) {
	for _, input := range []string{`{"of":1,"of":2}`, `{"of":1e9999999}`, `{"of":"` + strings.Repeat("x", 1<<20) + `"}`} {
		for _, durable := range []bool{false, true} {
			var keys []string
			result := ""
			w := &chat.Worker[string, string]{Name: "w", Durable: durable, Tools: []chat.Tool{keyTool("a", 0, &keys, nil)}, Model: promptModel(func(p *chat.Prompt) []chat.Chunk {
				for _, part := range callsOf(p) {
					result = part.Text("errorText")
					return says("done")
				}
				return []chat.Chunk{chat.ToolInput("c", "a", input)}
			})}
			inWorkerAgent(t, func(t *testing.T, ctx context.Context, c *workerAgent) {
				if out, err := w.Run(ctx, c, "go"); out != "done" || err != nil {
					t.Errorf("%.20s: %q, %v", input, out, err)
				}
				if !strings.Contains(result, "the arguments have no canonical form") || len(keys) != 0 {
					t.Errorf("%.20s: the model gets %q, %d runs", input, result, len(keys))
				}
			})
		}
	}
}

// TestWorkerEqualCallsAfterAnError makes two equal calls in one step, whose first fails. A third one repeats it.
func TestWorkerEqualCallsAfterAnError(t *testing.T) {
	var keys []string
	tool := keyTool("a", ledger.PolicyIdempotent, &keys, func(run int) error {
		if run == 1 {
			return errors.New("refused")
		}
		return nil
	})
	w := &chat.Worker[string, string]{Name: "w", Tools: []chat.Tool{tool}, Model: inSteps("done", []string{"a:1", "a:1"}, []string{"a:1"}, []string{"a:1"})}
	inWorkerAgent(t, func(t *testing.T, ctx context.Context, c *workerAgent) {
		if out, err := w.Run(ctx, c, "go"); out != "done" || err != nil {
			t.Errorf("%q, %v", out, err)
		}
		if len(keys) != 4 || keys[2] != keys[0] || keys[1] == keys[0] || keys[3] == keys[0] || keys[3] == keys[1] {
			t.Errorf("the keys are %q", keys)
		}
	})
}

// TestWorkerToolTimeout has a tool that takes longer than its time, with and without regard to its context.
func TestWorkerToolTimeout(t *testing.T) {
	for _, deaf := range []bool{false, true} {
		t.Run(fmt.Sprint("deaf ", deaf), func(t *testing.T) {
			result := ""
			slow := inSteps("done", []string{"slow"})
			w := &chat.Worker[string, string]{Name: "w", Tools: []chat.Tool{sleeper("slow", 90*time.Second, deaf)}, Model: promptModel(func(p *chat.Prompt) []chat.Chunk {
				for _, part := range callsOf(p) {
					result = part.Text("errorText")
				}
				return slow(p)
			})}
			inWorkerAgent(t, func(t *testing.T, ctx context.Context, c *workerAgent) {
				begun, took := time.Now(), time.Minute
				if deaf {
					took += time.Second
				}
				if out, err := w.Run(ctx, c, "go"); out != "done" || err != nil || time.Since(begun) != took {
					t.Errorf("%q, %v after %v", out, err, time.Since(begun))
				}
				if !strings.HasSuffix(result, "The call took longer than 1m0s. Whether it took effect is not known.") {
					t.Errorf("the model gets %q", result)
				}
				if err := dohost.Sleep(ctx, time.Minute); err != nil {
					t.Error(err)
				}
				want := map[bool]ledger.Status{false: ledger.StatusUnknown, true: ledger.StatusCompleted}[deaf]
				if all := operationsOf(t, ctx, c); len(all) != 1 || all[0].Status != want {
					t.Errorf("%+v, want one that is %s", all, want)
				}
			})
		})
	}
}

// charges is a kind of operations that a tool performs itself.
var charges = ledger.Kind[string, int]{
	Name: "charge", Same: ledger.Whole[string], Policy: ledger.PolicyIdempotent, Unknown: func(ledger.ID, string) string { return "" },
}

// TestWorkerToolWithLedger has a tool that performs two equal operations, and is interrupted between them by an error.
func TestWorkerToolWithLedger(t *testing.T) {
	charged, runs := map[ledger.ID]int{}, 0
	inWorkerAgent(t, func(t *testing.T, ctx context.Context, c *workerAgent) {
		charge := func(ctx context.Context) (int, error) {
			return ledger.Do(ctx, c.Object(), &charges, "7", func(_ context.Context, id ledger.ID) (int, error) {
				charged[id]++
				return 1, nil
			})
		}
		w := &chat.Worker[string, string]{Name: "w", Tools: []chat.Tool{{
			ToolSpec: chat.ToolSpec{Name: "a"}, Policy: ledger.PolicyIdempotent,
			Run: func(ctx context.Context, _ json.RawMessage) (any, error) {
				runs++
				if _, err := charge(ctx); err != nil || runs == 1 {
					return nil, errors.Join(err, errors.New("the first run"))
				}
				return charge(ctx)
			},
		}}, Model: inSteps("done", []string{"a"}, []string{"a"}, []string{"a"}, []string{"a:2"})}
		if out, err := w.Run(ctx, c, "go"); out != "done" || err != nil {
			t.Errorf("%q, %v", out, err)
		}
		if len(charged) != 6 || runs != 4 { // of the second call, which repeats the first, of an equal one, and of another one
			t.Errorf("%d charges in %d runs: %v", len(charged), runs, charged)
		}
		for id, n := range charged {
			if n != 1 {
				t.Errorf("%d effects of %s", n, id)
			}
		}
	})
}

// TestWorkerAsToolOfAnswer answers with a worker as a tool.
func TestWorkerAsToolOfAnswer(t *testing.T) {
	var prompts []string
	w := &chat.Worker[refundCase, decision]{Name: "judge", Description: "Judges.", Model: promptModel(func(p *chat.Prompt) []chat.Chunk {
		prompts = append(prompts, p.Messages[0].PlainText())
		return says(`{"refund":true,"cents":1}`)
	})}
	m := inputsModel{"judge", []string{`{"order":"7"}`, `{}`}}
	runTools(t, m, chat.Options{}, func(*countingAgent) []chat.Tool { return []chat.Tool{w.Tool()} }, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		h.Advance(time.Second)
		answer, _ := answerOf(t, ctx, h)
		var got []string
		for _, p := range answer.Parts {
			if p.Type() == "tool-judge" {
				got = append(got, string(p.Member("output"))+p.Text("errorText"))
			}
		}
		if len(got) != 2 || got[0] != `{"refund":true,"cents":1}` || !strings.Contains(got[1], "order") || !slices.Equal(prompts, []string{`{"order":"7"}`}) {
			t.Errorf("the results are %q, and the worker got %q", got, prompts)
		}
	})
}

// inputsModel makes calls of a tool, all in one step.
type inputsModel struct {
	tool   string
	inputs []string
}

// Stream implements [chat.Model].
func (m inputsModel) Stream(ctx context.Context, p *chat.Prompt) iter.Seq2[chat.Chunk, error] {
	return promptModel(func(p *chat.Prompt) (list []chat.Chunk) {
		if len(callsOf(p)) > 0 {
			return says("done")
		}
		for i, input := range m.inputs {
			list = append(list, chat.ToolInput(fmt.Sprint("call-", i), m.tool, input))
		}
		return list
	}).Stream(ctx, p)
}

// TestWorkerKinds declares the kinds of a worker, so that an operator resolves an unknown call.
func TestWorkerKinds(t *testing.T) {
	var keys []string
	w := &chat.Worker[string, string]{
		Name: "w", Durable: true, Tools: []chat.Tool{keyTool("a", 0, &keys, func(int) error { return errors.New("lost") })},
		Model: inSteps("done", []string{"a"}),
	}
	if n := len(w.Kinds()); n != 2 {
		t.Errorf("%d kinds", n)
	}
	class := agent.Bind(workerAgents, func(_ context.Context, a *agent.Agent[struct{}]) (*workerAgent, error) { return &workerAgent{a}, nil },
		&agent.Handlers[workerAgent, struct{}]{Extensions: []dohost.ClassExtension{ledger.Declare(w.Kinds()...)}})
	dohosttest.Run(t, &dohosttest.Options{Classes: []dohost.Class{class}}, func(t *testing.T, h *dohosttest.Host) {
		run := func(ctx context.Context, c *workerAgent) error {
			_, err := w.Run(ctx, c, "go")
			return err
		}
		if err := workerAgents.Get(h, "7").Do(t.Context(), run); err != nil || len(keys) != 1 {
			t.Fatal(err, keys)
		}
		id := dohost.ID{Class: "clerk", Name: "7"}
		states := map[string]int{}
		for r, err := range h.Host().Details(t.Context(), id) {
			if err != nil {
				t.Fatal(err)
			}
			if r.Kind == ledger.ResourceKind {
				states[r.State]++
			}
		}
		if states["unknown"] != 1 || states["completed"] != 2 {
			t.Errorf("the operations are %v", states)
		}
	})
}
