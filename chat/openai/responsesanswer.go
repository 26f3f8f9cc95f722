package openai

import (
	"context"
	"errors"
	"net/http"
	"strings"

	sdk "github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/packages/ssestream"
	"github.com/openai/openai-go/v3/responses"

	"github.com/dohost/dohost/chat"
	"github.com/dohost/dohost/chat/internal/provider"
)

// errStopped stops reading after the consumer has stopped.
var errStopped = errors.New("openai: the caller stopped reading")

// maxTries bounds the fetches in a row that yield no more text. The provider sometimes never begins an answer if its
// connection ended immediately.
const maxTries = 3

// answer is the provider's response to one request: streaming, replayed from its beginning, or complete.
type answer struct {
	id       string // of the response
	saveID   func(id string) error
	skip     string // text already yielded, at the beginning of the answer
	resumed  bool   // the request was made earlier
	complete bool
	yield    func(chat.Chunk, error) bool
	report   func(chat.Usage)

	calls map[string]string // ids of calls by the ids of their items
}

// fetch resumes an answer of an earlier request: it leaves out the text already yielded, and streams the rest as the
// provider generates it.
func (m *Responses) fetch(ctx context.Context, p *chat.Prompt, a *answer, k answerCheckpoint) error {
	now, err := m.client.Responses.Get(ctx, a.id, responses.ResponseGetParams{})
	if err != nil {
		return m.fetchError(ctx, err)
	}
	switch now.Status {
	case responses.ResponseStatusCompleted, responses.ResponseStatusIncomplete:
		return a.yieldAnswer(now)
	case responses.ResponseStatusQueued, responses.ResponseStatusInProgress:
		if len(a.skip) > k.FetchedBytes {
			k.FetchedBytes, k.Tries = len(a.skip), 0
		}
		if k.Tries++; !now.Background || k.Tries > maxTries {
			m.cancel(ctx, a.id)
			return chat.ErrNotResumable
		}
		if err := p.SaveCheckpoint(ctx, k); err != nil {
			return err
		}
		stream := m.client.Responses.GetStreaming(ctx, a.id, responses.ResponseGetParams{},
			option.WithQuery("stream", "true")) // the SDK sends this in a body, which the provider ignores
		if err := stream.Err(); err != nil {
			return m.fetchError(ctx, err)
		}
		return m.read(ctx, stream, a)
	}
	return chat.ErrNotResumable // it has failed, or was cancelled
}

// fetchError returns the error of a failed fetch: ErrNotResumable if the answer is gone, else a truncated ModelError.
func (m *Responses) fetchError(ctx context.Context, err error) error {
	if e, ok := errors.AsType[*sdk.Error](err); ok && ctx.Err() == nil {
		switch e.StatusCode {
		case http.StatusRequestTimeout, http.StatusConflict, http.StatusTooManyRequests: // temporary
		default:
			if e.StatusCode >= 400 && e.StatusCode < 500 {
				return chat.ErrNotResumable
			}
		}
	}
	err = failed(ctx, m.provider, err, false)
	if e, ok := errors.AsType[*chat.ModelError](err); ok {
		e.Truncated = true
	}
	return err
}

// outputTexts returns the texts of an item. Reasoning items have texts too, which readers do not see.
func outputTexts(item *responses.ResponseOutputItemUnion) []responses.ResponseOutputMessageContentUnion {
	if item.Type != "message" {
		return nil
	}
	return item.Content
}

// yieldAnswer yields a complete answer.
func (a *answer) yieldAnswer(r *responses.Response) error {
	var whole strings.Builder
	for i := range r.Output {
		for _, c := range outputTexts(&r.Output[i]) {
			whole.WriteString(c.Text + c.Refusal)
		}
	}
	if !strings.HasPrefix(whole.String(), a.skip) {
		return chat.ErrNotResumable // the answer differs from the text already yielded
	}
	for i := range r.Output {
		item := &r.Output[i]
		for _, c := range outputTexts(item) {
			if err := a.text(item.ID, c.Text+c.Refusal); err != nil {
				return err
			}
			if err := a.end(item.ID); err != nil {
				return err
			}
		}
		if item.Type == "function_call" {
			if err := a.call(item); err != nil {
				return err
			}
		}
	}
	return a.finish(r)
}

