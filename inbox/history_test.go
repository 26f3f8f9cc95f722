package inbox_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/chat"
	"github.com/dohost/dohost/dohosttest"
	"github.com/dohost/dohost/inbox"
)

// A conversation with more than 100 messages keeps the newest 50 verbatim.
func TestHistoryKeepsWindow(t *testing.T) {
	s := &scribe{}
	m, cheaper := answering{s}, s
	clerk := &inbox.Agent{
		Name: "clerk", Model: m,
		History: &chat.History{Model: cheaper},
	}
	runHistory(t, clerk, func(t *testing.T, ctx context.Context, h *dohosttest.Host, in *deskInbox) {
		store(t, ctx, h, "m", 98, time.Now().Add(-time.Hour))
		say(t, ctx, h, "q1")
		wantSummaries(t, ctx, h, in) // 100 messages are not too many
		say(t, ctx, h, "q2")
		wantSummaries(t, ctx, h, in, "52 from m0 to m51")
		say(t, ctx, h, "q3")
		last := s.asked[len(s.asked)-1]
		if len(last) != 1+50+1 || !strings.HasPrefix(last[0], "[Summary] m0 m1 ") || last[1] != "m52" || last[51] != "q3" || len(s.prompts) != 1 {
			t.Errorf("%d prompts of the model that summarises, and the prompt %q", len(s.prompts), last)
		}
		inDesk(t, ctx, h, func(ctx context.Context, d *desk) error {
			n, err := messages.Count(ctx, d.Storage(), nil)
			if n != 104 {
				t.Errorf("%d messages are stored, want 104", n)
			}
			return err
		})
	})
}

// A response does not wait for a summary, and its prompt has all messages. Responses during a summary are not forgotten.
func TestHistoryDelaysNoResponse(t *testing.T) {
	s := &scribe{delay: time.Minute}
	runHistory(t, s.agent("clerk", 4, 2), func(t *testing.T, ctx context.Context, h *dohosttest.Host, in *deskInbox) {
		say(t, ctx, h, "1", "2", "3")
		if len(s.prompts) != 1 {
			t.Fatalf("the prompts are %q", s.prompts)
		}
		say(t, ctx, h, "4", "5")
		equal(t, "the prompt", s.asked[len(s.asked)-1], "1", "1!", "2", "2!", "3", "3!", "4", "4!", "5")
		h.Advance(time.Minute)
		wantSummaries(t, ctx, h, in, "4 from 1 to msg_")
		if len(s.prompts) != 2 {
			t.Errorf("the prompts are %q", s.prompts)
		}
		h.Advance(time.Minute)
		wantSummaries(t, ctx, h, in, "4 from 1 to msg_", "4 from 3 to msg_")
		say(t, ctx, h, "6")
		equal(t, "the prompt", s.asked[len(s.asked)-1], "[Summary] 1 1! 2 2!", "[Summary] 3 3! 4 4!", "5", "5!", "6")
	})
}

// One summary replaces the oldest four, before there are more than eight.
func TestHistoryMergesSummaries(t *testing.T) {
	s := &scribe{}
	runHistory(t, s.agent("clerk", 2, 1), func(t *testing.T, ctx context.Context, h *dohosttest.Host, in *deskInbox) {
		most := 0
		for i := range 20 {
			say(t, ctx, h, fmt.Sprint(i))
			inDesk(t, ctx, h, func(ctx context.Context, d *desk) error {
				list, err := inbox.Summaries(ctx, d.Storage(), &messages, "clerk")
				most = max(most, len(list))
				return errors.Join(err, checkContext(ctx, d, in, "clerk"))
			})
		}
		merges := 0
		for _, p := range s.prompts {
			if strings.HasPrefix(p, `{"role":"summary"`) {
				merges++
			}
		}
		if most != 8 || merges < 2 {
			t.Errorf("at most %d summaries, %d merges", most, merges)
		}
	})
}

