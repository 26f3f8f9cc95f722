package chat_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"strings"
	"testing"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/agent"
	"github.com/dohost/dohost/chat"
	"github.com/dohost/dohost/dohosttest"
	"github.com/dohost/dohost/ledger"
)

// workerAgent is an agent without a conversation. It runs workers.
type workerAgent struct{ *agent.Agent[struct{}] }

const workerAgents dohost.Namespace[workerAgent] = "clerk"

// inWorkerAgent runs f in a worker agent.
func inWorkerAgent(t *testing.T, f func(t *testing.T, ctx context.Context, c *workerAgent)) {
	t.Helper()
	class := agent.Bind(workerAgents, func(_ context.Context, a *agent.Agent[struct{}]) (*workerAgent, error) { return &workerAgent{a}, nil }, nil)
	dohosttest.Run(t, &dohosttest.Options{Classes: []dohost.Class{class}}, func(t *testing.T, h *dohosttest.Host) {
		err := workerAgents.Get(h, "7").Do(t.Context(), func(ctx context.Context, c *workerAgent) error {
			f(t, ctx, c)
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	})
}

// promptModel answers a prompt with chunks.
type promptModel func(p *chat.Prompt) []chat.Chunk

// Stream implements [chat.Model].
func (m promptModel) Stream(_ context.Context, p *chat.Prompt) iter.Seq2[chat.Chunk, error] {
	return func(yield func(chat.Chunk, error) bool) {
		for _, c := range m(p) {
			if !yield(c, nil) {
				return
			}
		}
	}
}

// says returns a text.
func says(text string) []chat.Chunk { return []chat.Chunk{chat.TextDelta("t", text)} }

// callsOf returns the parts of the calls in the prompt.
func callsOf(p *chat.Prompt) (calls []chat.Part) {
	for _, part := range p.Partial.Parts {
		if part.Text("toolCallId") != "" {
			calls = append(calls, part)
		}
	}
	return calls
}

// inSteps returns a model that makes the calls of one step after another, each "tool" or "tool:input", and then says a text.
// Its calls have other ids each time.
func inSteps(text string, steps ...[]string) promptModel {
	asked := 0
	return func(p *chat.Prompt) (list []chat.Chunk) {
		asked++
		made := len(callsOf(p))
		for _, step := range steps {
			if made >= len(step) {
				made -= len(step)
				continue
			}
			for i, call := range step {
				tool, input, _ := strings.Cut(call, ":")
				list = append(list, chat.ToolInput(fmt.Sprintf("%s-%d-%d", tool, asked, i), tool, fmt.Sprintf(`{"of":%q}`, input)))
			}
			return list
		}
		return says(text)
	}
}

type refundCase struct {
	Order string `json:"order"`
}

type decision struct {
	Refund bool     `json:"refund"`
	Cents  int      `json:"cents"`
	Notes  []string `json:"notes,omitempty"`
}

func TestWorkerAnswers(t *testing.T) {
	var prompts []chat.Prompt
	w := &chat.Worker[refundCase, decision]{Name: "judge", Instructions: "Be fair.", Model: promptModel(func(p *chat.Prompt) []chat.Chunk {
		prompts = append(prompts, *p)
		return says("```json\n" + `{"refund":true,"cents":4200}` + "\n```\n")
	})}
	inWorkerAgent(t, func(t *testing.T, ctx context.Context, c *workerAgent) {
		for range 2 {
			out, err := w.Run(ctx, c, refundCase{"7"})
			if err != nil || !out.Refund || out.Cents != 4200 {
				t.Errorf("%+v, %v", out, err)
			}
		}
	})
	if len(prompts) != 2 {
		t.Fatalf("the model was asked %d times", len(prompts))
	}
	for _, p := range prompts {
		if len(p.Messages) != 1 || p.Messages[0].Role != chat.RoleUser || p.Messages[0].PlainText() != `{"order":"7"}` || len(p.Partial.Parts) > 0 {
			t.Errorf("the context is not fresh: %+v", p)
		}
		if !json.Valid(p.Output) || !strings.HasSuffix(p.System, string(p.Output)) {
			t.Errorf("the schema is %s", p.Output)
		}
		if !strings.HasPrefix(p.System, "Be fair.\n") || !strings.Contains(p.System, `"required":["refund","cents"]`) {
			t.Errorf("the system prompt is %q", p.System)
		}
	}
}

func TestWorkerWithTextsOnly(t *testing.T) {
	w := &chat.Worker[string, string]{Name: "echo", Instructions: "Be brief.", Model: promptModel(func(p *chat.Prompt) []chat.Chunk {
		return says(p.System + string(p.Output) + p.Messages[0].PlainText())
	})}
	other := &chat.Worker[int, string]{Name: "echo", Model: w.Model, Messages: func(in int) []chat.Message {
		return []chat.Message{chat.Text("m", chat.RoleUser, fmt.Sprint("number ", in))}
	}}
	inWorkerAgent(t, func(t *testing.T, ctx context.Context, c *workerAgent) {
		if out, err := w.Run(ctx, c, "hello"); out != "Be brief.hello" || err != nil {
			t.Errorf("%q, %v", out, err)
		}
		if out, err := other.Run(ctx, c, 7); out != "number 7" || err != nil {
			t.Errorf("%q, %v", out, err)
		}
	})
}

// TestWorkerCorrections has a model with several answers, one after the other.
func TestWorkerCorrections(t *testing.T) {
	const valid, noCents, textCents = `{"refund":true,"cents":1}`, `{"refund":true}`, `{"refund":true,"cents":"1"}`
	for name, test := range map[string]struct {
		answers []string
		max     int
		want    string // of the error
	}{
		"valid":                       {[]string{valid}, 0, ""},
		"one correction":              {[]string{noCents, valid}, 0, ""},
		"two corrections":             {[]string{"I think so.", textCents, valid}, 0, ""},
		"a field is missing":          {[]string{noCents, noCents, noCents}, 0, "cents"},
		"the type of a field":         {[]string{noCents, noCents, textCents}, 0, "/properties/cents"},
		"an unknown field":            {[]string{noCents, noCents, `{"refund":true,"cents":1,"pet":true}`}, 0, "pet"},
		"a value of a list":           {[]string{noCents, noCents, `{"refund":true,"cents":1,"notes":[1]}`}, 0, "/properties/notes"},
		"no JSON":                     {[]string{"", "yes", valid + "."}, 0, "not JSON"},
		"nothing":                     {[]string{"", "", ""}, 0, "empty"},
		"no steps for a correction":   {[]string{noCents}, 1, "cents"},
		"one step for a correction":   {[]string{noCents, noCents}, 2, "cents"},
		"a correction in a last step": {[]string{noCents, valid}, 2, ""},
	} {
		t.Run(name, func(t *testing.T) {
			asked := 0
			w := &chat.Worker[refundCase, decision]{Name: "judge", MaxSteps: test.max, Model: promptModel(func(p *chat.Prompt) []chat.Chunk {
				if asked > 0 { // the model gets its answer and the error
					list, _ := p.ModelMessages("")
					last := list[len(list)-1]
					if len(p.Messages) != 1+2*asked || last.Role != chat.RoleUser || !strings.Contains(last.Blocks[0].Text, "not valid: it ") {
						t.Errorf("the prompt of the correction ends with %+v", last)
					}
				}
				asked++
				return says(test.answers[asked-1])
			})}
			inWorkerAgent(t, func(t *testing.T, ctx context.Context, c *workerAgent) {
				_, err := w.Run(ctx, c, refundCase{"7"})
				invalid, ok := errors.AsType[*chat.OutputError](err)
				last := strings.TrimSpace(test.answers[len(test.answers)-1])
				if test.want == "" && err != nil || test.want != "" && (!ok || !strings.Contains(invalid.Err.Error(), test.want) || invalid.Output != last) {
					t.Errorf("the error is %v, want %q", err, test.want)
				}
				if test.want != "" && err.Error() != `chat: worker "judge": `+strings.TrimPrefix(invalid.Error(), "chat: ") {
					t.Errorf("the text of the error is %q, of its cause %q", err, invalid)
				}
			})
			if asked != len(test.answers) {
				t.Errorf("the model was asked %d times, want %d", asked, len(test.answers))
			}
		})
	}
}

// TestWorkerAnswerCutOff has a model that stops at its limit.
func TestWorkerAnswerCutOff(t *testing.T) {
	asked := 0
	w := &chat.Worker[string, string]{Name: "echo", Model: promptModel(func(*chat.Prompt) []chat.Chunk {
		asked++
		return append(says("half an ans"), chat.FinishReason("length"))
	})}
	inWorkerAgent(t, func(t *testing.T, ctx context.Context, c *workerAgent) {
		if _, err := w.Run(ctx, c, "hello"); err == nil || !strings.Contains(err.Error(), "stopped early: length") || asked != 3 {
			t.Errorf("%v after %d answers", err, asked)
		}
	})
}

// TestWorkerCallsThatCannotRun has calls of an unknown tool and with invalid inputs. The model gets their errors.
func TestWorkerCallsThatCannotRun(t *testing.T) {
	book := chat.NewTool("book", "", func(context.Context, stay) (int, error) {
		t.Error("the tool runs")
		return 0, nil
	}, nil)
	var results []string
	w := &chat.Worker[string, string]{Name: "host", Tools: []chat.Tool{book}, Model: promptModel(func(p *chat.Prompt) []chat.Chunk {
		calls := callsOf(p)
		if len(calls) == 0 {
			return []chat.Chunk{
				chat.ToolInput("1", "fly", `{}`), chat.ToolInput("2", "book", `{"guest":"ada"}`), chat.ToolInput("3", "book", `{"gue`),
				chat.ToolInputStart("4", "book"), chat.ToolInputDelta("4", `{"gue`),
			}
		}
		for _, part := range calls {
			results = append(results, part.Text("state")+" "+part.Text("errorText"))
		}
		return says("sorry")
	})}
	inWorkerAgent(t, func(t *testing.T, ctx context.Context, c *workerAgent) {
		if out, err := w.Run(ctx, c, "book"); out != "sorry" || err != nil {
			t.Errorf("%q, %v", out, err)
		}
		if n := len(operationsOf(t, ctx, c)); n > 0 {
			t.Errorf("%d operations", n)
		}
	})
	for i, want := range []string{
		`output-error there is no tool "fly"`, "output-error the input does not match the parameters of the tool: ",
		"output-error the input is not JSON", "output-error the input is incomplete",
	} {
		if len(results) != 4 || !strings.HasPrefix(results[i], want) {
			t.Fatalf("the results are %q, want %q", results, want)
		}
	}
}

// operationsOf returns the operations of a worker agent.
func operationsOf(t *testing.T, ctx context.Context, c *workerAgent) (all []ledger.Operation) {
	t.Helper()
	for op, err := range ledger.All(ctx, c.Object()) {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, op)
	}
	return all
}

// TestWorkerSteps runs a model that calls a tool in every answer.
func TestWorkerSteps(t *testing.T) {
	for most, want := range map[int]int{0: 20, 3: 3} {
		asked, runs := 0, 0
		w := &chat.Worker[string, string]{
			Name: "busy", MaxSteps: most,
			Tools: []chat.Tool{{ToolSpec: chat.ToolSpec{Name: "a"}, Run: func(context.Context, json.RawMessage) (any, error) {
				runs++
				return runs, nil
			}}},
			Model: promptModel(func(*chat.Prompt) []chat.Chunk {
				asked++
				return []chat.Chunk{chat.ToolInput(fmt.Sprint("call-", asked), "a", `{}`)}
			}),
		}
		inWorkerAgent(t, func(t *testing.T, ctx context.Context, c *workerAgent) {
			_, err := w.Run(ctx, c, "go")
			if err == nil || !strings.Contains(err.Error(), fmt.Sprintf(`worker "busy": the model has not answered in %d steps`, want)) {
				t.Error(err)
			}
		})
		if asked != want || runs != want-1 {
			t.Errorf("asked %d times, and the tool ran %d times, with the limit %d", asked, runs, want)
		}
	}
}

func TestWorkerFields(t *testing.T) {
	run := func(context.Context, json.RawMessage) (any, error) { return nil, nil }
	a := chat.Tool{ToolSpec: chat.ToolSpec{Name: "a"}, Run: run}
	client, external, asks, wrong := a, a, a, a
	client.Run, external.External, asks.Approve, wrong.Policy = nil, &chat.External{}, &chat.Approval{}, 9
	m := inSteps("hello")
	for want, w := range map[string]*chat.Worker[refundCase, string]{
		"want a name of 1 to 64":                 {Model: m},
		"want a name of 1 to 64 letters":         {Name: "a b", Model: m},
		"the model is nil":                       {Name: "w"},
		"MaxSteps is negative":                   {Name: "w", Model: m, MaxSteps: -1},
		"the depth is 6: want 1 to 5":            {Name: "w", Model: m, Depth: 6},
		"Keep must be zero, or at least 1 ms":    {Name: "w", Model: m, Keep: -1},
		`two tools have the name "a"`:            {Name: "w", Model: m, Tools: []chat.Tool{a, a}},
		`the tool "a" has no Run`:                {Name: "w", Model: m, Tools: []chat.Tool{client}},
		`the tool "a" has Approve or External`:   {Name: "w", Model: m, Tools: []chat.Tool{asks}},
		"has Approve or External, and a worker ": {Name: "w", Model: m, Tools: []chat.Tool{external}},
		"want a Policy of package ledger":        {Name: "w", Model: m, Tools: []chat.Tool{wrong}},
		"tool 0 has no name":                     {Name: "w", Model: m, Tools: []chat.Tool{{Run: run}}},
	} {
		inWorkerAgent(t, func(t *testing.T, ctx context.Context, c *workerAgent) {
			if _, err := w.Run(ctx, c, refundCase{}); !errors.Is(err, dohost.ErrMisuse) || !strings.Contains(err.Error(), want) {
				t.Errorf("%v, want %s", err, want)
			}
			outer := &chat.Worker[refundCase, string]{Name: "outer", Model: m, Tools: []chat.Tool{w.Tool()}}
			if _, err := outer.Run(ctx, c, refundCase{}); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("as a tool: %v, want %s", err, want)
			}
		})
	}
	inWorkerAgent(t, func(t *testing.T, ctx context.Context, c *workerAgent) {
		noSchema := &chat.Worker[refundCase, chan int]{Name: "w", Model: m}
		if _, err := noSchema.Run(ctx, c, refundCase{}); err == nil || !strings.Contains(err.Error(), "the output type chan int has no JSON schema") {
			t.Error(err)
		}
		noInput := &chat.Worker[chan int, string]{Name: "w", Model: m}
		if _, err := noInput.Run(ctx, c, nil); err == nil || !strings.Contains(err.Error(), "the input: ") {
			t.Error(err)
		}
		noStruct := &chat.Worker[string, string]{Name: "w", Model: m}
		outer := &chat.Worker[string, string]{Name: "outer", Model: m, Tools: []chat.Tool{noStruct.Tool()}}
		if _, err := outer.Run(ctx, c, ""); err == nil || !strings.Contains(err.Error(), "the input is of type string, want a struct") {
			t.Error(err)
		}
		if _, err := noStruct.Run(ctx, nil, ""); !errors.Is(err, dohost.ErrMisuse) {
			t.Error(err)
		}
		if _, err := (&chat.Worker[refundCase, string]{Name: "w", Model: m}).Tool().Run(ctx, json.RawMessage(`{"order":"7"}`)); !errors.Is(err, dohost.ErrMisuse) {
			t.Error(err)
		}
	})
}

