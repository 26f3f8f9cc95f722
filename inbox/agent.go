package inbox

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/agent"
	"github.com/dohost/dohost/chat"
	"github.com/dohost/dohost/ledger"
)

// Agent describes an agent that answers [Message] rows. It must not be copied, or changed after its first use.
type Agent struct {
	// Name is the address of the agent: it answers the messages To that name. 1 to 64 letters, digits, underscores and hyphens.
	// It is a part of the identity of the operations of its tools. Required.
	Name string
	// Instructions are the system prompt.
	Instructions string
	// Model answers. Required.
	Model chat.Model
	// Tools are the tools that the model may call: those of a [chat.Worker]. A call is an operation of the ledger, with the policy
	// of its tool. A repeated cycle gets the recorded results.
	Tools []chat.Tool
	// MaxMessages bounds the earlier messages in the prompt, the newest. Zero means 100.
	MaxMessages int
	// MaxSteps bounds the answers of the model in one cycle. Zero means 20.
	MaxSteps int
	// Chunks stores the chunks of the model while it answers, so that readers of its feed see the text grow. The generation is
	// a random id, a new one if the model is asked again after an interruption. Nil means that chunks are not stored.
	Chunks *chat.ChunkSink[chat.StoredChunk]
	// Keep is the retention period of the recorded answers and calls: see [ledger.Kind]. Zero means forever.
	Keep time.Duration
	// Options tunes the cycles: see Inbox.Options. Prefix must be empty.
	Options agent.RowsOptions

	once   sync.Once
	worker *chat.Worker[prompt, string]
}

// Response is the response of an [Agent].
type Response struct {
	Text       string
	Generation string // of the chunks, or ""
}

// defaultMessages is the default of Agent.MaxMessages.
const defaultMessages = 100

// prompt is the input of the worker. Its JSON, the messages of the cycle, is the identity of a run. The conversation before them is
// not part of the identity: while a cycle waits for its repetition, others may run, and the calls of its tools must stay the same
// operations.
type prompt struct {
	Pending  []string `json:"pending"`
	messages []chat.Message
}

// run returns the worker that asks the model. It records each answer, so that a cycle that is repeated after Generate gets the
// same response without the model.
func (a *Agent) run() *chat.Worker[prompt, string] {
	a.once.Do(func() {
		a.worker = &chat.Worker[prompt, string]{
			Name: a.Name, Instructions: a.Instructions, Model: a.Model, Tools: a.Tools, MaxSteps: a.MaxSteps, Durable: true, Keep: a.Keep,
			Messages: func(in prompt) []chat.Message { return in.messages },
			OnChunk:  a.onChunk(),
		}
	})
	return a.worker
}

// Kinds returns the kinds of the operations of the agent, for [ledger.Declare]: operators then see the operations, and may resolve
// unknown ones.
func (a *Agent) Kinds() []ledger.AnyKind { return a.run().Kinds() }

// ForMessages returns the inbox of an agent over a collection of [Messages]. The program may replace functions of the inbox, such as
// Build, and set OnError, before it passes the inbox to [On].
//
// Build returns the last MaxMessages messages from the agent and to it, ordered by the time of their responses, and then the
// messages of the cycle. Requests of the agent to others and the responses to them are not part of it. Generate asks the
// model. Respond marks the messages of the cycle as processed and inserts the response, as a message from the agent that is
// processed already.
//
// Open returns an error for an Agent with missing fields, and for a collection without the indexes of [Messages].
func ForMessages[O any, P interface {
	*O
	Ref
}](messages *dohost.Collection[Message], a *Agent) *Inbox[O, Message, Response] {
	in := &Inbox[O, Message, Response]{
		Rows: messages, Pending: pendingIndex, Request: func(m Message) string { return m.Request }, err: a.check(messages),
	}
	if in.err != nil {
		return in
	}
	in.Options = a.Options
	in.Options.Prefix = dohost.KeyOf(a.Name)
	in.Build = func(o *O, ctx context.Context, pending []dohost.Row[Message]) ([]chat.Message, error) {
		return a.build(ctx, P(o).Storage(), messages, pending)
	}
	in.Generate = func(o *O, ctx context.Context, c *Cycle[Message]) (Response, error) {
		if c.Request != "" {
			if _, answered, err := Reply(ctx, P(o).Storage(), messages, c.Request, a.Name); err != nil || answered {
				return Response{}, err // respond inserts nothing
			}
		}
		return a.generate(ctx, P(o), c)
	}
	in.Respond = func(o *O, ctx context.Context, r Response, pending []dohost.Row[Message]) error {
		return a.respond(ctx, P(o).Storage(), messages, r, pending)
	}
	return in
}

