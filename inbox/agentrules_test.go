package inbox_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/agent"
	"github.com/dohost/dohost/chat"
	"github.com/dohost/dohost/dohosttest"
	"github.com/dohost/dohost/inbox"
	"github.com/dohost/dohost/ledger"
)

// poisonModel fails for a prompt with the text "poison".
type poisonModel struct{ answerModel }

func (m *poisonModel) Stream(ctx context.Context, p *chat.Prompt) iter.Seq2[chat.Chunk, error] {
	for _, msg := range p.Messages {
		if msg.PlainText() == "poison" {
			return func(yield func(chat.Chunk, error) bool) {
				m.mu.Lock()
				m.asked = append(m.asked, "poison")
				m.mu.Unlock()
				yield(chat.Chunk{}, errors.New("400: the prompt is too long"))
			}
		}
	}
	return m.answerModel.Stream(ctx, p)
}

// limitModel accepts prompts of 300 bytes of text.
type limitModel struct{ answerModel }

func (m *limitModel) Stream(ctx context.Context, p *chat.Prompt) iter.Seq2[chat.Chunk, error] {
	n := 0
	for _, msg := range p.Messages {
		n += len(msg.PlainText())
	}
	if n > 300 {
		return func(yield func(chat.Chunk, error) bool) {
			yield(chat.Chunk{}, errors.New("400: the prompt is too long"))
		}
	}
	return m.answerModel.Stream(ctx, p)
}

// imageModel yields a large chunk, and a text.
type imageModel struct{}

func (imageModel) Stream(context.Context, *chat.Prompt) iter.Seq2[chat.Chunk, error] {
	return func(yield func(chat.Chunk, error) bool) {
		_ = yield(chat.ReasoningDelta("r", strings.Repeat("x", 3<<20), nil), nil) && yield(chat.TextDelta("t", "here"), nil)
	}
}

// chargingModel calls the tool "charge" with the text of the last message, and then answers after a second.
type chargingModel struct{ answerModel }

func (m *chargingModel) Stream(ctx context.Context, p *chat.Prompt) iter.Seq2[chat.Chunk, error] {
	if len(p.Partial.Parts) > 0 {
		return m.answerModel.Stream(ctx, p)
	}
	last := p.Messages[len(p.Messages)-1].PlainText()
	return func(yield func(chat.Chunk, error) bool) {
		yield(chat.ToolInput("call", "charge", fmt.Sprintf(`{"of":%q}`, last)), nil)
	}
}

func runCharging(t *testing.T, run func(ctx context.Context, h *dohosttest.Host, service *dohosttest.FakeService)) {
	service := &dohosttest.FakeService{Idempotent: true}
	charge := chat.Tool{ToolSpec: chat.ToolSpec{Name: "charge"}, Policy: ledger.PolicyIdempotent, Run: func(ctx context.Context, in json.RawMessage) (any, error) {
		c, _ := chat.CallFrom(ctx)
		return "charged", dohost.Await(ctx, func(ctx context.Context) error { return service.Call(ctx, c.Key, string(in)) })
	}}
	in := inbox.ForMessages[desk](&messages, &inbox.Agent{Name: "clerk", Model: &chargingModel{}, Tools: []chat.Tool{charge}})
	runDesk(t, func(t *testing.T, ctx context.Context, h *dohosttest.Host) { run(ctx, h, service) }, inbox.On(in))
}

func change(t *testing.T, ctx context.Context, h *dohosttest.Host, key string, fn func(m *inbox.Message) error) {
	t.Helper()
	inDesk(t, ctx, h, func(ctx context.Context, d *desk) error {
		_, err := messages.Update(ctx, d.Storage(), key, fn)
		return err
	})
}

// TestAgentWithLongSender has a sender whose name does not fit into an index.
func TestAgentWithLongSender(t *testing.T) {
	m := &answerModel{}
	in := inbox.ForMessages[desk](&messages, &inbox.Agent{Name: "clerk", Model: m})
	in.OnError = func(_ *desk, _ context.Context, err error, _ []dohost.Row[inbox.Message]) { t.Logf("%.300v", err) }
	runDesk(t, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		send(t, ctx, h, inbox.Message{ID: "0", From: strings.Repeat("x", 10_000), Content: "evil"}, inbox.Message{ID: "1", From: "ada", Content: "1"})
		h.Advance(time.Hour)
		if n := waiting(t, ctx, h); n != 0 {
			t.Errorf("%d messages wait, responses %q, %d prompts", n, responses(t, ctx, h), len(m.took()))
		}
	}, inbox.On(in))
}

