package openai_test

import (
	"context"
	"log"

	"github.com/dohost/dohost/chat"
	"github.com/dohost/dohost/chat/openai"
)

// A reply handler that answers with a model of OpenAI. The key is that of the environment.
func Example() {
	model, err := openai.NewResponses("gpt-5-mini", nil)
	if err != nil {
		log.Fatal(err)
	}
	reply := func(ctx context.Context, r *chat.Reply) error {
		return chat.Answer(ctx, r, model, &chat.AnswerOptions{System: "You are brief."})
	}
	_ = reply // for chat.Handlers
}
