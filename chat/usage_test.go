package chat_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/agent"
	"github.com/dohost/dohost/chat"
	"github.com/dohost/dohost/dohosttest"
	"github.com/dohost/dohost/objectstore"
)

// meteredModel answers with words, and with a tool call in its first answer if there is a tool. It reports its usage.
type meteredModel struct {
	words   int
	pace    time.Duration
	tool    string
	reports []chat.Usage // the last of them after the last chunk, the others before the first
	fail    error        // after the words

	asked int // the number of calls
}

// Stream implements [chat.Model].
func (m *meteredModel) Stream(ctx context.Context, p *chat.Prompt) iter.Seq2[chat.Chunk, error] {
	return func(yield func(chat.Chunk, error) bool) {
		m.asked++
		call := m.asked
		for i, u := range m.reports {
			if i < len(m.reports)-1 {
				p.ReportUsage(ctx, u)
			}
		}
		for i := range m.words {
			select {
			case <-time.After(m.pace):
			case <-ctx.Done():
				return
			}
			if !yield(chat.TextDelta("t", fmt.Sprintf("%d.%d ", call, i)), nil) {
				return
			}
		}
		if m.tool != "" && len(callsOf(p)) == 0 && !yield(chat.ToolInput(fmt.Sprintf("%s-%d", m.tool, call), m.tool, `{"in":"x"}`), nil) {
			return
		}
		if m.fail != nil {
			yield(chat.Chunk{}, m.fail)
			return
		}
		if n := len(m.reports); n > 0 {
			p.ReportUsage(ctx, m.reports[n-1])
		}
	}
}

// replyWith runs f after the end of a reply of the model.
func replyWith(
	t *testing.T, m chat.Model, o chat.Options, tools []chat.Tool, f func(ctx context.Context, p *countingAgent, r chat.Response) error,
) {
	t.Helper()
	runTools(t, m, o, func(*countingAgent) []chat.Tool { return tools }, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		inEvent(t, ctx, h, func(ctx context.Context, p *countingAgent) error {
			r, _, err := chat.Wait(ctx, p, "one")
			if err != nil {
				return err
			}
			return f(ctx, p, r)
		})
	})
}

// collectCalls returns the calls of an agent.
func collectCalls(ctx context.Context, a agent.Ref) (list []chat.ModelCall, err error) {
	for c, err := range chat.ModelCalls(ctx, a) {
		if err != nil {
			return nil, err
		}
		list = append(list, c)
	}
	return list, nil
}

// The last report of a call counts, with its price, in the row and in all totals.
func TestUsageIsTheLastReport(t *testing.T) {
	m := &meteredModel{words: 3, reports: []chat.Usage{
		{Model: "first", InputTokens: 7, OutputTokens: 1},
		{Model: "model-1", InputTokens: 100, CachedInputTokens: 40, OutputTokens: 20, ReasoningTokens: 5},
	}}
	price := func(u chat.Usage) int64 { return 2*u.InputTokens + 10*u.OutputTokens }
	replyWith(t, m, chat.Options{Price: price}, nil, func(ctx context.Context, p *countingAgent, r chat.Response) error {
		want := chat.Usage{InputTokens: 100, CachedInputTokens: 40, OutputTokens: 20, ReasoningTokens: 5, Cost: 400}
		total, err := chat.AgentUsage(ctx, p)
		reply, replyErr := chat.ReplyUsage(ctx, p, r.Message.ID)
		if err = errors.Join(err, replyErr); total.Usage != want || total.Calls != 1 || reply != total || total.Estimates != 0 {
			t.Errorf("%+v and %+v, want one call with %+v", total, reply, want)
		}
		days := 0
		for d, dayErr := range chat.UsageByDay(ctx, p) {
			if err = errors.Join(err, dayErr); d.Day != time.Now().UTC().Format(time.DateOnly) || d.TotalUsage != total {
				t.Errorf("the day is %+v", d)
			}
			days++
		}
		calls, callsErr := collectCalls(ctx, p)
		if len(calls) != 1 || days != 1 {
			t.Fatalf("%d calls on %d days", len(calls), days)
		}
		want.Model = "model-1"
		c := calls[0]
		if c.Usage != want || c.Number != 1 || c.Purpose != chat.PurposeReply || c.Outcome != chat.ModelCallCompleted || c.Request != "one" || c.Message != r.Message.ID {
			t.Errorf("the call is %+v", c)
		}
		return errors.Join(err, callsErr)
	})
}

