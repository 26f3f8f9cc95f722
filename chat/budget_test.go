package chat_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dohost/dohost/chat"
	"github.com/dohost/dohost/dohosttest"
)

// thriftyModel says words of two estimated tokens, and continues after those of the prompt, which must be interrupted then.
type thriftyModel struct {
	words int
	pace  time.Duration

	mu   sync.Mutex
	errs []error
}

func (m *thriftyModel) reset() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.errs = nil
}

func thriftyText(n int) (s string) {
	for i := range n {
		s += fmt.Sprintf("w%06d ", i)
	}
	return s
}

// Stream implements [chat.Model].
func (m *thriftyModel) Stream(ctx context.Context, p *chat.Prompt) iter.Seq2[chat.Chunk, error] {
	said := strings.Count(p.Partial.PlainText(), "w")
	raw, err := json.Marshal([]any{p.Messages, p.Partial, p.Tools})
	list, _ := p.ModelMessages(chat.ContinueSyntheticMessage)
	if text := string(raw) + fmt.Sprint(list); err != nil || strings.Contains(text, "dohost_budget") || said > 0 && !p.Interrupted {
		m.mu.Lock()
		m.errs = append(m.errs, fmt.Errorf("after %d words, interrupted %t: the prompt is %s %w", said, p.Interrupted, text, err))
		m.mu.Unlock()
	}
	return func(yield func(chat.Chunk, error) bool) {
		p.ReportUsage(ctx, chat.Usage{InputTokens: 1})
		for i := said; i < m.words; i++ {
			select {
			case <-time.After(m.pace):
			case <-ctx.Done():
				return
			}
			if !yield(chat.TextDelta("t", fmt.Sprintf("w%06d ", i)), nil) {
				return
			}
		}
	}
}

// runBudget runs f after a reply of the model has begun.
func runBudget(t *testing.T, m *thriftyModel, b chat.Budget, f func(t *testing.T, ctx context.Context, h *dohosttest.Host)) {
	t.Helper()
	runTools(t, m, chat.Options{Budget: b}, func(*countingAgent) []chat.Tool { return nil }, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		h.Advance(10 * time.Second)
		f(t, ctx, h)
	})
	for _, err := range m.errs {
		t.Error(err)
	}
}

// waitingBudget returns the only call about a budget that waits.
func waitingBudget(ctx context.Context, p *countingAgent) (call chat.Call, err error) {
	n := 0
	for c, err := range chat.Calls(ctx, p) {
		if err != nil {
			return call, err
		}
		if c.State == chat.CallApproval {
			call, n = c, n+1
		}
	}
	if n != 1 || call.Tool != "dohost_budget" {
		return call, fmt.Errorf("%d calls wait, the last is %+v", n, call)
	}
	return call, nil
}

func decideBudget(t *testing.T, ctx context.Context, h *dohosttest.Host, approve bool) (c chat.Call) {
	t.Helper()
	inEvent(t, ctx, h, func(ctx context.Context, p *countingAgent) (err error) {
		if c, err = waitingBudget(ctx, p); err != nil {
			return err
		}
		return chat.Decide(ctx, p, &chat.Decision{Call: c.ID, Digest: c.Digest, Approve: approve, Actor: "op"})
	})
	h.Advance(10 * time.Second)
	return c
}

// wantReply checks the text of the reply, the statuses of the calls about budgets, and the number of grants.
func wantReply(t *testing.T, ctx context.Context, h *dohosttest.Host, words int, states string, grants int) {
	t.Helper()
	inEvent(t, ctx, h, func(ctx context.Context, p *countingAgent) error {
		list, err := chat.Messages(ctx, p, 0)
		if err != nil || len(list) != 2 {
			return errors.Join(err, fmt.Errorf("%d messages", len(list)))
		}
		got := ""
		for _, part := range list[1].Parts {
			if part.Type() == "tool-dohost_budget" {
				got += " " + part.Text("state")
			}
		}
		n, err := chat.BudgetGrants(ctx, p, chat.BudgetOfReply, list[1].ID)
		if list[1].PlainText() != thriftyText(words) || strings.TrimSpace(got) != states || n != grants {
			t.Errorf("the text is %q, the calls are%s, and %d grants; want %d words, %s, %d", list[1].PlainText(), got, n, words, states, grants)
		}
		return errors.Join(err, p.Idle(ctx))
	})
}

