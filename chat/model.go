package chat

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"
)

// Model is what says what the assistant says next.
type Model interface {
	// Stream goes on with a conversation: it yields chunks, and an error at most once, as the last. Those
	// of a call of a tool end with tool-input-available; its id is that of no other in the message. It is
	// called on a goroutine of its own, without the turn, and stops when ctx ends or when it is told to. If it panics,
	// or calls runtime.Goexit, the reply fails with a [*ModelPanic].
	Stream(ctx context.Context, p *Prompt) iter.Seq2[Chunk, error]
}

// Retriever is a Model whose provider keeps what it says. [Answer] has it go on with an answer that was cut off
// before it asks for another.
type Retriever interface {
	Model
	// Retrieve is Stream for the answer that the partial of the prompt has a beginning of: it yields what that lacks.
	// It may yield again what calls the partial has, with their ids.
	//
	// Errors: [ErrNotRetrieved] if the answer is not to be had, and those of Stream.
	Retrieve(ctx context.Context, p *Prompt) iter.Seq2[Chunk, error]
}

// ErrNotRetrieved says that a provider does not have an answer, or not the one of which something was said.
var ErrNotRetrieved = errors.New("chat: the provider does not have the answer")

// Prompt is what a model is asked.
type Prompt struct {
	// System is what it is told to be.
	System string
	// Messages are what was said before, the oldest first.
	Messages []Message
	// Partial is what the assistant has said in this message, with the outcomes of its tools; without
	// parts at first. The model goes on from there. If it was cut off in a text, what it says next goes
	// on in that. A [Retriever] may find calls without an outcome at its end, which have not run.
	Partial Message
	// Cut says that the partial was cut off, and where that was is not the end of a step.
	Cut bool
	// Tools are those that it may call: the server's and the client's.
	Tools []ToolSpec
	// Keep keeps a value, as JSON, for whoever goes on with the reply if it is cut off, such as the id
	// under which the provider knows it, in place of what [Reply.Stash] has kept. It is durable when Keep
	// returns, and so is what was yielded before. It is for the goroutine of Stream.
	Keep func(ctx context.Context, v any) error
	// Kept decodes what was last kept, and says whether anything was.
	Kept func(v any) (bool, error)
}

// ToolSpec is a tool as a model is told of it.
type ToolSpec struct {
	Name        string          `json:"name"`
	Description string          `json:"description,omitempty"`
	Parameters  json.RawMessage `json:"parameters,omitempty"` // a JSON schema
}

// Tool is a tool that runs on the server.
type Tool struct {
	ToolSpec
	// Run runs it, with the turn. What it returns is its output, as JSON; an error is told to the model.
	// A call that was cut off while it ran is not run again: the model is told that whether it took effect
	// is not known. Nil means that a client runs it, and answers.
	Run func(ctx context.Context, input json.RawMessage) (any, error)
	// Approve makes each call wait until a client approves it. Then the call runs, or is sent to the clients if there
	// is no Run.
	Approve bool
}

// AnswerOptions tunes Answer. A nil *AnswerOptions, and the zero AnswerOptions, mean the defaults.
type AnswerOptions struct {
	// System is what the model is told to be.
	System string
	// Tools are those of the server.
	Tools []Tool
	// MaxSteps bounds how often the model is asked for one message. Zero means 20.
	MaxSteps int
	// MaxMessages bounds how many messages the model is given, the newest. Zero means all.
	MaxMessages int
}

// Answer has a model answer: it asks, runs the tools of the server that the model calls, and asks again
// with their outcomes, until the model has nothing more to call, or calls what a client is to answer. Of a
// reply that was cut off it goes on from what was said: no tool runs twice. A call runs when the answer that makes it
// has ended, so one that is cut off before that has not run: it does when a [Retriever] has got the rest of the
// answer, or else at once, if its input is whole.
//
// Errors: the model's, and those of [Reply.Send].
func Answer(ctx context.Context, r *Reply, m Model, o *AnswerOptions) error {
	if o == nil {
		o = &AnswerOptions{}
	}
	most := o.MaxSteps
	if most == 0 {
		most = 20
	}
	before, err := r.Messages(ctx, o.MaxMessages)
	if err != nil {
		return err
	}
	a := &answering{r: r, model: m, o: o, before: before}
	for range most {
		if !r.l.acc.inStep { // else it was cut off in that, and ends it first
			waits, ran, err := a.runCalls(ctx)
			if err != nil || waits {
				return err
			}
			if a.asked && !ran && !a.erred {
				return nil
			}
		}
		if err := a.step(ctx); err != nil {
			return err
		}
	}
	_, _, err = a.runCalls(ctx)
	return err
}

// answering is a call of Answer.
type answering struct {
	r      *Reply
	model  Model
	o      *AnswerOptions
	before []Message
	asked  bool
	erred  bool // the step has a call whose input is not JSON, of which the model is to be told
}

func (a *answering) tool(name string) (Tool, bool) {
	for _, t := range a.o.Tools {
		if t.Name == name {
			return t, true
		}
	}
	return Tool{}, false
}

