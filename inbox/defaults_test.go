package inbox_test

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"strings"
	"testing"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/agent"
	"github.com/dohost/dohost/chat"
	"github.com/dohost/dohost/dohosttest"
	"github.com/dohost/dohost/inbox"
	"github.com/dohost/dohost/internal/pointtest"
)

// sizeModel answers "ok", and records the number of messages of each prompt.
type sizeModel struct{ sizes []int }

func (m *sizeModel) Stream(_ context.Context, p *chat.Prompt) iter.Seq2[chat.Chunk, error] {
	m.sizes = append(m.sizes, len(p.Messages))
	return func(yield func(chat.Chunk, error) bool) { yield(chat.TextDelta("t", "ok"), nil) }
}

// TestAgentDefaults sends 120 messages in one event to an agent without options: 50 are answered in each cycle, and a prompt has 100 earlier
// messages.
func TestAgentDefaults(t *testing.T) {
	m := &sizeModel{}
	in := inbox.ForMessages[desk](&messages, &inbox.Agent{Name: "clerk", Model: m})
	runDesk(t, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		var list []inbox.Message
		for i := range 120 {
			list = append(list, inbox.Message{From: "ada", Content: fmt.Sprint(i)})
		}
		send(t, ctx, h, list...)
		h.Advance(time.Minute)
		// Before the second cycle there are 50 messages and a response, before the third 100 and two.
		if want := []int{50, 51 + 50, 100 + 20}; fmt.Sprint(m.sizes) != fmt.Sprint(want) {
			t.Errorf("prompts of %v messages, want %v", m.sizes, want)
		}
		if n := waiting(t, ctx, h); n != 0 {
			t.Errorf("%d messages wait", n)
		}
	}, inbox.On(in))
}

// TestAgentDefaultBytes has earlier messages of exactly 256 KiB, and of a byte more.
func TestAgentDefaultBytes(t *testing.T) {
	for more, want := range []int{4 + 1, 3 + 1} {
		m := &sizeModel{}
		in := inbox.ForMessages[desk](&messages, &inbox.Agent{Name: "clerk", Model: m})
		runDesk(t, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
			inDesk(t, ctx, h, func(ctx context.Context, d *desk) error {
				for i, size := range []int{1, 64 << 10, 64 << 10, 64 << 10, 64<<10 + more} {
					earlier := inbox.Message{
						ID: fmt.Sprint(i), Role: chat.RoleUser, From: "ada", To: "clerk", Content: strings.Repeat("x", size),
						Created: time.Now(), Processed: time.Now().Add(time.Duration(i)),
					}
					if err := messages.Insert(ctx, d.Storage(), earlier); err != nil {
						return err
					}
				}
				return nil
			})
			send(t, ctx, h, fromAda("new")...)
			h.Advance(time.Minute)
			if len(m.sizes) != 1 || m.sizes[0] != want {
				t.Errorf("256 KiB and %d bytes: prompts of %v messages, want %d", more, m.sizes, want)
			}
		}, inbox.On(in))
	}
}

// TestSendSetsFields compares all fields of a message with those that Send returns and stores.
func TestSendSetsFields(t *testing.T) {
	runDesk(t, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		h.Advance(time.Hour)
		given := inbox.Message{
			ID: "1", Role: chat.RoleSystem, Content: "closed", To: "clerk", From: "ada", Created: time.Now().Add(-time.Minute),
			Request: "r1", Path: []inbox.Address{{Object: "desk/a", Agent: "cook"}},
		}
		set := given
		set.ID, set.Role, set.Created = "", "", time.Time{}
		for name, m := range map[string]inbox.Message{"given": given, "set": set} {
			inDesk(t, ctx, h, func(ctx context.Context, d *desk) error {
				sent, err := inbox.Send(ctx, d.Storage(), &messages, m)
				want := m
				if name == "set" {
					if !strings.HasPrefix(sent.ID, "msg_") || len(sent.ID) != len("msg_")+26 {
						t.Errorf("the random id %q", sent.ID)
					}
					want.ID, want.Role, want.Created = sent.ID, chat.RoleUser, time.Now()
				}
				stored, _, err2 := messages.Get(ctx, d.Storage(), sent.ID)
				for what, got := range map[string]inbox.Message{"returns": sent, "stores": stored.Value} {
					if asJSON(t, got) != asJSON(t, want) {
						t.Errorf("%s: Send %s %s, want %s", name, what, asJSON(t, got), asJSON(t, want))
					}
				}
				if err == nil {
					err = err2
				}
				return err
			})
		}
	}, inbox.On(inbox.ForMessages[desk](&messages, &inbox.Agent{Name: "clerk", Model: &answerModel{}})))
}

func asJSON(t *testing.T, m inbox.Message) string {
	t.Helper()
	m.Created = m.Created.UTC()
	text, err := json.Marshal(m)
	if err != nil {
		t.Error(err)
	}
	return string(text)
}

