package randchat

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/chat"
)

// maxLate is the documented maximum of the late decisions about a call in the audit log.
const maxLate = 20

// auditLog is the audit log of the conversation.
type auditLog struct {
	w      *Observer
	events []chat.ApprovalEvent
	calls  map[string]*history
}

// history is the history of a call in the audit log.
type history struct {
	state     chat.ApprovalAction // the last one that is not late; empty before the first request
	requests  int
	requested time.Time
	late      int
	completed bool   // by an operator
	actor     string // of the state
	message   string
}

func (l *auditLog) of(call string) *history {
	if l.calls[call] == nil {
		l.calls[call] = &history{}
	}
	return l.calls[call]
}

const auditKey = "audit"

// audit reads the audit log, and checks it: its events are those of the decisions that were sent, each call has a possible
// sequence of them, and the log only grows.
func (a *machine) audit(ctx context.Context) (*auditLog, error) {
	log := &auditLog{w: a.w, calls: map[string]*history{}}
	for e, err := range chat.Approvals(ctx, a, "") {
		if err != nil {
			return nil, err
		}
		log.events = append(log.events, e)
	}
	before, err := get[[]chat.ApprovalEvent](ctx, a, auditKey)
	if err != nil {
		return nil, err
	}
	same := func(x, y chat.ApprovalEvent) bool { x.Time, y.Time = x.Time.UTC(), y.Time.UTC(); return x == y }
	if len(before) > len(log.events) || !slices.EqualFunc(before, log.events[:len(before)], same) {
		a.w.Faultf("the audit log has %+v, and had %+v", log.events, before)
	}
	a.w.mu.Lock()
	for i := range log.events {
		log.add(i)
	}
	a.w.mu.Unlock()
	if len(before) == len(log.events) {
		return log, nil
	}
	return log, dohost.Put(ctx, a.Storage(), auditKey, log.events)
}

// without returns the history of the call of a decision before its events, and those events.
func (l *auditLog) without(d *decision) (before *history, own []chat.ApprovalEvent) {
	rest := &auditLog{w: l.w, calls: map[string]*history{}}
	for _, e := range l.events {
		if e.Reason == d.id {
			own = append(own, e)
		} else {
			rest.events = append(rest.events, e)
			rest.of(e.Call).apply(&e)
		}
	}
	return rest.of(d.call), own
}

// apply applies an event.
func (h *history) apply(e *chat.ApprovalEvent) {
	if e.Late {
		h.late++
		return
	}
	if completes(e.Action) {
		h.completed = true
		return
	}
	if h.state, h.actor = e.Action, e.Actor; e.Action == chat.ApprovalRequested {
		h.requests++
		h.requested = e.Time
	}
}

// add checks event i, and applies it to the history of its call.
func (l *auditLog) add(i int) {
	e := &l.events[i]
	h := l.of(e.Call)
	c := l.w.ledgerLocked(e.Call, e.Message)
	wrong := ""
	switch {
	case e.Number != uint64(i+1), i > 0 && e.Time.Before(l.events[i-1].Time):
		wrong = "is out of order"
	case c == nil, e.Tool != c.use.Tool, h.message != "" && h.message != e.Message, e.Message == "":
		wrong = "is about another call"
	case completes(e.Action) != (c.elsewhere != nil && completes(e.Action)):
		wrong = "is about a call that no other party completes"
	case !e.Late && !c.use.asks() && !completes(e.Action):
		wrong = "is about a call that needs no approval"
	case e.Late && h.late >= maxLate:
		wrong = "is one of too many"
	case e.Action == chat.ApprovalRequested, e.Action == chat.ApprovalExpired:
		if e.Late || e.Actor != "" || e.Reason != "" {
			wrong = "has an actor"
		}
	default:
		wrong = l.wrongActor(e, c)
	}
	if wrong == "" {
		l.w.checkDigestLocked(c, e.Digest)
		wrong = l.wrongSequence(e, c, h)
	}
	if wrong != "" {
		l.w.Faultf("event %d of the audit log %s: %+v, after %+v", i+1, wrong, *e, *h)
	}
	h.message = e.Message
	h.apply(e)
}

