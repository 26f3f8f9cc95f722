package inbox

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/agent"
	"github.com/dohost/dohost/chat"
	"github.com/dohost/dohost/internal/summary"
	"github.com/dohost/dohost/ledger"
)

// Agent describes an agent that answers [Message] rows. It must not be copied, or changed after its first use.
type Agent struct {
	// Name is the address of the agent: it answers the messages To that name. 1 to 64 letters, digits, underscores and hyphens.
	// It is a part of the identity of the operations of its tools, so a class has each name once. Required.
	Name string
	// Description is for the models of other agents, which get this agent as a tool: see Agent.Tool.
	Description string
	// Instructions are the system prompt.
	Instructions string
	// Model answers. Required.
	Model chat.Model
	// Tools are the tools that the model may call, as in a [chat.Worker]. A call is an operation of the ledger, with the policy
	// of its tool. A repeated cycle gets the recorded results.
	Tools []chat.Tool
	// Agents are other agents that the model may ask. Each is a tool for the model, too, and no two tools may have the same name.
	Agents []AgentTool
	// MaxMessages bounds the number of earlier messages in the prompt, and MaxBytes the size of their Content. The newest remain.
	// Zero means 100 messages and 256 KiB.
	MaxMessages, MaxBytes int
	// History gives the agent summaries instead of the oldest messages of a long conversation: see docs/inbox.md. It needs MaxMessages to
	// be zero: the prompt then has the summaries, and all messages without one. A fiber makes a summary when more than
	// History.Threshold messages have none, or when their Content has more than MaxBytes. It does not cover the newest messages, up to
	// History.Window of them, as far as they fit into half of MaxBytes.
	// The kinds of the operations begin with Name and "-summary", so no other agent of the class may have that name. Nil means that there are
	// no summaries.
	History *chat.History
	// MaxSteps bounds the answers of the model in one cycle. Zero means 20.
	MaxSteps int
	// EachSender gives the messages of each sender a cycle and a response of their own. Otherwise a cycle has the messages of all
	// senders, so a message that the model refuses fails the others, and is parked with them.
	EachSender bool
	// Chunks stores the chunks of the model while it answers, so that readers of its feed see the text grow. Each attempt has a
	// generation, with a random id, for all its answers; the attempt after a postponed one continues the generation of that one. The last
	// chunk, "finish", is in the batch of the response. The chunks of
	// failed, interrupted and expired attempts remain. A chunk that is too large for a row is left out. Nil means that chunks are not stored.
	Chunks *chat.ChunkSink[chat.StoredChunk]
	// Keep is the retention period of the recorded answers and calls: see [ledger.Kind]. It must be longer than the time limit of each of Agents,
	// since a cycle that waits for another agent is repeated with the records. A cycle that waits longer for a decision about its budget
	// asks the model again, and its tools run again. Zero means forever.
	Keep time.Duration
	// Budget bounds the use of the model: see [chat.Worker]. A chat agent uses the Budget of its class. A cycle that finds a budget exhausted waits:
	// its messages remain in the inbox, and no attempt fails. It asks for a decision ([BudgetQuestions], [DecideBudget]), and without one checks
	// the budget again every 5 minutes. A Model that itself returns a [chat.BudgetError], for example because it asks another agent, makes the
	// cycle wait without a question.
	Budget chat.Budget
	// Price is the price of the calls of the model: see [chat.Worker]. A chat agent uses the Price of its class.
	Price func(chat.Usage) int64
	// Options tunes the cycles: see Inbox.Options. Prefix must be empty.
	Options agent.RowsOptions

	once   sync.Once
	worker *chat.Worker[prompt, string]
	// summarizer asks the model of History; nil without one.
	summarizer *chat.Worker[string, string]
}

// Response is the response of an [Agent].
type Response struct {
	Text       string
	Generation string // of the chunks, or ""
}

// The defaults of Agent.MaxMessages and Agent.MaxBytes.
const (
	defaultMessages = 100
	defaultBytes    = 256 << 10
)

// prompt is the input of the worker. Its JSON is the identity of a run, and has nothing: the scope and the position of a cycle
// distinguish its runs. While a cycle waits for its repetition, others may run, and rows may change. The calls of its tools must
// stay the same operations.
type prompt struct {
	messages []chat.Message
	cycle    []chat.Message // those of the cycle: recorded answers count for them, however long the conversation has become since
}

