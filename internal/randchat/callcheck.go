package randchat

import (
	"context"
	"slices"
	"strings"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/chat"
	"github.com/dohost/dohost/ledger"
)

// enoughEndings is the number of incarnations after which an agent may give up a call or a reply.
const enoughEndings = 4

// checkCalls compares the calls of the conversation, which is at rest, with the audit log and with the results that their runs have
// stored. It returns the audit log.
func (a *machine) checkCalls(ctx context.Context, list []message) (*auditLog, error) {
	log, err := a.audit(ctx)
	if err != nil {
		return nil, err
	}
	if err := a.checkDecisions(ctx, log); err != nil {
		return nil, err
	}
	open, err := openCalls(ctx, a)
	if err != nil {
		return nil, err
	}
	a.w.checkOpen(list, open)
	for i := range list {
		for _, k := range list[i].Calls {
			if kindOf(k.ID).external != nil {
				if err := a.checkExternal(ctx, k); err != nil {
					return nil, err
				}
			}
			n, err := get[int](ctx, a, toolKey(k.ID))
			if err != nil {
				return nil, err
			}
			a.w.Compared()
			a.w.checkResult(k, n)
			a.w.checkWait(list, i, k, log.of(k.ID))
		}
	}
	return log, nil
}

// checkOpen compares the list of the calls without a result with the conversation, which is at rest.
func (w *Observer) checkOpen(list []message, open []chat.Call) {
	w.mu.Lock()
	defer w.mu.Unlock()
	parts := map[string]call{}
	for _, m := range list {
		for _, k := range m.Calls {
			if !strings.HasPrefix(k.State, "output-") {
				parts[k.ID+" "+m.ID] = k
			}
		}
	}
	for i, c := range open {
		if l := w.calls[c.ID]; l != nil && l.async() && c.State == chat.CallExternal {
			continue // its part has a result
		}
		k, ok := parts[c.ID+" "+c.Message]
		delete(parts, c.ID+" "+c.Message)
		if !ok || i > 0 && c.Created.Before(open[i-1].Created) || !slices.Contains(openStates[k.State], c.State) {
			w.Faultf("at rest there is the open call %+v of the part %v; the calls are %+v", c, k, open)
		}
		l := w.calls[c.ID]
		if l == nil {
			continue
		}
		w.checkDigestLocked(l, c.Digest)
		if c.State == chat.CallApproval && c.Expires.IsZero() != (l.kind.within == 0) {
			w.Faultf("at rest the call %+v has a wrong end of its wait", c)
		}
		if external := c.State == chat.CallExternal; external && l.elsewhere == nil || !external && k.State == "input-available" && l.elsewhere != nil {
			w.Faultf("at rest the call %+v has the wrong state for the tool", c)
		}
	}
	if len(parts) > 0 {
		w.Faultf("at rest the calls %v are not in the list of open calls", parts)
	}
}

// openStates and endStates are the states of calls that their parts may have.
var (
	openStates = map[string][]chat.CallState{
		"input-available":    {chat.CallClient, chat.CallExternal},
		"approval-requested": {chat.CallApproval},
		"approval-responded": {chat.CallPending, chat.CallExternal},
	}
	endStates = map[string][]chat.CallState{
		"output-available": {chat.CallCompleted},
		"output-denied":    {chat.CallDenied},
		"output-error":     {chat.CallFailed, chat.CallDenied, chat.CallExpired, chat.CallUnknown},
	}
)

// checkResult compares a call of the conversation with its effect, and with the number of results that its runs have stored.
func (w *Observer) checkResult(k call, n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	l := w.calls[k.ID]
	if l == nil || l.kind.client || l.elsewhere != nil || isBudgetCall(l.id) {
		return
	}
	completed := k.State == "output-available"
	stopped := w.stoppedLocked(k.ID)
	switch {
	case completed != (n == 1) && !(stopped && n == 1), n > l.runs:
		w.Faultf("at rest the agent has stored %d results of the call %v: %+v", n, k, *l)
	case completed && l.effects != 1, k.State == "output-denied" && l.runs+l.effects > 0:
		w.Faultf("at rest the call %v has had %d effects: %+v", k, l.effects, *l)
	case !l.use.asks() && !strings.HasPrefix(k.State, "output-"):
		w.Faultf("at rest the call %v has no result", k)
	}
}

// stoppedLocked reports whether a reply of the message of a call was stopped.
func (w *Observer) stoppedLocked(id string) bool {
	of := w.requestOfLocked(id)
	return slices.ContainsFunc(w.requests, func(q *request) bool { return (q.id == of || q.origin == of) && q.stopped > 0 })
}

