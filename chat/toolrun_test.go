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
	"github.com/dohost/dohost/chat"
	"github.com/dohost/dohost/dohosttest"
	"github.com/dohost/dohost/ledger"
)

// stepsModel makes the calls of one step after another, each named "tool" or "tool:input", and then says "done ".
type stepsModel struct {
	steps [][]string
	asked int
}

// Stream implements [chat.Model].
func (m *stepsModel) Stream(_ context.Context, p *chat.Prompt) iter.Seq2[chat.Chunk, error] {
	return func(yield func(chat.Chunk, error) bool) {
		m.asked++
		made := 0
		for _, part := range p.Partial.Parts {
			if part.Text("toolCallId") != "" {
				made++
			}
		}
		for _, step := range m.steps {
			if made >= len(step) {
				made -= len(step)
				continue
			}
			for i, call := range step[made:] {
				tool, input, _ := strings.Cut(call, ":")
				id := fmt.Sprintf("%s-%d-%d", tool, m.asked, made+i)
				if !yield(chat.ToolInput(id, tool, fmt.Sprintf(`{"of":%q}`, input)), nil) {
					return
				}
			}
			return
		}
		if p.Partial.PlainText() == "" {
			yield(chat.TextDelta("t", "done "), nil)
		}
	}
}

// toolClass is a class of agents that answer with the model and the tools.
func toolClass(m chat.Model, o chat.Options, tools func(p *countingAgent) []chat.Tool) dohost.Class {
	return countingClassOf(&countingState{}, &handlers{Reply: func(p *countingAgent, ctx context.Context, r *chat.Reply) error {
		return chat.Answer(ctx, r, m, &chat.AnswerOptions{Tools: tools(p)})
	}, Options: o})
}

// runTools runs f after a reply with the tools has begun.
func runTools(t *testing.T, m chat.Model, o chat.Options, tools func(p *countingAgent) []chat.Tool, f func(t *testing.T, ctx context.Context, h *dohosttest.Host)) {
	t.Helper()
	runAsked(t, toolClass(m, o, tools), f)
}

