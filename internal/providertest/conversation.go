package providertest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/chat"
	"github.com/dohost/dohost/dohosttest"
)

// Config contains the settings of a test's model.
type Config struct {
	Double   *Double
	Client   *http.Client // nil: the double's
	Key      string
	Retries  int // as for the adapters
	Strategy chat.Strategy
}

// HTTP returns the client for the provider.
func (a Config) HTTP() *http.Client {
	if a.Client != nil {
		return a.Client
	}
	return a.Double.Client()
}

// New makes a model of an adapter.
type New func(a Config) (chat.Model, error)

// Talks is the namespace of conversations with a double.
const Talks dohost.Namespace[Talk] = "talk"

// Talk is a conversation with a double.
type Talk struct {
	*chat.Agent[struct{}]
	model  chat.Model
	onTool func() // called by the tool
}

// Class returns the class of conversations with a tool. The tool calls ran, which may be nil.
func Class(model chat.Model, o chat.Options, ran func()) dohost.Class {
	return chat.Bind(Talks,
		func(_ context.Context, a *chat.Agent[struct{}]) (*Talk, error) { return &Talk{a, model, ran}, nil },
		&chat.Handlers[Talk, struct{}]{Reply: (*Talk).reply, Options: o})
}

// droppingClass returns the class of conversations that drop an interrupted reply, and pass its text to dropped.
func droppingClass(model chat.Model, dropped func(text string)) dohost.Class {
	return chat.Bind(Talks,
		func(_ context.Context, a *chat.Agent[struct{}]) (*Talk, error) {
			return &Talk{Agent: a, model: model}, nil
		},
		&chat.Handlers[Talk, struct{}]{
			Reply: (*Talk).reply,
			OnRecovery: func(_ *Talk, _ context.Context, c *chat.InterruptedReply) (chat.RecoveryAction, error) {
				text := c.Partial.PlainText()
				if text == "" {
					return chat.RecoveryResume, nil
				}
				dropped(text)
				return chat.RecoveryRestart, nil
			},
		})
}

func (t *Talk) reply(ctx context.Context, r *chat.Reply) error {
	return chat.Answer(ctx, r, t.model, &chat.AnswerOptions{System: "Count.", Tools: []chat.Tool{{
		ToolSpec: chat.ToolSpec{Name: "measure", Description: "measures", Parameters: json.RawMessage(
			`{"type":"object","properties":{"what":{"type":"string"}},"required":["what"]}`)},
		Run: func(_ context.Context, input json.RawMessage) (any, error) {
			if string(input) != toolInput {
				return nil, fmt.Errorf("the input is %s", input)
			}
			if t.onTool != nil {
				t.onTool()
			}
			return map[string]int{"metres": 3}, nil
		},
	}}})
}

// toolInput is the input of the tool call.
const toolInput = `{"what":"rope"}`

// toolPlan calls the tool in the first step, after three words, and counts to four in the next.
func toolPlan(_ int, asked []byte) Plan {
	if containsToolResult(asked) {
		return Plan{Words: 4}
	}
	return Plan{Words: 3, Tool: "measure", Input: toolInput}
}

// Ask asks a question and waits for the answer, across ends of incarnations and of the host.
func Ask(ctx context.Context, h *dohosttest.Host, name, id string) (r chat.Response, err error) {
	err = dohost.Retry(ctx, &dohost.RetryPolicy{ShouldRetry: dohost.RetryIdempotent}, func(ctx context.Context) error {
		return Talks.Get(h, name).Do(ctx, func(ctx context.Context, t *Talk) error {
			if _, err := chat.Ask(ctx, t, []chat.Message{chat.Text("user-"+id, chat.RoleUser, "Count.")}, &chat.AskOptions{ID: id}); err != nil {
				return err
			}
			var ok bool
			if r, ok, err = chat.Wait(ctx, t, id); err == nil && !ok {
				err = errors.New("no such request")
			}
			return err
		})
	})
	return r, err
}

// Messages returns the messages of a conversation.
func Messages(ctx context.Context, h *dohosttest.Host, name string) (list []chat.Message, err error) {
	err = Talks.Get(h, name).Do(ctx, func(ctx context.Context, t *Talk) (err error) {
		list, err = chat.Messages(ctx, t, 0)
		return err
	})
	return list, err
}
