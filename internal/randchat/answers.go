package randchat

import (
	"fmt"
	"slices"
	"strings"
)

// answerFrame returns the frame of a client's answer to a call on its page, or nil if no client answers one of its calls.
func (w *Observer) answerFrame(c *client, in Instr) map[string]any {
	w.mu.Lock()
	defer w.mu.Unlock()
	var waiting []call
	for _, m := range c.list {
		for _, k := range m.Calls {
			if l := w.ledgerLocked(k.ID, m.ID); l != nil && (l.kind.client || l.use.asks() || l.elsewhere != nil) {
				waiting = append(waiting, k)
			}
		}
	}
	if len(waiting) == 0 {
		return nil
	}
	k := waiting[len(waiting)-1-in.K%len(waiting)]
	l := w.calls[k.ID]
	c.answering, w.answered = true, true
	f := map[string]any{"toolCallId": k.ID, "autoContinue": in.N%5 > 0}
	if in.N%5 == 0 {
		w.quietLocked(k.ID)
	}
	if l.use.asks() && !(l.kind.client && k.State == "input-available") {
		w.decideFrameLocked(c, l, in, f)
		return f
	}
	if l.elsewhere != nil { // the agent does not accept it
		f["type"], f["toolName"], f["output"] = "cf_agent_tool_result", l.use.Tool, "forged"
		return f
	}
	output := fmt.Sprintf("result %d", w.tickLocked())
	l.outputs = append(l.outputs, fmt.Sprintf("%q", output))
	f["type"], f["toolName"], f["output"] = "cf_agent_tool_result", l.use.Tool, output
	return f
}

// decideFrameLocked makes f a client's decision about a call: an approval, a refusal, an error, which refuses the call, or a result,
// which the agent does not accept.
func (w *Observer) decideFrameLocked(c *client, l *callLedger, in Instr, f map[string]any) {
	approve := in.N%3 > 0
	switch {
	case in.N%11 == 0 && !l.kind.client:
		f["type"], f["toolName"], f["output"] = "cf_agent_tool_result", l.use.Tool, "forged"
		return
	case in.N%13 == 0:
		approve = false
		f["type"], f["toolName"], f["state"], f["errorText"] = "cf_agent_tool_result", l.use.Tool, "output-error", "no"
	default:
		f["type"], f["approved"] = "cf_agent_tool_approval", approve
		if approve && isBudgetCall(l.id) && !w.budget.Clients { // the agent does not accept it
			return
		}
	}
	l.approved, l.denied = l.approved || approve, l.denied || !approve
	actor := "connection " + c.name[len("client "):]
	l.frames[actor+" "+boolText(approve)]++
	w.decidesLocked(l, actor)
}

// quietLocked records that a client answers a call of a message without a continuation.
func (w *Observer) quietLocked(call string) {
	request := w.requestOfLocked(call)
	for id, l := range w.calls {
		if w.requestOfLocked(id) == request {
			l.quiet = true
		}
	}
}

// listsLocked records the answers to calls in a list that a client is about to send.
func (w *Observer) listsLocked(c *client, list []message) {
	for _, m := range list {
		for _, k := range m.Calls {
			l := w.calls[k.ID]
			if l == nil || k.State != "approval-responded" && !strings.HasPrefix(k.State, "output-") {
				continue
			}
			l.listed["connection "+c.name[len("client "):]] = true
			l.quiet = true
		}
	}
}

// checkCallsLocked compares the calls of a message with the answers that were sent. A result that is durable
// never changes.
func (w *Observer) checkCallsLocked(m *message, source string, durable bool) {
	for _, k := range m.Calls {
		l := w.ledgerLocked(k.ID, m.ID)
		if l == nil {
			w.Faultf("%s has the call %v, which is in no plan", source, k)
			continue
		}
		if !strings.HasPrefix(k.State, "output-") {
			continue
		}
		if l.state == "" && !durable {
			continue
		}
		if l.state == "" {
			l.state, l.output, l.ended = k.State, k.Output, w.incarnations
		}
		known := k.State != "output-available" || k.Output == fmt.Sprintf("%q", receipt(k.ID))
		if isBudgetCall(l.id) {
			known = k.State != "output-available" || k.Output == `{"granted":true}` && l.approved
		} else if l.async() {
			known = k.State != "output-available" || l.knowsQueued(k.Output)
		} else if l.kind.client || l.elsewhere != nil {
			known = k.State != "output-available" || slices.Contains(l.outputs, k.Output)
		}
		if l.state != k.State || l.output != k.Output || !known || k.State == "output-denied" && !l.denied {
			w.Faultf("%s has the call %v, which had the result %s %s; the call is %+v", source, k, l.state, l.output, *l)
		}
	}
}