// read reads a stream to its end.
func (m *Responses) read(
	ctx context.Context, stream *ssestream.Stream[responses.ResponseStreamEventUnion], a *answer,
) error {
	defer stream.Close() //nolint:errcheck // the stream has been read
	opened := stream.Err() == nil
	for stream.Next() {
		event := stream.Current()
		if event.Type == "error" {
			return m.provider.StreamError(event.Message)
		}
		if event.Type == "response.failed" {
			return m.provider.StreamError(event.Response.Error.Message)
		}
		if err := a.add(&event); err != nil {
			return err
		}
	}
	switch err := stream.Err(); {
	case err != nil:
		return failed(ctx, m.provider, err, opened)
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case !a.complete:
		return m.provider.Truncated()
	}
	return nil
}

// add handles an event. It ignores unknown events.
func (a *answer) add(e *responses.ResponseStreamEventUnion) error {
	switch e.Type {
	case "response.created", "response.queued", "response.in_progress":
		return a.setID(e.Response.ID)
	case "response.output_text.delta", "response.refusal.delta":
		return a.text(e.ItemID, e.Delta)
	case "response.output_text.done", "response.refusal.done":
		return a.end(e.ItemID)
	case "response.reasoning_summary_text.delta", "response.reasoning_text.delta":
		if !a.resumed {
			return a.yieldChunk(chat.ReasoningDelta(e.ItemID, e.Delta, nil))
		}
	case "response.reasoning_summary_text.done", "response.reasoning_text.done":
		if !a.resumed {
			return a.yieldChunk(chat.ReasoningEnd(e.ItemID))
		}
	case "response.output_item.added":
		if e.Item.Type == "function_call" {
			if a.calls == nil {
				a.calls = map[string]string{}
			}
			a.calls[e.Item.ID] = e.Item.CallID
			return a.yieldChunk(chat.ToolInputStart(e.Item.CallID, e.Item.Name))
		}
	case "response.function_call_arguments.delta":
		if id := a.calls[e.ItemID]; id != "" && !a.resumed { // clients may have received a part of the input
			return a.yieldChunk(chat.ToolInputDelta(id, e.Delta))
		}
	case "response.output_item.done":
		if e.Item.Type == "function_call" {
			return a.call(&e.Item)
		}
	case "response.completed", "response.incomplete":
		return a.finish(&e.Response)
	}
	return nil
}

// setID saves the id of the answer, before any of its chunks.
func (a *answer) setID(id string) error {
	if id == "" || a.id != "" {
		return nil
	}
	a.id = id
	if a.saveID == nil {
		return nil
	}
	return a.saveID(id)
}

func (a *answer) yieldChunk(c chat.Chunk) error {
	if !a.yield(c, nil) {
		return errStopped
	}
	return nil
}

// call yields a call with its final input.
func (a *answer) call(item *responses.ResponseOutputItemUnion) error {
	input := provider.Input(item.Arguments.OfString, item.Status == "incomplete")
	return a.yieldChunk(chat.ToolInput(item.CallID, item.Name, input))
}

// text adds to a text, without the part already yielded.
func (a *answer) text(id, delta string) error {
	n := min(len(delta), len(a.skip))
	if delta[:n] != a.skip[:n] {
		return chat.ErrNotResumable
	}
	a.skip, delta = a.skip[n:], delta[n:]
	if delta == "" {
		return nil
	}
	return a.yieldChunk(chat.TextDelta(id, delta))
}

// end ends a text, unless all of it, and more, was already yielded.
func (a *answer) end(id string) error {
	if a.skip != "" {
		return nil
	}
	return a.yieldChunk(chat.TextEnd(id))
}

func (a *answer) finish(r *responses.Response) error {
	a.complete = true
	a.report(chat.Usage{
		Model: r.Model, InputTokens: r.Usage.InputTokens, CachedInputTokens: r.Usage.InputTokensDetails.CachedTokens,
		OutputTokens: r.Usage.OutputTokens, ReasoningTokens: r.Usage.OutputTokensDetails.ReasoningTokens,
	})
	if why := finishReasons[r.IncompleteDetails.Reason]; why != "" {
		return a.yieldChunk(chat.FinishReason(why))
	}
	return nil
}
