// Package anthropic is a [chat.Model] that calls Anthropic's API with the official SDK.
//
//	model, err := anthropic.New("claude-sonnet-4-5", nil)
//
// The model is for [chat.Answer]. The provider does not store answers, so an interrupted reply needs a second request,
// and is billed again.
//
// The package is a module of its own, so only programs that import it require the SDK, which takes longer to compile
// than the rest of a server.
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
	// Key is the API key. Empty means ANTHROPIC_API_KEY of the environment. It is optional if BaseURL is set.
	Key string
	// BaseURL is the URL of the API. Empty means ANTHROPIC_BASE_URL of the environment, or else Anthropic itself.
	BaseURL string
	// Client makes the requests. Nil means http.DefaultClient.
	Client *http.Client
	// Retries bounds the retries of a request that the provider refused temporarily (408, 409, 429, 5xx) or that could
	// not be sent. A retry waits as long as the provider asks for. Zero means 2; negative means none. An answer that has
	// begun is not retried.
	Retries int
	// Strategy determines how the model continues an interrupted text. Empty means [chat.ContinueSyntheticMessage]. Models
	// from Claude 4.6 on refuse [chat.ContinuePrefill].
	Strategy chat.Strategy
	// MaxTokens bounds an answer. Zero means 16,384.
	MaxTokens int64
	// Params changes the request, such as the budget for thinking. Thinking is always disabled in a request that
	// continues an interrupted text. Optional. It is called on any goroutine.
	Params func(p *sdk.MessageNewParams)
}

// Model is a model of Anthropic. It is safe for concurrent use.
//
// The request of a [chat.Worker] has the schema of its answer as the output format, if no object in the schema may have members of any name. A
// model or server that refuses the format is asked again without it, and then not for that schema any more.
type Model struct {
	model    string
	client   sdk.Client
	provider provider.Provider
	o        Options
	refused  provider.RefusedOutputs
}

// New returns the model with a name.
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
		key = "none" // other servers require a header and ignore its value
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
		if p.Interrupted && m.o.Strategy == chat.ContinueRetry && !yield(chat.TextEnd("cut"), nil) {
			return
		}
		stream := m.client.Messages.NewStreaming(ctx, params)
		if p.Output != nil && m.refusesOutput(&params, stream.Err()) {
			_ = stream.Close() // it has failed
			m.refused.Add(p)
			params.OutputConfig.Format = sdk.JSONOutputFormatParam{}
			stream = m.client.Messages.NewStreaming(ctx, params)
		}
		defer stream.Close() //nolint:errcheck // the stream has been read
		opened := stream.Err() == nil
		a := &answer{
			id: ulid.Make().String(), trimSpace: blanks, yield: yield, report: func(u chat.Usage) { provider.Report(ctx, p, u) },
		}
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
		case !a.complete:
			yield(chat.Chunk{}, m.provider.Truncated())
		}
	}
}

// refusesOutput reports whether an error means that the provider refuses the output format of a request.
func (m *Model) refusesOutput(params *sdk.MessageNewParams, err error) bool {
	e, ok := errors.AsType[*sdk.Error](err)
	return ok && params.OutputConfig.Format.Schema != nil &&
		provider.Refuses(e.StatusCode, e.RawJSON(), "output_config", "output_format", "structured output", "json_schema")
}

// failed converts an error of the SDK.
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
	_ = json.Unmarshal([]byte(e.RawJSON()), &body) // a body that is not JSON has no message
	if opened {
		return m.provider.StreamError(body.Error.Message)
	}
	return m.provider.Refused(e.Response, body.Error.Message)
}

// beginText is the user message before an assistant's message that begins the conversation.
const beginText = "(The conversation begins here.)"

// params returns the request. The provider refuses text with spaces at its end, so params removes them from the last
// text. blanks reports whether there were any: then leading spaces of the answer are to be dropped.
func (m *Model) params(p *chat.Prompt) (params sdk.MessageNewParams, blanks bool, err error) {
	list, continues := p.ModelMessages(m.o.Strategy)
	params = sdk.MessageNewParams{Model: m.model, MaxTokens: m.o.MaxTokens}
	if p.System != "" {
		params.System = append(params.System, sdk.TextBlockParam{Text: p.System})
	}
	if last := len(list) - 1; last >= 0 && list[last].Role == chat.RoleAssistant {
		blocks := list[last].Blocks
		end := &blocks[len(blocks)-1]
		trimmed := strings.TrimRight(end.Text, " \t\r\n")
		blanks = trimmed != end.Text
		end.Text = trimmed
	}
	newest := provider.Newest(list, continues)
	for i := range list {
		if len(params.Messages) == 0 && list[i].Role == chat.RoleAssistant { // the API requires a user message first
			params.Messages = append(params.Messages, sdk.NewUserMessage(sdk.NewTextBlock(beginText)))
		}
		blocks, err := m.contentOf(&list[i], i == newest)
		switch {
		case err != nil:
			return params, false, err
		case len(blocks) == 0:
		case list[i].Role == chat.RoleSystem:
			for _, b := range blocks {
				params.System = append(params.System, *b.OfText)
			}
		case list[i].Role == chat.RoleAssistant:
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
				return params, false, fmt.Errorf("anthropic: the parameters of the tool %q are not a JSON schema: %w", t.Name, err)
			}
			delete(tool.InputSchema.ExtraFields, "type")
		}
		params.Tools = append(params.Tools, sdk.ToolUnionParam{OfTool: &tool})
	}
	if o, ok := provider.OutputOf(p); ok && o.Closed && !m.refused.Has(p) {
		params.OutputConfig.Format.Schema = o.Schema
	}
	if m.o.Params != nil {
		m.o.Params(&params)
	}
	if continues && params.Thinking != (sdk.ThinkingConfigParamUnion{}) {
		params.Thinking = sdk.ThinkingConfigParamUnion{OfDisabled: &sdk.ThinkingConfigDisabledParam{}}
	}
	return params, blanks, nil
}