// A reply whose budget is exhausted in the middle of its text waits for decisions, and continues the text after each grant.
func TestBudgetSuspendsReply(t *testing.T) {
	m := &thriftyModel{words: 25}
	runBudget(t, m, chat.Budget{Reply: chat.Limit{Tokens: 21}}, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		wantReply(t, ctx, h, 10, "approval-requested", 0)
		c := decideBudget(t, ctx, h, true)
		if want := `"scope":"reply"`; !strings.Contains(c.Input, want) || !strings.Contains(c.Input, `"measure":"tokens","spent":21,"limit":21,"interrupted":true`) {
			t.Errorf("the input is %s", c.Input)
		}
		wantReply(t, ctx, h, 20, "output-available approval-requested", 1)
		decideBudget(t, ctx, h, true)
		wantReply(t, ctx, h, 25, "output-available output-available", 2)
	})
}

// A new limit, which is large enough, counts from the decision on. A refusal ends the reply with its text; it asks no model.
func TestBudgetDecisions(t *testing.T) {
	for name, approve := range map[string]bool{"approved": true, "refused": false} {
		t.Run(name, func(t *testing.T) {
			m := &thriftyModel{words: 40}
			runBudget(t, m, chat.Budget{Reply: chat.Limit{Tokens: 61}}, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
				wantReply(t, ctx, h, 30, "approval-requested", 0)
				decideBudget(t, ctx, h, approve)
				if approve {
					wantReply(t, ctx, h, 40, "output-available", 1)
				} else {
					wantReply(t, ctx, h, 30, "output-denied", 0)
				}
			})
		})
	}
}

// A client sees the call, and may refuse it. It may approve it only if the program says so.
func TestBudgetDecisionsOfClients(t *testing.T) {
	for _, may := range []bool{false, true} {
		m := &thriftyModel{words: 40}
		runBudget(t, m, chat.Budget{Reply: chat.Limit{Tokens: 61}, ClientsDecide: may}, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
			var call chat.Call
			inEvent(t, ctx, h, func(ctx context.Context, p *countingAgent) (err error) {
				call, err = waitingBudget(ctx, p)
				return err
			})
			r := connectIdle(t, h, "mallory")
			defer r.close()
			forged := allMessages(t, ctx, h)
			raw, err := json.Marshal(forged)
			if err != nil {
				t.Fatal(err)
			}
			var list []map[string]any
			text := strings.ReplaceAll(string(raw), `"approval-requested"`, `"approval-responded"`)
			if err := json.Unmarshal([]byte(strings.ReplaceAll(text, `"approval":{`, `"approval":{"approved":true,`)), &list); err != nil {
				t.Fatal(err)
			}
			if !may {
				r.sendFrame(ctx, map[string]any{"type": "cf_agent_chat_messages", "messages": list})
				h.Advance(time.Second)
			}
			r.sendFrame(ctx, map[string]any{"type": "cf_agent_tool_approval", "toolCallId": call.ID, "approved": true, "autoContinue": true})
			h.Advance(10 * time.Second)
			if may {
				wantReply(t, ctx, h, 40, "output-available", 1)
				return
			}
			wantReply(t, ctx, h, 30, "approval-requested", 0)
			r.sendFrame(ctx, map[string]any{"type": "cf_agent_tool_approval", "toolCallId": call.ID, "approved": false, "autoContinue": true})
			h.Advance(10 * time.Second)
			wantReply(t, ctx, h, 30, "output-denied", 0)
		})
	}
}

// The budgets of a day and of an agent suspend other replies, too. A budget of time stops a model that is silent.
func TestBudgetScopes(t *testing.T) {
	for name, b := range map[string]chat.Budget{"day": {Day: chat.Limit{Tokens: 61}}, "agent": {Agent: chat.Limit{Tokens: 61}}} {
		t.Run(name, func(t *testing.T) {
			m := &thriftyModel{words: 40}
			runBudget(t, m, b, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
				c := decideBudget(t, ctx, h, true)
				if !strings.Contains(c.Input, `"scope":"`+name) {
					t.Errorf("the input is %s", c.Input)
				}
				wantReply(t, ctx, h, 40, "output-available", 0)
			})
		})
	}
	m := &thriftyModel{words: 2, pace: 8 * time.Second}
	runBudget(t, m, chat.Budget{Reply: chat.Limit{Time: 3 * time.Second}}, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		wantReply(t, ctx, h, 0, "approval-requested", 0)
	})
}