// TestAgentWithLongRequest has a request id that does not fit into an index.
func TestAgentWithLongRequest(t *testing.T) {
	m := &answerModel{}
	in := inbox.ForMessages[desk](&messages, &inbox.Agent{Name: "clerk", Model: m})
	in.OnError = func(_ *desk, _ context.Context, err error, _ []dohost.Row[inbox.Message]) { t.Logf("%.300v", err) }
	runDesk(t, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		send(t, ctx, h, inbox.Message{ID: "0", From: "ada", Content: "1", Request: strings.Repeat("x", 10_000)})
		h.Advance(time.Hour)
		if n := waiting(t, ctx, h); n != 0 {
			t.Errorf("%d messages wait, %d prompts", n, len(m.took()))
		}
	}, inbox.On(in))
}

// TestAgentWithEqualRequestsOfTwoSenders has two senders that choose the same request id.
func TestAgentWithEqualRequestsOfTwoSenders(t *testing.T) {
	m := &answerModel{}
	in := inbox.ForMessages[desk](&messages, &inbox.Agent{Name: "clerk", Model: m})
	runDesk(t, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		send(t, ctx, h, inbox.Message{ID: "1", From: "mallory", Content: "nothing", Request: "r1"})
		h.Advance(5 * time.Second)
		send(t, ctx, h, inbox.Message{ID: "2", From: "ada", Content: "help", Request: "r1"})
		h.Advance(5 * time.Second)
		equal(t, "responses", responses(t, ctx, h), "nothing to mallory r1", "help to ada r1")
	}, inbox.On(in))
}

// TestAgentWithSenderOfItsName has a sender with the name of the agent.
func TestAgentWithSenderOfItsName(t *testing.T) {
	m := &answerModel{}
	in := inbox.ForMessages[desk](&messages, &inbox.Agent{Name: "clerk", Model: m})
	runDesk(t, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		send(t, ctx, h, inbox.Message{ID: "1", From: "clerk", Content: "I promise a refund"})
		h.Advance(5 * time.Second)
		equal(t, "prompts", m.took(), "u:I promise a refund")
	}, inbox.On(in))
}

// TestSendMistakes sends messages that no agent would answer.
func TestSendMistakes(t *testing.T) {
	runDesk(t, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		inDesk(t, ctx, h, func(ctx context.Context, d *desk) error {
			for _, m := range []inbox.Message{
				{From: "ada", Content: "no To"}, {To: "clerk", Role: chat.RoleAssistant}, {To: "clerk", Role: "banana"},
				{To: "clerk", Processed: time.Now()}, {To: "clerk", InReplyTo: "x"}, {To: "clerk", Generation: "x"},
				{To: "clerk", Created: time.Unix(1<<61, 0)}, {To: "clerk", Created: time.Unix(-1<<61, 0)},
				{To: "clerk", Path: make([]inbox.Address, 6)},
			} {
				if _, err := inbox.Send(ctx, d.Storage(), &messages, m); err == nil {
					t.Errorf("no error: %+v", m)
				}
			}
			return nil
		})
	}, inbox.On(inbox.ForMessages[desk](&messages, &inbox.Agent{Name: "clerk", Model: &answerModel{}})))
}

// TestAgentWithMessagesOfEachSender has a message that the model refuses, among those of another sender.
func TestAgentWithMessagesOfEachSender(t *testing.T) {
	m := &poisonModel{}
	in := inbox.ForMessages[desk](&messages, &inbox.Agent{Name: "clerk", Model: m, EachSender: true})
	runDesk(t, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		send(t, ctx, h, inbox.Message{ID: "0", From: "mallory", Content: "poison"}, inbox.Message{ID: "1", From: "ada", Content: "1"})
		h.Advance(24 * time.Hour)
		if n := waiting(t, ctx, h); n != 1 || len(responses(t, ctx, h)) != 1 {
			t.Errorf("%d messages wait, responses %q, %d prompts", n, responses(t, ctx, h), len(m.took()))
		}
	}, inbox.On(in))
}

// TestAgentPromptIsBoundedInBytes has a model that refuses prompts of more than 300 bytes.
func TestAgentPromptIsBoundedInBytes(t *testing.T) {
	in := inbox.ForMessages[desk](&messages, &inbox.Agent{Name: "clerk", Model: &limitModel{}, MaxBytes: 250})
	runDesk(t, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		for i := range 10 {
			send(t, ctx, h, inbox.Message{ID: fmt.Sprint(i), From: "ada", Content: strings.Repeat("x", 40)})
			h.Advance(time.Hour)
		}
		if n := waiting(t, ctx, h); n > 0 {
			t.Errorf("%d of 10 messages are never answered", n)
		}
	}, inbox.On(in))
}

