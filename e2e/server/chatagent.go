//go:build e2e

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/agent"
	"github.com/dohost/dohost/chat"
)

// chatAgent is a chat agent that obeys commands. "count 20" counts, with words that no other call of its model uses;
// "ask" calls a tool of the client, "stamp" one of its own that needs an approval, "print" one that another party completes, "delegate" another
// agent, which counts as well, and then all count; "fail" fails.
type chatAgent struct{ *chat.Agent[struct{}] }

const chatAgents dohost.Namespace[chatAgent] = "ChatAgent"

func chatAgentClass() dohost.Class {
	return chat.Bind(chatAgents, func(_ context.Context, a *chat.Agent[struct{}]) (*chatAgent, error) { return &chatAgent{a}, nil },
		&chat.Handlers[chatAgent, struct{}]{Reply: (*chatAgent).reply},
		agent.Callable("stamps", dohost.NoArg((*chatAgent).stamps)))
}

// stamps returns the number of runs of the tool stamp.
func (t *chatAgent) stamps(ctx context.Context) (int, error) {
	n, _, err := dohost.Get[int](ctx, t.Storage(), "stamps")
	return n, err
}

func (t *chatAgent) reply(ctx context.Context, r *chat.Reply) error {
	return chat.Answer(ctx, r, counter{}, &chat.AnswerOptions{Tools: []chat.Tool{{
		ToolSpec: chat.ToolSpec{Name: "stamp"}, Approve: &chat.Approval{},
		Run: func(ctx context.Context, _ json.RawMessage) (any, error) {
			return "stamped", dohost.Add(ctx, t.Storage(), "stamps", 1)
		},
	}, {
		ToolSpec: chat.ToolSpec{Name: "print"}, External: &chat.External{},
		Run: func(context.Context, json.RawMessage) (any, error) { return nil, nil },
	}, {ToolSpec: chat.ToolSpec{Name: "ask"}}, chat.AgentTool(chatAgents, "delegate", "", &chat.AgentToolOptions{
		To: func(context.Context, json.RawMessage) (string, error) { return t.Name() + "-asked", nil },
	})}})
}

// calls counts those of the model in this process.
var calls atomic.Int64

// pace is the time between words.
const pace = 20 * time.Millisecond

// counter is the model.
type counter struct{}

// Stream is part of chat.Model.
func (counter) Stream(ctx context.Context, p *chat.Prompt) iter.Seq2[chat.Chunk, error] {
	return func(yield func(chat.Chunk, error) bool) {
		call := calls.Add(1)
		what, n := instruction(p)
		answered := false
		for _, part := range p.Partial.Parts {
			answered = answered || strings.HasPrefix(part.Text("state"), "output-")
		}
		if slices.Contains([]string{"ask", "stamp", "print", "delegate"}, what) && !answered {
			input := map[string]any{"of": p.Partial.ID}
			if what == "delegate" {
				input = map[string]any{"message": fmt.Sprint("count ", n)}
			}
			c, err := chat.NewChunk("tool-input-available", map[string]any{
				"toolCallId": fmt.Sprintf("call-%d-%d", time.Now().UnixNano(), call), "toolName": what, "input": input,
			})
			yield(c, err)
			return
		}
		text := p.Partial.PlainText()
		for i := len(strings.Fields(text)); i < n; i++ {
			time.Sleep(pace)
			if ctx.Err() != nil {
				return
			}
			if what == "fail" && i == n/2 {
				yield(chat.Chunk{}, &dohost.PublicError{Message: "the model is out"})
				return
			}
			c, err := chat.NewChunk("text-delta", map[string]any{"id": strconv.FormatInt(call, 10), "delta": fmt.Sprintf("%d.%d ", call, i)})
			if !yield(c, err) {
				return
			}
		}
	}
}

// instruction returns the command in the last message of the user: a word, and a number to count to.
func instruction(p *chat.Prompt) (what string, n int) {
	for _, m := range p.Messages {
		if m.Role == chat.RoleUser {
			_, _ = fmt.Sscanf(m.PlainText(), "%s %d", &what, &n) // else it counts to nothing
		}
	}
	return what, n
}