// A worker and a summary are refused before the model is asked.
func TestBudgetRefusesWorkers(t *testing.T) {
	for _, durable := range []bool{false, true} {
		m := &meteredModel{words: 1, reports: []chat.Usage{{InputTokens: 10, OutputTokens: 1}}}
		w := &chat.Worker[string, string]{Name: "w", Model: m, Durable: durable, Budget: chat.Budget{Agent: chat.Limit{Tokens: 11}}}
		inWorkerAgent(t, func(t *testing.T, ctx context.Context, c *workerAgent) {
			for _, in := range []string{"a", "b"} {
				_, err := w.Run(ctx, c, in)
				e, ok := errors.AsType[*chat.BudgetError](err)
				if in == "a" && err != nil || in == "b" && (!ok || e.Scope != chat.BudgetOfAgent || e.Measure != "tokens" || e.Spent != 11 || e.Limit != 11) {
					t.Errorf("durable %t: the run of %s: %v", durable, in, err)
				}
			}
		})
		if m.asked != 1 {
			t.Errorf("durable %t: the model was asked %d times", durable, m.asked)
		}
	}
}

// A summary waits for a budget, without a charge: the next reply makes it.
func TestBudgetDelaysSummaries(t *testing.T) {
	s := newHistorian(3, 1)
	s.options.Budget = chat.Budget{Day: chat.Limit{Tokens: 1}}
	s.run(t, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		storeWords(t, ctx, h, 60)
		askWord(t, ctx, h, "q")
		h.Advance(time.Minute)
		for _, line := range inspected(t, h, "fiber") {
			if strings.Contains(line, "running") || strings.Contains(line, "pending") {
				t.Errorf("the fiber repeats the call: %s", line)
			}
		}
		h.Advance(time.Hour)
		if len(s.prompts) != 0 {
			t.Errorf("the model was asked %d times", len(s.prompts))
		}
		inEvent(t, ctx, h, func(ctx context.Context, p *countingAgent) error {
			_, err := chat.Summarize(ctx, p, &chat.SummarizeOptions{Model: s})
			if _, ok := errors.AsType[*chat.BudgetError](err); !ok {
				t.Errorf("Summarize returns %v", err)
			}
			return nil
		})
	})
}

// The name of the tool is reserved: for the tools of the program, of clients and of models.
func TestBudgetToolIsReserved(t *testing.T) {
	tool := chat.Tool{ToolSpec: chat.ToolSpec{Name: "dohost_budget"}}
	replyWith(t, &meteredModel{words: 1}, chat.Options{}, []chat.Tool{tool}, func(_ context.Context, _ *countingAgent, r chat.Response) error {
		if r.Status != chat.StatusFailed || !strings.Contains(r.Error, "reserved") {
			t.Errorf("%s: %s", r.Status, r.Error)
		}
		return nil
	})
	m := &meteredModel{words: 1, tool: "dohost_budget"}
	replyWith(t, m, chat.Options{Budget: chat.Budget{Reply: chat.Limit{Tokens: 1000}}}, nil, func(ctx context.Context, p *countingAgent, r chat.Response) error {
		n, err := chat.BudgetGrants(ctx, p, chat.BudgetOfReply, r.Message.ID)
		if r.Status != chat.StatusCompleted || n != 0 || m.asked < 2 {
			t.Errorf("%s: %s; %d grants, %d calls", r.Status, r.Error, n, m.asked)
		}
		return err
	})
}

// A handler that makes its own prompt of the stored messages sends no model the call.
func TestBudgetCallIsInNoModelMessage(t *testing.T) {
	call, err := chat.NewPart("tool-dohost_budget", map[string]any{"toolCallId": "b", "state": "approval-requested", "input": map[string]any{}})
	if err != nil {
		t.Fatal(err)
	}
	p := &chat.Prompt{Messages: []chat.Message{{ID: "m", Role: chat.RoleAssistant, Parts: []chat.Part{call}}}}
	if list, _ := p.ModelMessages(chat.ContinueSyntheticMessage); len(list) != 0 {
		t.Errorf("the messages are %+v", list)
	}
}