// runAsked runs f after a reply of the class has begun.
func runAsked(t *testing.T, class dohost.Class, f func(t *testing.T, ctx context.Context, h *dohosttest.Host)) {
	t.Helper()
	runWithHost(t, class, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		err := countingAgents.Get(h, testID.Name).Do(ctx, func(ctx context.Context, p *countingAgent) error {
			_, err := chat.Ask(ctx, p, []chat.Message{chat.Text("u", chat.RoleUser, "go")}, &chat.AskOptions{ID: "one"})
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		f(t, ctx, h)
	})
}

// answerOf returns the parts of the last message, and the states of the calls by their tools.
func answerOf(t *testing.T, ctx context.Context, h *dohosttest.Host) (m chat.Message, states map[string]string) {
	t.Helper()
	states = map[string]string{}
	err := countingAgents.Get(h, testID.Name).Do(ctx, func(ctx context.Context, p *countingAgent) error {
		list, err := chat.Messages(ctx, p, 1)
		if err == nil {
			m = list[0]
		}
		return err
	})
	for r, detailErr := range h.Host().Details(ctx, testID) {
		if err = errors.Join(err, detailErr); r.Kind == "call" {
			tool, _, _ := strings.Cut(r.ID, "-")
			states[tool] = r.State
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	return m, states
}

func resultOf(m chat.Message, tool string) (result string) {
	for _, p := range m.Parts {
		if p.Type() == "tool-"+tool {
			return p.Text("state") + " " + string(p.Member("output")) + p.Text("errorText")
		}
	}
	return ""
}

// sleeper is a tool that takes a time, ignores its context if deaf, and returns its name.
func sleeper(name string, d time.Duration, deaf bool) chat.Tool {
	return chat.Tool{ToolSpec: chat.ToolSpec{Name: name}, Run: func(ctx context.Context, _ json.RawMessage) (any, error) {
		err := dohost.Await(ctx, func(ctx context.Context) error {
			if deaf {
				time.Sleep(d)
				return nil
			}
			select {
			case <-time.After(d):
				return nil
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		})
		return name, err
	}}
}

func TestToolsOfAStepRunConcurrently(t *testing.T) {
	m := &stepsModel{steps: [][]string{{"a", "b", "c"}, {"a"}}}
	runTools(t, m, chat.Options{Stall: 2 * time.Second}, func(*countingAgent) []chat.Tool {
		return []chat.Tool{sleeper("a", 4*time.Second, false), sleeper("b", time.Second, false), sleeper("c", 4*time.Second, false)}
	}, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		h.Advance(1500 * time.Millisecond)
		if _, states := answerOf(t, ctx, h); states["a"] != "running" || states["b"] != "completed" || states["c"] != "running" || m.asked != 1 {
			t.Errorf("after 1.5 s: %v, asked %d times", states, m.asked)
		}
		h.Advance(3 * time.Second)
		if m.asked != 2 {
			t.Errorf("after 4.5 s, the model was asked %d times", m.asked)
		}
		h.Advance(4 * time.Second)
		if answer, states := answerOf(t, ctx, h); answer.PlainText() != "done " || m.asked != 3 || states["a"] != "completed" || states["c"] != "completed" {
			t.Errorf("after 8.5 s: %q, asked %d times, %v", answer.PlainText(), m.asked, states)
		}
	})
}

func TestToolsBeyondMaxParallelWait(t *testing.T) {
	step := slices.Repeat([]string{"a"}, 20)
	m := &stepsModel{steps: [][]string{step}}
	running, most := 0, 0
	runTools(t, m, chat.Options{}, func(*countingAgent) []chat.Tool {
		return []chat.Tool{{ToolSpec: chat.ToolSpec{Name: "a"}, Run: func(ctx context.Context, _ json.RawMessage) (any, error) {
			running++
			most = max(most, running)
			defer func() { running-- }()
			return 1, dohost.Sleep(ctx, time.Second)
		}}}
	}, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		h.Advance(1500 * time.Millisecond)
		if m.asked != 1 {
			t.Errorf("after 1.5 s, the model was asked %d times", m.asked)
		}
		h.Advance(time.Second)
		if answer, _ := answerOf(t, ctx, h); answer.PlainText() != "done " || most != 16 {
			t.Errorf("%q, at most %d calls ran concurrently", answer.PlainText(), most)
		}
	})
}

// TestToolTimeout has a tool that takes longer than its time, with and without regard to its context.
func TestToolTimeout(t *testing.T) {
	for _, deaf := range []bool{false, true} {
		t.Run(fmt.Sprint("deaf ", deaf), func(t *testing.T) {
			m := &stepsModel{steps: [][]string{{"slow", "quick"}}}
			runTools(t, m, chat.Options{}, func(*countingAgent) []chat.Tool {
				slow := sleeper("slow", 90*time.Second, deaf)
				return []chat.Tool{slow, sleeper("quick", time.Second, false)}
			}, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
				h.Advance(59 * time.Second)
				if m.asked != 1 {
					t.Errorf("after 59 s, the model was asked %d times", m.asked)
				}
				h.Advance(2 * time.Second)
				for range 2 {
					answer, states := answerOf(t, ctx, h)
					if got := resultOf(answer, "slow"); got != "output-error The call took longer than 1m0s. Whether it took effect is not known." ||
						states["slow"] != "unknown" || resultOf(answer, "quick") != `output-available "quick"` || answer.PlainText() != "done " {
						t.Errorf("%s, %v, %q", got, states, answer.PlainText())
					}
					h.Advance(time.Minute) // the tool returns, and its result is discarded
				}
			})
		})
	}
}

// TestToolTimeoutsInOneInstant has calls whose times end in one instant: their errors are in the order of the calls.
func TestToolTimeoutsInOneInstant(t *testing.T) {
	m := &stepsModel{steps: [][]string{slices.Repeat([]string{"slow"}, 12)}}
	class := toolClass(m, chat.Options{}, func(*countingAgent) []chat.Tool {
		return []chat.Tool{sleeper("slow", 90*time.Second, true)}
	})
	runAsked(t, class, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		r := newReader(h, testID, "r")
		if err := r.until(ctx, func() bool { return r.views["one"] != nil && len(r.views["one"].outputs) == 12 }, nil); err != nil {
			t.Fatal(err)
		}
		for i, id := range r.views["one"].outputs {
			if want := fmt.Sprintf("slow-1-%d", i); id != want {
				t.Errorf("result %d is that of %s, want %s", i, id, want)
			}
		}
	})
}

