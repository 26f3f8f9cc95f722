package inbox_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/chat"
	"github.com/dohost/dohost/dohosttest"
	"github.com/dohost/dohost/inbox"
	"github.com/dohost/dohost/internal/pointtest"
)

// TestHistoryAtEveryPoint has four questions, each after the response to the one before. The first summary is made during the cycle of the
// third one. Wherever the incarnation or the process ends, each prompt has the whole conversation, each message is in one summary or in the
// window, and two incarnations derive the same context.
func TestHistoryAtEveryPoint(t *testing.T) {
	s := &scribe{delay: 15 * time.Millisecond, pace: 20 * time.Millisecond}
	in := inbox.ForMessages[desk](&messages, s.agent("clerk", 3, 1))
	questions := []string{"q1", "q2", "q3", "q4"}
	sc := dohosttest.Scenario{
		Classes:  []dohost.Class{deskClass(inbox.On(in))},
		Reset:    s.reset,
		Places:   pointtest.Places(),
		FullDisk: true,
		Run: func(ctx context.Context, h *dohosttest.Host) error {
			for _, q := range questions {
				if err := askAndWait(ctx, h, q); err != nil {
					return err
				}
			}
			return nil
		},
		Check: func(ctx context.Context, h *dohosttest.Host) error { return s.check(ctx, h, in, 3, nil, questions) },
	}
	dohosttest.EveryPoint(t, pointtest.Scenario(sc, 15, 40))
}

// TestHistoryMergeAtEveryPoint imports messages for nine summaries before the first question, whose cycle starts the fiber. Before the ninth, one
// replaces the oldest four.
func TestHistoryMergeAtEveryPoint(t *testing.T) {
	s := &scribe{delay: 5 * time.Millisecond, pace: 20 * time.Millisecond}
	in := inbox.ForMessages[desk](&messages, s.agent("clerk", 2, 1))
	words := make([]string, 18)
	for i := range words {
		words[i] = fmt.Sprint("m", i)
	}
	questions := []string{"q1", "q2"}
	sc := dohosttest.Scenario{
		Classes:  []dohost.Class{deskClass(inbox.On(in))},
		Reset:    s.reset,
		Places:   pointtest.Places(),
		FullDisk: true,
		Run: func(ctx context.Context, h *dohosttest.Host) error {
			err := dohost.Retry(ctx, &dohost.RetryPolicy{ShouldRetry: pointtest.RetryIdempotent}, func(ctx context.Context) error {
				return desks.Get(h, "a").Do(ctx, func(ctx context.Context, d *desk) error {
					for i, word := range words {
						at := time.Date(1999, 1, 1, 0, 0, i, 0, time.UTC)
						m := inbox.Message{ID: word, Content: word, From: "ada", To: "clerk", Role: chat.RoleUser, Created: at, Processed: at}
						if _, err := messages.Ensure(ctx, d.Storage(), m); err != nil {
							return err
						}
					}
					return nil
				})
			})
			for _, q := range questions {
				err = errors.Join(err, askAndWait(ctx, h, q))
				h.Advance(200 * time.Millisecond)
			}
			return err
		},
		Check: func(ctx context.Context, h *dohosttest.Host) error {
			err := s.check(ctx, h, in, 2, words, questions)
			return errors.Join(err, desks.Get(h, "a").Do(ctx, func(ctx context.Context, d *desk) error {
				list, err := inbox.Summaries(ctx, d.Storage(), &messages, "clerk")
				if err == nil && (list[0].Messages < 5 || len(list) > 8) {
					err = fmt.Errorf("%d summaries, the first has %d messages", len(list), list[0].Messages)
				}
				return err
			}))
		},
	}
	dohosttest.EveryPoint(t, pointtest.Scenario(sc, 6, 20))
}

// askAndWait sends a request once, and waits for its response.
func askAndWait(ctx context.Context, h *dohosttest.Host, q string) error {
	return dohost.Retry(ctx, &dohost.RetryPolicy{ShouldRetry: pointtest.RetryIdempotent}, func(ctx context.Context) error {
		return desks.Get(h, "a").Do(ctx, func(ctx context.Context, d *desk) error {
			stored, ok, err := messages.Get(ctx, d.Storage(), q)
			if err == nil && !ok {
				stored.Value, err = inbox.Send(ctx, d.Storage(), &messages, inbox.Message{ID: q, From: "ada", To: "clerk", Content: q, Request: q})
			}
			if err != nil {
				return err
			}
			_, err = inbox.WaitReply(ctx, d, &messages, stored.Value)
			return err
		})
	})
}

// check compares the prompts of all attempts with the conversation of words and questions, and the stored summaries with the stored messages.
func (s *scribe) check(ctx context.Context, h *dohosttest.Host, in *deskInbox, threshold int, words, questions []string) error {
	words = slices.Clone(words)
	for _, q := range questions {
		words = append(words, q, q+"!")
	}
	var errs []error
	s.mu.Lock()
	for _, asked := range s.asked {
		if got := wordsOf(asked); len(got) > len(words) || !slices.Equal(got, words[:len(got)]) || !slices.Contains(questions, got[len(got)-1]) {
			errs = append(errs, fmt.Errorf("a prompt has the words %q", got))
		}
	}
	distinct := map[string]bool{}
	for _, p := range s.prompts {
		distinct[p] = true
	}
	if len(s.prompts) > len(distinct)+2 { // at most two ends
		errs = append(errs, fmt.Errorf("%d prompts of the model that summarises, %d distinct ones: %q", len(s.prompts), len(distinct), s.prompts))
	}
	s.mu.Unlock()
	var contexts []string
	for range 2 {
		errs = append(errs, desks.Get(h, "a").Do(ctx, func(ctx context.Context, d *desk) error {
			list, err := inbox.Summaries(ctx, d.Storage(), &messages, "clerk")
			covered := 0
			for _, one := range list {
				covered += one.Messages
			}
			if left := len(words) - covered; len(list) == 0 || left < 1 || left > threshold {
				err = errors.Join(err, fmt.Errorf("%d summaries, and %d messages after them", len(list), left))
			}
			open, listErr := openFibers(ctx, d)
			if len(open) > 0 {
				err = errors.Join(err, fmt.Errorf("a fiber of the kind %s is %s: %s", open[0].Name, open[0].Status, open[0].Error))
			}
			built, buildErr := in.Build(d, ctx, nil)
			contexts = append(contexts, fmt.Sprint(built))
			n, countErr := messages.Count(ctx, d.Storage(), nil)
			if n != len(words) {
				err = errors.Join(err, fmt.Errorf("%d messages are stored", n))
			}
			return errors.Join(err, listErr, buildErr, countErr, checkContext(ctx, d, in, "clerk"))
		}))
		h.EvictAll()
	}
	if contexts[0] != contexts[1] {
		errs = append(errs, errors.New("two incarnations have different contexts"))
	}
	return errors.Join(errs...)
}
