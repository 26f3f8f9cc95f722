package openai

import (
	"context"
	"errors"
	"iter"
	"time"

	sdk "github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/responses"

	"github.com/dohost/dohost/chat"
	"github.com/dohost/dohost/chat/internal/provider"
)

// ResponsesOptions tunes NewResponses. A nil *ResponsesOptions, and the zero one, mean the defaults.
type ResponsesOptions struct {
	Options
	// Ephemeral makes the provider store nothing, and end an answer with its connection. Strategy then determines how an
	// interrupted reply resumes, and it is billed again. Otherwise requests use the provider's background mode, which
	// stores answers (OpenAI: for 30 days), and the reply is fetched by its id.
	Ephemeral bool
	// Params changes the request, such as the reasoning effort. continues reports that the model is to continue an
	// interrupted text, and need not reason again. Optional. It is called on any goroutine.
	Params func(p *responses.ResponseNewParams, continues bool)
}

// Responses is a model of the Responses API. It saves the id of the current answer with [chat.Prompt.SaveCheckpoint],
// so a handler that uses it cannot save a checkpoint of its own. It is safe for concurrent use.
//
// The request of a [chat.Worker] has the schema of its answer as the format of the text. A server that refuses the format is asked again without
// it, and then not for that schema any more.
type Responses struct {
	model    string
	client   sdk.Client
	provider provider.Provider
	o        ResponsesOptions
	refused  provider.RefusedOutputs
}

// NewResponses returns the model with a name.
//
// Errors: one if there is no key.
func NewResponses(model string, o *ResponsesOptions) (*Responses, error) {
	m := &Responses{model: model}
	if o != nil {
		m.o = *o
	}
	var err error
	m.client, m.provider, err = m.o.client()
	return m, err
}

// answerCheckpoint identifies the streaming answer, for the run that resumes it.
type answerCheckpoint struct {
	ID        string `json:"openaiResponse"`
	Step      int    `json:"step"` // of the message
	TextBytes int    `json:"said"` // bytes of text in the step before this answer
	// Tries counts the fetches in a row that did not yield more than Had bytes.
	Tries        int `json:"tries,omitempty"`
	FetchedBytes int `json:"had,omitempty"`
}

// Stream implements [chat.Model].
//
// Errors: a [*chat.ModelError]; one for a file that cannot be sent; the errors of [chat.Prompt.SaveCheckpoint]; the cause of
// ctx.
func (m *Responses) Stream(ctx context.Context, p *chat.Prompt) iter.Seq2[chat.Chunk, error] {
	return func(yield func(chat.Chunk, error) bool) {
		if p.Interrupted && m.o.Strategy == chat.ContinueRetry && !yield(chat.TextEnd("cut"), nil) {
			return
		}
		a := &answer{yield: yield, report: func(u chat.Usage) { provider.Report(ctx, p, u) }}
		if !m.o.Ephemeral {
			step, text := lastStep(p)
			a.saveID = func(id string) error {
				return p.SaveCheckpoint(ctx, answerCheckpoint{ID: id, Step: step, TextBytes: len(text)})
			}
		}
		m.finish(ctx, a, m.ask(ctx, p, a))
	}
}

// ResumeStream implements [chat.ResumableModel].
//
// Errors: [chat.ErrNotResumable], and the errors of Stream.
func (m *Responses) ResumeStream(ctx context.Context, p *chat.Prompt) iter.Seq2[chat.Chunk, error] {
	return func(yield func(chat.Chunk, error) bool) {
		step, text := lastStep(p)
		var k answerCheckpoint
		ok, err := p.Checkpoint(&k)
		if err != nil || !ok || k.ID == "" || k.Step != step || k.TextBytes > len(text) || m.o.Ephemeral {
			yield(chat.Chunk{}, chat.ErrNotResumable)
			return
		}
		a := &answer{id: k.ID, skip: text[k.TextBytes:], resumed: true, yield: yield, report: func(u chat.Usage) { provider.Report(ctx, p, u) }}
		m.finish(ctx, a, m.fetch(ctx, p, a, k))
	}
}

// finish yields a failure, and cancels the answer at the provider if the reply is over.
func (m *Responses) finish(ctx context.Context, a *answer, err error) {
	if err != nil && !errors.Is(err, errStopped) {
		a.yield(chat.Chunk{}, err)
	}
	if a.id == "" || a.complete || m.o.Ephemeral || !errors.Is(context.Cause(ctx), chat.ErrReplyOver) {
		return
	}
	m.cancel(ctx, a.id)
}

// cancel cancels an answer at the provider.
func (m *Responses) cancel(ctx context.Context, id string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cancelTime)
	defer cancel()
	_, _ = m.client.Responses.Cancel(ctx, id) // if that fails, the answer ends by itself
}