// runCalls runs the server's tools that were called and may run. waits says that the rest is up to
// clients.
func (a *answering) runCalls(ctx context.Context) (waits, ran bool, err error) {
	m := a.r.Partial()
	for _, p := range m.Parts {
		if !waiting(p) {
			continue
		}
		if now, ok := a.r.l.acc.call(p.Text("toolCallId")); ok {
			p = now.clone() // a client may have answered it while another ran
		}
		if !waiting(p) {
			continue
		}
		t, ours := a.tool(toolName(p))
		switch state := p.Text("state"); {
		case ours && t.Run == nil && state == approvalResponded:
			waits = true
			if err := a.handToClient(ctx, t, p); err != nil {
				return false, false, err
			}
			continue
		case state == approvalRequested, !ours && a.r.l.clientRuns(p), ours && t.Run == nil && (!t.Approve || approved(p)):
			waits = true
			continue
		case !ours:
			err = a.settle(ctx, p, nil, fmt.Errorf("there is no tool %q", toolName(p)))
		case t.Run != nil && !a.r.l.made(p):
			err = a.settle(ctx, p, nil, errNotMade)
		case t.Approve && state == inputAvailable:
			waits = true
			err = a.r.Send(ctx, newChunk("tool-approval-request").with("toolCallId", p.Text("toolCallId")).
				with("approvalId", "approve_"+p.Text("toolCallId")))
			if err != nil {
				return false, false, err
			}
			continue
		default:
			err = a.run(ctx, t, p)
		}
		if err != nil {
			return false, false, err
		}
		ran = true
	}
	return waits, ran, nil
}

// run runs a call. That it begins is on the disk before: if it is cut off from then on nobody knows what it has done.
func (a *answering) run(ctx context.Context, t Tool, p Part) error {
	l, id := a.r.l, p.Text("toolCallId")
	if err := l.note(ctx, func(row *replyRow) { row.Begun = with(row.Begun, id) }); err != nil {
		return err
	}
	if err := l.k.store().Sync(ctx); err != nil {
		return err
	}
	if now, ok := l.acc.call(id); !ok || settled(now) {
		return nil // while there was no room
	}
	if l.watch != nil {
		l.watch.Stop() // a tool may take its time: what is sent next starts it again
	}
	out, failed := t.Run(ctx, orNull(p.Member("input")))
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return a.settle(ctx, p, out, failed)
}

// settle says how a call has ended.
func (a *answering) settle(ctx context.Context, p Part, out any, failed error) error {
	c := newChunk("tool-output-available").with("toolCallId", p.Text("toolCallId"))
	raw, err := encode(out)
	if err == nil && nesting(raw) >= maxChunkNesting {
		err = errNesting
	}
	if err == nil {
		c.set("output", raw)
		err = failed
	}
	if err != nil {
		c = newChunk("tool-output-error").with("toolCallId", p.Text("toolCallId")).with("errorText", err.Error())
	}
	return a.r.Send(ctx, c)
}

// step asks the model once, or goes on with what it was cut off in.
func (a *answering) step(ctx context.Context) error {
	a.asked, a.erred = true, false
	if a.r.l.acc.inStep {
		if over, err := a.goOn(ctx); over || err != nil {
			return err
		}
		a.erred = false // the model is about to hear of it
	}
	p := a.prompt()
	if err := a.r.Send(ctx, newChunk("start-step")); err != nil {
		return err
	}
	if err := a.stream(ctx, p, a.model.Stream); err != nil {
		return err
	}
	return a.endStep(ctx)
}

// goOn goes on with a step that was cut off as far as that takes no new answer: with the rest of the one that was
// cut off, if that is to be had, or else with what it has called. It says whether that was the step. If not, the model
// goes on in it, unless it has come to calls: they have their outcomes, of which the model hears in the next one.
func (a *answering) goOn(ctx context.Context) (over bool, err error) {
	l := a.r.l
	if m, ok := a.model.(Retriever); ok {
		switch err := a.stream(ctx, a.prompt(), m.Retrieve); {
		case err == nil:
			return true, a.endStep(ctx)
		case !errors.Is(err, ErrNotRetrieved):
			return false, err
		}
	}
	if !callsInLastStep(&l.acc.msg) {
		return false, nil
	}
	held := len(l.held()) > 0
	return held, a.endStep(ctx)
}

// endStep ends a step of which the model says no more. What it has begun to call it does not call.
func (a *answering) endStep(ctx context.Context) error {
	unrun, _ := a.r.l.repairs(false)
	for _, c := range unrun {
		if c.Type() != "tool-input-error" {
			continue
		}
		if err := a.r.Send(ctx, c); err != nil {
			return err
		}
		a.erred = true
	}
	return a.r.Send(ctx, newChunk("finish-step"))
}

// prompt is what the model is asked now.
func (a *answering) prompt() *Prompt {
	return &Prompt{
		System: a.o.System, Messages: a.before, Partial: a.r.Partial(), Cut: a.r.l.acc.inStep, Tools: a.specs(), Kept: a.r.Stashed,
	}
}

// callsInLastStep says that the last step of a message has calls.
func callsInLastStep(m *Message) bool {
	for _, p := range slices.Backward(m.Parts) {
		if isTool(p) {
			return true
		}
		if p.Type() == "step-start" {
			return false
		}
	}
	return false
}

func (a *answering) specs() (specs []ToolSpec) {
	for _, t := range a.o.Tools {
		specs = append(specs, t.ToolSpec)
	}
	var clients []ToolSpec
	if raw := a.r.Tools(); raw != nil && json.Unmarshal(raw, &clients) == nil {
		for _, t := range clients {
			if _, ours := a.tool(t.Name); !ours { // providers refuse what has a tool twice
				specs = append(specs, t)
			}
		}
	}
	return specs
}
