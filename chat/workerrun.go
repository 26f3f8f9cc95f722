package chat

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/agent"
	"github.com/dohost/dohost/chat/internal/rawjson"
	"github.com/dohost/dohost/chat/uimessage"
	"github.com/dohost/dohost/ledger"
)

// workerRun is one run of a worker. It has a loop of its own, apart from that of Answer: each step of Answer is a change of the
// rows of a reply, which clients see and which waits for them. The rows of a worker are those of its calls of models, and those of the
// ledger.
type workerRun struct {
	worker   *workerSpec
	messages []Message
	identity []Message               // those that identify recorded answers
	accept   func(text string) error // decodes the answer

	// Set by begin.
	agent agent.Ref
	st    *dohost.State
	place workerPlace
	depth int // the number of workers that may be nested in this one

	// Owned by the holder of the turn.
	partial     Message // the answers since the last correction, with the results of calls
	corrections int
	numbers     map[workerCallID]bool // of the calls that have an output or may get one
}

// workerDepthKey is the context key of the number of workers that may still be nested.
type workerDepthKey struct{}

// begin prepares a run in the context of its caller.
func (r *workerRun) begin(ctx context.Context, a agent.Ref, input []byte) (err error) {
	if r.st, err = objectOf(a); err != nil {
		return err
	}
	r.agent = a
	allowed := r.worker.depth
	if left, ok := ctx.Value(workerDepthKey{}).(int); ok {
		allowed = min(allowed, left)
	}
	if allowed == 0 {
		return ErrWorkerDepth
	}
	r.depth = allowed - 1
	r.numbers = map[workerCallID]bool{}
	r.restart()
	r.place, err = newWorkerPlace(ctx, r.worker.name, input)
	return err
}

// restart begins an empty answer.
func (r *workerRun) restart() { r.partial = Message{ID: "answer", Role: RoleAssistant} }

// run asks the model and runs the tools until the model has answered.
func (r *workerRun) run(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(errRunOver)
	for n := 0; ; n++ {
		step, err := r.step(ctx, n)
		if err != nil {
			return err
		}
		first := len(r.partial.Parts)
		r.partial.Parts = append(r.partial.Parts, step.Parts...)
		if step.calls() {
			if err := r.runCalls(ctx, first); err != nil {
				return err
			}
			continue
		}
		invalid := r.answer(step)
		if invalid == nil {
			r.place.pass()
			return nil
		}
		r.correct(invalid)
	}
}

var errRunOver = errors.New("chat: the run of the worker is over")

// workerStep is an answer of the model.
type workerStep struct {
	Parts  []Part `json:"parts"`
	Finish string `json:"finish,omitempty"` // the reason why the model stopped early
}

// step returns the answer of a step. With Durable it is the recorded answer, if there is one.
func (r *workerRun) step(ctx context.Context, n int) (workerStep, error) {
	if !r.worker.durable {
		return r.ask(ctx, n)
	}
	history, err := r.history()
	if err != nil {
		return workerStep{}, err
	}
	return ledger.Do(r.place.context(ctx, 0), r.st, r.stepKind(), stepArgs{n, history},
		func(ctx context.Context, _ ledger.ID) (workerStep, error) { return r.ask(ctx, n) })
}

// stepArgs identify an answer of the model in a run.
type stepArgs struct {
	Step    int    `json:"step"`
	History string `json:"history"` // a digest of the conversation
}

// history returns a digest of the conversation so far. A recorded answer counts only for the same conversation: a repeated run
// may get another result of a call, such as one that came after the time of the call.
func (r *workerRun) history() (string, error) {
	raw, err := rawjson.Encode([]any{r.worker.system, r.identity, r.partial})
	if err != nil {
		return "", fmt.Errorf("the messages: %w", err)
	}
	return digest(raw), nil
}

func digest(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:16])
}

// stepKind returns the kind of the answers of the model. An answer has no effect outside, so it may be repeated after any
// interruption and any error: Find always answers NotDone.
func (r *workerRun) stepKind() *ledger.Kind[stepArgs, workerStep] {
	return &ledger.Kind[stepArgs, workerStep]{
		Name: r.worker.name + "/model step", Same: ledger.Whole[stepArgs], Policy: ledger.PolicyReconcile, Keep: r.worker.keep,
		NoEffect: func(error) bool { return true },
		Find: func(context.Context, ledger.ID, stepArgs) (workerStep, ledger.Answer, error) {
			return workerStep{}, ledger.AnswerNotDone, nil
		},
		Unknown: func(ledger.ID, stepArgs) string { return "a model may have been asked" },
	}
}

