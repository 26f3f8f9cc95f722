package openai

import (
	"context"
	"errors"
	"iter"
	"sync/atomic"

	"github.com/oklog/ulid/v2"
	sdk "github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/packages/param"
	"github.com/openai/openai-go/v3/packages/ssestream"
	"github.com/openai/openai-go/v3/shared"

	"github.com/dohost/dohost/chat"
	"github.com/dohost/dohost/chat/internal/provider"
)

// CompletionsOptions tunes NewCompletions. A nil *CompletionsOptions, and the zero one, mean the defaults.
type CompletionsOptions struct {
	Options
	// Params changes the request, such as the temperature. continues reports that the model is to continue an interrupted
	// text, and need not reason again. Optional. It is called on any goroutine. The request asks for the usage, with
	// StreamOptions.IncludeUsage. A server that refuses this field is asked again without it, and then not for the usage any more.
	Params func(p *sdk.ChatCompletionNewParams, continues bool)
}

// Completions is a model of the chat completions API. It is safe for concurrent use.
//
// The request of a [chat.Worker] without tools has the schema of its answer as the response format. With tools it has not: several servers then
// generate no calls. A server that refuses the format is asked again without it, and then not for that schema any more.
type Completions struct {
	model    string
	client   sdk.Client
	provider provider.Provider
	o        CompletionsOptions
	noUsage  atomic.Bool // the server refuses the question for the usage
	refused  provider.RefusedOutputs
}

// NewCompletions returns the model with a name.
//
// Errors: one if there is no key.
func NewCompletions(model string, o *CompletionsOptions) (*Completions, error) {
	m := &Completions{model: model}
	if o != nil {
		m.o = *o
	}
	var err error
	m.client, m.provider, err = m.o.client()
	return m, err
}

// Stream implements [chat.Model].
//
// Errors: a [*chat.ModelError]; one for a file that cannot be sent; the cause of ctx.
func (m *Completions) Stream(ctx context.Context, p *chat.Prompt) iter.Seq2[chat.Chunk, error] {
	return func(yield func(chat.Chunk, error) bool) {
		params, err := m.params(p)
		if err != nil {
			yield(chat.Chunk{}, err)
			return
		}
		if p.Interrupted && m.o.Strategy == chat.ContinueRetry && !yield(chat.TextEnd("cut"), nil) {
			return
		}
		stream := m.open(ctx, p, params)
		defer stream.Close() //nolint:errcheck // the stream has been read
		opened := stream.Err() == nil
		c := &completion{id: "text-" + ulid.Make().String(), partial: p.Partial.Parts, yield: yield}
		for stream.Next() {
			if event := stream.Current(); !c.add(&event) {
				return
			}
		}
		switch err := stream.Err(); {
		case err != nil:
			yield(chat.Chunk{}, failed(ctx, m.provider, err, opened))
		case ctx.Err() != nil:
			yield(chat.Chunk{}, context.Cause(ctx))
		case c.finish == "":
			yield(chat.Chunk{}, m.provider.Truncated())
		default:
			c.end()
			provider.Report(ctx, p, c.usage)
		}
	}
}

// open requests an answer. If the server refuses an optional field, open requests the answer without it.
func (m *Completions) open(ctx context.Context, p *chat.Prompt, params sdk.ChatCompletionNewParams) *ssestream.Stream[sdk.ChatCompletionChunk] {
	for {
		stream := m.client.Chat.Completions.NewStreaming(ctx, params)
		e, ok := errors.AsType[*sdk.Error](stream.Err())
		if !ok || !m.withoutRefused(p, &params, e) {
			return stream
		}
		_ = stream.Close() // it has failed
	}
}

