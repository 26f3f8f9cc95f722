package randchat

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/chat"
	"github.com/dohost/dohost/dohosttest"
)

// aim is the argument of machine.decide.
type aim struct {
	Call string // "" lets the agent choose
	K, N int
}

// staleDigest is the digest of no call.
var staleDigest = strings.Repeat("5a", 32)

// sequences are the decisions of one instruction: true approves.
var sequences = [][]bool{{true}, {true}, {true}, {false}, {false}, {true, false}, {false, true}, {true, true}, {false, false}}

// decide makes the program decide about a call: about one that waits, or sometimes any, immediately, or close to the end of its
// wait.
func (w *Observer) decide(ctx context.Context, h *dohosttest.Host, in Instr) {
	to := aim{K: in.K, N: in.N}
	if in.N%2 == 0 {
		to.Call = w.awaitExpiry(ctx, h, in, chat.CallApproval)
	}
	w.tryFor(ctx, h, to, (*machine).decide)
}

// patience bounds the wait of an instruction for a call, in seconds.
const patience = 3

// tryFor calls a method each second until it has found its call, which may end with its incarnation, or the patience ends.
func (w *Observer) tryFor(ctx context.Context, h *dohosttest.Host, to aim, method func(*machine, context.Context, aim) (bool, error)) {
	for range patience {
		if found, err := dohost.Call(ctx, w.agent(h), method, to); err != nil || found {
			return
		}
		if err := dohost.Sleep(ctx, time.Second); err != nil {
			return
		}
	}
}

// end ends the incarnation during the run of a call.
func (w *Observer) end(h *dohosttest.Host, in Instr) {
	if w.noEnds {
		return
	}
	for range patience {
		w.mu.Lock()
		runs := len(w.running) > 0
		w.mu.Unlock()
		if runs {
			h.Evict(w.agent(h).ID(), []dohost.EndMode{dohost.EndFence, dohost.EndCrash}[in.N%2])
			return
		}
		time.Sleep(time.Second)
	}
}

// expiry is the end of the wait of a call.
type expiry struct {
	Call string
	At   time.Time
}

// awaitExpiry waits until about the end of the first wait that has a limit, of calls with a state: CallApproval or CallExternal. It
// returns the call, or "" if no call waits with a limit.
func (w *Observer) awaitExpiry(ctx context.Context, h *dohosttest.Host, in Instr, state chat.CallState) string {
	e, err := dohost.Call(ctx, w.agent(h), (*machine).nextExpiry, state)
	if err != nil || e.Call == "" {
		return ""
	}
	offsets := []time.Duration{-time.Second, -time.Millisecond, 0, time.Millisecond, 2 * time.Millisecond}
	offset := offsets[(in.N/2)%len(offsets)] + time.Duration(in.Client*4+in.K)*time.Microsecond
	if d := time.Until(e.At.Add(offset)); d > 0 && d <= approvalTime {
		time.Sleep(d)
		w.occurs("a decision or a completion close to an expiry")
	}
	return e.Call
}

// nextExpiry returns the call whose wait ends first.
func (a *machine) nextExpiry(ctx context.Context, state chat.CallState) (first expiry, err error) {
	for c, err := range chat.Calls(ctx, a) {
		if err != nil {
			return first, err
		}
		if c.State == state && !c.Expires.IsZero() && (first.Call == "" || c.Expires.Before(first.At)) {
			first = expiry{c.ID, c.Expires}
		}
	}
	return first, nil
}

// decide decides about a call as the program, and reports whether it has chosen one.
func (a *machine) decide(ctx context.Context, to aim) (bool, error) {
	open, err := openCalls(ctx, a)
	if err != nil {
		return false, err
	}
	if to.Call == "" {
		to.Call = a.w.target(open, to)
	}
	if to.Call == "" {
		return false, nil
	}
	digest := a.w.digestFor(to)
	for i, approve := range sequences[to.N%len(sequences)] {
		if i > 0 {
			a.w.occurs("two decisions in one event")
		}
		if err := a.decideOnce(ctx, a.w.decides(to.Call, "program", approve, digest, false)); err != nil {
			return false, err
		}
	}
	return true, nil
}