// checkWait compares a call of message i, which waits at rest, with the audit log. An approved call waits only if another call
// of its message waits, or the message does not continue.
func (w *Observer) checkWait(list []message, i int, k call, h *history) {
	w.mu.Lock()
	defer w.mu.Unlock()
	l := w.calls[k.ID]
	if l == nil {
		return
	}
	wrong := false
	switch k.State {
	case "approval-requested":
		wrong = h.state != chat.ApprovalRequested || l.kind.within > 0
	case "approval-responded":
		waits := slices.ContainsFunc(list[i].Calls, func(o call) bool { return o.State == "approval-requested" || o.State == "input-available" })
		continues := i == len(list)-1 && !waits && (h.actor == "program" || h.actor == "operator") && !l.quiet &&
			!w.mayEndUncontinuedLocked(l)
		wrong = h.state != chat.ApprovalApproved || l.runs > 0 && l.elsewhere == nil || l.runs == 0 && continues
	}
	if wrong {
		w.Faultf("at rest the call %v waits after %+v: %+v", k, *h, *l)
	}
}

// mayEndUncontinuedLocked reports whether a decision about a call, which does not wait any more, may have no continuation: it
// was stopped or has failed, or its message was not the last one.
func (w *Observer) mayEndUncontinuedLocked(l *callLedger) bool {
	of := w.requestOfLocked(l.id)
	decided := w.decidedBy[l.id].sent
	return w.stoppedLocked(l.id) ||
		slices.ContainsFunc(w.deletions, func(d *deletion) bool { return d.done == 0 || d.done > decided }) ||
		slices.ContainsFunc(w.requests, func(q *request) bool {
			return q.continues && (q.origin == of || q.origin == "") && (q.outcome == failed || q.stopped > 0)
		})
}

// checkRows compares the calls that operators see with those of the conversation, which is at rest.
func (w *Observer) checkRows(list []message, rows map[string]dohost.Resource, log *auditLog) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, m := range list {
		for _, k := range m.Calls {
			r, ok := rows[k.ID]
			l := w.calls[k.ID]
			switch ended := endStates[k.State]; {
			case l == nil, !ok && ended != nil: // the host lists some of the ended calls
			case l.async() && ok: // its part has another result
				if endedState(chat.CallState(r.State)) {
					w.checkEndLocked(l, chat.CallState(r.State), log.of(k.ID))
				}
			case !ok, !slices.Contains(append(openStates[k.State], ended...), chat.CallState(r.State)):
				w.Faultf("at rest operators see %+v of the call %v", r, k)
			case ended != nil:
				w.checkEndLocked(l, chat.CallState(r.State), log.of(k.ID))
			}
		}
	}
}

// checkEndLocked compares the final state of a call with its runs, its effect, its plan and the audit log.
func (w *Observer) checkEndLocked(l *callLedger, state chat.CallState, h *history) {
	w.endsLocked(l, state)
	if l.elsewhere != nil && state != chat.CallDenied {
		if wrong := w.unprovenLocked(l, state); wrong != "" {
			w.Faultf("at rest the call %s is %s, and it %s: %+v, %+v", l.id, state, wrong, *l, *l.elsewhere)
		}
		return
	}
	disturbed := w.stoppedLocked(l.id) || l.ended > l.made
	givenUp := w.stoppedLocked(l.id) || l.ended-l.made >= enoughEndings
	policy, use := l.kind.policy, l.use
	wrong := ""
	switch state {
	case chat.CallDenied, chat.CallExpired:
		want := map[chat.CallState]chat.ApprovalAction{chat.CallDenied: chat.ApprovalDenied, chat.CallExpired: chat.ApprovalExpired}[state]
		if l.runs+l.effects > 0 || h.state != want {
			wrong = "must not run, and the audit log must have the decision"
		}
	case chat.CallCompleted:
		if use.asks() && h.state != chat.ApprovalApproved {
			wrong = "was not approved"
		}
	case chat.CallFailed:
		if isBudgetCall(l.id) && !w.stoppedLocked(l.id) {
			wrong = "is about a budget"
		}
		fails := use.Do == Refuse || use.Do == Recant && l.effects == 0 || policy == ledger.PolicyIdempotent && (use.Do == Reject || use.Do == Lose)
		if l.runs > 0 && !fails || l.effects > 0 && policy != ledger.PolicyIdempotent || l.runs == 0 && !disturbed || l.kind.client && !l.denied && !w.stoppedLocked(l.id) {
			wrong = "has no reason to fail without an effect"
		}
	case chat.CallUnknown:
		repeats := policy > ledger.PolicyAtMostOnce && use.succeeds() && use.Do != Recant && !(use.Find != "" && policy == ledger.PolicyReconcile)
		if !disturbed && use.certain() || repeats && !givenUp {
			wrong = "has no doubt about its effect"
		}
	}
	if !disturbed && wrong == "" && !l.kind.client && l.runs == 1 && use.Do != Break && (state == chat.CallCompleted) != use.succeeds() {
		wrong = "must end as its plan says"
	}
	if wrong != "" {
		w.Faultf("at rest the call %s is %s, and it %s: %+v, %+v", l.id, state, wrong, *l, *h)
	}
}