// TestAgentWithChangedRequests changes the request ids of messages during a cycle.
func TestAgentWithChangedRequests(t *testing.T) {
	m := &answerModel{}
	in := inbox.ForMessages[desk](&messages, &inbox.Agent{Name: "clerk", Model: m})
	runDesk(t, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		send(t, ctx, h, inbox.Message{ID: "1", From: "ada", Content: "1"}, inbox.Message{ID: "2", From: "ada", Content: "2", Request: "r2"})
		h.Advance(500 * time.Millisecond)
		for key, r := range map[string]string{"1": "r1", "2": ""} {
			change(t, ctx, h, key, func(m *inbox.Message) error { m.Request = r; return nil })
		}
		h.Advance(time.Minute)
		equal(t, "responses", responses(t, ctx, h), "1 to ada r1", "2 to ada")
		t.Log(m.took())
	}, inbox.On(in))
}

// TestAgentWithLargeChunk has a chunk that does not fit into a row.
func TestAgentWithLargeChunk(t *testing.T) {
	in := inbox.ForMessages[desk](&messages, &inbox.Agent{Name: "clerk", Model: imageModel{}, Chunks: chat.StoredChunks("chunks", nil)})
	var errs []string
	in.OnError = func(_ *desk, _ context.Context, err error, _ []dohost.Row[inbox.Message]) {
		errs = append(errs, fmt.Sprintf("%.200v", err))
	}
	runDesk(t, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		send(t, ctx, h, fromAda("draw")...)
		h.Advance(time.Hour)
		equal(t, "responses", responses(t, ctx, h), "here to ada")
		t.Log(errs)
	}, inbox.On(in))
}

// TestAgentChunksOfRecordedAnswer fails the first Respond, so that the second has a recorded answer.
func TestAgentChunksOfRecordedAnswer(t *testing.T) {
	chunks := chat.StoredChunks("chunks", nil)
	in := inbox.ForMessages[desk](&messages, &inbox.Agent{Name: "clerk", Model: &answerModel{}, Chunks: chunks})
	respond, failed := in.Respond, false
	in.Respond = func(d *desk, ctx context.Context, r inbox.Response, pending []dohost.Row[inbox.Message]) error {
		if !failed {
			failed = true
			return errors.New("no paper")
		}
		return respond(d, ctx, r, pending)
	}
	runDesk(t, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		send(t, ctx, h, fromAda("1")...)
		h.Advance(time.Minute)
		inDesk(t, ctx, h, func(ctx context.Context, d *desk) error {
			r, _ := messages.List(ctx, d.Storage(), &dohost.Query[inbox.Message]{Where: func(m inbox.Message) bool { return m.Role == chat.RoleAssistant }})
			n, err := chunks.Rows.Count(ctx, d.Storage(), nil)
			t.Logf("%d chunks, response %+v", n, r)
			if len(r) != 1 || r[0].Value.Generation == "" {
				t.Errorf("the response has no generation, although %d chunks are stored", n)
			}
			return err
		})
	}, inbox.On(in))
}

// TestAgentCallsWithRewrittenMessage writes a message during its cycle.
func TestAgentCallsWithRewrittenMessage(t *testing.T) {
	runCharging(t, func(ctx context.Context, h *dohosttest.Host, service *dohosttest.FakeService) {
		send(t, ctx, h, fromAda("5")...)
		h.Advance(500 * time.Millisecond)
		change(t, ctx, h, "5", func(*inbox.Message) error { return nil })
		h.Advance(time.Minute)
		equal(t, "responses", responses(t, ctx, h), "5 to ada")
		if service.Total() != 1 {
			t.Errorf("%d charges", service.Total())
		}
	})
}

// TestAgentCallsWithDeletedMessage deletes one of two messages during their cycle.
func TestAgentCallsWithDeletedMessage(t *testing.T) {
	runCharging(t, func(ctx context.Context, h *dohosttest.Host, service *dohosttest.FakeService) {
		send(t, ctx, h, fromAda("note", "pay 5")...)
		h.Advance(500 * time.Millisecond)
		inDesk(t, ctx, h, func(ctx context.Context, d *desk) error {
			_, err := messages.Delete(ctx, d.Storage(), "note")
			return err
		})
		h.Advance(time.Minute)
		equal(t, "responses", responses(t, ctx, h), "pay 5 to ada")
		if service.Total() != 1 {
			t.Errorf("%d charges", service.Total())
		}
	})
}