func openCalls(ctx context.Context, a *machine) (list []chat.Call, err error) {
	for c, err := range chat.Calls(ctx, a) {
		if err != nil {
			return nil, err
		}
		list = append(list, c)
	}
	return list, nil
}

// target chooses a call: one that waits for an approval, or has one, or sometimes any call of a plan.
func (w *Observer) target(open []chat.Call, to aim) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.opensLocked(open)
	var ids []string
	for _, c := range open {
		if l := w.calls[c.ID]; l != nil && l.use.asks() {
			ids = append(ids, c.ID)
		}
	}
	if to.N%6 == 0 {
		ids = w.callIDs
	}
	if len(ids) == 0 {
		return ""
	}
	return ids[len(ids)-1-to.K%len(ids)]
}

// digestFor returns the digest of a decision: none, the one of the call, that of another call, or one of no call.
func (w *Observer) digestFor(to aim) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	own := ""
	if l := w.calls[to.Call]; l != nil {
		own = w.digestLocked(l)
	}
	switch to.N % 5 {
	case 0:
		return ""
	case 1:
		others := slices.DeleteFunc(slices.Clone(w.callIDs), func(id string) bool { return w.digests[w.calls[id].use.input()] == own })
		if len(others) > 0 {
			return cmp.Or(w.digests[w.calls[others[to.K%len(others)]].use.input()], staleDigest)
		}
		return staleDigest
	}
	return own
}

func decisionKey(id string) string { return "decision/" + id }

// decideOnce sends a decision, and compares its result with the audit log. The result is stored in the batch of the event.
func (a *machine) decideOnce(ctx context.Context, d *decision) error {
	err := chat.Decide(ctx, a, &chat.Decision{Call: d.call, Digest: d.digest, Approve: d.approve, Actor: d.actor, Reason: d.id})
	got, ok := resultOf(err)
	if !ok {
		return a.unexpected(ctx, d.call, err)
	}
	a.w.Compared()
	log, err := a.audit(ctx)
	if err != nil {
		return err
	}
	open, err := openCalls(ctx, a)
	if err != nil {
		return err
	}
	before, own := log.without(d)
	a.w.checkDecision(d, got, before, own, open)
	if got == noCall {
		if err := a.checkAbsent(ctx, d.call); err != nil {
			return err
		}
	}
	return dohost.Put(ctx, a.Storage(), decisionKey(d.id), string(got))
}

// resultOf returns the result of a decision for an error. ok is false if the decision may have been applied or not.
func resultOf(err error) (result, bool) {
	for _, r := range []struct {
		err    error
		result result
	}{{chat.ErrDecided, late}, {chat.ErrStaleApproval, stale}, {chat.ErrNotWaiting, notWaiting}, {chat.ErrNoCall, noCall}} {
		if errors.Is(err, r.err) {
			return r.result, true
		}
	}
	return applied, err == nil
}

