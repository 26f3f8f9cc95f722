package inbox_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/chat"
	"github.com/dohost/dohost/dohosttest"
	"github.com/dohost/dohost/inbox"
)

// TestAgentAnswersBatch sends three messages together, and a fourth while the model answers them.
func TestAgentAnswersBatch(t *testing.T) {
	m := &answerModel{}
	in := inbox.ForMessages[desk](&messages, &inbox.Agent{Name: "clerk", Model: m})
	runDesk(t, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		send(t, ctx, h, fromAda("1", "2", "3")...)
		h.Advance(500 * time.Millisecond)
		send(t, ctx, h, fromAda("4")...)
		h.Advance(5 * time.Second)
		equal(t, "prompts", m.took(), "u:1 u:2 u:3", "u:1 u:2 u:3 a:1+2+3 u:4")
		equal(t, "responses", responses(t, ctx, h), "1+2+3 to ada", "4 to ada")
		if n := waiting(t, ctx, h); n != 0 {
			t.Errorf("%d messages wait", n)
		}
	}, inbox.On(in))
}

// TestAgentAnswersEachRequest mixes messages without a request id and two requests, one of them sent twice.
func TestAgentAnswersEachRequest(t *testing.T) {
	m := &answerModel{}
	in := inbox.ForMessages[desk](&messages, &inbox.Agent{Name: "clerk", Model: m})
	runDesk(t, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		ask := func(id, from, request string) inbox.Message {
			return inbox.Message{ID: id, From: from, Content: id, Request: request}
		}
		send(t, ctx, h, ask("1", "ada", ""), ask("2", "planner", "r2"), ask("3", "bob", ""), ask("4", "planner", "r4"), ask("5", "planner", "r2"))
		h.Advance(10 * time.Second)
		equal(t, "responses", responses(t, ctx, h), "1+3 to", "2+5 to planner r2", "4 to planner r4")
		m.took()
		send(t, ctx, h, ask("6", "planner", "r4"))
		h.Advance(10 * time.Second)
		equal(t, "prompts of an answered request", m.took())
		if n := len(responses(t, ctx, h)); n != 3 {
			t.Errorf("%d responses after an answered request was sent again", n)
		}
		inDesk(t, ctx, h, func(ctx context.Context, d *desk) error {
			r, ok, err := inbox.Reply(ctx, d.Storage(), &messages, inbox.Message{From: "planner", To: "clerk", Request: "r2"})
			if r.Content != "2+5" || !ok {
				t.Errorf("%+v, %t", r, ok)
			}
			return err
		})
		if n := waiting(t, ctx, h); n != 0 {
			t.Errorf("%d messages wait", n)
		}
	}, inbox.On(in))
}

// TestAgentsShareCollection has two agents over one collection. The response of one to the other is not work for it.
func TestAgentsShareCollection(t *testing.T) {
	m, other := &answerModel{}, &answerModel{}
	clerk := inbox.ForMessages[desk](&messages, &inbox.Agent{Name: "clerk", Model: m})
	cook := inbox.ForMessages[desk](&messages, &inbox.Agent{Name: "cook", Model: other})
	runDesk(t, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		send(t, ctx, h, inbox.Message{ID: "1", From: "ada", To: "clerk", Content: "tea"},
			inbox.Message{ID: "2", From: "clerk", To: "cook", Content: "soup", Request: "r"},
			inbox.Message{ID: "3", From: "clerk", To: "cook", Content: "salt"})
		h.Advance(5 * time.Second)
		send(t, ctx, h, inbox.Message{ID: "4", From: "ada", To: "clerk", Content: "milk"})
		h.Advance(5 * time.Second)
		// The clerk's note "salt" and the cook's answer are in its conversation; its request is not.
		equal(t, "prompts of the clerk", m.took(), "u:tea", "u:tea a:tea a:salt u:salt u:milk")
		equal(t, "prompts of the cook", other.took(), "u:soup", "u:soup a:soup u:salt")
		if n := waiting(t, ctx, h); n != 0 {
			t.Errorf("%d messages wait", n)
		}
	}, inbox.On(clerk), inbox.On(cook))
}

// TestAgentRepeatsFailedCycle has a model that fails twice.
func TestAgentRepeatsFailedCycle(t *testing.T) {
	m := &answerModel{fail: func(asked int) error {
		if asked <= 2 {
			return errors.New("the model is busy")
		}
		return nil
	}}
	in := inbox.ForMessages[desk](&messages, &inbox.Agent{Name: "clerk", Model: m})
	var errs []string
	in.OnError = func(_ *desk, _ context.Context, err error, pending []dohost.Row[inbox.Message]) {
		errs = append(errs, err.Error()+" "+pending[0].Key)
	}
	runDesk(t, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		send(t, ctx, h, fromAda("1")...)
		h.Advance(1500 * time.Millisecond)
		if n := waiting(t, ctx, h); n != 1 {
			t.Errorf("%d messages wait after a failure", n)
		}
		h.Advance(10 * time.Second)
		const failed = `inbox: generate: chat: worker "clerk": the model is busy 1`
		equal(t, "errors", errs, failed, failed)
		equal(t, "responses", responses(t, ctx, h), "1 to ada")
	}, inbox.On(in))
}