// TestWorkerDepth nests a worker in itself.
func TestWorkerDepth(t *testing.T) {
	for most, want := range map[int]int{0: 5, 1: 1, 3: 3} {
		deepest, refused := 0, ""
		w := &chat.Worker[refundCase, string]{Name: "self", Depth: most}
		w.Model = promptModel(func(p *chat.Prompt) []chat.Chunk {
			if calls := callsOf(p); len(calls) > 0 {
				if text := calls[0].Text("errorText"); text != "" {
					refused = text
				}
				return says("done")
			}
			deepest++
			return []chat.Chunk{chat.ToolInput("call-1", "self", `{"order":"7"}`)}
		})
		w.Tools = []chat.Tool{w.Tool()}
		inWorkerAgent(t, func(t *testing.T, ctx context.Context, c *workerAgent) {
			if out, err := w.Run(ctx, c, refundCase{"7"}); out != "done" || err != nil {
				t.Errorf("%q, %v", out, err)
			}
		})
		if deepest != want || !strings.Contains(refused, "too many nested workers") {
			t.Errorf("%d workers with the limit %d, and then %q", deepest, want, refused)
		}
	}
}

// TestWorkerDepthOfTree nests workers that allow more, and fewer, than the ones around them.
func TestWorkerDepthOfTree(t *testing.T) {
	asked := 0
	answer := promptModel(func(*chat.Prompt) []chat.Chunk { asked++; return says("done") })
	call := func(tool string) promptModel {
		return func(p *chat.Prompt) []chat.Chunk {
			if calls := callsOf(p); len(calls) > 0 {
				return says(calls[0].Text("output") + calls[0].Text("errorText"))
			}
			return []chat.Chunk{chat.ToolInput("call-1", tool, `{"order":"7"}`)}
		}
	}
	leaf := &chat.Worker[refundCase, string]{Name: "leaf", Model: answer}
	for depths, want := range map[[2]int]string{{2, 5}: "too many nested workers", {3, 5}: "done", {5, 1}: "too many nested workers"} {
		middle := &chat.Worker[refundCase, string]{Name: "middle", Model: call("leaf"), Tools: []chat.Tool{leaf.Tool()}, Depth: depths[1]}
		root := &chat.Worker[refundCase, string]{Name: "root", Model: call("middle"), Tools: []chat.Tool{middle.Tool()}, Depth: depths[0]}
		inWorkerAgent(t, func(t *testing.T, ctx context.Context, c *workerAgent) {
			if out, err := root.Run(ctx, c, refundCase{"7"}); !strings.HasSuffix(out, want) || err != nil {
				t.Errorf("with the depths %v: %q, %v", depths, out, err)
			}
		})
	}
	if asked != 1 {
		t.Errorf("the leaf was asked %d times", asked)
	}
}