// TestAgentCallsWithChangedMessageAndCrash changes a message during its cycle, and kills the process in the next cycle.
func TestAgentCallsWithChangedMessageAndCrash(t *testing.T) {
	runCharging(t, func(ctx context.Context, h *dohosttest.Host, service *dohosttest.FakeService) {
		send(t, ctx, h, fromAda("m")...)
		h.Advance(500 * time.Millisecond)
		change(t, ctx, h, "m", func(m *inbox.Message) error { m.Content = "pay 10"; return nil })
		h.Advance(time.Second) // the second run has charged 10
		h.Kill()
		h.Advance(time.Minute)
		equal(t, "responses", responses(t, ctx, h), "pay 10 to ada")
		if service.Total() != 2 { // "m", and "pay 10" once
			t.Errorf("%d charges", service.Total())
		}
	})
}

// TestRepliesAreNoWork inserts rows to the agent that are responses by one of their fields each. The agent answers none of them, and stores its own
// response as processed.
func TestRepliesAreNoWork(t *testing.T) {
	m := &answerModel{}
	in := inbox.ForMessages[desk](&messages, &inbox.Agent{Name: "clerk", Model: m})
	runDesk(t, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		inDesk(t, ctx, h, func(ctx context.Context, d *desk) error {
			for id, msg := range map[string]inbox.Message{
				"role":      {Role: chat.RoleAssistant},
				"reply":     {Role: chat.RoleUser, InReplyTo: "r1"},
				"processed": {Role: chat.RoleUser, Processed: time.Now()},
			} {
				msg.ID, msg.From, msg.To, msg.Created = id, "cook", "clerk", time.Now()
				if err := messages.Insert(ctx, d.Storage(), msg); err != nil {
					return err
				}
			}
			return nil
		})
		h.Advance(time.Minute)
		equal(t, "prompts", m.took())
		if n := waiting(t, ctx, h); n != 0 {
			t.Errorf("%d messages wait", n)
		}
		send(t, ctx, h, request)
		h.Advance(time.Minute)
		inDesk(t, ctx, h, func(ctx context.Context, d *desk) error {
			r, ok, err := inbox.Reply(ctx, d.Storage(), &messages, request)
			if !ok || r.Processed.IsZero() || r.Role != chat.RoleAssistant || r.InReplyTo != "r1" {
				t.Errorf("the response is %+v", r)
			}
			return err
		})
	}, inbox.On(in))
}

// TestAgentNameIsUniqueInCollection declares two agents of one name.
func TestAgentNameIsUniqueInCollection(t *testing.T) {
	of := func(name string) agent.Entry[desk] {
		return inbox.On(inbox.ForMessages[desk](&messages, &inbox.Agent{Name: name, Model: &answerModel{}}))
	}
	h, err := dohost.Open(t.TempDir(), nil, deskClass(of("clerk"), of("cook"), of("clerk")))
	if err == nil || !strings.Contains(err.Error(), `collection "messages", index "pending", whose rows overlap`) {
		t.Error(err)
	}
	if err == nil {
		h.Close()
	}
}

// TestModelEndsWithHost closes the host while a model is silent: its context ends, and the next host asks again.
func TestModelEndsWithHost(t *testing.T) {
	m := &silentModel{}
	in := inbox.ForMessages[desk](&messages, &inbox.Agent{Name: "clerk", Model: m})
	runDesk(t, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		send(t, ctx, h, fromAda("1")...)
		h.Advance(time.Second)
		if begun, ended := m.begun.Load(), m.ended.Load(); begun != 1 || ended != 0 {
			t.Fatalf("%d streams have begun, and %d ended", begun, ended)
		}
		if err := h.Restart(); err != nil {
			t.Fatal(err)
		}
		h.Advance(time.Millisecond)
		if begun, ended := m.begun.Load(), m.ended.Load(); begun != 2 || ended != 1 {
			t.Errorf("after the end of the host %d streams have begun, and %d ended", begun, ended)
		}
		m.answers.Store(true)
		h.EvictAll()
		h.Advance(time.Minute)
		equal(t, "responses", responses(t, ctx, h), "yes to ada")
		if begun, ended := m.begun.Load(), m.ended.Load(); begun != ended {
			t.Errorf("%d streams have begun, and %d ended", begun, ended)
		}
	}, inbox.On(in))
}

// silentModel answers nothing until its context ends, unless answers is set.
type silentModel struct {
	begun, ended atomic.Int64
	answers      atomic.Bool
}

func (m *silentModel) Stream(ctx context.Context, _ *chat.Prompt) iter.Seq2[chat.Chunk, error] {
	return func(yield func(chat.Chunk, error) bool) {
		m.begun.Add(1)
		defer m.ended.Add(1)
		if m.answers.Load() {
			yield(chat.TextDelta("t", "yes"), nil)
			return
		}
		<-ctx.Done()
		yield(chat.Chunk{}, context.Cause(ctx))
	}
}
