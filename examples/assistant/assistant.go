// Package assistant is a chat agent that answers from a folder of text, without a network or a key.
package assistant

import (
	"context"
	"encoding/json"
	"io/fs"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/chat"
	"github.com/dohost/dohost/chat/extract"
)

// Assistants is the namespace of Assistant objects.
const Assistants dohost.Namespace[Assistant] = "assistant"

// Assistant is a conversation.
type Assistant struct {
	*chat.Agent[struct{}]
	model chat.Model
}

// Class returns the class of assistants that answer from a folder, with pace as the time for a word. For a
// folder without text, [dohost.Open] returns an error.
func Class(folder fs.FS, pace time.Duration) dohost.Class {
	model, err := extract.New(folder, &extract.Options{Pace: pace})
	if err != nil {
		return dohost.InvalidClass(Of(nil), err)
	}
	return Of(model)
}

// Of returns the class of assistants that answer with a model.
func Of(model chat.Model) dohost.Class {
	return chat.Bind(Assistants,
		func(_ context.Context, a *chat.Agent[struct{}]) (*Assistant, error) { return &Assistant{a, model}, nil },
		&chat.Handlers[Assistant, struct{}]{Reply: (*Assistant).reply})
}

func (a *Assistant) reply(ctx context.Context, r *chat.Reply) error {
	return chat.Answer(ctx, r, a.model, &chat.AnswerOptions{
		System: "Answer from the documents, and name them.",
		Tools: []chat.Tool{{
			ToolSpec: chat.ToolSpec{Name: "time", Description: "what time it is, in UTC"},
			Run: func(context.Context, json.RawMessage) (any, error) {
				return time.Now().UTC().Format(time.DateTime), nil
			},
		}},
		MaxMessages: 50,
	})
}
