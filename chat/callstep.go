package chat

import (
	"context"
	"errors"
	"fmt"

	"github.com/dohost/dohost/chat/internal/rawjson"
	"github.com/dohost/dohost/chat/uimessage"
)

// callStep is the next step of Answer for a call without a result.
type callStep int

const (
	stepRun     callStep = iota // the server runs it
	stepWait                    // it waits for a client or another party, or for an approval
	stepOffer                   // a client runs it, after an approval or without one: clients receive it
	stepAsk                     // an approval is requested
	stepAbandon                 // it was interrupted, and does not run again
	stepFail                    // its result is an error
)

// nextStep returns the next step for a call, and the error of stepFail.
func (a *answerRun) nextStep(ctx context.Context, t Tool, ours bool, p Part) (callStep, error) {
	state := p.Text("state")
	r := a.l.calls[p.Text("toolCallId")]
	switch {
	case r.ended():
		return stepFail, errCallEnded
	case r.State == CallExternal:
		return stepWait, nil
	case r.State == CallRunning && !(ours && t.Run != nil && t.repeats() && r.Repeats && a.l.running[r.ID] == nil):
		return stepAbandon, nil
	case ours && t.Run == nil && state == uimessage.ApprovalResponded:
		return stepOffer, nil
	case state == uimessage.ApprovalRequested, !ours && a.l.clientRuns(p) && uimessage.ToolName(p) != budgetTool, ours && t.Run == nil && uimessage.Approved(p):
		return stepWait, nil
	case !ours:
		return stepFail, fmt.Errorf("there is no tool %q", uimessage.ToolName(p))
	case t.Run != nil && !a.l.madeByReply(p):
		return stepFail, errNoCallRecord
	}
	if t.valid != nil && r.State != CallRunning {
		if err := t.valid(rawjson.OrNull(p.Member("input"))); err != nil {
			return stepFail, err
		}
	}
	switch {
	case state == uimessage.InputAvailable && t.Approve != nil && !a.l.begun(p.Text("toolCallId")):
		switch asks, err := t.Approve.asks(ctx, p.Member("input")); {
		case ctx.Err() != nil:
			return stepWait, context.Cause(ctx)
		case err != nil:
			return stepFail, err
		case asks:
			return stepAsk, nil
		}
	}
	switch {
	case t.Run != nil:
		return stepRun, nil
	case a.l.serverRuns(r.ID): // Approve.If requires no approval
		return stepOffer, nil
	}
	return stepWait, nil
}

// errCallEnded is the result of a call in an older copy of its message that the program has stored.
var errCallEnded = errors.New("the call has ended before; its result is not stored")

// errNoCallRecord is the result of a call that the program stored, or changed, with [SetMessages].
var errNoCallRecord = errors.New("the server has no record that the model made this call with this input")

// approvalRequest returns the chunk that makes a call wait for an approval.
func approvalRequest(call string) Chunk {
	return uimessage.MakeChunk("tool-approval-request", "toolCallId", call, "approvalId", "approve_"+call)
}
