package chat

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/agent"
	"github.com/dohost/dohost/chat/internal/rawjson"
	"github.com/dohost/dohost/ledger"
)

const (
	// workerDepth is the default of Worker.Depth, and its largest value.
	workerDepth = 5
	// defaultSteps is the default of Worker.MaxSteps and of AnswerOptions.MaxSteps.
	defaultSteps = 20
	// maxCorrections bounds the invalid answers of a run that the model may correct.
	maxCorrections = 2
)

// ErrWorkerDepth is the error of a [Worker] that is nested too deeply: see Depth.
var ErrWorkerDepth = errors.New("chat: too many nested workers")

// Worker is an agent without memory. Each [Worker.Run] begins with an empty conversation: the model gets the input, calls the
// tools, and ends with an answer of type Out. A worker has no storage of its own; it runs in the incarnation of an agent.
//
// The JSON schema of Out is part of the system prompt, and a model may pass it to its provider (Prompt.Output). The answer must be
// JSON that matches it, as the input of a tool matches its parameters: see [NewTool]. The model may correct an invalid answer twice. If
// Out is string, the answer is the model's text.
//
// After an interruption the caller runs the worker again, and the model answers again, unless Durable has recorded its answers. Each
// tool call is an operation of the ledger, with the policy of the tool, at the position and in the scope of the caller
// ([dohost.WorkPosition], [ledger.Scope]). A repeated run that makes the same call gets the recorded result: see docs/workers.md. An
// Unrecorded tool is called again.
//
// The fields must not change after the first use. A Worker must not be copied. All methods are safe for concurrent use.
type Worker[In, Out any] struct {
	// Name is 1 to 64 letters, digits, underscores and hyphens. It is part of the identity of the tools' operations, and the
	// name of the worker as a tool. Required.
	Name string
	// Description is for the models that get the worker as a tool.
	Description string
	// Instructions are the system prompt, without the schema of Out.
	Instructions string
	// Model answers. Required.
	Model Model
	// Tools are the tools that the model may call. Each needs Run, and has neither External nor Approve, since a worker cannot
	// wait for a client or an approval.
	Tools []Tool
	// Messages makes the messages of the prompt. It must return equal messages for equal inputs. Nil means one user message with
	// the input as JSON, or with the input itself if In is string.
	Messages func(in In) []Message
	// Identity returns the messages that identify the recorded answers of a Durable worker. A repeated run uses a recorded answer if these messages, and
	// the answers and results before it in the run, are equal; other messages of the prompt may differ. Identity is for prompts that begin with
	// a conversation, which may grow between two runs. Nil means all messages of the prompt.
	Identity func(in In) []Message
	// OnChunk is called for each chunk that the model yields, with the turn, and a ctx that has the values of the ctx of Run: a
	// [ChunkWriter] in it can store the chunks while the model answers. OnChunk must not keep the turn for long. It is not called
	// for start, finish, start-step and finish-step, nor for recorded answers. An error ends the run. Nil means that no function
	// is called.
	OnChunk func(ctx context.Context, c Chunk) error
	// MaxSteps bounds the answers of the model in one run, including corrections. Zero means 20.
	MaxSteps int
	// Depth bounds the nested workers in the call tree of a run, including the worker: 1 means that its tools may run no
	// worker. The lowest bound in a tree applies. Zero means 5, the maximum.
	Depth int
	// Durable records each answer of the model as an operation of the ledger. A repeated run uses the recorded answers as long as
	// its conversation, or its Identity, is the same, and asks the model only for the rest. An answer that ends the run with an error is not
	// recorded.
	Durable bool
	// Keep is the retention period of the operations: see Keep of [ledger.Kind]. Zero means forever.
	Keep time.Duration
	// Budget is [Options].Budget for an agent without a conversation; its Reply bounds nothing. A chat agent uses the one of its class.
	Budget Budget
	// Price is [Options].Price for an agent without a conversation. A chat agent uses the one of its class.
	Price func(Usage) int64

	once   sync.Once
	schema outputSchema[Out]
}

// workerName matches a name that all providers accept as the name of a tool.
var workerName = regexp.MustCompile(`^[a-zA-Z0-9_-]{1,64}$`)

// output returns the schema of the answers.
func (w *Worker[In, Out]) output() *outputSchema[Out] {
	w.once.Do(func() { w.schema = newOutputSchema[Out]() })
	return &w.schema
}

// Check returns an error for fields that are missing or contradict each other. Run and Tool call it, too.
func (w *Worker[In, Out]) Check() error {
	if err := w.check(); err != nil {
		return &workerError{w.Name, err}
	}
	return nil
}

// workerError is an error of a worker, which its text names.
type workerError struct {
	name string
	err  error
}

func (e *workerError) Error() string {
	return fmt.Sprintf("chat: worker %q: %s", e.name, strings.TrimPrefix(e.err.Error(), "chat: "))
}

// Unwrap returns the error without the name.
func (e *workerError) Unwrap() error { return e.err }

func (w *Worker[In, Out]) check() error {
	switch schema := w.output(); {
	case !workerName.MatchString(w.Name):
		return errors.New("want a name of 1 to 64 letters, digits, underscores and hyphens")
	case w.Model == nil:
		return errors.New("the model is nil")
	case w.MaxSteps < 0:
		return errors.New("MaxSteps is negative")
	case w.Depth < 0 || w.Depth > workerDepth:
		return fmt.Errorf("the depth is %d: want 1 to %d, or 0 for the default", w.Depth, workerDepth)
	case w.Budget.check("") != nil:
		return w.Budget.check("")
	case w.Keep < 0 || w.Keep > 0 && w.Keep < time.Millisecond:
		return errors.New("the field Keep must be zero, or at least 1 ms")
	case schema.err != nil:
		return schema.err
	}
	if err := checkTools(w.Tools); err != nil {
		return err
	}
	for i := range w.Tools {
		switch t := &w.Tools[i]; {
		case t.Run == nil:
			return fmt.Errorf("the tool %q has no Run: a client would run it", t.Name)
		case t.Approve != nil || t.External != nil:
			return fmt.Errorf("the tool %q has Approve or External, and a worker cannot wait for them", t.Name)
		}
	}
	return nil
}