// completes reports whether an operator has completed an external call by an action.
func completes(a chat.ApprovalAction) bool {
	return a == chat.ApprovalCompleted || a == chat.ApprovalFailed
}

// wrongSequence returns the reason why an event cannot follow the earlier ones of its call, or "".
func (l *auditLog) wrongSequence(e *chat.ApprovalEvent, c *callLedger, h *history) string {
	limit := h.requested.Add(c.kind.within)
	switch {
	case e.Late:
		if h.state == chat.ApprovalRequested {
			return "is late, and the call waits"
		}
	case completes(e.Action):
		if h.completed || h.state != "" && h.state != chat.ApprovalApproved {
			return "completes a call that does not wait for that"
		}
	case e.Action == chat.ApprovalRequested:
		if h.state == "" {
			break
		}
		request, _, _ := strings.Cut(e.Call, "-")
		if q := l.w.requestLocked(request); q != nil && q.restarts == 0 || h.state == chat.ApprovalDenied || h.state == chat.ApprovalExpired {
			return "requests an approval again"
		}
	case e.Action == chat.ApprovalExpired:
		if h.state != chat.ApprovalRequested || c.kind.within == 0 || e.Time.Before(limit) {
			return "is too early"
		}
	case h.state == chat.ApprovalRequested:
		if c.kind.within > 0 && e.Time.After(limit) {
			return "is after the time to decide"
		}
	case h.state != chat.ApprovalApproved || e.Action != chat.ApprovalDenied:
		return "is not late"
	}
	return ""
}

// wrongActor returns the reason why a decision is not one that was sent, or "".
func (l *auditLog) wrongActor(e *chat.ApprovalEvent, c *callLedger) string {
	approve := e.Action == chat.ApprovalApproved || e.Action == chat.ApprovalCompleted
	if e.Reason == "" {
		actor := strings.HasPrefix(e.Actor, "connection ")
		if !actor || c.frames[e.Actor+" "+boolText(approve)] == 0 && !c.listed[e.Actor] {
			return "is of no client"
		}
		return ""
	}
	i := slices.IndexFunc(l.w.decisions, func(d *decision) bool { return d.id == e.Reason })
	if i < 0 {
		return "is of no decision"
	}
	if d := l.w.decisions[i]; d.call != e.Call || d.approve != approve || d.completes != completes(e.Action) || d.actor != e.Actor {
		return "is of another decision"
	}
	return ""
}

func boolText(b bool) string {
	if b {
		return "true"
	}
	return "false"
}

// checkApproval checks that a call which needs an approval has it when its run begins.
func (a *machine) checkApproval(ctx context.Context, c *chat.Call, u Use) error {
	log, err := a.audit(ctx)
	if err != nil {
		return err
	}
	if state := log.of(c.ID).state; u.asks() && state != chat.ApprovalApproved || !u.asks() && state != "" {
		a.w.Faultf("the call %s runs, and the audit log has it as %q", c.ID, state)
	}
	return nil
}

// checkDecisions compares the audit log with the results of the decisions. The program has stored the results of its own.
func (a *machine) checkDecisions(ctx context.Context, log *auditLog) error {
	counts := map[string]int{}
	for _, e := range log.events {
		counts[e.Reason]++
	}
	a.w.mu.Lock()
	list := slices.Clone(a.w.decisions)
	a.w.mu.Unlock()
	for _, d := range list {
		got, n := d.result, counts[d.id]
		if d.actor == "program" {
			stored, err := get[string](ctx, a, decisionKey(d.id))
			if err != nil {
				return err
			}
			if got = result(stored); got == "" && n > 0 {
				a.w.Faultf("at rest the audit log has the decision %+v, whose batch was lost", *d)
			}
		}
		h := log.of(d.call)
		switch {
		case n > 1, got == applied && n != 1, got == late && n != 1 && h.late < maxLate,
			n > 0 && (got == stale || got == notWaiting || got == noCall):
			a.w.Faultf("at rest the audit log has the decision %+v %d times, and it was %s", *d, n, got)
		}
	}
	return nil
}