// cancelTime is the timeout of the request that cancels an answer.
const cancelTime = 10 * time.Second

// lastStep returns the number of the reply's step that the model is asked for, and the text in that step.
func lastStep(p *chat.Prompt) (step int, text string) {
	for _, part := range p.Partial.Parts {
		switch part.Type() {
		case "step-start":
			step, text = step+1, ""
		case "text":
			text += part.Text("text")
		}
	}
	if p.Interrupted {
		return step, text
	}
	return step + 1, "" // the step is about to begin
}

// ask requests an answer and reads it.
func (m *Responses) ask(ctx context.Context, p *chat.Prompt, a *answer) error {
	params, err := m.params(p)
	if err != nil {
		return err
	}
	stream := m.client.Responses.NewStreaming(ctx, params)
	e, ok := errors.AsType[*sdk.Error](stream.Err())
	if ok && p.Output != nil && params.Text.Format.OfJSONSchema != nil && provider.Refuses(e.StatusCode, e.Message+e.RawJSON(), "text.format", "response_format", "json_schema") {
		_ = stream.Close() // it has failed
		m.refused.Add(p)
		params.Text.Format = responses.ResponseFormatTextConfigUnionParam{}
		stream = m.client.Responses.NewStreaming(ctx, params)
	}
	return m.read(ctx, stream, a)
}

func (m *Responses) params(p *chat.Prompt) (responses.ResponseNewParams, error) {
	list, continues := p.ModelMessages(m.o.Strategy)
	params := responses.ResponseNewParams{Model: m.model, Store: sdk.Bool(!m.o.Ephemeral)}
	if !m.o.Ephemeral {
		params.Background = sdk.Bool(true)
	}
	if p.System != "" {
		params.Instructions = sdk.String(p.System)
	}
	newest := provider.Newest(list, continues)
	for i := range list {
		items, err := m.items(&list[i], i == newest)
		if err != nil {
			return params, err
		}
		params.Input.OfInputItemList = append(params.Input.OfInputItemList, items...)
	}
	for _, t := range p.Tools {
		f := responses.FunctionToolParam{Name: t.Name, Strict: sdk.Bool(false)}
		if t.Description != "" {
			f.Description = sdk.String(t.Description)
		}
		var err error
		if f.Parameters, err = schema(t); err != nil {
			return params, err
		}
		params.Tools = append(params.Tools, responses.ToolUnionParam{OfFunction: &f})
	}
	if o, ok := provider.OutputOf(p); ok && !m.refused.Has(p) {
		params.Text.Format.OfJSONSchema = &responses.ResponseFormatTextJSONSchemaConfigParam{
			Name: outputName, Schema: o.Schema, Strict: sdk.Bool(strict(o)),
		}
	}
	if m.o.Params != nil {
		m.o.Params(&params, continues)
	}
	return params, nil
}

// items returns a message in the API's form: calls and results are items of their own.
func (m *Responses) items(of *chat.ModelMessage, newest bool) (list []responses.ResponseInputItemUnionParam, err error) {
	if of.Role == chat.RoleSystem || of.Role == chat.RoleAssistant {
		if text := texts(of); text != "" {
			list = append(list, responses.ResponseInputItemParamOfMessage(text, responses.EasyInputMessageRole(of.Role)))
		}
		for _, b := range of.Blocks {
			if b.Kind == chat.BlockToolCall {
				list = append(list, responses.ResponseInputItemParamOfFunctionCall(string(b.JSON), b.CallID, b.Name))
			}
		}
		return list, nil
	}
	var parts responses.ResponseInputMessageContentListParam
	for i := range of.Blocks {
		b := &of.Blocks[i]
		if b.Kind == chat.BlockToolResult {
			out := responses.ResponseInputItemParamOfFunctionCallOutput(b.Text)
			out.OfFunctionCallOutput.CallID = sdk.String(b.CallID)
			list = append(list, out)
			continue
		}
		var part responses.ResponseInputContentUnionParam
		switch kindOf(b) {
		case plainText:
			part.OfInputText = &responses.ResponseInputTextParam{Text: b.Text}
		case image:
			part.OfInputImage = &responses.ResponseInputImageParam{ImageURL: sdk.String(b.URL), Detail: "auto"}
		case document:
			part.OfInputFile = &responses.ResponseInputFileParam{FileData: sdk.String(b.URL), Filename: sdk.String(fileName(b))}
		default:
			text, err := m.provider.Omitted(b, newest)
			if err != nil {
				return nil, err
			}
			part.OfInputText = &responses.ResponseInputTextParam{Text: text}
		}
		parts = append(parts, part)
	}
	if len(parts) > 0 {
		list = append(list, responses.ResponseInputItemParamOfMessage(parts, responses.EasyInputMessageRoleUser))
	}
	return list, nil
}
