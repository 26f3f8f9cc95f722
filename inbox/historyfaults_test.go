package inbox_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/chat"
	"github.com/dohost/dohost/dohosttest"
	"github.com/dohost/dohost/inbox"
)

// runReporting is runHistory, and outcomes returns those of the reports of summaries so far.
func runReporting(
	t *testing.T, a *inbox.Agent, run func(t *testing.T, ctx context.Context, h *dohosttest.Host, in *deskInbox, outcomes func() []string),
) {
	t.Helper()
	in := inbox.ForMessages[desk](&messages, a)
	var mu sync.Mutex
	var list []string
	options := &dohosttest.Options{
		Classes: []dohost.Class{deskClass(inbox.On(in))},
		Options: dohost.Options{Listener: dohost.Listener{Service: func(_ dohost.ID, event string, attrs ...slog.Attr) {
			mu.Lock()
			defer mu.Unlock()
			for _, attr := range attrs {
				if event == "inbox:summary" && attr.Key == "outcome" {
					list = append(list, attr.Value.String())
				}
			}
		}}},
	}
	dohosttest.Run(t, options, func(t *testing.T, h *dohosttest.Host) {
		run(t, t.Context(), h, in, func() []string {
			mu.Lock()
			defer mu.Unlock()
			return slices.Clone(list)
		})
	})
}

// A model that fails is asked 9 times, or 3 times if its answers are invalid, also if the incarnation ends between the calls. Then there is a
// pause of an hour. All prompts have the whole conversation.
func TestHistoryModelFails(t *testing.T) {
	for name, c := range map[string]struct {
		err   error
		calls int
	}{
		"failed":  {errors.New("the model is busy"), 9},
		"invalid": {&chat.OutputError{Err: errors.New("too long")}, 3},
	} {
		t.Run(name, func(t *testing.T) {
			s := &scribe{fail: func(int) error { return c.err }}
			runReporting(t, s.agent("clerk", 2, 1), func(t *testing.T, ctx context.Context, h *dohosttest.Host, in *deskInbox, outcomes func() []string) {
				say(t, ctx, h, "1", "2")
				for range 30 {
					h.Advance(time.Minute)
					h.EvictAll()
				}
				want := append(slices.Repeat([]string{"failed"}, c.calls-1), "gave-up")
				equal(t, "outcomes", outcomes(), want...)
				say(t, ctx, h, "3")
				h.Advance(20 * time.Minute)
				if len(s.prompts) != c.calls {
					t.Errorf("%d calls of the model in a pause, want %d", len(s.prompts), c.calls)
				}
				wantSummaries(t, ctx, h, in)
				s.fail = nil
				h.Advance(time.Hour)
				say(t, ctx, h, "4")
				inDesk(t, ctx, h, func(ctx context.Context, d *desk) error {
					list, err := inbox.Summaries(ctx, d.Storage(), &messages, "clerk")
					if len(list) == 0 || len(outcomes()) != c.calls+len(list) {
						t.Errorf("after the pause there are %d summaries, and the outcomes %q", len(list), outcomes())
					}
					open, listErr := openFibers(ctx, d)
					if len(open) > 0 {
						t.Errorf("open fibers: %+v", open)
					}
					return errors.Join(err, listErr, checkContext(ctx, d, in, "clerk"))
				})
				for i, asked := range s.asked {
					if n := len(wordsOf(asked)); n != 2*i+1 {
						t.Errorf("prompt %d has the words %q", i, asked)
					}
				}
			})
		})
	}
}

// A model that does not answer is given up after 10 minutes, and asked again.
func TestHistoryModelHangs(t *testing.T) {
	s := &scribe{delay: 24 * time.Hour}
	runReporting(t, s.agent("clerk", 2, 1), func(t *testing.T, ctx context.Context, h *dohosttest.Host, in *deskInbox, outcomes func() []string) {
		say(t, ctx, h, "1", "2")
		h.Advance(9 * time.Minute)
		equal(t, "outcomes", outcomes())
		s.delay = 0
		h.Advance(2 * time.Minute)
		equal(t, "outcomes", outcomes(), "failed", "stored")
		wantSummaries(t, ctx, h, in, "2 from 1 to msg_")
	})
}

// terseModel summarises with one letter, after a time.
type terseModel struct{ delay time.Duration }

func (m terseModel) Stream(ctx context.Context, _ *chat.Prompt) iter.Seq2[chat.Chunk, error] {
	return func(yield func(chat.Chunk, error) bool) {
		select {
		case <-time.After(m.delay):
			yield(chat.TextDelta("t", "s"), nil)
		case <-ctx.Done():
			yield(chat.Chunk{}, context.Cause(ctx))
		}
	}
}

// While the cycles fail because the prompt is too long, they start the fiber. So a summary ends the failures.
func TestHistoryStartsWhileCyclesFail(t *testing.T) {
	a := &inbox.Agent{Name: "clerk", Model: &limitModel{}, History: &chat.History{Model: terseModel{}, Threshold: 20, Window: 10}}
	runHistory(t, a, func(t *testing.T, ctx context.Context, h *dohosttest.Host, in *deskInbox) {
		store(t, ctx, h, "message", 50, time.Now().Add(-time.Hour))
		send(t, ctx, h, fromAda("q")...)
		h.Advance(500 * time.Millisecond)
		if n := waiting(t, ctx, h); n != 1 {
			t.Errorf("%d messages wait after the first cycle", n)
		}
		h.Advance(10 * time.Second)
		if n := waiting(t, ctx, h); n != 0 {
			t.Errorf("%d messages wait after the summaries", n)
		}
	})
}