// TestStallAfterTool has a model that hangs once after a call, in time or too long.
func TestStallAfterTool(t *testing.T) {
	for _, timeout := range []time.Duration{time.Second, time.Minute} {
		hangs := 0
		m := hangingModel{&stepsModel{steps: [][]string{{"slow"}}}, &hangs}
		runTools(t, m, chat.Options{Stall: time.Minute}, func(*countingAgent) []chat.Tool {
			slow := sleeper("slow", 5*time.Second, true)
			slow.Timeout = timeout
			return []chat.Tool{slow}
		}, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
			h.Advance(2 * time.Minute)
			if answer, _ := answerOf(t, ctx, h); answer.PlainText() != "done " || hangs != 1 {
				t.Errorf("with the timeout %v: %q after %d hangs", timeout, answer.PlainText(), hangs)
			}
		})
	}
}

// hangingModel hangs the second time that it is asked, until its context ends.
type hangingModel struct {
	*stepsModel
	hangs *int
}

// Stream implements [chat.Model].
func (m hangingModel) Stream(ctx context.Context, p *chat.Prompt) iter.Seq2[chat.Chunk, error] {
	if m.asked == 1 && *m.hangs == 0 {
		return func(func(chat.Chunk, error) bool) {
			*m.hangs++
			<-ctx.Done()
		}
	}
	return m.stepsModel.Stream(ctx, p)
}

func TestCancelEndsRunningTool(t *testing.T) {
	m := &stepsModel{steps: [][]string{{"a", "b"}}}
	var causes []error
	runTools(t, m, chat.Options{}, func(*countingAgent) []chat.Tool {
		run := func(ctx context.Context, _ json.RawMessage) (any, error) {
			err := dohost.Sleep(ctx, 30*time.Second)
			causes = append(causes, err)
			return "late", nil
		}
		return []chat.Tool{{ToolSpec: chat.ToolSpec{Name: "a"}, Run: run}, {ToolSpec: chat.ToolSpec{Name: "b"}, Run: run}}
	}, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		h.Advance(time.Second)
		err := countingAgents.Get(h, testID.Name).Do(ctx, func(ctx context.Context, p *countingAgent) error {
			_, err := chat.Cancel(ctx, p, "one")
			return err
		})
		if err != nil {
			t.Error(err)
		}
		h.Advance(time.Second)
		answer, states := answerOf(t, ctx, h)
		if len(causes) != 2 || !errors.Is(causes[0], chat.ErrReplyOver) || !errors.Is(causes[1], chat.ErrReplyOver) ||
			states["a"] != "unknown" || states["b"] != "unknown" || !strings.Contains(resultOf(answer, "a"), "interrupted") {
			t.Errorf("%v, %v, %s", causes, states, resultOf(answer, "a"))
		}
	})
}

// TestToolCallRepetitionIsBounded has an idempotent tool that ends its incarnation in each run.
func TestToolCallRepetitionIsBounded(t *testing.T) {
	m := &stepsModel{steps: [][]string{{"a"}}}
	runs, keys := 0, map[string]bool{}
	runTools(t, m, chat.Options{Recovery: chat.Recovery{MaxAttempts: 100}}, func(p *countingAgent) []chat.Tool {
		return []chat.Tool{{ToolSpec: chat.ToolSpec{Name: "a"}, Policy: ledger.PolicyIdempotent, Run: func(ctx context.Context, _ json.RawMessage) (any, error) {
			c, _ := chat.CallFrom(ctx)
			keys[c.Key] = true
			runs++
			return nil, p.Object().Abort(ctx, errors.New("enough"), nil)
		}}}
	}, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		h.Advance(10 * time.Minute)
		answer, states := answerOf(t, ctx, h)
		if runs != 5 || len(keys) != 1 || states["a"] != "unknown" || answer.PlainText() != "done " {
			t.Errorf("%d runs with %d keys, %s, %q", runs, len(keys), states["a"], answer.PlainText())
		}
	})
}

func TestFindIsOnlyForInterruptedCalls(t *testing.T) {
	m := &stepsModel{steps: [][]string{{"a"}}}
	finds := 0
	runTools(t, m, chat.Options{}, func(*countingAgent) []chat.Tool {
		tool := sleeper("a", time.Second, false)
		tool.Policy = ledger.PolicyReconcile
		tool.Find = func(context.Context, json.RawMessage) (any, ledger.Answer, error) {
			finds++
			return nil, ledger.AnswerUnknown, errors.New("no answer")
		}
		return []chat.Tool{tool}
	}, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		h.Advance(500 * time.Millisecond)
		if finds > 0 {
			t.Errorf("Find was called %d times before an interruption", finds)
		}
		h.Evict(testID, dohost.EndFence)
		h.Advance(time.Minute)
		answer, states := answerOf(t, ctx, h)
		if finds != 1 || states["a"] != "unknown" || !strings.HasSuffix(resultOf(answer, "a"), "not known. no answer") {
			t.Errorf("%d calls of Find, %s, %s", finds, states["a"], resultOf(answer, "a"))
		}
	})
}