// Without a report, the agent estimates the tokens from the bytes. After a report of the beginning, it estimates the rest of the output.
func TestUsageIsEstimatedWithoutReport(t *testing.T) {
	for name, c := range map[string]struct {
		m    meteredModel
		want chat.Usage
	}{
		"no report":        {meteredModel{words: 4}, chat.Usage{InputTokens: 1, OutputTokens: 4, Estimated: true}},
		"report of begin":  {meteredModel{words: 4, reports: []chat.Usage{{InputTokens: 9, OutputTokens: 1}, {}}, fail: errors.New("gone")}, chat.Usage{InputTokens: 9, OutputTokens: 5, Estimated: true}},
		"report of output": {meteredModel{words: 4, reports: []chat.Usage{{OutputTokens: 30}}}, chat.Usage{InputTokens: 1, OutputTokens: 30, Estimated: true}},
	} {
		t.Run(name, func(t *testing.T) {
			replyWith(t, &c.m, chat.Options{}, nil, func(ctx context.Context, p *countingAgent, _ chat.Response) error {
				total, err := chat.AgentUsage(ctx, p)
				if total.Usage != c.want || total.Estimates != 1 {
					t.Errorf("%+v, want %+v", total, c.want)
				}
				return err
			})
		})
	}
}

// A request that the provider refuses is a call without tokens; a failure after a text is one with an estimate.
func TestUsageOfFailures(t *testing.T) {
	for words, want := range map[int]int64{0: 0, 4: 1} {
		m := &meteredModel{words: words, fail: &chat.ModelError{Provider: "p", Status: 429, Message: "later"}}
		replyWith(t, m, chat.Options{}, nil, func(ctx context.Context, p *countingAgent, _ chat.Response) error {
			calls, err := collectCalls(ctx, p)
			if len(calls) != 1 || calls[0].Outcome != chat.ModelCallFailed || calls[0].InputTokens != want {
				t.Errorf("after %d words: %+v", words, calls)
			}
			return err
		})
	}
}

// The row of a call grows while the model answers, and ends with the reply that a client stops.
func TestUsageOfStoppedReply(t *testing.T) {
	m := &meteredModel{words: 100, pace: 300 * time.Millisecond}
	runTools(t, m, chat.Options{}, func(*countingAgent) []chat.Tool { return nil }, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		h.Advance(10 * time.Second)
		inEvent(t, ctx, h, func(ctx context.Context, p *countingAgent) error {
			calls, err := collectCalls(ctx, p)
			if len(calls) != 1 || calls[0].Outcome != chat.ModelCallRunning || calls[0].OutputTokens < 25 || calls[0].Duration < 8*time.Second {
				t.Errorf("during the answer: %+v", calls)
			}
			_, cancelErr := chat.Cancel(ctx, p, "one")
			return errors.Join(err, cancelErr)
		})
		h.Advance(time.Second)
		wantInspected(t, h, "model-call", "model-call 1 stopped: for a reply, request one, 1 input tokens, 39 output tokens, 10s, estimated "+
			"map[cached_tokens:0 cost:0 estimated:1 input_tokens:1 milliseconds:10000 output_tokens:39 reasoning_tokens:0]")
	})
}