// withoutRefused removes a field that the server has refused from a request. It reports whether there was one.
func (m *Completions) withoutRefused(p *chat.Prompt, params *sdk.ChatCompletionNewParams, e *sdk.Error) bool {
	text := e.Message + e.RawJSON()
	switch {
	case !param.IsOmitted(params.StreamOptions) && provider.Refuses(e.StatusCode, text, "stream_options", "include_usage"):
		m.noUsage.Store(true)
		params.StreamOptions = sdk.ChatCompletionStreamOptionsParam{}
	case p.Output != nil && params.ResponseFormat.OfJSONSchema != nil && provider.Refuses(e.StatusCode, text, "response_format", "json_schema"):
		m.refused.Add(p)
		params.ResponseFormat = sdk.ChatCompletionNewParamsResponseFormatUnion{}
	default:
		return false
	}
	return true
}

func (m *Completions) params(p *chat.Prompt) (sdk.ChatCompletionNewParams, error) {
	list, continues := p.ModelMessages(m.o.Strategy)
	params := sdk.ChatCompletionNewParams{Model: m.model}
	if !m.noUsage.Load() {
		params.StreamOptions.IncludeUsage = sdk.Bool(true)
	}
	if p.System != "" {
		params.Messages = append(params.Messages, sdk.SystemMessage(p.System))
	}
	newest := provider.Newest(list, continues)
	for i := range list {
		converted, err := m.messages(&list[i], i == newest)
		if err != nil {
			return params, err
		}
		params.Messages = append(params.Messages, converted...)
	}
	for _, t := range p.Tools {
		f := shared.FunctionDefinitionParam{Name: t.Name}
		if t.Description != "" {
			f.Description = sdk.String(t.Description)
		}
		var err error
		if f.Parameters, err = schema(t); err != nil {
			return params, err
		}
		params.Tools = append(params.Tools, sdk.ChatCompletionFunctionTool(f))
	}
	if o, ok := provider.OutputOf(p); ok && len(p.Tools) == 0 && !m.refused.Has(p) {
		params.ResponseFormat.OfJSONSchema = &shared.ResponseFormatJSONSchemaParam{JSONSchema: shared.ResponseFormatJSONSchemaJSONSchemaParam{
			Name: outputName, Schema: o.Schema, Strict: sdk.Bool(strict(o)),
		}}
	}
	if m.o.Params != nil {
		m.o.Params(&params, continues)
	}
	return params, nil
}

// messages returns a message in the API's form: each result is a message of its own.
func (m *Completions) messages(of *chat.ModelMessage, newest bool) (list []sdk.ChatCompletionMessageParamUnion, err error) {
	switch of.Role {
	case chat.RoleSystem:
		return append(list, sdk.SystemMessage(texts(of))), nil
	case chat.RoleTool:
		for _, b := range of.Blocks {
			list = append(list, sdk.ToolMessage(b.Text, b.CallID))
		}
		return list, nil
	case chat.RoleAssistant:
		assistant := sdk.ChatCompletionAssistantMessageParam{}
		if text := texts(of); text != "" {
			assistant.Content.OfString = sdk.String(text)
		}
		for _, b := range of.Blocks {
			if b.Kind == chat.BlockToolCall {
				assistant.ToolCalls = append(assistant.ToolCalls, sdk.ChatCompletionMessageToolCallUnionParam{
					OfFunction: &sdk.ChatCompletionMessageFunctionToolCallParam{
						ID:       b.CallID,
						Function: sdk.ChatCompletionMessageFunctionToolCallFunctionParam{Name: b.Name, Arguments: string(b.JSON)},
					},
				})
			}
		}
		return append(list, sdk.ChatCompletionMessageParamUnion{OfAssistant: &assistant}), nil
	}
	var parts []sdk.ChatCompletionContentPartUnionParam
	for i := range of.Blocks {
		switch b := &of.Blocks[i]; kindOf(b) {
		case plainText:
			parts = append(parts, sdk.TextContentPart(b.Text))
		case image:
			parts = append(parts, sdk.ImageContentPart(sdk.ChatCompletionContentPartImageImageURLParam{URL: b.URL}))
		case document:
			parts = append(parts, sdk.FileContentPart(sdk.ChatCompletionContentPartFileFileParam{
				FileData: sdk.String(b.URL), Filename: sdk.String(fileName(b)),
			}))
		default:
			text, err := m.provider.Omitted(b, newest)
			if err != nil {
				return nil, err
			}
			parts = append(parts, sdk.TextContentPart(text))
		}
	}
	return append(list, sdk.UserMessage(parts)), nil
}