// TestWorkerCancel ends the context of a run while the model, a tool, or a tool without regard to its context is busy.
func TestWorkerCancel(t *testing.T) {
	enough := errors.New("enough")
	for _, busy := range []string{"model", "tool", "deaf"} {
		t.Run(busy, func(t *testing.T) {
			ended := 0
			wait := func(ctx context.Context, _ json.RawMessage) (any, error) {
				err := dohost.Sleep(ctx, time.Hour)
				if errors.Is(err, enough) {
					ended++
				}
				return nil, err
			}
			deaf := sleeper("deaf", time.Minute, true)
			deaf.Timeout = -1
			w := &chat.Worker[string, string]{
				Name: "busy", Tools: []chat.Tool{{ToolSpec: chat.ToolSpec{Name: "tool"}, Run: wait, Timeout: -1}, deaf},
				Model: streamModel(func(ctx context.Context, yield func(chat.Chunk, error) bool) {
					if busy == "model" {
						<-ctx.Done()
						ended++
						return
					}
					yield(chat.ToolInput("call-1", busy, `{}`), nil)
					yield(chat.ToolInput("call-2", "tool", `{"n":2}`), nil)
				}),
			}
			inWorkerAgent(t, func(t *testing.T, ctx context.Context, c *workerAgent) {
				begun := time.Now()
				inner, cancel := context.WithCancelCause(ctx)
				time.AfterFunc(time.Second, func() { cancel(enough) })
				if _, err := w.Run(inner, c, "go"); !errors.Is(err, enough) || time.Since(begun) != time.Second {
					t.Errorf("%v after %v", err, time.Since(begun))
				}
				if err := dohost.Sleep(ctx, time.Hour/2); err != nil {
					t.Error(err)
				}
			})
			if want := map[string]int{"model": 1, "tool": 2, "deaf": 1}[busy]; ended != want {
				t.Errorf("%d contexts have ended, want %d", ended, want)
			}
		})
	}
}

// streamModel is a model that yields chunks.
type streamModel func(ctx context.Context, yield func(chat.Chunk, error) bool)

// Stream implements [chat.Model].
func (m streamModel) Stream(ctx context.Context, _ *chat.Prompt) iter.Seq2[chat.Chunk, error] {
	return func(yield func(chat.Chunk, error) bool) { m(ctx, yield) }
}