// checkDecision checks the result of a decision. before is the history of the call before the decision, own has its events, and open
// the calls without a result.
func (w *Observer) checkDecision(d *decision, got result, before *history, own []chat.ApprovalEvent, open []chat.Call) {
	w.mu.Lock()
	defer w.mu.Unlock()
	l := w.calls[d.call]
	wants := 0
	if got == applied || got == late && before.late < maxLate {
		wants = 1
	}
	i := slices.IndexFunc(open, func(c chat.Call) bool { return c.ID == d.call })
	waits := i >= 0 && (open[i].State == chat.CallApproval || open[i].State == chat.CallPending)
	wrong := ""
	switch {
	case len(own) != wants || wants == 1 && own[0].Late != (got == late):
		wrong = "has the wrong events"
	case got == applied && before.state != chat.ApprovalRequested && (d.approve || before.state != chat.ApprovalApproved || l.runs > 0):
		wrong = "is applied"
	case got == late && before.state == chat.ApprovalRequested:
		wrong = "is late, and the call waits"
	case got == late && !d.approve && before.state == chat.ApprovalApproved && waits:
		wrong = "is late, and the call has not begun"
	case got == notWaiting && before.state != "":
		wrong = "is not accepted, and the call has waited"
	case got == stale && d.digest == "":
		wrong = "is stale, and has no digest"
	}
	if wrong != "" {
		w.Faultf("the decision %+v %s: %s with %+v, after %+v, while the open calls are %+v", *d, wrong, got, own, *before, open)
	}
	other := d.digest != "" && d.digest != w.digestLocked(l)
	switch {
	case other && got != noCall && got != stale:
		w.Faultf("the decision %+v is %s, and its digest is that of another call", *d, got)
	case !other && got == stale && waits:
		w.Faultf("the decision %+v is %s, and its digest is that of the call", *d, got)
	}
	w.occursLocked("a decision of the " + d.actor + " is " + string(got))
	if got == applied && before.state == chat.ApprovalApproved {
		w.occursLocked("a refusal withdraws an approval")
	}
}

// checkAbsent checks that no message of the conversation has a call.
func (a *machine) checkAbsent(ctx context.Context, id string) error {
	stored, err := chat.Messages(ctx, a, 0)
	if err != nil {
		return err
	}
	list, err := messagesOf(stored)
	if err != nil {
		return err
	}
	for _, m := range list {
		if slices.ContainsFunc(m.Calls, func(k call) bool { return k.ID == id }) {
			a.w.Faultf("Decide does not find the call %s of %v", id, m)
		}
	}
	return nil
}

// operate makes an operator decide about a call that the host lists.
func (w *Observer) operate(ctx context.Context, h *dohosttest.Host, in Instr) {
	to := aim{K: in.K, N: in.N}
	if in.N%2 == 0 {
		to.Call = w.awaitExpiry(ctx, h, in, chat.CallApproval)
	}
	var calls, waiting []dohost.Resource
	id := w.agent(h).ID()
	for r, err := range h.Host().Details(ctx, id) {
		switch {
		case err != nil:
			return // the host is being closed
		case r.Kind == "call" && len(r.Can) > 0:
			waiting = append(waiting, r)
			fallthrough
		case r.Kind == "call":
			calls = append(calls, r)
		}
	}
	if len(waiting) > 0 && in.N%7 > 0 {
		calls = waiting
	}
	i := slices.IndexFunc(calls, func(r dohost.Resource) bool { return r.ID == to.Call })
	if len(calls) == 0 {
		return
	}
	if i < 0 {
		i = in.K % len(calls)
	}
	r := &dohost.AdminRequest{Action: dohost.ActionDeny, Kind: "call", ID: calls[i].ID, Digest: calls[i].Digest, Actor: "operator"}
	if in.N%5 < 3 {
		r.Action = dohost.ActionApprove
	}
	if in.N%9 == 0 {
		r.Digest = staleDigest
	}
	var d *decision
	if slices.Contains(calls[i].Can, dohost.ActionComplete) {
		w.operatorCompletes(r, in.N)
		d = w.decides(r.ID, r.Actor, r.Action == dohost.ActionComplete, r.Digest, true)
	} else {
		d = w.decides(r.ID, r.Actor, r.Action == dohost.ActionApprove, r.Digest, false)
	}
	r.Reason = d.id
	done, err := h.Host().Operate(ctx, id, r)
	got, ok := resultOf(err)
	if !ok {
		return
	}
	if got == applied && !done {
		got = noCall
	}
	if d.completes {
		w.occurs("a completion of the operator is " + string(got))
	} else {
		w.occurs("a decision of the operator is " + string(got))
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if d.result = got; d.digest == staleDigest && got != stale && got != noCall {
		w.Faultf("the decision %+v of the operator has a stale digest", *d)
	}
}