// MaxBytes makes a summary begin earlier, and bounds the window.
func TestHistoryIsBoundedInBytes(t *testing.T) {
	s := &scribe{}
	a := s.agent("clerk", 0, 0)
	a.MaxBytes = 400
	runHistory(t, a, func(t *testing.T, ctx context.Context, h *dohosttest.Host, in *deskInbox) {
		word := strings.Repeat("x", 49)
		for i := range 4 {
			say(t, ctx, h, fmt.Sprint(i, word[:48]))
		}
		wantSummaries(t, ctx, h, in) // 396 bytes
		say(t, ctx, h, "4")
		wantSummaries(t, ctx, h, in)
		say(t, ctx, h, "5")
		wantSummaries(t, ctx, h, in, "5 from 0"+word[:48]+" to 2"+word[:3])
	})
}

// A change of a covered message deletes its summary and the later ones, in the same batch. So does its deletion, and a message between
// those that are covered.
func TestHistoryOfChangedMessages(t *testing.T) {
	for name, changed := range map[string]func(ctx context.Context, d *desk) error{
		"last of its summary": func(ctx context.Context, d *desk) error {
			_, err := messages.Update(ctx, d.Storage(), "m9", func(m *inbox.Message) error { m.Content = "new"; return nil })
			return err
		},
		"changed": func(ctx context.Context, d *desk) error {
			_, err := messages.Update(ctx, d.Storage(), "m7", func(m *inbox.Message) error { m.Content = "new"; return nil })
			return err
		},
		"deleted": func(ctx context.Context, d *desk) error {
			_, err := messages.Delete(ctx, d.Storage(), "m7")
			return err
		},
		"inserted": func(ctx context.Context, d *desk) error {
			m, _, err := messages.Get(ctx, d.Storage(), "m7")
			m.Value.ID, m.Value.Content, m.Value.Processed = "between", "between", m.Value.Processed.Add(-time.Millisecond)
			return errors.Join(err, messages.Insert(ctx, d.Storage(), m.Value))
		},
		"moved to the end": func(ctx context.Context, d *desk) error {
			_, err := messages.Update(ctx, d.Storage(), "m7", func(m *inbox.Message) error { m.Processed = time.Now(); return nil })
			return err
		},
		"taken out of the conversation": func(ctx context.Context, d *desk) error {
			_, err := messages.Update(ctx, d.Storage(), "m8", func(m *inbox.Message) error { m.To = "cook"; return nil })
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := &scribe{}
			runHistory(t, s.agent("clerk", 5, 2), func(t *testing.T, ctx context.Context, h *dohosttest.Host, in *deskInbox) {
				store(t, ctx, h, "m", 14, time.Now().Add(-time.Hour))
				say(t, ctx, h, "q1")
				wantSummaries(t, ctx, h, in, "5 from m0 to m4", "5 from m5 to m9", "4 from m10 to m13")
				change(t, ctx, h, "m13", func(m *inbox.Message) error { m.Content = "new"; return nil }) // the last covered message
				wantSummaries(t, ctx, h, in, "5 from m0 to m4", "5 from m5 to m9")
				inDesk(t, ctx, h, func(ctx context.Context, d *desk) error {
					return errors.Join(changed(ctx, d), checkContext(ctx, d, in, "clerk"))
				})
				wantSummaries(t, ctx, h, in, "5 from m0 to m4")
				inDesk(t, ctx, h, func(ctx context.Context, d *desk) error {
					undo := errors.New("undo")
					err := dohost.Transaction(ctx, func(ctx context.Context) error {
						_, err := messages.Delete(ctx, d.Storage(), "m0")
						return errors.Join(err, undo)
					})
					if !errors.Is(err, undo) {
						t.Error(err)
					}
					return nil
				})
				wantSummaries(t, ctx, h, in, "5 from m0 to m4")
				say(t, ctx, h, "q2")
				inDesk(t, ctx, h, func(ctx context.Context, d *desk) error {
					list, err := inbox.Summaries(ctx, d.Storage(), &messages, "clerk")
					if len(list) < 2 {
						t.Errorf("%d summaries after the next response", len(list))
					}
					return errors.Join(err, checkContext(ctx, d, in, "clerk"))
				})
			})
		})
	}
}