func TestToolOptions(t *testing.T) {
	find := func(context.Context, json.RawMessage) (any, ledger.Answer, error) {
		return nil, ledger.AnswerUnknown, nil
	}
	run := func(context.Context, json.RawMessage) (any, error) { return nil, nil }
	for want, tool := range map[string]chat.Tool{
		"Approve.Within is negative":         {Run: run, Approve: &chat.Approval{Within: -1}},
		"want a Policy of package ledger":    {Run: run, Policy: 9},
		"Policy and Find are for tools with": {Policy: ledger.PolicyIdempotent},
		"PolicyReconcile needs Find":         {Run: run, Policy: ledger.PolicyReconcile},
		"External allows PolicyAtMostOnce":   {Run: run, Find: find, Policy: ledger.PolicyReconcile, External: &chat.External{}},
		"no other policy calls it":           {Run: run, Find: find},
		"Unrecorded is for tools of a":       {Run: run, Policy: ledger.PolicyIdempotent, Unrecorded: true},
	} {
		tool.Name = "a"
		m := &stepsModel{steps: [][]string{{"a"}}}
		runTools(t, m, chat.Options{}, func(*countingAgent) []chat.Tool { return []chat.Tool{tool} }, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
			err := countingAgents.Get(h, testID.Name).Do(ctx, func(ctx context.Context, p *countingAgent) error {
				r, _, err := chat.Wait(ctx, p, "one")
				if !strings.Contains(r.Error, `chat: tool "a": `) || !strings.Contains(r.Error, want) || m.asked != 0 {
					t.Errorf("%q, want %q", r.Error, want)
				}
				return err
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
}

// TestToolErrorStates lists the state of a call after each kind of error.
func TestToolErrorStates(t *testing.T) {
	errRefused := errors.New("refused")
	for name, c := range map[string]struct {
		policy ledger.Policy
		err    error
		want   string
	}{
		"no policy":              {0, errRefused, "unknown"},
		"at most once":           {ledger.PolicyAtMostOnce, errRefused, "unknown"},
		"at most once, a proof":  {ledger.PolicyAtMostOnce, ledger.NoEffect(errRefused), "failed"},
		"idempotent":             {ledger.PolicyIdempotent, errRefused, "failed"},
		"no policy, and a proof": {0, ledger.NoEffect(errRefused), "failed"},
	} {
		t.Run(name, func(t *testing.T) {
			m := &stepsModel{steps: [][]string{{"a"}}}
			runTools(t, m, chat.Options{}, func(*countingAgent) []chat.Tool {
				return []chat.Tool{{ToolSpec: chat.ToolSpec{Name: "a"}, Policy: c.policy, Run: func(context.Context, json.RawMessage) (any, error) { return nil, c.err }}}
			}, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
				h.Advance(time.Second)
				if answer, states := answerOf(t, ctx, h); states["a"] != c.want || resultOf(answer, "a") != "output-error refused" {
					t.Errorf("%s, %s", states["a"], resultOf(answer, "a"))
				}
			})
		})
	}
}

// TestToolContext reads the values of the handler's context, and the call, in a tool.
func TestToolContext(t *testing.T) {
	type key struct{}
	m := &stepsModel{steps: [][]string{{"a:1", "a:1", "a:2"}}}
	var calls []chat.Call
	class := countingClassOf(&countingState{}, &handlers{Reply: func(_ *countingAgent, ctx context.Context, r *chat.Reply) error {
		if _, ok := chat.CallFrom(ctx); ok {
			t.Error("the context of the handler has a call")
		}
		return chat.Answer(context.WithValue(ctx, key{}, "mine"), r, m, &chat.AnswerOptions{Tools: []chat.Tool{{
			ToolSpec: chat.ToolSpec{Name: "a"},
			Run: func(ctx context.Context, _ json.RawMessage) (any, error) {
				c, ok := chat.CallFrom(ctx)
				if !ok || ctx.Value(key{}) != "mine" {
					t.Errorf("%+v, %t, %v", c, ok, ctx.Value(key{}))
				}
				calls = append(calls, c)
				return 1, nil
			},
		}}})
	}})
	dohosttest.Run(t, &dohosttest.Options{Classes: []dohost.Class{class}}, func(t *testing.T, h *dohosttest.Host) {
		err := countingAgents.Get(h, testID.Name).Do(t.Context(), func(ctx context.Context, p *countingAgent) error {
			_, err := chat.Ask(ctx, p, []chat.Message{chat.Text("u", chat.RoleUser, "go")}, &chat.AskOptions{ID: "one"})
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		h.Advance(time.Second)
		keys := map[string]bool{}
		for _, c := range calls {
			keys[c.Key] = true
			if c.State != chat.CallRunning || c.Tool != "a" || c.Request != "one" || !strings.HasPrefix(c.Key, "call_") || len(c.Key) != 31 {
				t.Errorf("%+v", c)
			}
		}
		if len(calls) != 3 || len(keys) != 3 {
			t.Errorf("%d calls with %d keys", len(calls), len(keys))
		}
	})
}

// TestToolPoliciesAtEveryPoint runs a chain of two steps with one tool of each policy, two of them concurrently. The services
// are the judges.
func TestToolPoliciesAtEveryPoint(t *testing.T) {
	t.Parallel()
	var once, again, found dohosttest.FakeService
	again.Idempotent = true
	keys := map[string]map[string]bool{} // of each tool
	m := &stepsModel{steps: [][]string{{"once", "again"}, {"found"}, {"again"}}}
	service := func(s *dohosttest.FakeService, tool string, p ledger.Policy) chat.Tool {
		return chat.Tool{ToolSpec: chat.ToolSpec{Name: tool}, Policy: p, Run: func(ctx context.Context, _ json.RawMessage) (any, error) {
			c, _ := chat.CallFrom(ctx)
			if keys[tool] == nil {
				keys[tool] = map[string]bool{}
			}
			keys[tool][c.Key] = true
			err := dohost.Await(ctx, func(ctx context.Context) error { return s.Call(ctx, c.Key, tool) })
			return "receipt", err
		}}
	}
	reconcile := service(&found, "found", ledger.PolicyReconcile)
	reconcile.Find = func(ctx context.Context, _ json.RawMessage) (any, ledger.Answer, error) {
		if c, _ := chat.CallFrom(ctx); found.Effects(c.Key) > 0 {
			return "receipt", ledger.AnswerDone, nil
		}
		return nil, ledger.AnswerNotDone, nil
	}
	class := toolClass(m, chat.Options{}, func(*countingAgent) []chat.Tool {
		return []chat.Tool{service(&once, "once", 0), service(&again, "again", ledger.PolicyIdempotent), reconcile}
	})
	all := &testClients{}
	s := scenario(&countingState{}, all, class)
	s.Services = []*dohosttest.FakeService{&once, &again, &found}
	reset := s.Reset
	s.Reset = func() { reset(); clear(keys); m.asked = 0 }
	s.Run = func(ctx context.Context, h *dohosttest.Host) error { return all.join(h, "asker").askAll(ctx, "one") }
	s.Check = func(ctx context.Context, h *dohosttest.Host) error {
		answer, states := answerOf(t, ctx, h)
		total := func(s *dohosttest.FakeService) (n int) {
			for _, k := range s.Keys() {
				n += s.Effects(k)
			}
			return n
		}
		onceState := map[string]bool{"completed": true, "unknown": true}
		if n := total(&once); n > 1 || !onceState[states["once"]] || states["once"] == "completed" && n != 1 {
			return fmt.Errorf("once: %d effects, %s", n, states["once"])
		}
		if n := total(&again); n != 2 || states["again"] != "completed" || len(keys["again"]) != 2 {
			return fmt.Errorf("again: %d effects with %d keys, %s", n, len(keys["again"]), states["again"])
		}
		if n := total(&found); n != 1 || states["found"] != "completed" || len(keys["found"]) != 1 {
			return fmt.Errorf("found: %d effects with %d keys, %s", n, len(keys["found"]), states["found"])
		}
		if answer.PlainText() != "done " {
			return fmt.Errorf("the reply is %q", answer.PlainText())
		}
		return nil
	}
	dohosttest.EveryPoint(t, s)
}