// Run runs the worker in the incarnation of an agent, and returns the answer of the model. ctx must hold the turn of a, as in a
// method, a fiber, or a tool. Run gives up the turn while it waits, so it must not be called in a [dohost.Transaction] or a
// [dohost.Exclusive] section. The tools run in tasks of the object, up to 16 calls of a step concurrently, as with [Answer].
//
// The JSON of in, which must represent all of in, identifies the run at the position of the caller: equal runs that end without
// an error are different runs, and a run after a failed run is its repetition. Without a position, as in a request, and in the
// handler of a reply, which may continue after any chunk, equal runs in one scope are one run: their tools get the results of the
// first. Set a scope ([ledger.Scope]) to separate them.
//
// Run asks the model when the row of the call is durable: see [ModelCall]. While the disk is full, Run waits for that, until ctx
// ends.
//
// If ctx ends, so do the stream of the model and the contexts of the tools, and Run returns without waiting for them.
//
// Errors: the errors of the model; an [*OutputError]; a [*BudgetError]; [ErrWorkerDepth]; [dohost.ErrMisuse] for a worker with missing
// or contradicting fields, and for a nil agent; an error if MaxSteps answers of the model did not end the run; the cause of ctx; the
// errors of [ledger.Do], except the errors of tools and unknown outcomes: the model gets both as the result of the call.
func (w *Worker[In, Out]) Run(ctx context.Context, a agent.Ref, in In) (Out, error) {
	var out, none Out
	wrong := func(err error) error { return &workerError{w.Name, err} }
	if err := w.check(); err != nil {
		return none, wrong(fmt.Errorf("%w: %w", err, dohost.ErrMisuse))
	}
	input, err := rawjson.Encode(in)
	if err != nil {
		return none, wrong(fmt.Errorf("the input: %w", err))
	}
	messages := inputMessages(in, input)
	if w.Messages != nil {
		messages = w.Messages(in)
	}
	identity := messages
	if w.Identity != nil {
		identity = w.Identity(in)
	}
	run := &workerRun{
		worker: w.spec(), messages: messages, identity: identity,
		accept: func(text string) (err error) {
			out, err = w.output().decode(text)
			return err
		},
	}
	if err := run.begin(ctx, a, input); err != nil {
		return none, wrong(err)
	}
	if err := run.run(ctx); err != nil {
		return none, wrong(err)
	}
	return out, nil
}

// inputMessages returns the messages of an input by default.
func inputMessages(in any, input []byte) []Message {
	text, ok := in.(string)
	if !ok {
		text = string(input)
	}
	return []Message{Text("input", RoleUser, text)}
}

// Tool returns the worker as a tool of [Answer], or of another worker. In must be a struct: see [NewTool]. Its policy is
// PolicyIdempotent: an interrupted call runs the worker again, and its tools repeat the calls of the interrupted run. The tool has
// no Timeout.
//
// A worker with missing or contradicting fields is an error of [Answer].
func (w *Worker[In, Out]) Tool() Tool {
	t := NewTool(w.Name, w.Description, func(ctx context.Context, in In) (Out, error) {
		a, ok := ctx.Value(toolAgentKey{}).(agent.Ref)
		if !ok {
			var none Out
			return none, fmt.Errorf("chat: worker %q: its tool runs only in Answer and in workers: %w", w.Name, dohost.ErrMisuse)
		}
		out, err := w.Run(ctx, a, in)
		if exhaustedBudget(err) != nil { // the model gets the error when its own calls are allowed again
			err = fmt.Errorf("%w. The reply was allowed to continue since then: call the tool again if its result is still needed", err)
		}
		return out, err
	}, &ToolOptions[In, Out]{Policy: ledger.PolicyIdempotent, Timeout: -1})
	t.err = cmp.Or(t.err, w.check())
	return t
}

// Kinds returns the kinds of the operations of the worker, for [ledger.Declare]: operators then see the operations and may
// resolve unknown operations. Workers with different names have different kinds.
func (w *Worker[In, Out]) Kinds() (kinds []ledger.AnyKind) {
	run := &workerRun{worker: w.spec()}
	for i := range w.Tools {
		if t := &w.Tools[i]; !t.Unrecorded {
			kinds = append(kinds, run.toolKind(t))
		}
	}
	if w.Durable {
		kinds = append(kinds, run.stepKind())
	}
	return kinds
}

// workerSpec has the fields of a Worker, without its type parameters.
type workerSpec struct {
	name    string
	system  string
	output  json.RawMessage // see Prompt.Output
	model   Model
	tools   []Tool
	steps   int
	depth   int
	durable bool
	keep    time.Duration
	price   func(Usage) int64
	budget  Budget
	onChunk func(context.Context, Chunk) error
}

func (w *Worker[In, Out]) spec() *workerSpec {
	return &workerSpec{
		name: w.Name, system: w.output().prompt(w.Instructions), output: w.output().raw(), model: w.Model, tools: w.Tools, steps: cmp.Or(w.MaxSteps, defaultSteps),
		depth: cmp.Or(w.Depth, workerDepth), durable: w.Durable, keep: w.Keep, price: w.Price, budget: w.Budget, onChunk: w.OnChunk,
	}
}

// toolAgentKey is the context key of the agent that runs a tool.
type toolAgentKey struct{}
