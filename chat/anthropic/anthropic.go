// Package anthropic has Anthropic's models answer, by the official SDK.
//
//	model, err := anthropic.New("claude-sonnet-4-5", nil)
//
// The model is a [chat.Model], for [chat.Answer]. The provider knows no answer by an id, so a reply that was cut off
// is asked to go on with, and billed once more.
//
// It is linked by who imports it alone: the SDK beneath takes longer to compile than the rest of a server.
package anthropic

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"os"
	"strings"

	sdk "github.com/anthropics/anthropic-sdk-go"
	"github.com/anthropics/anthropic-sdk-go/option"
	"github.com/oklog/ulid/v2"

	"github.com/dohost/dohost/chat"
	"github.com/dohost/dohost/chat/internal/provider"
)

// Options tunes New. A nil *Options, and the zero Options, mean the defaults.
type Options struct {
	// Key is the API's key. Empty means ANTHROPIC_API_KEY of the environment; there need be none if BaseURL is set.
	Key string
	// BaseURL is where the API is. Empty means ANTHROPIC_BASE_URL of the environment, or else Anthropic itself.
	BaseURL string
	// Client makes the requests. Nil means http.DefaultClient.
	Client *http.Client
	// Retries is how often a request is made again which was refused for now (408, 409, 429, 5xx) or could not be
	// made, after as long as the provider has asked for. Zero means 2; negative, never. An answer that has
	// begun is not.
	Retries int
	// Strategy is how the model goes on with a text that was cut off. Empty means [chat.SyntheticMessage]. Models
	// from Claude 4.6 on refuse [chat.Prefill].
	Strategy chat.Strategy
	// MaxTokens bounds an answer. Zero means 16,384.
	MaxTokens int64
	// Params changes what is asked, such as the budget for thinking. When the model is to go on with a text that
	// was cut off it does not think about that again, whatever they say. It may be nil. Any goroutine.
	Params func(p *sdk.MessageNewParams)
}

// Model is a model of Anthropic. Any goroutine.
type Model struct {
	model    string
	client   sdk.Client
	provider provider.Provider
	o        Options
}

// New makes a model answer, by its name.
//
// Errors: one if there is no key.
func New(model string, o *Options) (*Model, error) {
	m := &Model{model: model}
	if o != nil {
		m.o = *o
	}
	if m.o.MaxTokens == 0 {
		m.o.MaxTokens = 16_384
	}
	key := m.o.Key
	if key == "" {
		key = os.Getenv("ANTHROPIC_API_KEY")
	}
	m.provider = provider.Provider{Name: "anthropic", Key: key}
	base := m.o.BaseURL
	if base == "" {
		base = os.Getenv("ANTHROPIC_BASE_URL")
	}
	if key == "" {
		if base == "" {
			return nil, errors.New("anthropic: no key: set Options.Key, or ANTHROPIC_API_KEY")
		}
		key = "none" // servers of one's own want a header, and read nothing in it
	}
	opts := []option.RequestOption{ // other secrets of the environment are for Anthropic itself
		option.WithoutEnvironmentDefaults(), option.WithAPIKey(key), option.WithMiddleware(provider.Watch),
	}
	if m.o.Retries != 0 {
		opts = append(opts, option.WithMaxRetries(max(0, m.o.Retries)))
	}
	if base != "" {
		opts = append(opts, option.WithBaseURL(base))
	}
	if m.o.Client != nil {
		opts = append(opts, option.WithHTTPClient(m.o.Client))
	}
	m.client = sdk.NewClient(opts...)
	return m, nil
}

