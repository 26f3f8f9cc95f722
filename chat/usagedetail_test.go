package chat_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/chat"
	"github.com/dohost/dohost/dohosttest"
	"github.com/dohost/dohost/objectstore"
)

// UsageByDay yields at most the last 90 days, also after a long time without a call.
func TestUsageByDayIsBounded(t *testing.T) {
	t.Parallel()
	w := &chat.Worker[string, string]{Name: "w", Model: &meteredModel{words: 1}}
	runLongWorkerAgent(t, func(t *testing.T, h *dohost.Host, _ *objectstore.FS) {
		in := func(f func(ctx context.Context, c *workerAgent) error) {
			if err := workerAgents.Get(h, "7").Do(t.Context(), f); err != nil {
				t.Fatal(err)
			}
		}
		want := func(most int) {
			in(func(ctx context.Context, c *workerAgent) error {
				first, n := time.Now().AddDate(0, 0, -89).UTC().Format(time.DateOnly), 0
				for d, err := range chat.UsageByDay(ctx, c) {
					if n++; err != nil || d.Day < first {
						t.Errorf("today is %s; there is %s, %v", time.Now().UTC().Format(time.DateOnly), d.Day, err)
					}
				}
				if n > most {
					t.Errorf("UsageByDay yields %d days", n)
				}
				return nil
			})
		}
		for range 93 {
			in(func(ctx context.Context, c *workerAgent) error { _, err := w.Run(ctx, c, "x"); return err })
			time.Sleep(24 * time.Hour)
		}
		want(90)
		time.Sleep(91 * 24 * time.Hour)
		want(0)
	})
}

// A Price with a margin applies once to the reported cost of an answer, also if the agent tries to resume the answer.
func TestPriceOfResumedAnswer(t *testing.T) {
	asked := 0
	m := resumableFunc{func(ctx context.Context, p *chat.Prompt, yield func(chat.Chunk, error) bool) {
		asked++
		p.ReportUsage(ctx, chat.Usage{Model: fmt.Sprint("call-", asked), InputTokens: 1000, OutputTokens: 1, Cost: 100})
		if yield(chat.TextDelta("t", "x"), nil) && asked == 1 {
			<-ctx.Done()
		}
	}, func(ctx context.Context, p *chat.Prompt, yield func(chat.Chunk, error) bool) {
		yield(chat.Chunk{}, chat.ErrNotResumable)
	}}
	runTools(t, m, chat.Options{Price: func(u chat.Usage) int64 { return 2 * u.Cost }}, func(*countingAgent) []chat.Tool { return nil }, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		h.Advance(3 * time.Second)
		h.Evict(testID, dohost.EndFence)
		h.Advance(time.Minute)
		inEvent(t, ctx, h, func(ctx context.Context, p *countingAgent) error {
			calls, err := collectCalls(ctx, p)
			total, totalErr := chat.AgentUsage(ctx, p)
			if total.Cost != 400 || calls[0].Cost != 200 {
				t.Errorf("two calls with a price of 200 each cost %d, the interrupted one %+v", total.Cost, calls[0])
			}
			return errors.Join(err, totalErr)
		})
	})
}

// An estimate counts the call that a resumed answer yields again once.
func TestEstimateOfRepeatedCall(t *testing.T) {
	asked := 0
	input := `{"in":"` + strings.Repeat("x", 4000) + `"}`
	m := resumableFunc{func(ctx context.Context, p *chat.Prompt, yield func(chat.Chunk, error) bool) {
		if asked++; asked == 1 && yield(chat.ToolInput("c", "noop", input), nil) {
			<-ctx.Done()
		}
	}, func(ctx context.Context, p *chat.Prompt, yield func(chat.Chunk, error) bool) {
		yield(chat.ToolInput("c", "noop", input), nil)
	}}
	runTools(t, m, chat.Options{}, func(*countingAgent) []chat.Tool { return nil }, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		h.Advance(3 * time.Second)
		h.Evict(testID, dohost.EndFence)
		h.Advance(time.Minute)
		inEvent(t, ctx, h, func(ctx context.Context, p *countingAgent) error {
			calls, err := collectCalls(ctx, p)
			if calls[0].OutputTokens > 1100 {
				t.Errorf("an answer of 4,009 bytes counts %d tokens: %+v", calls[0].OutputTokens, calls)
			}
			return err
		})
	})
}

