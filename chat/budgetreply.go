package chat

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/chat/internal/rawjson"
	"github.com/dohost/dohost/chat/uimessage"
)

// budgetTool is the tool whose calls ask for decisions about exhausted budgets. No program, client or model may use the name. A call that
// asks has a row with this tool that the server runs; a call of a model with this name runs nowhere.
const budgetTool = "dohost_budget"

// errSuspended ends Answer after a call that asks for a decision about a budget.
var errSuspended = errors.New("chat: the reply waits for a decision about a budget")

// asksForBudget reports whether a call asks for a decision about a budget.
func (s *replyState) asksForBudget(p Part) bool {
	r := s.calls[p.Text("toolCallId")]
	return r.Tool == budgetTool && r.Runs == runsOnServer && uimessage.ToolName(p) == budgetTool
}

// suspend asks for a decision about a budget. The chunks and the row of the call are in the batch of the last chunk of the model and of
// the end of its row. They are in the open step, if there is one: a run that is interrupted between them finds the step open.
func (a *answerRun) suspend(ctx context.Context, over *BudgetError) error {
	e := *over
	e.Interrupted = a.prompt().Interrupted
	id := "budget_" + ulid.Make().String()
	if !a.l.inStep() {
		if err := a.r.Send(ctx, uimessage.MakeChunk("start-step")); err != nil {
			return err
		}
	}
	if err := a.l.apply(ctx, id, callMade(budgetTool, runsOnServer, a.l.row.ID, "")); err != nil {
		return err
	}
	for _, c := range []Chunk{
		uimessage.MakeChunk("tool-input-available", "toolCallId", id, "toolName", budgetTool, "input", rawjson.MustEncode(e)),
		approvalRequest(id),
	} {
		if err := a.r.Send(ctx, c); err != nil {
			return err
		}
	}
	return errSuspended
}

// decideBudgets applies the decisions about budgets in the message of the reply. over reports that the reply does not ask the model now:
// a call waits for a decision, or the last one was refused and its budget is still exhausted.
func (a *answerRun) decideBudgets(ctx context.Context) (over bool, err error) {
	m := a.r.Partial()
	last := -1
	for i, p := range m.Parts {
		if uimessage.IsCall(p) && uimessage.ToolName(p) == budgetTool && a.l.asksForBudget(p) {
			last = i
		}
		switch id := p.Text("toolCallId"); {
		case last != i || !uimessage.IsPending(p):
			continue
		case a.l.approved(id):
			err = a.grant(ctx, p)
		case p.Text("state") == uimessage.ApprovalRequested:
			return true, nil
		default: // the disk became full during suspend, and the run was interrupted before there was space
			return true, a.r.Send(ctx, approvalRequest(id))
		}
		if err != nil {
			return false, err
		}
	}
	if last < 0 || slices.ContainsFunc(m.Parts[last+1:], func(p Part) bool { return p.Type() != "step-start" }) {
		return false, nil
	}
	if r := a.l.calls[m.Parts[last].Text("toolCallId")]; r.State == CallCompleted {
		return false, nil
	}
	e, err := a.l.meter().exhausted(ctx, time.Now())
	return e != nil, err
}

// grant applies an approval once: nothing gives up the turn between the grant and the result of the call, so they are one batch, and a
// crash keeps both or none. If the disk becomes full between them, the transaction undoes the grant.
func (a *answerRun) grant(ctx context.Context, p Part) error {
	id := p.Text("toolCallId")
	var e BudgetError
	err := json.Unmarshal(rawjson.OrNull(p.Member("input")), &e)
	scope := usageScope{scopeKind(e.Scope), e.Name}
	if err == nil && (!a.l.madeByReply(p) || !slices.Contains([]scopeKind{replyScope, dayScope, agentScope}, scope.Kind)) {
		err = errNoCallRecord
	}
	if err != nil {
		return a.l.sendInTurn(ctx, resultChunk(id, nil, fmt.Errorf("the budget: %w", err)))
	}
	c := resultChunk(id, rawjson.MustEncode(map[string]bool{"granted": true}), nil)
	return a.l.retryNoSpace(ctx, func() error {
		if now, ok := a.l.call(id); !ok || !uimessage.IsPending(now) {
			return nil // the approval was withdrawn during a wait for space
		}
		for _, before := range a.l.stream.Before(c) {
			if err := a.l.addOnce(ctx, before); err != nil {
				return err
			}
		}
		return dohost.Transaction(ctx, func(ctx context.Context) error {
			if err := a.l.meter().grant(ctx, scope); err != nil {
				return err
			}
			return a.l.addOnce(ctx, c) // the last write: the memory changes only if it succeeds
		})
	})
}

// isBudgetCall reports whether a part has the name of the reserved tool.
func isBudgetCall(p Part) bool { return uimessage.IsCall(p) && uimessage.ToolName(p) == budgetTool }

// withoutBudget returns messages for a model, without the calls about budgets, and without the steps and messages that have nothing else.
func withoutBudget(list []Message) []Message {
	asks := func(m Message) bool { return slices.ContainsFunc(m.Parts, isBudgetCall) }
	if !slices.ContainsFunc(list, asks) {
		return list
	}
	var kept []Message
	for _, m := range list {
		if short, _ := partsForModel(m); len(short.Parts) > 0 || !asks(m) {
			kept = append(kept, short)
		}
	}
	return kept
}

// partsForModel is withoutBudget for one message. interrupted reports that the message ends with such a call, which was made in the
// middle of a text.
func partsForModel(m Message) (_ Message, interrupted bool) {
	if !slices.ContainsFunc(m.Parts, isBudgetCall) {
		return m, false
	}
	var parts []Part
	for _, p := range m.Parts {
		switch {
		case isBudgetCall(p):
			var e BudgetError
			interrupted = json.Unmarshal(rawjson.OrNull(p.Member("input")), &e) == nil && e.Interrupted
			continue
		case p.Type() == "step-start" && len(parts) > 0 && parts[len(parts)-1].Type() == "step-start":
			continue // the step had nothing else
		case p.Type() != "step-start":
			interrupted = false
		}
		parts = append(parts, p)
	}
	if n := len(parts); n > 0 && parts[n-1].Type() == "step-start" {
		parts = parts[:n-1]
	}
	m.Parts = parts
	if n := len(parts); interrupted && (n == 0 || uimessage.IsCall(parts[n-1])) {
		interrupted = false
	}
	return m, interrupted
}

// clientBudgetError is the error of a client's approval of a budget without Budget.ClientsDecide. It has the message of the call.
type clientBudgetError struct{ message Message }

func (e *clientBudgetError) Error() string { return "clients may not approve a budget" }

// refusesClient reports whether a client may not give an answer: the approval of a budget.
func (k *toolCalls) refusesClient(call *callRow, f *answerFrame) bool {
	return call.Tool == budgetTool && call.Runs == runsOnServer && !k.options().Budget.ClientsDecide && f.Approved != nil && *f.Approved
}