// A change while the model answers discards the summary; one of a message that is in the window does not.
func TestHistoryChangedDuringSummary(t *testing.T) {
	for key, want := range map[string][]string{"m1": nil, "m9": {"5 from m0 to m4", "4 from m5 to m8"}} {
		t.Run(key, func(t *testing.T) {
			s := &scribe{delay: time.Minute}
			runHistory(t, s.agent("clerk", 5, 2), func(t *testing.T, ctx context.Context, h *dohosttest.Host, in *deskInbox) {
				store(t, ctx, h, "m", 9, time.Now().Add(-time.Hour))
				say(t, ctx, h, "m9")
				change(t, ctx, h, key, func(m *inbox.Message) error { m.Content = "new"; return nil })
				h.Advance(3 * time.Minute)
				wantSummaries(t, ctx, h, in, want...)
			})
		})
	}
}

// A program lets a client edit the first of 60 messages 20 times while a summary is made, and 20 times before each later message. An edit
// costs no call of the model: it ends the fiber, and the next message starts one, which makes the summaries of the whole conversation.
func TestHistoryOfEditsIsBounded(t *testing.T) {
	s := &scribe{delay: time.Second}
	runHistory(t, s.agent("clerk", 10, 5), func(t *testing.T, ctx context.Context, h *dohosttest.Host, in *deskInbox) {
		edit := func() {
			for range 20 {
				change(t, ctx, h, "m0", func(m *inbox.Message) error { m.Content += "x"; return nil })
				h.Advance(100 * time.Millisecond)
			}
		}
		calls := func(when string, want int) {
			t.Helper()
			s.mu.Lock()
			n := len(s.prompts)
			s.prompts = nil
			s.mu.Unlock()
			if n != want {
				t.Errorf("%s the model was called %d times, want %d", when, n, want)
			}
		}
		store(t, ctx, h, "m", 60, time.Now().Add(-time.Hour))
		send(t, ctx, h, fromAda("q0")...)
		h.Advance(100 * time.Millisecond)
		edit()
		calls("during the edits", 1)
		for i := range 3 {
			edit()
			say(t, ctx, h, fmt.Sprint("q", i+1))
			h.Advance(time.Minute)
			calls("after a message", 6)
			inDesk(t, ctx, h, func(ctx context.Context, d *desk) error { return checkContext(ctx, d, in, "clerk") })
		}
	})
}

// A clock that was set back puts a response before the covered messages: their summaries are deleted, and no message is lost.
func TestHistoryWhenTheClockIsSetBack(t *testing.T) {
	s := &scribe{}
	runHistory(t, s.agent("clerk", 5, 2), func(t *testing.T, ctx context.Context, h *dohosttest.Host, in *deskInbox) {
		store(t, ctx, h, "old", 6, time.Now().Add(-time.Hour))
		store(t, ctx, h, "late", 6, time.Now().Add(time.Hour)) // as if the clock had been an hour ahead
		say(t, ctx, h, "q1")
		for i := range 6 {
			say(t, ctx, h, fmt.Sprint("q", i+2))
			inDesk(t, ctx, h, func(ctx context.Context, d *desk) error {
				list, err := inbox.Summaries(ctx, d.Storage(), &messages, "clerk")
				if len(list) == 0 {
					t.Error("no summaries")
				}
				return errors.Join(err, checkContext(ctx, d, in, "clerk"))
			})
		}
		for i, asked := range s.asked {
			if n := len(wordsOf(asked)); n != 12+2*i+1 {
				t.Errorf("prompt %d has %d words, want %d: %q", i, n, 12+2*i+1, asked)
			}
		}
		if len(s.prompts) > 3*len(s.asked) {
			t.Errorf("%d summaries for %d responses", len(s.prompts), len(s.asked))
		}
	})
}

// wordsOf returns the words of a prompt.
func wordsOf(asked []string) (words []string) {
	for _, text := range asked {
		words = append(words, strings.Fields(strings.TrimPrefix(text, "[Summary] "))...)
	}
	return words
}

