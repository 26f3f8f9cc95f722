package chat_test

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"log"
	"os"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/chat"
)

// Assistants is the namespace of Assistant objects.
const Assistants dohost.Namespace[Assistant] = "assistant"

// Assistant answers questions about the weather.
type Assistant struct{ *chat.Agent[struct{}] }

// weatherModel replaces a provider's model, such as that of package chat/openai. It calls the tool first, and
// answers with the tool's result.
type weatherModel struct{}

func (weatherModel) Stream(_ context.Context, p *chat.Prompt) iter.Seq2[chat.Chunk, error] {
	return func(yield func(chat.Chunk, error) bool) {
		for _, part := range p.Partial.Parts {
			if result := part.Member("output"); result != nil {
				yield(chat.TextDelta("t", "In Lisbon it is "+part.Text("output")+"."), nil)
				return
			}
		}
		yield(chat.ToolInput("call-1", "weather", `{"city":"Lisbon"}`), nil)
	}
}

// forecast is a tool of the server. It runs at most once for each call of the model that has a result.
func forecast(_ context.Context, input json.RawMessage) (any, error) {
	var in struct{ City string }
	err := json.Unmarshal(input, &in)
	return "sunny", err
}

func assistant(m chat.Model) dohost.Class {
	return chat.Bind(Assistants,
		func(_ context.Context, a *chat.Agent[struct{}]) (*Assistant, error) { return &Assistant{a}, nil },
		&chat.Handlers[Assistant, struct{}]{
			Reply: func(_ *Assistant, ctx context.Context, r *chat.Reply) error {
				return chat.Answer(ctx, r, m, &chat.AnswerOptions{
					System: "You are brief.",
					Tools:  []chat.Tool{{ToolSpec: chat.ToolSpec{Name: "weather"}, Run: forecast}},
				})
			},
		})
}

// A class of conversational agents, and a question from the program. Browsers ask over a WebSocket.
func Example() {
	dir, err := os.MkdirTemp("", "dohost")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	h, err := dohost.Open(dir, nil, assistant(weatherModel{}))
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