// An exhausted budget ends the fiber without a charge. The next cycle after it starts another.
func TestHistoryWaitsForBudget(t *testing.T) {
	s := &scribe{}
	a := s.agent("clerk", 2, 1)
	a.Price = func(chat.Usage) int64 { return 1 }
	a.Budget = chat.Budget{Day: chat.Limit{Cost: 2}}
	runReporting(t, a, func(t *testing.T, ctx context.Context, h *dohosttest.Host, in *deskInbox, outcomes func() []string) {
		say(t, ctx, h, "1", "2")
		equal(t, "outcomes", outcomes(), "budget")
		if len(s.prompts) > 0 {
			t.Errorf("the model was asked: %q", s.prompts)
		}
		wantSummaries(t, ctx, h, in)
		h.Advance(24 * time.Hour)
		say(t, ctx, h, "3")
		equal(t, "outcomes", outcomes(), "budget", "stored", "budget")
		inDesk(t, ctx, h, func(ctx context.Context, d *desk) error {
			used := map[string]int{}
			for call, err := range chat.ModelCalls(ctx, d) {
				if err != nil {
					return err
				}
				used[call.Worker]++
			}
			if used["clerk"] != 3 || used["clerk-summary"] != 1 {
				t.Errorf("calls of models: %v", used)
			}
			return nil
		})
	})
}

// The rows of an import, and of a program that writes processed messages itself, are in the conversation. An agent that gets a History later
// summarises all of them, in several summaries of one fiber.
func TestHistoryOfImportedMessages(t *testing.T) {
	s := &scribe{}
	runHistory(t, s.agent("clerk", 10, 5), func(t *testing.T, ctx context.Context, h *dohosttest.Host, in *deskInbox) {
		covers := func(when, first string, messagesOf func(n int) bool) {
			t.Helper()
			inDesk(t, ctx, h, func(ctx context.Context, d *desk) error {
				list, err := inbox.Summaries(ctx, d.Storage(), &messages, "clerk")
				covered := 0
				for _, one := range list {
					covered += one.Messages
				}
				if !messagesOf(covered) || covered > 0 && list[0].First != first {
					t.Errorf("%s %d summaries cover %d messages", when, len(list), covered)
				}
				return errors.Join(err, checkContext(ctx, d, in, "clerk"))
			})
		}
		store(t, ctx, h, "m", 47, time.Now().Add(-time.Hour))
		say(t, ctx, h, "q1")
		covers("after the first response", "m0", func(n int) bool { return n >= 49-10 && n <= 49-5 })
		store(t, ctx, h, "early", 3, time.Now().Add(-2*time.Hour))
		covers("after an import", "", func(n int) bool { return n == 0 })
		say(t, ctx, h, "q2")
		var before int
		covers("after the second response", "early0", func(n int) bool { before = n; return n >= 54-10 && n <= 54-5 })
		store(t, ctx, h, "note", 1, time.Now()) // a processed message at the end
		covers("after a note", "early0", func(n int) bool { return n == before })
	})
}

// An agent without a History keeps the summaries correct that it has made with one.
func TestHistoryTurnedOff(t *testing.T) {
	s := &scribe{}
	var in *deskInbox
	dir := t.TempDir()
	for _, step := range []struct {
		history bool
		run     func(ctx context.Context, d *desk) error
	}{
		{true, func(ctx context.Context, d *desk) error {
			for i := range 6 {
				at := time.Now().Add(time.Duration(i-100) * time.Second)
				m := inbox.Message{ID: fmt.Sprint("m", i), Content: fmt.Sprint("m", i), From: "ada", To: "clerk", Role: chat.RoleUser, Created: at, Processed: at}
				if err := messages.Insert(ctx, d.Storage(), m); err != nil {
					return err
				}
			}
			_, err := s.agent("clerk", 4, 2).Summarize(ctx, d, &messages)
			return err
		}},
		{false, func(ctx context.Context, d *desk) error {
			list, err := inbox.Summaries(ctx, d.Storage(), &messages, "clerk")
			if len(list) != 1 {
				t.Errorf("%d summaries", len(list))
			}
			_, deleteErr := messages.Delete(ctx, d.Storage(), "m1")
			return errors.Join(err, deleteErr)
		}},
		{true, func(ctx context.Context, d *desk) error { return checkContext(ctx, d, in, "clerk") }},
	} {
		a := s.agent("clerk", 4, 2)
		if !step.history {
			a.History = nil
		}
		in = inbox.ForMessages[desk](&messages, a)
		h, err := dohost.Open(dir, nil, deskClass(inbox.On(in)))
		if err != nil {
			t.Fatal(err)
		}
		if err := desks.Get(h, "a").Do(t.Context(), step.run); err != nil {
			t.Error(err)
		}
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	}
}

// Open names the wrong field of a History.
func TestHistoryMistakes(t *testing.T) {
	s := &scribe{}
	for want, wrong := range map[string]func(a *inbox.Agent){
		`inbox: the agent "clerk": History.Model is nil`:    func(a *inbox.Agent) { a.History.Model = nil },
		`inbox: the agent "clerk": History.Threshold is 1`:  func(a *inbox.Agent) { a.History.Threshold = 1 },
		`inbox: the agent "clerk": History.Window is 5`:     func(a *inbox.Agent) { a.History.Window = 5 },
		`inbox: the agent "clerk": MaxMessages is 100 with`: func(a *inbox.Agent) { a.MaxMessages = 100 },
	} {
		a := s.agent("clerk", 5, 2)
		wrong(a)
		h, err := dohost.Open(t.TempDir(), nil, deskClass(inbox.On(inbox.ForMessages[desk](&messages, a))))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
		if err == nil {
			h.Close()
		}
	}
}