// ask asks the model. It returns an error also for an answer that ends the run with an error.
func (r *workerRun) ask(ctx context.Context, n int) (step workerStep, err error) {
	first := len(r.partial.Parts)
	s := uimessage.NewStream(r.partial, "", 0)
	add := func(c Chunk) error {
		for _, c := range s.Next(c) {
			s.Add(c)
		}
		return nil
	}
	each := func(c Chunk) error {
		if isFrame(c) {
			return nil
		}
		if err := r.onChunk(ctx, c); err != nil {
			return err
		}
		return add(c)
	}
	_ = add(uimessage.MakeChunk("start-step"))
	p := &Prompt{
		System: r.worker.system, Messages: r.messages, Partial: r.partial.Clone(), Tools: r.specs(), Output: r.worker.output,
		Checkpoint: func(any) (bool, error) { return false, nil },
	}
	if err := receive(ctx, p, &modelRequest{
		ask: r.worker.model.Stream, save: func(any) error { return nil }, each: each, usage: r.usage(ctx),
	}); err != nil {
		return step, err
	}
	m := s.Message()
	for _, part := range m.Parts[first:] {
		if uimessage.IsPending(part) && part.Text("state") == uimessage.InputStreaming {
			_ = add(uimessage.MakeChunk("tool-input-error", "toolCallId", part.Text("toolCallId"), "toolName", uimessage.ToolName(part),
				"errorText", "the input is incomplete"))
		}
	}
	_ = add(uimessage.MakeChunk("finish-step"))
	m = s.Message()
	var meta struct {
		FinishReason string `json:"finishReason"`
	}
	_ = json.Unmarshal(rawjson.OrNull(m.Metadata), &meta) // metadata of another form has no reason
	step = workerStep{m.Parts[first:], meta.FinishReason}
	return step, r.failed(step, n)
}

// onChunk calls OnChunk.
func (r *workerRun) onChunk(ctx context.Context, c Chunk) error {
	call := r.worker.onChunk
	if call == nil {
		return nil
	}
	return r.withTurn(ctx, func(ctx context.Context) error { return call(ctx, c) })
}

// withTurn calls a function with the turn. The operation of a recorded answer has no turn.
func (r *workerRun) withTurn(ctx context.Context, do func(context.Context) error) error {
	if r.worker.durable {
		return dohost.HoldTurn(ctx, do)
	}
	return do(ctx)
}

// usage returns the record of a call of the model.
func (r *workerRun) usage(ctx context.Context) *usageCall {
	return &usageCall{meter: workerMeter(ctx, r.agent, r.st, r.worker), withTurn: r.withTurn, retry: retryNoSpace, pause: workerUsagePause}
}

// failed returns the error of a run that ends with a step; nil if the run continues, or ends with a valid answer.
func (r *workerRun) failed(step workerStep, n int) error {
	last := n+1 == r.worker.steps
	switch calls := step.calls(); {
	case calls && last:
		return fmt.Errorf("the model has not answered in %d steps", r.worker.steps)
	case calls || !last && r.corrections < maxCorrections:
		return nil
	}
	if err := r.answer(step); err != nil {
		return &OutputError{step.text(), err}
	}
	return nil
}

// answer decodes the answer of a step without calls.
func (r *workerRun) answer(step workerStep) error {
	if step.Finish == "length" || step.Finish == "content-filter" {
		return fmt.Errorf("the model stopped early: %s", step.Finish)
	}
	return r.accept(step.text())
}

// calls reports whether the step has calls of the worker's tools.
func (s *workerStep) calls() bool {
	return slices.ContainsFunc(s.Parts, func(p Part) bool { return uimessage.IsCall(p) && !uimessage.ProviderExecuted(p) })
}

func (s *workerStep) text() string {
	var b strings.Builder
	for _, p := range s.Parts {
		if p.Type() == "text" {
			b.WriteString(p.Text("text"))
		}
	}
	return b.String()
}

// correct makes the model answer again, after an invalid answer.
func (r *workerRun) correct(invalid error) {
	r.corrections++
	text := fmt.Sprintf("Your last answer is not valid: %v. Answer again, with the whole answer.", clipText(invalid.Error(), maxToolError))
	ask := Text(fmt.Sprintf("correction-%d", r.corrections), RoleUser, text)
	r.messages = slices.Concat(r.messages, []Message{r.partial, ask})
	r.identity = slices.Concat(r.identity, []Message{r.partial, ask})
	r.restart()
}

func (r *workerRun) specs() (specs []ToolSpec) {
	for i := range r.worker.tools {
		specs = append(specs, r.worker.tools[i].ToolSpec)
	}
	return specs
}
