package chat_test

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/agent"
	"github.com/dohost/dohost/chat"
	"github.com/dohost/dohost/ledger"
)

// TestWorkerPostpones runs a worker whose model calls four tools in a step. Three of them have no result yet: the run ends with the shortest
// postponement when the fourth has ended. When all have a result, another run continues with the recorded answer, and the fourth tool runs no more.
func TestWorkerPostpones(t *testing.T) {
	ready := map[string]bool{}
	waiting := func(name string, after time.Duration) chat.Tool {
		return chat.Tool{
			ToolSpec: chat.ToolSpec{Name: name}, Policy: ledger.PolicyIdempotent, Unrecorded: true,
			Run: func(ctx context.Context, _ json.RawMessage) (any, error) {
				if !ready[name] {
					return nil, &agent.PostponeError{After: after, Err: errors.New(name + " is not ready")}
				}
				return name, nil
			},
		}
	}
	slow, asked := 0, 0
	steps := inSteps("done", []string{"a", "c", "b", "slow"})
	w := &chat.Worker[string, string]{
		Name: "w", Durable: true,
		Tools: []chat.Tool{waiting("a", time.Hour), waiting("c", time.Second), waiting("b", time.Minute), {
			ToolSpec: chat.ToolSpec{Name: "slow"}, Policy: ledger.PolicyIdempotent,
			Run: func(ctx context.Context, _ json.RawMessage) (any, error) {
				slow++
				return 1, dohost.Sleep(ctx, 10*time.Second)
			},
		}},
		Model: promptModel(func(p *chat.Prompt) []chat.Chunk { asked++; return steps(p) }),
	}
	inWorkerAgent(t, func(t *testing.T, ctx context.Context, c *workerAgent) {
		begun := time.Now()
		for _, run := range []struct{ ready, want string }{{"", "c is not ready"}, {"c", "b is not ready"}} {
			ready[run.ready] = true
			_, err := w.Run(ctx, c, "go")
			p, ok := errors.AsType[*agent.PostponeError](err)
			if !ok || p.Err.Error() != run.want || slow != 1 || asked != 1 || time.Since(begun) != 10*time.Second {
				t.Errorf("%v, the tool ran %d times, the model was asked %d times, after %v", err, slow, asked, time.Since(begun))
			}
		}
		ready["a"], ready["b"] = true, true
		if out, err := w.Run(ctx, c, "go"); out != "done" || err != nil || slow != 1 || asked != 2 {
			t.Errorf("%q, %v, the tool ran %d times, the model was asked %d times", out, err, slow, asked)
		}
	})
}

// TestWorkerPostponeOfRecordedTool has a tool of the ledger with the same error: the model gets it.
func TestWorkerPostponeOfRecordedTool(t *testing.T) {
	tool := chat.Tool{ToolSpec: chat.ToolSpec{Name: "a"}, Policy: ledger.PolicyIdempotent, Run: func(context.Context, json.RawMessage) (any, error) {
		return nil, &agent.PostponeError{After: time.Hour, Err: errors.New("not ready")}
	}}
	w := &chat.Worker[string, string]{Name: "w", Tools: []chat.Tool{tool}, Model: inSteps("done", []string{"a"})}
	inWorkerAgent(t, func(t *testing.T, ctx context.Context, c *workerAgent) {
		if out, err := w.Run(ctx, c, "go"); out != "done" || err != nil {
			t.Errorf("%q, %v", out, err)
		}
	})
}

// TestWorkerIdentity repeats runs with other messages in the prompt. The recorded answers count for the same Identity, also after an answer that the
// model had to correct.
func TestWorkerIdentity(t *testing.T) {
	type input struct {
		before, last string
	}
	asked := 0
	w := &chat.Worker[input, decision]{
		Name: "w", Durable: true,
		Messages: func(in input) []chat.Message {
			return []chat.Message{chat.Text("1", chat.RoleUser, in.before), chat.Text("2", chat.RoleUser, in.last)}
		},
		Identity: func(in input) []chat.Message { return []chat.Message{chat.Text("2", chat.RoleUser, in.last)} },
		Model: promptModel(func(p *chat.Prompt) []chat.Chunk {
			asked++
			if len(p.Messages) == 2 {
				return []chat.Chunk{chat.TextDelta("t", "not JSON")}
			}
			return []chat.Chunk{chat.TextDelta("t", `{"refund":true,"cents":1}`)}
		}),
	}
	inWorkerAgent(t, func(t *testing.T, ctx context.Context, c *workerAgent) {
		for n, run := range []struct {
			in    input
			asked int
		}{{input{"hi", "a"}, 2}, {input{"hi", "a"}, 2}, {input{"hello", "a"}, 2}, {input{"hello", "b"}, 4}, {input{"hi", "b"}, 4}} {
			if out, err := w.Run(ctx, c, run.in); out.Cents != 1 || err != nil || asked != run.asked {
				t.Errorf("run %d: %+v, %v, the model was asked %d times, want %d", n, out, err, asked, run.asked)
			}
		}
	})
}
