package chat_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/agent"
	"github.com/dohost/dohost/chat"
	"github.com/dohost/dohost/dohosttest"
	"github.com/dohost/dohost/internal/pointtest"
)

// check compares the contexts of all runs of the handler, and the stored summaries, with the conversation of words and questions.
func (s *historian) check(ctx context.Context, h *dohosttest.Host, words, questions []string) error {
	words = slices.Clone(words)
	for _, q := range questions {
		words = append(words, q, q+"!")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	errs := s.errs
	for _, c := range s.contexts {
		got, _ := wordsOf(c)
		if n := len(got); n%2 != 1 || n > len(words) || !slices.Equal(got, words[:n]) {
			errs = append(errs, fmt.Errorf("a context has the words %v", got))
		}
	}
	distinct := map[string]bool{}
	for _, p := range s.prompts {
		distinct[p] = true
	}
	if len(s.prompts) > len(distinct)+2 { // at most two ends
		errs = append(errs, fmt.Errorf("%d prompts of the model that summarises, %d distinct ones", len(s.prompts), len(distinct)))
	}
	err := countingAgents.Get(h, testID.Name).Do(ctx, func(ctx context.Context, p *countingAgent) error {
		list, err := chat.Summaries(ctx, p)
		if err != nil {
			return err
		}
		stored, err := chat.Messages(ctx, p, 0)
		var got []string
		for _, s := range list {
			got = append(got, strings.Fields(s.Content)...)
		}
		left := len(stored) - len(got)
		for _, m := range stored[min(len(got), len(stored)):] {
			got = append(got, m.PlainText())
		}
		if !slices.Equal(got, words) || len(list) == 0 || len(list) > 8 || left < s.options.History.Window || left > s.options.History.Threshold {
			err = errors.Join(err, fmt.Errorf("%d summaries, and %d messages after them: %v", len(list), left, got))
		}
		open, listErr := p.Fibers().List(ctx, &agent.FiberQuery{Status: []agent.FiberStatus{agent.FiberPending, agent.FiberRunning, agent.FiberFailed}})
		if err = errors.Join(err, listErr); len(open) > 0 {
			err = errors.Join(err, fmt.Errorf("the fiber %s is %s: %s", open[0].Name, open[0].Status, open[0].Error))
		}
		return errors.Join(err, p.Idle(ctx))
	})
	return errors.Join(append(errs, err)...)
}

// askInOrder asks questions, each after the reply to the one before.
func askInOrder(ctx context.Context, h *dohosttest.Host, questions []string) error {
	for _, q := range questions {
		err := dohost.Retry(ctx, &dohost.RetryPolicy{ShouldRetry: pointtest.RetryIdempotent}, func(ctx context.Context) error {
			return countingAgents.Get(h, testID.Name).Do(ctx, func(ctx context.Context, p *countingAgent) error {
				id, err := chat.Ask(ctx, p, []chat.Message{chat.Text(q, chat.RoleUser, q)}, &chat.AskOptions{ID: q})
				if err != nil {
					return err
				}
				_, _, err = chat.Wait(ctx, p, id)
				return err
			})
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// TestHistoryAtEveryPoint ends the agent everywhere. The first summary is made during the third reply, and the fourth has it in
// its context. It ends with a question: the place of the reply to that follows directly.
func TestHistoryAtEveryPoint(t *testing.T) {
	t.Parallel()
	s := newHistorian(3, 1)
	s.delay, s.pace = 15*time.Millisecond, 20*time.Millisecond
	questions := []string{"q1", "q2", "q3", "q4"}
	sc := variant(scenario(&countingState{}, &testClients{}, s.class()))
	sc.Reset = s.reset
	sc.Run = func(ctx context.Context, h *dohosttest.Host) error { return askInOrder(ctx, h, questions) }
	sc.Check = func(ctx context.Context, h *dohosttest.Host) error { return s.check(ctx, h, nil, questions) }
	dohosttest.EveryPoint(t, sc)
}

// TestHistoryMergeAtEveryPoint ends the agent everywhere. The conversation begins with eight messages, each with a summary. The first
// reply starts the fiber, which merges four of them, and then makes another one.
func TestHistoryMergeAtEveryPoint(t *testing.T) {
	t.Parallel()
	s := newHistorian(2, 1)
	s.delay, s.pace = 15*time.Millisecond, 20*time.Millisecond
	words, questions := []string{"m0", "m1", "m2", "m3", "m4", "m5", "m6", "m7"}, []string{"q1", "q2"}
	sc := variant(scenario(&countingState{}, &testClients{}, s.class()))
	sc.Reset = s.reset
	sc.Run = func(ctx context.Context, h *dohosttest.Host) error {
		err := dohost.Retry(ctx, &dohost.RetryPolicy{ShouldRetry: pointtest.RetryIdempotent}, func(ctx context.Context) error {
			return countingAgents.Get(h, testID.Name).Do(ctx, func(ctx context.Context, p *countingAgent) error {
				if list, err := chat.Summaries(ctx, p); err != nil || len(list) > 0 {
					return err
				}
				var list []chat.Message
				for i, w := range words {
					list = append(list, chat.Text(w, []chat.Role{chat.RoleUser, chat.RoleAssistant}[i%2], w))
				}
				return dohost.Transaction(ctx, func(ctx context.Context) error {
					return errors.Join(chat.SetMessages(ctx, p, list), p.StoreSummaries(ctx, 8))
				})
			})
		})
		if err != nil {
			return err
		}
		return askInOrder(ctx, h, questions)
	}
	sc.Check = func(ctx context.Context, h *dohosttest.Host) error {
		err := s.check(ctx, h, words, questions)
		return errors.Join(err, countingAgents.Get(h, testID.Name).Do(ctx, func(ctx context.Context, p *countingAgent) error {
			list, err := chat.Summaries(ctx, p)
			if err == nil && (list[0].Messages != 4 || list[0].First != "m0" || list[0].Last != "m3") {
				err = fmt.Errorf("the first summary is %+v", list[0])
			}
			return err
		}))
	}
	dohosttest.EveryPoint(t, sc)
}