// A worker counts towards the reply that runs it, and towards an agent without a conversation.
func TestUsageOfWorkers(t *testing.T) {
	usage := []chat.Usage{{Model: "small", InputTokens: 10, OutputTokens: 1}}
	w := &chat.Worker[struct {
		In string `json:"in"`
	}, string]{Name: "helper", Model: &meteredModel{words: 1, reports: usage}, Price: func(chat.Usage) int64 { return 3 }}
	m := &meteredModel{words: 1, tool: "helper", reports: []chat.Usage{{Model: "large", InputTokens: 100, OutputTokens: 2}}}
	replyWith(t, m, chat.Options{}, []chat.Tool{w.Tool()}, func(ctx context.Context, p *countingAgent, r chat.Response) error {
		reply, err := chat.ReplyUsage(ctx, p, r.Message.ID)
		if want := (chat.Usage{InputTokens: 210, OutputTokens: 5}); reply.Usage != want || reply.Calls != 3 {
			t.Errorf("%+v, want %+v", reply, want)
		}
		calls, callsErr := collectCalls(ctx, p)
		if len(calls) != 3 || calls[1].Worker != "helper" || calls[1].Purpose != chat.PurposeWorker || calls[1].Request != "one" || calls[1].Model != "small" {
			t.Errorf("the calls are %+v", calls)
		}
		return errors.Join(err, callsErr)
	})
	for _, durable := range []bool{false, true} {
		w.Durable = durable
		inWorkerAgent(t, func(t *testing.T, ctx context.Context, c *workerAgent) {
			_, err := w.Run(ctx, c, struct {
				In string `json:"in"`
			}{"x"})
			calls, checkErr := chat.CheckUsage(ctx, c.Storage())
			if len(calls) != 1 || calls[0].InputTokens != 10 || calls[0].Cost != 3 || calls[0].Message != "" || errors.Join(err, checkErr) != nil {
				t.Errorf("durable %t: %+v, %v, %v", durable, calls, err, checkErr)
			}
		})
	}
}

// The calls of summaries are calls of the agent, and of no reply.
func TestUsageOfSummaries(t *testing.T) {
	s := newHistorian(3, 1)
	s.run(t, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		for i := range 3 {
			askWord(t, ctx, h, fmt.Sprint("q", i))
		}
		h.Advance(time.Minute)
		inEvent(t, ctx, h, func(ctx context.Context, p *countingAgent) error {
			calls, err := collectCalls(ctx, p)
			n := 0
			for _, c := range calls {
				if c.Purpose != chat.PurposeSummary {
					continue
				}
				if n++; c.Message != "" || c.Worker != "" || c.InputTokens < 20 {
					t.Errorf("the call is %+v", c)
				}
			}
			if n != 1 || len(s.prompts) != 1 {
				t.Errorf("%d calls, the model was asked %d times", n, len(s.prompts))
			}
			return err
		})
	})
}

// Neither a panic of Price nor reports with invalid numbers and names lose the reply or the sums.
func TestUsageOfHostileReports(t *testing.T) {
	long := strings.Repeat("ä", 1000)
	m := &meteredModel{words: 2, tool: "noop", reports: []chat.Usage{
		{Model: long, InputTokens: math.MaxInt64, OutputTokens: math.MinInt64, Cost: math.MaxInt64}, {Model: "\xff", InputTokens: -1, OutputTokens: math.MaxInt64, Cost: 7},
	}}
	tool := chat.Tool{ToolSpec: chat.ToolSpec{Name: "noop"}, Run: func(context.Context, json.RawMessage) (any, error) { return nil, nil }}
	price := func(chat.Usage) int64 { panic("no price") }
	replyWith(t, m, chat.Options{Price: price}, []chat.Tool{tool}, func(ctx context.Context, p *countingAgent, r chat.Response) error {
		calls, err := chat.CheckUsage(ctx, p.Storage())
		if r.Status != chat.StatusCompleted || len(calls) != 2 || calls[0].Cost != 7 || calls[0].OutputTokens <= 0 || len(calls[0].Model) > 200 {
			t.Errorf("%s %s; %+v", r.Status, r.Error, calls)
		}
		return err
	})
}

