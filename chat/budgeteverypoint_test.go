package chat_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/chat"
	"github.com/dohost/dohost/dohosttest"
	"github.com/dohost/dohost/internal/pointtest"
	"github.com/dohost/dohost/ledger"
)

// The reply has 6 words of 2 millionths each, one in a second, so that each is in the row of the call. The fifth exhausts the limit.
const (
	pricedWords = 6
	pricedLimit = 9
)

// approveBudget approves the call that waits, until the text of the reply is want.
func approveBudget(ctx context.Context, h *dohosttest.Host, want string) error {
	for {
		complete := false
		err := dohost.Retry(ctx, &dohost.RetryPolicy{ShouldRetry: pointtest.RetryIdempotent}, func(ctx context.Context) error {
			return countingAgents.Get(h, testID.Name).Do(ctx, func(ctx context.Context, p *countingAgent) error {
				list, err := chat.Messages(ctx, p, 1)
				if err != nil || len(list) == 0 {
					return err
				}
				if complete = list[0].PlainText() == want; complete {
					return nil
				}
				call, waitErr := waitingBudget(ctx, p)
				if waitErr != nil {
					return nil // the reply continues
				}
				err = chat.Decide(ctx, p, &chat.Decision{Call: call.ID, Digest: call.Digest, Approve: true, Actor: "op"})
				if errors.Is(err, chat.ErrDecided) {
					return nil
				}
				return err
			})
		})
		if err != nil || complete {
			return err
		}
		if err := dohost.Sleep(ctx, 500*time.Millisecond); err != nil {
			return err
		}
	}
}

// TestBudgetAtEveryPoint exhausts a budget in the middle of a text. An operator approves it. The text continues exactly, nothing is asked
// twice, and the approval counts once.
func TestBudgetAtEveryPoint(t *testing.T) {
	t.Parallel()
	m, all := &thriftyModel{words: pricedWords, pace: time.Second}, &testClients{}
	class := toolClass(m, chat.Options{
		Budget: chat.Budget{Reply: chat.Limit{Cost: pricedLimit}}, Price: func(u chat.Usage) int64 { return u.OutputTokens },
	}, func(*countingAgent) []chat.Tool { return nil })
	s := variant(scenario(&countingState{}, all, class))
	reset := s.Reset
	s.Reset = func() { reset(); m.reset() }
	s.Run = func(ctx context.Context, h *dohosttest.Host) error {
		if err := all.join(h, "asker").askAll(ctx, "one"); err != nil {
			return err
		}
		return approveBudget(ctx, h, thriftyText(pricedWords))
	}
	s.Check = func(ctx context.Context, h *dohosttest.Host) error {
		return countingAgents.Get(h, testID.Name).Do(ctx, func(ctx context.Context, p *countingAgent) error {
			list, err := chat.Messages(ctx, p, 0)
			if err != nil || len(list) != 2 {
				return errors.Join(err, fmt.Errorf("%d messages", len(list)))
			}
			asked, said := 0, ""
			for _, part := range list[1].Parts {
				switch part.Type() {
				case "tool-dohost_budget":
					if asked++; len(said) > len(thriftyText(pricedLimit/2+1)) {
						return fmt.Errorf("the budget is exhausted after %q", said)
					}
				case "text":
					said += part.Text("text")
				}
			}
			n, err := chat.BudgetGrants(ctx, p, chat.BudgetOfReply, list[1].ID)
			if said != thriftyText(pricedWords) || asked != 1 || n != 1 {
				err = errors.Join(err, fmt.Errorf("the text is %q; it was asked %d times, and granted %d times", said, asked, n))
			}
			events := 0
			for e, logErr := range chat.Approvals(ctx, p, "") {
				if err = errors.Join(err, logErr); !e.Late {
					events++
				}
			}
			if events != 2 {
				err = errors.Join(err, fmt.Errorf("%d events", events))
			}
			_, sumErr := chat.CheckUsage(ctx, p.Storage())
			return errors.Join(append(m.errs, err, sumErr, p.Idle(ctx))...)
		})
	}
	dohosttest.EveryPoint(t, s)
}

// TestBudgetAfterCallAtEveryPoint exhausts a budget by a tool call in the middle of an answer. The call runs, an operator approves the
// budget, and the reply ends with one result and one grant.
func TestBudgetAfterCallAtEveryPoint(t *testing.T) {
	t.Parallel()
	m := modelFunc(func(ctx context.Context, p *chat.Prompt, yield func(chat.Chunk, error) bool) {
		switch {
		case p.Partial.PlainText() != "": // the answer was complete before an interruption
		case len(callsOf(p)) > 0:
			yield(chat.TextDelta("t", "end"), nil)
		default:
			_ = yield(chat.ToolInput("work-1", "work", `{"text":"0123456789"}`), nil) && yield(chat.TextDelta("t", "too much"), nil)
		}
	})
	all := &testClients{}
	class := toolClass(m, chat.Options{Budget: chat.Budget{Reply: chat.Limit{Cost: 5}}, Price: outputPrice}, func(*countingAgent) []chat.Tool {
		return []chat.Tool{{
			ToolSpec: chat.ToolSpec{Name: "work"}, Policy: ledger.PolicyIdempotent,
			Run: func(context.Context, json.RawMessage) (any, error) { return "done", nil },
		}}
	})
	s := variant(scenario(&countingState{}, all, class))
	s.Run = func(ctx context.Context, h *dohosttest.Host) error {
		if err := all.join(h, "asker").askAll(ctx, "one"); err != nil {
			return err
		}
		return approveBudget(ctx, h, "end")
	}
	s.Check = func(ctx context.Context, h *dohosttest.Host) error {
		return countingAgents.Get(h, testID.Name).Do(ctx, func(ctx context.Context, p *countingAgent) error {
			list, err := chat.Messages(ctx, p, 0)
			if err != nil || len(list) != 2 {
				return errors.Join(err, fmt.Errorf("%d messages", len(list)))
			}
			got := ""
			for _, part := range list[1].Parts {
				if part.Type() != "step-start" {
					got += part.Type() + " " + part.Text("state") + "; "
				}
			}
			n, err := chat.BudgetGrants(ctx, p, chat.BudgetOfReply, list[1].ID)
			if want := "tool-work output-available; tool-dohost_budget output-available; text done; "; got != want || n != 1 {
				err = errors.Join(err, fmt.Errorf("the parts are %q, with %d grants, want %q", got, n, want))
			}
			_, sumErr := chat.CheckUsage(ctx, p.Storage())
			return errors.Join(err, sumErr, p.Idle(ctx))
		})
	}
	dohosttest.EveryPoint(t, s)
}