// Messages of the system stay in the context, before the summary of their range. A range of them alone needs no model.
func TestHistoryKeepsMessagesOfTheSystem(t *testing.T) {
	s := &scribe{}
	runHistory(t, s.agent("clerk", 4, 2), func(t *testing.T, ctx context.Context, h *dohosttest.Host, in *deskInbox) {
		for i, texts := range [][]string{{"s1", "s2", "s3", "s4"}, {"1", "s5"}, {"2"}, {"3"}} {
			var list []inbox.Message
			for _, text := range texts {
				m := fromAda(text)[0]
				if text[0] == 's' {
					m.Role = chat.RoleSystem
				}
				list = append(list, m)
			}
			send(t, ctx, h, list...)
			h.Advance(time.Second)
			inDesk(t, ctx, h, func(ctx context.Context, d *desk) error {
				err := checkContext(ctx, d, in, "clerk")
				if err != nil {
					err = fmt.Errorf("cycle %d: %w", i, err)
				}
				return err
			})
		}
		last := s.asked[len(s.asked)-1]
		for _, text := range []string{"s1", "s2", "s3", "s4", "s5"} {
			if !slices.Contains(last, text) {
				t.Errorf("%s is not in the prompt %q", text, last)
			}
		}
		if len(s.prompts) == 0 || strings.Contains(strings.Join(s.prompts, ""), `"s1"`) {
			t.Errorf("the prompts are %q", s.prompts)
		}
	})
}

// Two agents over one collection have summaries of their own, also of a message that is in both conversations.
func TestHistoryOfTwoAgents(t *testing.T) {
	s := &scribe{}
	clerk, cook := inbox.ForMessages[desk](&messages, s.agent("clerk", 4, 2)), inbox.ForMessages[desk](&messages, s.agent("cook", 6, 1))
	plain := &inbox.Agent{Name: "waiter", Model: answering{s}}
	runDesk(t, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		for i := range 12 {
			m := inbox.Message{ID: fmt.Sprint("m", i), Content: fmt.Sprint("m", i), From: []string{"clerk", "ada"}[i%2], To: []string{"cook", "clerk", "cook"}[i%3]}
			send(t, ctx, h, m)
			h.Advance(time.Second)
			inDesk(t, ctx, h, func(ctx context.Context, d *desk) error {
				return errors.Join(checkContext(ctx, d, clerk, "clerk"), checkContext(ctx, d, cook, "cook"))
			})
		}
		inDesk(t, ctx, h, func(ctx context.Context, d *desk) error {
			before := map[string]int{}
			count := func(into map[string]int) (err error) {
				for _, name := range []string{"clerk", "cook", "waiter"} {
					list, listErr := inbox.Summaries(ctx, d.Storage(), &messages, name)
					into[name], err = len(list), errors.Join(err, listErr)
				}
				return err
			}
			err := count(before)
			if before["clerk"] < 2 || before["cook"] < 1 || before["waiter"] > 0 {
				t.Errorf("summaries: %v", before)
			}
			_, deleteErr := messages.Delete(ctx, d.Storage(), "m0") // from the clerk to the cook
			after := map[string]int{}
			err = errors.Join(err, deleteErr, count(after), checkContext(ctx, d, clerk, "clerk"), checkContext(ctx, d, cook, "cook"))
			if after["clerk"] > 0 || after["cook"] > 0 {
				t.Errorf("summaries after a message of both was deleted: %v", after)
			}
			return err
		})
	}, inbox.On(clerk), inbox.On(cook), inbox.On(inbox.ForMessages[desk](&messages, plain)))
}

// Summarize covers all but the window, also if there are not too many messages.
func TestSummarizeOnRequest(t *testing.T) {
	s := &scribe{}
	a := s.agent("clerk", 100, 3)
	runHistory(t, a, func(t *testing.T, ctx context.Context, h *dohosttest.Host, in *deskInbox) {
		store(t, ctx, h, "m", 9, time.Now().Add(-time.Hour))
		inDesk(t, ctx, h, func(ctx context.Context, d *desk) error {
			one, err := a.Summarize(ctx, d, &messages)
			if one == nil || one.Messages != 6 || one.Last != "m5" {
				t.Errorf("the summary is %+v", one)
			}
			none, err2 := a.Summarize(ctx, d, &messages)
			if none != nil {
				t.Errorf("a second summary: %+v", none)
			}
			plain := &inbox.Agent{Name: "clerk", Model: answering{s}}
			if _, err := plain.Summarize(ctx, d, &messages); !errors.Is(err, dohost.ErrMisuse) {
				t.Errorf("without a History: %v", err)
			}
			return errors.Join(err, err2)
		})
		wantSummaries(t, ctx, h, in, "6 from m0 to m5")
	})
}