// Old rows are deleted, with the totals of their replies and days. The total of the agent remains.
func TestUsageIsBounded(t *testing.T) {
	m := &meteredModel{words: 1, reports: []chat.Usage{{InputTokens: 1, OutputTokens: 1}}}
	class := toolClass(m, chat.Options{KeepUsage: time.Hour}, func(*countingAgent) []chat.Tool { return nil })
	runLong(t, func(t *testing.T, h *dohost.Host, _ *objectstore.FS) {
		asked := 0
		ask := func() {
			asked++
			inAgent(t, h, func(ctx context.Context, p *countingAgent) error {
				id, err := chat.Ask(ctx, p, []chat.Message{chat.Text(fmt.Sprint("q", asked), chat.RoleUser, "q")}, nil)
				if err != nil {
					return err
				}
				_, _, err = chat.Wait(ctx, p, id)
				return err
			})
		}
		want := func(when string, rows, total, days, replies int) {
			t.Helper()
			inAgent(t, h, func(ctx context.Context, p *countingAgent) error {
				calls, err := collectCalls(ctx, p)
				sum, sumErr := chat.AgentUsage(ctx, p)
				n, known := 0, 0
				for _, dayErr := range chat.UsageByDay(ctx, p) {
					n, err = n+1, errors.Join(err, dayErr)
				}
				list, listErr := chat.Messages(ctx, p, 0)
				for _, m := range list {
					u, usageErr := chat.ReplyUsage(ctx, p, m.ID)
					if err = errors.Join(err, usageErr); u.Calls > 0 {
						known++
					}
				}
				if len(calls) != rows || sum.Calls != int64(total) || n != days || known != replies {
					t.Errorf("%s: %d rows of %d calls on %d days, of %d replies; want %d, %d, %d and %d", when, len(calls), sum.Calls, n, known, rows, total, days, replies)
				}
				return errors.Join(err, sumErr, listErr)
			})
		}
		for range 4 {
			ask()
		}
		want("at first", 4, 4, 1, 4)
		time.Sleep(2 * time.Hour)
		ask()
		want("after 2 hours", 3, 5, 1, 3)
		time.Sleep(24 * time.Hour)
		ask()
		want("after a day", 2, 6, 2, 2)
		time.Sleep(100 * 24 * time.Hour)
		ask()
		want("after 100 days", 1, 7, 1, 1)
		for range 3 {
			ask()
		}
		inAgent(t, h, func(ctx context.Context, p *countingAgent) error { return p.SkipModelCalls(ctx, 9_998) })
		ask()
		want("after 9,998 calls", 3, 11, 1, 3)
	}, class)
}

// An agent without a conversation can have its calls listed.
func TestShowUsage(t *testing.T) {
	w := &chat.Worker[string, string]{Name: "w", Model: &meteredModel{words: 1, reports: []chat.Usage{{InputTokens: 1200, CachedInputTokens: 200, OutputTokens: 2, Cost: 1_500_000}}}}
	class := agent.Bind(workerAgents, func(_ context.Context, a *agent.Agent[struct{}]) (*workerAgent, error) { return &workerAgent{a}, nil },
		&agent.Handlers[workerAgent, struct{}]{Extensions: []dohost.ClassExtension{chat.ShowUsage()}})
	dohosttest.Run(t, &dohosttest.Options{Classes: []dohost.Class{class}}, func(t *testing.T, h *dohosttest.Host) {
		err := workerAgents.Get(h, "7").Do(t.Context(), func(ctx context.Context, c *workerAgent) error {
			_, err := w.Run(ctx, c, "x")
			return err
		})
		var lines []string
		for d, detailErr := range h.Host().Details(t.Context(), dohost.ID{Class: "clerk", Name: "7"}) {
			err = errors.Join(err, detailErr)
			lines = append(lines, d.Kind+" "+d.ID+" "+d.State+": "+d.Text)
		}
		day := time.Now().UTC().Format(time.DateOnly)
		usage := "1 calls, 1200 input tokens (200 cached), 2 output tokens, cost 1.500000, 0s"
		if err != nil || len(lines) != 3 || lines[0] != "usage total : "+usage || lines[1] != "usage "+day+" : "+usage ||
			!strings.HasPrefix(lines[2], "model-call 1 completed: for a worker, worker w, since ") {
			t.Errorf("%v\n%s", err, strings.Join(lines, "\n"))
		}
	})
}

// A class of chat agents has the details of ShowUsage already.
func TestShowUsageOfChat(t *testing.T) {
	class := chat.Bind(countingAgents, func(_ context.Context, a *chat.Agent[struct{}]) (*countingAgent, error) {
		return &countingAgent{Agent: a}, nil
	}, &chat.Handlers[countingAgent, struct{}]{
		Reply: func(*countingAgent, context.Context, *chat.Reply) error { return nil },
		Agent: agent.Handlers[countingAgent, struct{}]{Extensions: []dohost.ClassExtension{chat.ShowUsage()}},
	})
	host, err := dohost.Open(t.TempDir(), nil, class)
	if err == nil {
		_ = host.Close()
	}
	if err == nil || !strings.Contains(err.Error(), `two extensions with the kind "usage"`) {
		t.Errorf("Open: %v", err)
	}
}