// TestAgentWithManyMessages sends 500 messages in one event, and with the flag -full 10,000: each cycle has 50 of them, and no prompt more than
// 100 others.
func TestAgentWithManyMessages(t *testing.T) {
	for _, all := range []int{500, 10_000} {
		if pointtest.Case(all == 500) {
			t.Run(fmt.Sprint(all), func(t *testing.T) { answerMany(t, all) })
		}
	}
}

func answerMany(t *testing.T, all int) {
	m := &sizeModel{}
	in := inbox.ForMessages[desk](&messages, &inbox.Agent{Name: "clerk", Model: m})
	runDesk(t, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		inDesk(t, ctx, h, func(ctx context.Context, d *desk) error {
			for i := range all {
				if _, err := inbox.Send(ctx, d.Storage(), &messages, inbox.Message{ID: fmt.Sprintf("%05d", i), To: "clerk", Content: "x"}); err != nil {
					return err
				}
			}
			return nil
		})
		h.Advance(10 * time.Minute)
		if len(m.sizes) != all/50 {
			t.Errorf("%d cycles", len(m.sizes))
		}
		for i, n := range m.sizes {
			if n > 150 {
				t.Errorf("the prompt of cycle %d has %d messages", i, n)
			}
		}
		if n := waiting(t, ctx, h); n != 0 {
			t.Errorf("%d messages wait", n)
		}
	}, inbox.On(in))
}

// city is the answer of a worker with a typed output.
type city struct {
	Name       string `json:"name"`
	Population int    `json:"population"`
}

// TestInboxParksRowsOfInvalidAnswers has a Generate that is a durable worker, whose model leaves out a field each time. The worker asks three
// times in the first cycle, and once in each other one, since all answers but the last are recorded. After five cycles the row is parked, and
// its error names the field.
func TestInboxParksRowsOfInvalidAnswers(t *testing.T) {
	asked := 0
	w := &chat.Worker[string, city]{Name: "cities", Durable: true, Model: funcModel(func(_ context.Context, yield func(chat.Chunk, error) bool) {
		asked++
		yield(chat.TextDelta("t", `{"name":"Ulm"}`), nil)
	})}
	in := ticketInbox()
	in.Generate = func(d *desk, ctx context.Context, c *inbox.Cycle[ticket]) (string, error) {
		out, err := w.Run(ctx, d, c.Messages[0].PlainText())
		return out.Name, err
	}
	runDesk(t, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		open(t, ctx, h, ticket{ID: "1", Text: "the largest city"})
		h.Advance(time.Hour)
		equal(t, "answers", answers(t, ctx, h), "1:")
		inDesk(t, ctx, h, func(ctx context.Context, d *desk) error {
			parked, err := d.Rows().List(ctx, &agent.RowsQuery{State: agent.RowsParked})
			if len(parked) != 1 || len(parked[0].Keys) != 1 || parked[0].Keys[0] != "1" || !strings.Contains(parked[0].Error, `population`) {
				t.Errorf("parked: %+v", parked)
			}
			return err
		})
		if asked != 3+4 {
			t.Errorf("the model was asked %d times", asked)
		}
	}, inbox.On(in))
}

// funcModel is a model whose answers are those of a function.
type funcModel func(ctx context.Context, yield func(chat.Chunk, error) bool)

func (f funcModel) Stream(ctx context.Context, _ *chat.Prompt) iter.Seq2[chat.Chunk, error] {
	return func(yield func(chat.Chunk, error) bool) { f(ctx, yield) }
}

// TestAgentChunksAreSeenDuringTheAnswer has a model that ends its answer when a watch of the chunks has seen the first of them.
func TestAgentChunksAreSeenDuringTheAnswer(t *testing.T) {
	chunks := chat.StoredChunks("chunks", &dohost.Feed{Name: "chunks", Values: true, Before: true})
	var seen chan struct{} // is closed by the watch
	late := false
	m := funcModel(func(ctx context.Context, yield func(chat.Chunk, error) bool) {
		if !yield(chat.TextDelta("t", "one"), nil) {
			return
		}
		select {
		case <-seen:
		case <-time.After(time.Minute):
			late = true
		case <-ctx.Done():
		}
		yield(chat.TextDelta("t", "two"), nil)
	})
	in := inbox.ForMessages[desk](&messages, &inbox.Agent{Name: "clerk", Model: m, Chunks: chunks})
	runDesk(t, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		seen = make(chan struct{})
		watch := h.Client(func(ctx context.Context) error {
			return desks.Get(h, "a").Do(ctx, func(ctx context.Context, d *desk) error {
				n := 0
				for delta, err := range chunks.Rows.Watch(ctx, d.Storage(), nil, nil) {
					switch {
					case err != nil:
						return err
					case delta.Kind != dohost.DeltaEnter:
						continue
					case delta.Row.Value.Index != n:
						return fmt.Errorf("chunk %d has the index %d", n, delta.Row.Value.Index)
					}
					if n++; n == 1 {
						close(seen)
					}
					if n == 3 { // "one", "two" and "finish"
						return nil
					}
				}
				return nil
			})
		})
		send(t, ctx, h, fromAda("1")...)
		if err := watch.Wait(); err != nil || late {
			t.Errorf("%v; the model waited in vain: %t", err, late)
		}
	}, inbox.On(in))
}