// Stream implements [chat.Model].
//
// Errors: a [*chat.ModelError]; one for a file that cannot be sent; the cause of ctx.
func (m *Model) Stream(ctx context.Context, p *chat.Prompt) iter.Seq2[chat.Chunk, error] {
	return func(yield func(chat.Chunk, error) bool) {
		params, blanks, err := m.params(p)
		if err != nil {
			yield(chat.Chunk{}, err)
			return
		}
		if p.Cut && m.o.Strategy == chat.Retry && !yield(chat.TextEnd("cut"), nil) {
			return
		}
		stream := m.client.Messages.NewStreaming(ctx, params)
		defer stream.Close() //nolint:errcheck // what it says has been read
		opened := stream.Err() == nil
		a := &answer{id: ulid.Make().String(), blanks: blanks, yield: yield}
		for stream.Next() {
			if event := stream.Current(); !a.add(&event) {
				return
			}
		}
		switch err := stream.Err(); {
		case err != nil:
			yield(chat.Chunk{}, m.failed(ctx, err, opened))
		case ctx.Err() != nil:
			yield(chat.Chunk{}, context.Cause(ctx))
		case !a.whole:
			yield(chat.Chunk{}, m.provider.Severed())
		}
	}
}

// failed is an error of the SDK.
func (m *Model) failed(ctx context.Context, err error, opened bool) error {
	e, ok := errors.AsType[*sdk.Error](err)
	if !ok || e.Response == nil || ctx.Err() != nil {
		return m.provider.Failed(ctx, err, opened)
	}
	var body struct {
		Error struct {
			Message string `json:"message"`
		} `json:"error"`
	}
	_ = json.Unmarshal([]byte(e.RawJSON()), &body) // what is no JSON has no message
	if opened {
		return m.provider.Said(body.Error.Message)
	}
	return m.provider.Refused(e.Response, body.Error.Message)
}

// beginText is what the user says in a conversation that begins with the assistant.
const beginText = "(The conversation begins here.)"

// params is what is asked. blanks says that the last text ended with a space, which the provider does not take:
// those with which it goes on are to be left out.
func (m *Model) params(p *chat.Prompt) (params sdk.MessageNewParams, blanks bool, err error) {
	list, goesOn := p.ModelMessages(m.o.Strategy)
	params = sdk.MessageNewParams{Model: m.model, MaxTokens: m.o.MaxTokens}
	if p.System != "" {
		params.System = append(params.System, sdk.TextBlockParam{Text: p.System})
	}
	if last := len(list) - 1; last >= 0 && list[last].Role == chat.Assistant {
		blocks := list[last].Blocks
		end := &blocks[len(blocks)-1]
		trimmed := strings.TrimRight(end.Text, " \t\r\n")
		blanks = trimmed != end.Text
		end.Text = trimmed
	}
	newest := provider.Newest(list, goesOn)
	for i := range list {
		if len(params.Messages) == 0 && list[i].Role == chat.Assistant { // the first has to be the user's
			params.Messages = append(params.Messages, sdk.NewUserMessage(sdk.NewTextBlock(beginText)))
		}
		blocks, err := m.contentOf(&list[i], i == newest)
		switch {
		case err != nil:
			return params, false, err
		case len(blocks) == 0:
		case list[i].Role == chat.System:
			for _, b := range blocks {
				params.System = append(params.System, *b.OfText)
			}
		case list[i].Role == chat.Assistant:
			params.Messages = append(params.Messages, sdk.NewAssistantMessage(blocks...))
		default:
			params.Messages = append(params.Messages, sdk.NewUserMessage(blocks...))
		}
	}
	for _, t := range p.Tools {
		tool := sdk.ToolParam{Name: t.Name}
		if t.Description != "" {
			tool.Description = sdk.String(t.Description)
		}
		if len(t.Parameters) > 0 {
			if err := json.Unmarshal(t.Parameters, &tool.InputSchema.ExtraFields); err != nil {
				return params, false, fmt.Errorf("anthropic: the parameters of the tool %q are no JSON schema: %w", t.Name, err)
			}
			delete(tool.InputSchema.ExtraFields, "type")
		}
		params.Tools = append(params.Tools, sdk.ToolUnionParam{OfTool: &tool})
	}
	if m.o.Params != nil {
		m.o.Params(&params)
	}
	if goesOn && params.Thinking != (sdk.ThinkingConfigParamUnion{}) {
		params.Thinking = sdk.ThinkingConfigParamUnion{OfDisabled: &sdk.ThinkingConfigDisabledParam{}}
	}
	return params, blanks, nil
}
