package openai_test

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
	"github.com/dohost/dohost/chat/openai"
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

// A chat agent that answers with a model of OpenAI. The example uses a server in place of the provider; a program omits
// BaseURL and Key, and sets OPENAI_API_KEY.
func Example() {
	provider := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, answer)
	}))
	defer provider.Close()
	model, err := openai.NewResponses("gpt-5-mini", &openai.ResponsesOptions{
		Options: openai.Options{Key: "key", BaseURL: provider.URL},
	})
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
const answer = `event: response.created
data: {"type":"response.created","response":{"id":"resp_1","status":"in_progress"},"sequence_number":0}

event: response.output_text.delta
data: {"type":"response.output_text.delta","item_id":"msg_1","output_index":0,"content_index":0,"delta":"In Lisbon ","sequence_number":1}

event: response.output_text.delta
data: {"type":"response.output_text.delta","item_id":"msg_1","output_index":0,"content_index":0,"delta":"it is sunny.","sequence_number":2}

event: response.completed
data: {"type":"response.completed","response":{"id":"resp_1","status":"completed"},"sequence_number":3}

`