// completion is an answer, while it streams.
type completion struct {
	id      string
	partial []chat.Part // of the message
	yield   func(chat.Chunk, error) bool
	calls   map[int64]*partialCall
	order   []*partialCall
	finish  string
	usage   chat.Usage
}

// partialCall is a call with incomplete input.
type partialCall struct {
	id, name, input string
	serverID        string // the server's id of the call
	begun           bool
}

// add handles an event, and reports whether the consumer wants more.
func (c *completion) add(e *sdk.ChatCompletionChunk) bool {
	if u := &e.Usage; u.PromptTokens+u.CompletionTokens > 0 { // of the whole answer, usually in the last event
		c.usage = chat.Usage{
			Model: e.Model, InputTokens: u.PromptTokens, CachedInputTokens: u.PromptTokensDetails.CachedTokens,
			OutputTokens: u.CompletionTokens, ReasoningTokens: u.CompletionTokensDetails.ReasoningTokens,
		}
	}
	for _, choice := range e.Choices {
		if choice.Index != 0 {
			continue
		}
		for _, text := range []string{choice.Delta.Content, choice.Delta.Refusal} {
			if text != "" && !c.yield(chat.TextDelta(c.id, text), nil) {
				return false
			}
		}
		for _, d := range choice.Delta.ToolCalls {
			if !c.call(d) {
				return false
			}
		}
		if choice.FinishReason != "" {
			c.finish = choice.FinishReason
		}
	}
	return true
}

// call adds to a call. The id and the name may arrive in any event, or repeatedly; end invents an id if none arrives.
func (c *completion) call(d sdk.ChatCompletionChunkChoiceDeltaToolCall) bool {
	now := c.calls[d.Index]
	if now == nil || now.serverID != "" && d.ID != "" && d.ID != now.serverID { // some servers do not number calls
		now = &partialCall{}
		if c.calls == nil {
			c.calls = map[int64]*partialCall{}
		}
		c.calls[d.Index] = now
		c.order = append(c.order, now)
	}
	if now.serverID == "" && d.ID != "" {
		now.serverID, now.id = d.ID, c.uniqueID(d.ID)
	}
	if now.name == "" {
		now.name = d.Function.Name
	}
	now.input += d.Function.Arguments
	add := d.Function.Arguments
	if !now.begun {
		if now.id == "" || now.name == "" {
			return true
		}
		now.begun, add = true, now.input
		if !c.yield(chat.ToolInputStart(now.id, now.name), nil) {
			return false
		}
	}
	return add == "" || c.yield(chat.ToolInputDelta(now.id, add), nil)
}

// uniqueID returns an id that is unique in the message: some servers reuse the same ids in each answer.
func (c *completion) uniqueID(id string) string {
	for _, p := range c.partial {
		if p.Text("toolCallId") == id {
			return id + "-" + ulid.Make().String()
		}
	}
	return id
}

// end yields the end of a complete answer.
func (c *completion) end() {
	if !c.yield(chat.TextEnd(c.id), nil) {
		return
	}
	cut := finishReasons[c.finish] != ""
	for i, now := range c.order {
		if now.id == "" {
			now.id = "call_" + ulid.Make().String()
		}
		if !c.yield(chat.ToolInput(now.id, now.name, provider.Input(now.input, cut && i == len(c.order)-1)), nil) {
			return
		}
	}
	if why := finishReasons[c.finish]; why != "" {
		c.yield(chat.FinishReason(why), nil)
	}
}