// TestAgentStoresChunks reads the chunks while the model answers, and after it.
func TestAgentStoresChunks(t *testing.T) {
	chunks := chat.StoredChunks("chunks", nil)
	in := inbox.ForMessages[desk](&messages, &inbox.Agent{Name: "clerk", Model: &answerModel{}, Chunks: chunks})
	runDesk(t, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		send(t, ctx, h, fromAda("1", "2")...)
		h.Advance(5 * time.Second)
		inDesk(t, ctx, h, func(ctx context.Context, d *desk) error {
			r, err := messages.List(ctx, d.Storage(), &dohost.Query[inbox.Message]{Where: func(m inbox.Message) bool { return m.Generation != "" }})
			if err != nil || len(r) != 1 {
				t.Fatal(r, err)
			}
			rows, err := chunks.Read(ctx, d.Storage(), r[0].Value.Generation)
			var types []string
			for i, row := range rows {
				if row.Value.Index != i {
					t.Errorf("chunk %d has the index %d", i, row.Value.Index)
				}
				types = append(types, string(row.Value.Chunk))
			}
			equal(t, "chunks", types, `{"delta":"1","id":"t","type":"text-delta"}`, `{"delta":"+2","id":"t","type":"text-delta"}`, `{"type":"finish"}`)
			return err
		})
	}, inbox.On(in))
}

// TestAgentPromptIsBounded sends more messages than the prompt may have.
func TestAgentPromptIsBounded(t *testing.T) {
	m := &answerModel{}
	in := inbox.ForMessages[desk](&messages, &inbox.Agent{Name: "clerk", Model: m, MaxMessages: 3})
	runDesk(t, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		for _, text := range []string{"1", "2", "3"} {
			send(t, ctx, h, fromAda(text)...)
			h.Advance(2 * time.Second)
		}
		equal(t, "prompts", m.took(), "u:1", "u:1 a:1 u:2", "a:1 u:2 a:2 u:3")
	}, inbox.On(in))
}

func TestAgentMistakes(t *testing.T) {
	m := &answerModel{}
	plain := dohost.Collection[inbox.Message]{Name: "plain", Key: func(m inbox.Message) string { return m.ID }}
	for want, in := range map[string]*inbox.Inbox[desk, inbox.Message, inbox.Response]{
		`ForMessages without an Agent or a collection`: inbox.ForMessages[desk](&messages, nil),
		`worker "clerk": the model is nil`:             inbox.ForMessages[desk](&messages, &inbox.Agent{Name: "clerk"}),
		`worker "a b": want a name of 1 to 64`:         inbox.ForMessages[desk](&messages, &inbox.Agent{Name: "a b", Model: m}),
		`the collection "plain" has no index "reply"`:  inbox.ForMessages[desk](&plain, &inbox.Agent{Name: "clerk", Model: m}),
		`MaxMessages is -1`:                            inbox.ForMessages[desk](&messages, &inbox.Agent{Name: "clerk", Model: m, MaxMessages: -1}),
		`has no Run: a client would run it`: inbox.ForMessages[desk](&messages,
			&inbox.Agent{Name: "clerk", Model: m, Tools: []chat.Tool{{ToolSpec: chat.ToolSpec{Name: "x"}}}}),
	} {
		h, err := dohost.Open(t.TempDir(), nil, deskClass(inbox.On(in)))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
		if err == nil {
			h.Close()
		}
	}
}

// TestAgentWaitsForBudget exhausts the budget of a day. The next message remains in the inbox, without a failed attempt although its
// incarnations end, and is answered on the next day.
func TestAgentWaitsForBudget(t *testing.T) {
	m := &answerModel{}
	in := inbox.ForMessages[desk](&messages, &inbox.Agent{Name: "clerk", Model: m, Budget: chat.Budget{Day: chat.Limit{Tokens: 1}}})
	in.OnError = func(_ *desk, _ context.Context, err error, _ []dohost.Row[inbox.Message]) { t.Error(err) }
	runDesk(t, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		send(t, ctx, h, fromAda("1")...)
		h.Advance(5 * time.Second)
		send(t, ctx, h, fromAda("2")...)
		for range 10 { // more than attempts
			h.Advance(6 * time.Minute)
			h.EvictAll()
		}
		equal(t, "prompts", m.took(), "u:1")
		if n := waiting(t, ctx, h); n != 1 {
			t.Errorf("%d messages wait", n)
		}
		h.Advance(24 * time.Hour)
		equal(t, "prompts of the next day", m.took(), "u:1 a:1 u:2")
		equal(t, "responses", responses(t, ctx, h), "1 to ada", "2 to ada")
	}, inbox.On(in))
}
