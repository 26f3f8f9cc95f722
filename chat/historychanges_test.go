package chat_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dohost/dohost/chat"
	"github.com/dohost/dohost/dohosttest"
)

// MaxMessages may delete messages while the model summarises them: the summary is stored. An edit and a deletion by a client
// discard it, also if the message is deleted for MaxMessages afterwards.
func TestHistoryTrimmedDuringSummary(t *testing.T) {
	deletes := func(ctx context.Context, r *reader, list []chat.Message) {
		r.sendMessages(ctx, "two", "submit-message", list[1:])
	}
	for name, c := range map[string]struct {
		before int // questions before the change
		change func(ctx context.Context, r *reader, list []chat.Message)
		want   []string
	}{
		"trimmed":                 {2, nil, []string{"4 from m0 to m3"}},
		"all trimmed":             {3, nil, []string{"4 from m0 to m3"}},
		"the oldest is deleted":   {0, deletes, nil},
		"deleted after a trimmed": {2, deletes, nil},
		"edited after a trimmed": {2, func(ctx context.Context, r *reader, list []chat.Message) {
			r.sendFrame(ctx, map[string]any{"type": "cf_agent_chat_messages", "messages": withText(list, "m3", "new")})
		}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			s := newHistorian(4, 2)
			s.options.MaxMessages = 8
			s.delay = time.Minute
			s.run(t, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
				storeWords(t, ctx, h, 4)
				for i := range 1 + c.before {
					askWord(t, ctx, h, fmt.Sprint("q", i+1))
				}
				if c.change != nil {
					r := connectIdle(t, h, "mallory")
					defer r.close()
					c.change(ctx, r, allMessages(t, ctx, h))
				}
				h.Advance(70 * time.Second)
				if len(s.prompts) != 2 { // the second summary has begun
					t.Fatalf("%d prompts", len(s.prompts))
				}
				wantSummaries(t, ctx, h, c.want...)
			})
		})
	}
}

// One summary replaces the oldest four, before there are more than eight.
func TestHistoryMergesSummaries(t *testing.T) {
	s := newHistorian(2, 1)
	s.run(t, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		words := append(storeWords(t, ctx, h, 1), "q1")
		most := 0
		for i := range 20 {
			askWord(t, ctx, h, words[len(words)-1])
			if got, n := s.lastContext(); !slices.Equal(got, words) || n > 8 {
				t.Fatalf("the context of question %d has %d summaries and the words %v, want %v", i+1, n, got, words)
			}
			words = append(words, fmt.Sprintf("q%d!", i+1), fmt.Sprintf("q%d", i+2))
			most = max(most, len(summariesOf(t, ctx, h)))
		}
		if n := len(s.prompts); most != 8 || n != 20+4 {
			t.Errorf("at most %d summaries, %d prompts; want 8, and 24, 4 of them for merges", most, n)
		}
		list := allMessages(t, ctx, h)
		edited := list[len(list)-4].ID // in one of the last summaries
		r := connectIdle(t, h, "r")
		defer r.close()
		before := summariesOf(t, ctx, h)
		r.sendFrame(ctx, map[string]any{"type": "cf_agent_chat_messages", "messages": withText(list, edited, "new")})
		h.Advance(time.Second)
		if after := summariesOf(t, ctx, h); len(after) == 0 || !slices.Equal(after, before[:len(after)]) || len(before)-len(after) > 2 {
			t.Errorf("after an edit there are the summaries %q, before %q", after, before)
		}
	})
}

// A change of a message whose summary is being merged discards the merged one.
func TestHistoryChangedDuringMerge(t *testing.T) {
	s := newHistorian(2, 1)
	s.run(t, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		storeWords(t, ctx, h, 8)
		inEvent(t, ctx, h, func(ctx context.Context, p *countingAgent) error { return p.StoreSummaries(ctx, 8) })
		s.delay = time.Minute
		askWord(t, ctx, h, "q1")
		askWord(t, ctx, h, "q2")
		if len(s.prompts) != 1 || !strings.HasPrefix(s.prompts[0], `{"role":"summary","text":"m0"}`) {
			t.Fatalf("the prompts are %q", s.prompts)
		}
		r := connectIdle(t, h, "mallory")
		defer r.close()
		r.sendFrame(ctx, map[string]any{"type": "cf_agent_chat_messages", "messages": withText(allMessages(t, ctx, h), "m2", "new")})
		h.Advance(10 * time.Second)
		wantSummaries(t, ctx, h, "1 from m0 to m0", "1 from m1 to m1")
		h.Advance(10 * time.Minute)
		askWord(t, ctx, h, "q3")
		s.wantContext(t, 2, "m0", "m1", "new", "m3", "m4", "m5", "m6", "m7", "q1", "q1!", "q2", "q2!", "q3")
	})
}

