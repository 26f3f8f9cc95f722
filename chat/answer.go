package chat

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dohost/dohost/chat/uimessage"
)

// AnswerOptions tunes Answer. A nil *AnswerOptions, and the zero AnswerOptions, mean the defaults.
type AnswerOptions struct {
	// System is the system prompt of the model.
	System string
	// Tools are the tools of the server.
	Tools []Tool
	// MaxSteps bounds the model's answers for one message. Zero means 20. A client's result and a decision about an approval begin
	// the count again; [Complete] does not.
	MaxSteps int
	// MaxMessages bounds the messages in the prompt after the summaries, the newest: see [Reply.Context]. A bound below
	// [History].Threshold omits messages that have no summary. Zero means all.
	MaxMessages int
}

// Answer makes a model answer. It asks the model, runs the server's tools that the model calls, and asks again with
// their results, until the model calls no tool, or calls one that waits for a client or for [Complete]. It resumes an interrupted reply
// from its chunks: a call with a result does not run again, and an interrupted call runs again only if the policy of its tool
// allows that. A call runs after the end of the answer that made it, so a call of an
// interrupted answer has not run. It runs when a [ResumableModel] has resumed the answer, or else immediately, if its
// input is complete.
//
// Tools run in tasks of the object, so Answer must not be called in a [dohost.Exclusive] section, which keeps tasks out.
//
// Errors: the errors of the model and of [Reply.Send]; an error for a tool with contradicting fields or without a name, and for two tools
// with the same name.
func Answer(ctx context.Context, r *Reply, m Model, o *AnswerOptions) error {
	if o == nil {
		o = &AnswerOptions{}
	}
	most := o.MaxSteps
	switch {
	case most < 0:
		return fmt.Errorf("chat: MaxSteps %d: want 1 or more, or 0 for the default", most)
	case most == 0:
		most = defaultSteps
	}
	if err := checkAnswerTools(o.Tools); err != nil {
		return err
	}
	before, err := r.Context(ctx, o.MaxMessages)
	if err != nil {
		return err
	}
	before = withoutBudget(before)
	if r.l.row.Completes {
		most -= r.l.stream.Steps()
	}
	a := &answerRun{r: r, l: r.l, model: m, o: o, history: before}
	for range max(0, most) {
		if over, err := a.decideBudgets(ctx); over || err != nil {
			return err
		}
		if !a.l.inStep() { // an interrupted step is ended first
			waits, ran, err := a.runCalls(ctx)
			if err != nil || waits {
				return err
			}
			if a.asked && !ran && !a.invalidCall {
				return nil
			}
		}
		if err := a.step(ctx); errors.Is(err, errSuspended) {
			return nil
		} else if err != nil {
			return err
		}
	}
	_, _, err = a.runCalls(ctx)
	return err
}

// checkTools returns an error for a tool that cannot work, and for two tools that a model cannot distinguish.
func checkTools(tools []Tool) error {
	names := map[string]bool{}
	for i := range tools {
		t := &tools[i]
		if err := t.check(); err != nil {
			return err
		}
		switch {
		case t.Name == "":
			return fmt.Errorf("chat: tool %d has no name", i)
		case names[t.Name]:
			return fmt.Errorf("chat: two tools have the name %q", t.Name)
		}
		names[t.Name] = true
	}
	return nil
}

// answerRun is the state of one call of Answer.
type answerRun struct {
	r           *Reply
	l           *liveReply // of r
	model       Model
	o           *AnswerOptions
	history     []Message
	asked       bool
	invalidCall bool // the step has a call with invalid input; the next step reports the error to the model
}

func (a *answerRun) tool(name string) (Tool, bool) {
	for _, t := range a.o.Tools {
		if t.Name == name {
			return t, true
		}
	}
	return Tool{}, false
}

// runCalls runs the server's tools that were called and may run, concurrently. waits reports that other calls wait for clients.
func (a *answerRun) runCalls(ctx context.Context) (waits, ran bool, err error) {
	m := a.r.Partial()
	var runs []*toolRun
	for _, p := range m.Parts {
		if !uimessage.IsPending(p) {
			continue
		}
		if now, ok := a.l.call(p.Text("toolCallId")); ok {
			p = now // a client may have answered the call while another one ran
		}
		if !uimessage.IsPending(p) || a.l.asksForBudget(p) { // see decideBudgets
			continue
		}
		t, ours := a.tool(uimessage.ToolName(p))
		step, failed := a.nextStep(ctx, t, ours, p)
		switch {
		case ctx.Err() != nil:
			return false, false, context.Cause(ctx)
		case step == stepWait:
		case step == stepOffer:
			err = a.sendToClient(ctx, &t, p)
		case step == stepAsk:
			err = a.requestApproval(ctx, t.Approve, p)
		case step == stepAbandon:
			err = a.l.sendInTurn(ctx, uimessage.InterruptedChunk(p))
		case step == stepFail:
			err = a.sendResult(ctx, p, nil, failed)
		default:
			runs = append(runs, &toolRun{tool: t, part: p})
		}
		if err != nil {
			return false, false, err
		}
		if step == stepRun || step == stepFail || step == stepAbandon {
			ran = true
		} else {
			waits = true
		}
	}
	err = a.runTools(ctx, runs)
	for _, run := range runs {
		if p, ok := a.l.call(run.part.Text("toolCallId")); ok && uimessage.IsPending(p) {
			waits = true // for Complete
		}
	}
	return waits, ran, err
}