// A report before a silence is not lost.
func TestUsageReportedBeforeASilence(t *testing.T) {
	runWorkerAgent(t, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		w := &chat.Worker[string, string]{Name: "w", Model: modelFunc(func(ctx context.Context, p *chat.Prompt, yield func(chat.Chunk, error) bool) {
			p.ReportUsage(ctx, chat.Usage{Model: "m", OutputTokens: 1})
			p.ReportUsage(ctx, chat.Usage{Model: "m", InputTokens: 1_000_000, OutputTokens: 5, Cost: 3_000_000})
			<-ctx.Done()
		})}
		go func() {
			_ = workerAgents.Get(h, "7").Do(ctx, func(ctx context.Context, c *workerAgent) error { _, err := w.Run(ctx, c, "x"); return err })
		}()
		h.Advance(time.Hour)
		h.Evict(workerAgentID, dohost.EndFence)
		h.Advance(time.Second)
		err := workerAgents.Get(h, "7").Do(ctx, func(ctx context.Context, c *workerAgent) error {
			calls, err := collectCalls(ctx, c)
			if len(calls) != 1 || calls[0].InputTokens != 1_000_000 {
				t.Errorf("an hour after the report of 1,000,000 input tokens, an interruption leaves %+v", calls)
			}
			return err
		})
		if err != nil {
			t.Error(err)
		}
	})
}

// Operators see that a call may be interrupted.
func TestUsageOfInterruptedCallForOperators(t *testing.T) {
	runWorkerAgent(t, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		w := &chat.Worker[string, string]{Name: "w", Model: modelFunc(func(ctx context.Context, p *chat.Prompt, yield func(chat.Chunk, error) bool) { <-ctx.Done() })}
		go func() {
			_ = workerAgents.Get(h, "7").Do(ctx, func(ctx context.Context, c *workerAgent) error { _, err := w.Run(ctx, c, "x"); return err })
		}()
		h.Advance(time.Second)
		h.Evict(workerAgentID, dohost.EndFence)
		h.Advance(24 * time.Hour)
		for d, err := range h.Host().Details(ctx, workerAgentID) {
			if err != nil {
				t.Error(err)
			}
			if d.Kind == "model-call" && d.State != "running-or-interrupted" {
				t.Errorf("a day after the end of the incarnation the call is %q: %s", d.State, d.Text)
			}
		}
	})
}

// The rows of a reply cost one commit, at the start of a step. The rows of a worker cost one at the start of a call, one at the end, and one
// each 30 s.
func TestRecordsOfUsage(t *testing.T) {
	reports := []chat.Usage{{InputTokens: 9, OutputTokens: 1}, {InputTokens: 9, OutputTokens: 500}}
	for name, m := range map[string]*meteredModel{
		"no report": {words: 3, pace: time.Millisecond}, "last": {words: 3, pace: time.Millisecond, reports: reports[1:]},
		"first and last": {words: 3, pace: time.Millisecond, reports: reports},
	} {
		runTools(t, m, chat.Options{}, func(*countingAgent) []chat.Tool { return nil }, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
			h.Advance(10 * time.Second)
			if n := strings.Count(h.Log(), "durable "); n != 6 {
				t.Errorf("%s: a reply makes %d records", name, n)
			}
		})
	}
	for durable, want := range map[bool]int{false: 2, true: 4} {
		runWorkerAgent(t, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
			w := &chat.Worker[string, string]{Name: "w", Durable: durable, Model: &meteredModel{words: 90, pace: 300 * time.Millisecond, reports: reports}}
			before := strings.Count(h.Log(), "durable ")
			err := workerAgents.Get(h, "7").Do(ctx, func(ctx context.Context, c *workerAgent) error { _, err := w.Run(ctx, c, "x"); return err })
			if n := strings.Count(h.Log(), "durable ") - before; n != want || err != nil {
				t.Errorf("durable %t: a call of 27 s makes %d records: %v", durable, n, err)
			}
		})
	}
}

func TestUsageByDayWithoutAgent(t *testing.T) {
	var errs []error
	for _, err := range chat.UsageByDay(t.Context(), nil) {
		errs = append(errs, err)
	}
	if len(errs) != 1 || !errors.Is(errs[0], dohost.ErrMisuse) {
		t.Errorf("errors %v, want one ErrMisuse", errs)
	}
}