// The same after an edit: the old text is in no context.
func TestHistoryEditedAndTrimmedDuringSummary(t *testing.T) {
	s := newHistorian(4, 2)
	s.options.MaxMessages = 8
	s.delay = time.Minute
	s.run(t, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		storeWords(t, ctx, h, 4)
		askWord(t, ctx, h, "q1")
		r := connectIdle(t, h, "mallory")
		r.sendFrame(ctx, map[string]any{"type": "cf_agent_chat_messages", "messages": withText(allMessages(t, ctx, h), "m0", "new")})
		h.Advance(time.Second)
		r.close()
		askWord(t, ctx, h, "q2")
		askWord(t, ctx, h, "q3")
		if all := allMessages(t, ctx, h); all[0].ID == "m0" {
			t.Fatal("m0 is still stored")
		}
		h.Advance(58 * time.Second) // the first answer, which is discarded, and not the second
		wantSummaries(t, ctx, h)
		askWord(t, ctx, h, "q4")
		if words, _ := s.lastContext(); slices.Contains(words, "m0") {
			t.Errorf("the context has the words %v", words)
		}
	})
}

// A regeneration of a reply after the range discards no summary.
func TestHistoryRegenerationDuringSummary(t *testing.T) {
	s := newHistorian(7, 3)
	s.delay = time.Minute
	s.run(t, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		storeWords(t, ctx, h, 6)
		askWord(t, ctx, h, "q1")
		h.Advance(30 * time.Second)
		r := connectIdle(t, h, "r")
		defer r.close()
		r.sendMessages(ctx, "two", "regenerate-message", allMessages(t, ctx, h)[:7])
		h.Advance(time.Minute)
		wantSummaries(t, ctx, h, "5 from m0 to m4")
	})
}

// A reply that is stored between the messages of a summary, while the model makes it, discards the summary.
func TestHistoryReplyBetweenDuringSummary(t *testing.T) {
	s := newHistorian(7, 3)
	s.delay = time.Minute
	s.run(t, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		storeWords(t, ctx, h, 6)
		askWord(t, ctx, h, "q1")
		r := connectIdle(t, h, "r")
		list := allMessages(t, ctx, h)
		r.sendMessages(ctx, "two", "submit-message", []chat.Message{chat.Text("a", chat.RoleAssistant, "a"), list[2]})
		h.Advance(time.Second)
		r.close()
		if all := allMessages(t, ctx, h); len(all) != 10 || all[3].PlainText() != "m2!" {
			t.Fatalf("%d messages", len(all))
		}
		h.Advance(65 * time.Second)
		wantSummaries(t, ctx, h)
	})
}

// Summarize leaves the newest 20 messages, although messages are deleted during the merge before it.
func TestSummarizeAfterDeletionDuringMerge(t *testing.T) {
	s := newHistorian(1000, 3)
	s.delay = time.Minute
	s.run(t, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		storeWords(t, ctx, h, 68)
		inEvent(t, ctx, h, func(ctx context.Context, p *countingAgent) error { return p.StoreSummaries(ctx, 8) })
		done := make(chan error, 1)
		go func() {
			n, err := summarize(t, ctx, h, nil)
			if n != 0 {
				err = fmt.Errorf("a summary of %d messages, %w", n, err)
			}
			done <- err
		}()
		h.Advance(30 * time.Second)
		r := connectIdle(t, h, "r")
		defer r.close()
		r.sendMessages(ctx, "two", "submit-message", allMessages(t, ctx, h)[:39])
		h.Advance(5 * time.Minute)
		if err := <-done; err != nil { // 31 messages have no summary, 20 of them are the newest
			t.Error(err)
		}
		if len(s.prompts) != 1 {
			t.Errorf("%d prompts, want that of the merge", len(s.prompts))
		}
	})
}