// check returns the errors in the description. [chat.Worker] checks the tools when it runs.
func (a *Agent) check(messages *dohost.Collection[Message]) error {
	if a == nil || messages == nil {
		return errors.New("inbox: ForMessages without an Agent or a collection")
	}
	var errs []error
	wrong := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("inbox: the agent %.64q: "+format, append([]any{a.Name}, args...)...))
	}
	for _, name := range []string{pendingIndex, conversationIndex, replyIndex} {
		if !slices.ContainsFunc(messages.Indexes, func(x dohost.Index[Message]) bool { return x.Name == name }) {
			wrong("the collection %q has no index %q: want a collection that Messages returned", messages.Name, name)
		}
	}
	if a.MaxMessages < 0 {
		wrong("MaxMessages is %d: want 1 or more, or 0 for the default", a.MaxMessages)
	}
	if a.Options.Prefix != "" {
		wrong("the option Prefix is set")
	}
	if a.Chunks != nil && a.Chunks.Rows == nil {
		wrong("Chunks has no Rows")
	}
	if err := a.run().Check(); err != nil {
		wrong("%w", err)
	}
	return errors.Join(errs...)
}

// build returns the messages for the model. Messages that wait and are not in the cycle are not among them, so the model answers no
// message twice, and a cycle that is repeated immediately has equal messages.
func (a *Agent) build(
	ctx context.Context, s *dohost.Storage, messages *dohost.Collection[Message], pending []dohost.Row[Message],
) (list []chat.Message, err error) {
	most := a.MaxMessages
	if most == 0 {
		most = defaultMessages
	}
	earlier, err := messages.List(ctx, s, &dohost.Query[Message]{
		Index: conversationIndex, Prefix: dohost.KeyOf(a.Name), Reverse: true, Limit: most,
		Where: func(m Message) bool {
			asked := m.From == a.Name && m.Request != ""
			answered := m.From != a.Name && m.InReplyTo != ""
			return !asked && !answered
		},
	})
	if err != nil {
		return nil, err
	}
	slices.Reverse(earlier)
	for _, row := range slices.Concat(earlier, pending) {
		m := row.Value
		role := chat.RoleUser
		switch {
		case m.From == a.Name:
			role = chat.RoleAssistant
		case m.Role == chat.RoleSystem:
			role = chat.RoleSystem
		}
		list = append(list, chat.Text(m.ID, role, m.Content))
	}
	return list, nil
}

// writerKey is the context key of the writer of the chunks of a cycle.
type writerKey struct{}

// chunkWriter is the writer of a cycle. It begins a generation with the first chunk.
type chunkWriter struct {
	store      *dohost.Storage
	generation string
	to         *chat.ChunkWriter[chat.StoredChunk]
}

// onChunk returns the function that stores chunks, or nil.
func (a *Agent) onChunk() func(context.Context, chat.Chunk) error {
	if a.Chunks == nil {
		return nil
	}
	return func(ctx context.Context, c chat.Chunk) (err error) {
		w := ctx.Value(writerKey{}).(*chunkWriter)
		if w.to == nil {
			w.generation = "gen_" + ulid.Make().String()
			if w.to, err = a.Chunks.Replay(w.store, w.generation); err != nil {
				return err
			}
		}
		return w.to.Write(ctx, c)
	}
}

func (a *Agent) generate(ctx context.Context, of Ref, c *Cycle[Message]) (Response, error) {
	w := &chunkWriter{store: of.Storage()}
	in := prompt{messages: c.Messages}
	for _, row := range c.Pending {
		in.Pending = append(in.Pending, row.Key)
	}
	text, err := a.run().Run(context.WithValue(ctx, writerKey{}, w), of, in)
	if err == nil && w.to != nil {
		err = w.to.Finish(ctx)
	}
	return Response{text, w.generation}, err
}

// respond writes the response to messages, and marks them as processed. A request id that has a response gets no second one.
func (a *Agent) respond(
	ctx context.Context, s *dohost.Storage, messages *dohost.Collection[Message], r Response, pending []dohost.Row[Message],
) error {
	now := time.Now()
	last := pending[len(pending)-1].Value
	reply := Message{
		ID: "msg_" + ulid.Make().String(), Role: chat.RoleAssistant, Content: r.Text, From: a.Name, To: last.From,
		Created: now, Processed: now, InReplyTo: last.Request, Generation: r.Generation,
	}
	for _, row := range pending {
		if row.Value.From != reply.To {
			reply.To = ""
		}
		_, err := messages.Update(ctx, s, row.Key, func(m *Message) error {
			m.Processed = now
			return nil
		})
		if err != nil {
			return err
		}
	}
	if reply.InReplyTo != "" {
		if _, answered, err := Reply(ctx, s, messages, reply.InReplyTo, a.Name); err != nil || answered {
			return err
		}
	}
	return messages.Insert(ctx, s, reply)
}
