package inbox_test

import (
	"context"
	"fmt"
	"iter"
	"log"
	"os"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/agent"
	"github.com/dohost/dohost/chat"
	"github.com/dohost/dohost/inbox"
)

// Shop is an object with an agent that answers messages.
type Shop struct{ *agent.Agent[struct{}] }

// Shops is the namespace of Shop objects.
const Shops dohost.Namespace[Shop] = "shop"

// questions is the inbox: a message that waits in it makes the agent answer.
var questions = inbox.Messages("questions", nil)

// hoursModel replaces a provider's model.
type hoursModel struct{}

func (hoursModel) Stream(_ context.Context, p *chat.Prompt) iter.Seq2[chat.Chunk, error] {
	return func(yield func(chat.Chunk, error) bool) { yield(chat.TextDelta("t", "At nine."), nil) }
}

// A person sends a message to the agent of an object, and waits for its response. The message waits in the storage of
// the object, so it gets its response also if the process ends before.
func Example() {
	dir, err := os.MkdirTemp("", "dohost")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	assistant := &inbox.Agent{Name: "assistant", Instructions: "Answer questions about the shop.", Model: hoursModel{}}
	class := agent.Bind(Shops,
		func(_ context.Context, a *agent.Agent[struct{}]) (*Shop, error) { return &Shop{a}, nil }, nil,
		inbox.On(inbox.ForMessages[Shop](&questions, assistant)))
	h, err := dohost.Open(dir, nil, class)
	if err != nil {
		log.Fatal(err)
	}
	defer h.Close()
	err = Shops.Get(h, "main").Do(context.Background(), func(ctx context.Context, s *Shop) error {
		asked, err := inbox.Send(ctx, s.Storage(), &questions, inbox.Message{
			From: "ada", To: "assistant", Content: "When do you open?", Request: "1",
		})
		if err != nil {
			return err
		}
		response, err := inbox.WaitReply(ctx, s, &questions, asked)
		fmt.Printf("%s: %s\n", response.From, response.Content)
		return err
	})
	if err != nil {
		log.Fatal(err)
	}
	// Output: assistant: At nine.
}
