package chat

import (
	"context"
	"encoding/json"
	"errors"
	"iter"
)

// Model produces the assistant's messages.
type Model interface {
	// Stream continues a conversation: it yields chunks, and at most one error, as the last. The chunks of a tool call
	// end with tool-input-available; its id is unique in the message. Stream is called on its own goroutine, without the
	// turn. It must stop when ctx ends or yield returns false. If it panics, or calls runtime.Goexit, the reply fails
	// with a [*ModelPanic].
	Stream(ctx context.Context, p *Prompt) iter.Seq2[Chunk, error]
}

// ResumableModel is a Model of a provider that stores its answers. [Answer] resumes an interrupted answer with
// ResumeStream before it asks for a new one.
type ResumableModel interface {
	Model
	// ResumeStream resumes the answer that the prompt's Partial begins: it yields the rest of that answer. It may yield
	// tool calls of Partial again, with their ids.
	//
	// Errors: [ErrNotResumable] if the answer is not available, and the errors of Stream.
	ResumeStream(ctx context.Context, p *Prompt) iter.Seq2[Chunk, error]
}

// ErrNotResumable is the error of a provider that does not have the answer, or has a different one.
var ErrNotResumable = errors.New("chat: the provider cannot resume the answer")

// Prompt is the input of a model.
type Prompt struct {
	// System is the system prompt.
	System string
	// Messages are the context of the reply, the oldest message first: see [Reply.Context].
	Messages []Message
	// Partial is the assistant's message so far, with the results of its tool calls; without parts at first. The model
	// continues from there, in the same text if that was interrupted. For a [ResumableModel] it may end with calls without
	// a result, which have not run.
	Partial Message
	// Interrupted reports that Partial was interrupted before the end of a step.
	Interrupted bool
	// Tools are the tools that the model may call: the server's and the client's.
	Tools []ToolSpec
	// Output is the JSON schema that an answer without calls must match; nil for any text. [Worker] sets it, also includes it
	// in System, and checks the answer against it. So a model may ignore it, or pass it to a provider that generates answers
	// by a schema.
	Output json.RawMessage
	// SaveCheckpoint saves a value, as JSON, for the run that resumes an interrupted reply, such as the provider's id
	// of the answer. It replaces the value of [Reply.SaveCheckpoint]. When SaveCheckpoint returns, the value and all
	// chunks yielded earlier are durable. After the end of the stream it returns an error.
	SaveCheckpoint func(ctx context.Context, v any) error
	// Checkpoint decodes the saved value into v, and reports whether there is one.
	Checkpoint func(v any) (bool, error)
	// ReportUsage records the usage of this call so far, any number of times: each report replaces the previous one. The usage of
	// ResumeStream is for the whole answer. At 4 bytes per token, the agent estimates the input until a report has InputTokens, and
	// the output after the last report. So a call that is interrupted before its report counts, and the last report should follow
	// the last chunk. ctx is the context of Stream: if it ends, ReportUsage no longer waits for the agent. After the end of the
	// stream, even by a stop, a report does nothing. It is safe for concurrent use. Nil if no agent asks: see [Usage].
	ReportUsage func(ctx context.Context, u Usage)
}