// requestApproval makes a call wait for an approval. The schedule of its expiry is written first, so a call that waits with
// a time limit always has one.
func (a *answerRun) requestApproval(ctx context.Context, by *Approval, p Part) error {
	id := p.Text("toolCallId")
	if by.Within > 0 {
		expires := time.Now().Add(by.Within)
		err := a.l.retryNoSpace(ctx, func() error { return a.l.scheduleExpiry(ctx, id, expires) })
		if err != nil {
			return err
		}
		if err := a.l.apply(ctx, id, callExpires(expires.UnixMilli())); err != nil {
			return err
		}
	}
	return a.r.Send(ctx, approvalRequest(id))
}

// sendToClient sends clients an approved call that a client runs. The call then waits for its result.
func (a *answerRun) sendToClient(ctx context.Context, t *Tool, p Part) error {
	if err := a.l.apply(ctx, p.Text("toolCallId"), callOffered(a.l.row.ID, t.Output.schema())); err != nil {
		return err
	}
	c := uimessage.CallChunk(p)
	return a.l.addAll(ctx, append(a.l.stream.Before(c), c))
}

// recordUnstartedCall records that a call has not begun to run, and whether the server or a client runs it. So the host
// knows that a reply interrupted afterwards waits for the client, and no client can answer a call that the server runs, or
// that needs an approval.
func (a *answerRun) recordUnstartedCall(ctx context.Context, c Chunk) error {
	if c.Type() != "tool-input-start" && c.Type() != "tool-input-available" {
		return nil
	}
	name, runs := c.Text("toolName"), runsNowhere
	t, ours := a.tool(name)
	switch {
	case ours && t.Run != nil, ours && t.Approve != nil:
		runs = runsOnServer
	case ours, a.l.tools[name] && name != budgetTool:
		runs = runsOnClient
	}
	id := c.Text("toolCallId")
	if err := a.l.apply(ctx, id, callMade(name, runs, a.l.row.ID, t.Output.schema())); err != nil {
		return err
	}
	if !ours || t.Run != nil || t.Approve == nil || c.Type() == "tool-input-start" || a.l.begun(id) || a.l.approved(id) {
		return nil
	}
	if asks, err := t.Approve.asks(ctx, c.Member("input")); asks || err != nil { // runCalls requests the approval
		return nil
	}
	return a.l.apply(ctx, id, callOffered(a.l.row.ID, t.Output.schema()))
}

// step asks the model once, or resumes an interrupted step. If a budget is exhausted, the reply is suspended. A step that has calls which
// have not begun ends first, and its complete calls run, as after an interrupted answer: no continuation begins while they have no
// result. The next step finds the budget exhausted.
func (a *answerRun) step(ctx context.Context) error {
	over, err := a.l.meter().exhausted(ctx, time.Now())
	if err == nil && over == nil {
		err = a.askModel(ctx)
		over = exhaustedBudget(err)
	}
	switch {
	case over == nil:
		return err
	case a.l.inStep() && len(a.l.unstartedCalls()) > 0:
		return a.endStep(ctx)
	}
	return a.suspend(ctx, over)
}

func (a *answerRun) askModel(ctx context.Context) error {
	a.asked, a.invalidCall = true, false
	if a.l.inStep() {
		if over, err := a.resumeStep(ctx); over || err != nil {
			return err
		}
		a.invalidCall = false // the model is about to receive the error
	}
	p := a.prompt()
	if err := a.r.Send(ctx, uimessage.MakeChunk("start-step")); err != nil {
		return err
	}
	if err := a.stream(ctx, p, a.model.Stream, false); err != nil {
		return err
	}
	return a.endStep(ctx)
}

// resumeStep resumes an interrupted step without a new answer, if possible: with the rest of the interrupted answer, if
// the provider has it, or else with the calls of that answer. over reports whether that completed the step. If not, the
// model continues in this step, or in the next one if this one has calls, which have results by then.
func (a *answerRun) resumeStep(ctx context.Context) (completed bool, err error) {
	l := a.l
	if m, ok := a.model.(ResumableModel); ok {
		switch err := a.stream(ctx, a.prompt(), m.ResumeStream, true); {
		case err == nil:
			return true, a.endStep(ctx)
		case !errors.Is(err, ErrNotResumable):
			return false, err
		}
	}
	if !l.stream.CallsInLastStep() {
		return false, nil
	}
	unstarted := len(l.unstartedCalls()) > 0
	return unstarted, a.endStep(ctx)
}

// endStep ends a step after the model's last chunk. Incomplete calls of the step fail.
func (a *answerRun) endStep(ctx context.Context) error {
	unrun, _ := a.l.abandonedCalls(false)
	for _, c := range unrun {
		if c.Type() != "tool-input-error" {
			continue
		}
		if err := a.r.Send(ctx, c); err != nil {
			return err
		}
		a.invalidCall = true
	}
	return a.r.Send(ctx, uimessage.MakeChunk("finish-step"))
}