// run returns the worker that asks the model. It records each answer, so that a cycle that is repeated after Generate gets the
// same response without the model.
func (a *Agent) run() *chat.Worker[prompt, string] {
	a.once.Do(func() {
		tools := slices.Clone(a.Tools)
		for i := range a.Agents {
			tools = append(tools, a.Agents[i].tool())
		}
		a.worker = &chat.Worker[prompt, string]{
			Name: a.Name, Instructions: a.Instructions, Model: forCycles(a.Model), Tools: tools, MaxSteps: a.MaxSteps, Durable: true, Keep: a.Keep, Price: a.Price, Budget: a.Budget,
			Messages: func(in prompt) []chat.Message { return in.messages },
			Identity: func(in prompt) []chat.Message { return in.cycle },
			OnChunk:  a.onChunk(),
		}
		a.summarizer = a.newSummarizer()
	})
	return a.worker
}

// Kinds returns the kinds of the operations of the agent, for [ledger.Declare]: operators then see the operations, and may resolve
// unknown ones.
func (a *Agent) Kinds() []ledger.AnyKind {
	kinds := a.run().Kinds()
	if a.summarizer != nil {
		kinds = append(kinds, a.summarizer.Kinds()...)
	}
	return kinds
}

// ForMessages returns the inbox of an agent over a collection of [Messages]. The program may replace functions of the inbox, such as
// Build, and set OnError, before it passes the inbox to [On].
//
// Build returns the last messages from the agent and to it, ordered by the time of their responses, and then the messages of the
// cycle. So all senders share one conversation. Requests of the agent to others and the responses to them are not part of it.
// Generate asks the model. Respond marks the messages of the cycle as processed and inserts the response, as a message from the
// agent that is processed already. A response of more than 1 MiB is an error.
//
// Open returns an error for an Agent with missing fields, and for a collection without the indexes of [Messages].
func ForMessages[O any, P interface {
	*O
	Ref
}](messages *dohost.Collection[Message], a *Agent) *Inbox[O, Message, Response] {
	in := &Inbox[O, Message, Response]{
		Rows: messages, Pending: pendingIndex, err: a.check(messages),
	}
	if in.err != nil {
		return in
	}
	in.Options = a.Options
	in.prefix, in.agent, in.messages = nameKey(a.Name), a.Name, messages
	in.expiry = &expiry[O, Message]{cycleDeadline, func(o *O, ctx context.Context, pending []dohost.Row[Message]) error {
		return a.expire(ctx, P(o), messages, pending)
	}}
	in.Group = a.group
	h := &history{messages, a.Name}
	in.budgets = &budgetItems{messages.Name, a.Name}
	in.rowWritten = func(ctx context.Context, of agent.Handle, w *dohost.RowWrite) error {
		return errors.Join(h.rowWritten(ctx, of, w), in.budgets.rowWritten(ctx, of.Storage(), w))
	}
	in.inspect = h.inspect
	in.summarize = agent.OnFiber(h.summaryKind(), func(o *O, ctx context.Context, _ *agent.Fiber[struct{}]) error {
		return a.summarizeFiber(ctx, P(o), h)
	}, &agent.KindOptions{MaxRetries: summary.Budget, KeepCompleted: time.Hour, Quiet: true})
	in.Build = func(o *O, ctx context.Context, pending []dohost.Row[Message]) ([]chat.Message, error) {
		return a.build(ctx, P(o).Storage(), messages, pending)
	}
	in.Generate = func(o *O, ctx context.Context, c *Cycle[Message]) (Response, error) {
		if m := c.Pending[0].Value; m.Request != "" {
			if _, answered, err := Reply(ctx, P(o).Storage(), messages, m); err != nil || answered {
				return Response{}, err // respond inserts nothing
			}
		}
		if err := a.summarizeLater(ctx, P(o), h); err != nil && !errors.Is(err, dohost.ErrNoSpace) { // the response tries again
			return Response{}, err
		}
		r, err := a.generate(ctx, P(o), messages, c)
		return r, a.awaitSummary(ctx, P(o), h, err)
	}
	in.Respond = func(o *O, ctx context.Context, r Response, pending []dohost.Row[Message]) error {
		return errors.Join(a.respond(ctx, P(o).Storage(), messages, r, pending), a.summarizeLater(ctx, P(o), h))
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
	if missing := missingIndex(messages); missing != "" {
		wrong("the collection %q has no index %q: want a collection that Messages returned", messages.Name, missing)
	}
	for i := range a.Agents {
		if err := a.Agents[i].check(); err != nil {
			wrong("%w", err)
		}
	}
	if a.MaxMessages < 0 || a.MaxBytes < 0 {
		wrong("MaxMessages is %d and MaxBytes %d: want 1 or more, or 0 for the default", a.MaxMessages, a.MaxBytes)
	}
	if err := a.checkHistory(); err != nil {
		wrong("%w", err)
	}
	if err := a.checkKeep(); err != nil {
		wrong("%w", err)
	}
	if a.Chunks != nil && a.Chunks.Rows == nil {
		wrong("Chunks has no Rows")
	}
	if err := a.run().Check(); err != nil {
		wrong("%w", err)
	}
	return errors.Join(errs...)
}
