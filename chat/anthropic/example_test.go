package anthropic_test

import (
	"context"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/chat"
	"github.com/dohost/dohost/chat/anthropic"
)

// Assistant answers with the model.
type Assistant struct{ *chat.Agent[struct{}] }

// Assistants is the namespace of Assistant objects.
const Assistants dohost.Namespace[Assistant] = "assistant"

func assistant(m chat.Model) dohost.Class {
	return chat.Bind(Assistants,
		func(_ context.Context, a *chat.Agent[struct{}]) (*Assistant, error) { return &Assistant{a}, nil },
		&chat.Handlers[Assistant, struct{}]{
			Reply: func(_ *Assistant, ctx context.Context, r *chat.Reply) error {
				return chat.Answer(ctx, r, m, &chat.AnswerOptions{System: "You are brief."})
			},
		})
}

// A chat agent that answers with a model of Anthropic. The example uses a server in place of the provider; a program omits
// BaseURL and Key, and sets ANTHROPIC_API_KEY.
func Example() {
	provider := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, answer)
	}))
	defer provider.Close()
	model, err := anthropic.New("claude-sonnet-4-5", &anthropic.Options{Key: "key", BaseURL: provider.URL})
	if err != nil {
		log.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "dohost")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	h, err := dohost.Open(dir, nil, assistant(model))
	if err != nil {
		log.Fatal(err)
	}
	defer h.Close()
	err = Assistants.Get(h, "ada").Do(context.Background(), func(ctx context.Context, a *Assistant) error {
		id, err := chat.Ask(ctx, a, []chat.Message{chat.Text("m1", chat.RoleUser, "What is the weather in Lisbon?")}, nil)
		if err != nil {
			return err
		}
		r, _, err := chat.Wait(ctx, a, id)
		fmt.Println(r.Status, r.Message.PlainText())
		return err
	})
	if err != nil {
		log.Fatal(err)
	}
	// Output: completed In Lisbon it is sunny.
}

// answer is the stream of an answer, as the provider sends it.
const answer = `event: message_start
data: {"type":"message_start","message":{"id":"msg_1","type":"message","role":"assistant","content":[],"usage":{"input_tokens":9,"output_tokens":1}}}

event: content_block_start
data: {"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}

event: content_block_delta
data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"In Lisbon "}}

event: content_block_delta
data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"it is sunny."}}

event: content_block_stop
data: {"type":"content_block_stop","index":0}

event: message_delta
data: {"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":7}}

event: message_stop
data: {"type":"message_stop"}

`
