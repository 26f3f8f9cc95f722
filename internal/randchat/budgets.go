package randchat

import (
	"context"
	"encoding/json"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/chat"
	"github.com/dohost/dohost/dohosttest"
)

// Budget is the budget of the agent. Each call of a model costs 1, so a scope allows a number of calls until the next grant. The zero Budget
// allows all.
type Budget struct {
	Scope   chat.BudgetScope `json:",omitempty"`
	Calls   int              `json:",omitempty"`
	Clients bool             `json:",omitempty"` // may approve grants
}

// budgetTool is the documented tool of the calls that ask for a grant. The agent chooses their ids.
const budgetTool = "dohost_budget"

var budgetKind = kind{name: budgetTool, approve: true}

func isBudgetCall(id string) bool { return strings.HasPrefix(id, "budget_") }

// options returns the budget for the agent.
func (b Budget) options() chat.Budget {
	o, limit := chat.Budget{ClientsDecide: b.Clients}, chat.Limit{Cost: int64(b.Calls)}
	switch b.Scope {
	case chat.BudgetOfReply:
		o.Reply = limit
	case chat.BudgetOfDay:
		o.Day = limit
	case chat.BudgetOfAgent:
		o.Agent = limit
	}
	return o
}

// drawBudget adds a budget to some works, with instructions about it in place of others.
func drawBudget(r *rand.Rand, work *Workload) {
	if r.IntN(3) > 0 {
		return
	}
	scopes := []chat.BudgetScope{chat.BudgetOfReply, chat.BudgetOfReply, chat.BudgetOfDay, chat.BudgetOfAgent}
	work.Budget = Budget{Scope: scopes[r.IntN(len(scopes))], Calls: 1 + r.IntN(3), Clients: r.IntN(3) == 0}
	for _, list := range work.Callers {
		for i := range list {
			in := &list[i]
			if len(in.Plan.Words) > 0 {
				in.Plan.Model = in.Plan.Model || r.IntN(2) == 0
				continue
			}
			if r.IntN(3) > 0 {
				continue
			}
			in.Op = pick(r, []weighted[Op]{{Grant, 2}, {Decide, 6}, {Operate, 2}, {Answer, 3}})
			if r.IntN(2) == 0 {
				in.N = []int{3, 7, 9, 19, 27, 29, 37}[r.IntN(7)] // a decision with the digest of the call; usually an approval
			}
		}
	}
}

// ledgerLocked returns the ledger of a call in a message, which may be unknown; nil if no plan has the call.
func (w *Observer) ledgerLocked(id, message string) *callLedger {
	l := w.calls[id]
	if l == nil && isBudgetCall(id) {
		l = &callLedger{id: id, use: Use{Tool: budgetTool}, kind: &budgetKind, frames: map[string]int{}, listed: map[string]bool{}}
		if w.calls[id] = l; w.budget.Calls == 0 {
			w.Faultf("the call %s asks for a grant, and there is no budget", id)
		}
	}
	if l != nil && l.message == "" {
		l.message = message
	}
	return l
}

// opensLocked records the calls without a result, as the agent lists them.
func (w *Observer) opensLocked(open []chat.Call) {
	for _, c := range open {
		if isBudgetCall(c.ID) {
			w.checkDigestLocked(w.ledgerLocked(c.ID, c.Message), c.Digest)
		}
	}
}

// requestOfLocked returns the request that was the first one for the message of a call.
func (w *Observer) requestOfLocked(call string) string {
	if isBudgetCall(call) {
		return w.origins[w.ledgerLocked(call, "").message]
	}
	request, _, _ := strings.Cut(call, "-")
	return request
}

// originOf returns the request that a message was the first reply to, or fallback if that is not known.
func (w *Observer) originOf(m *message, fallback string) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	if id := w.origins[m.ID]; id != "" {
		return id
	}
	return m.origin(fallback)
}

// repliesTo records the request that a message is the first reply to.
func (w *Observer) repliesTo(message, request string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.origins[message] == "" {
		w.origins[message] = request
	}
}

// digestLocked returns the digest of a call, or "" if it is not known.
func (w *Observer) digestLocked(l *callLedger) string {
	if isBudgetCall(l.id) {
		return l.digest
	}
	return w.digests[l.use.input()]
}

// scopeOf returns the name of the scope of a call of a model now.
func (b Budget) scopeOf(message string) string {
	switch b.Scope {
	case chat.BudgetOfReply:
		return message
	case chat.BudgetOfDay:
		return time.Now().UTC().Format(time.DateOnly)
	}
	return ""
}

// modelBegins counts a call of a model, which the budget must allow.
func (w *Observer) modelBegins(p *chat.Prompt) {
	for _, m := range append(slices.Clone(p.Messages), p.Partial) {
		if slices.ContainsFunc(m.Parts, func(p chat.Part) bool { return p.Type() == "tool-"+budgetTool }) {
			w.Faultf("the model gets a call about a budget: %v", m)
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	b, name := w.budget, w.budget.scopeOf(p.Partial.ID)
	if now := time.Now().UTC(); b.Calls == 0 || b.Scope == chat.BudgetOfDay && now.YearDay() > 1 && now.Hour()+now.Minute() == 0 {
		return // it may have begun yesterday
	}
	w.modelCalls[name]++
	if w.sinceGrant[name]++; w.sinceGrant[name] <= b.Calls {
		return
	}
	for _, l := range w.calls { // an approval is a grant, once
		if isBudgetCall(l.id) && l.approved && !l.granted && (b.Scope != chat.BudgetOfReply || l.message == name || l.message == "") {
			l.granted, w.sinceGrant[name] = true, 1
			w.occursLocked("a model is asked after an approval of a budget")
			return
		}
	}
	w.Faultf("the model is asked %d times in the scope %q since the last grant of the budget %+v", w.sinceGrant[name], name, b)
}

// answers records that a run of the handler may call the model. The run may end after it has recorded a call of the model, and before that
// call, unless the returned function is called.
func (w *Observer) answers(message string) (completed func()) {
	add := func(n int) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.cut[w.budget.scopeOf(message)] += n
	}
	add(1)
	return func() { add(-1) }
}

// checkSuspended checks that each call about a budget in the message of a reply has an exhausted one.
func (x *run) checkSuspended() {
	m, grants := x.r.Partial(), 0
	for _, p := range m.Parts {
		if p.Type() != "tool-"+budgetTool {
			continue
		}
		x.w.Compared()
		if e := budgetError(p); !x.w.exhausts(m.ID, &e, grants) {
			x.w.Faultf("the reply to %s asks for a grant with %+v, after %d grants", x.r.ID, e, grants)
		}
		switch e := budgetError(p); {
		case p.Text("state") == "output-available":
			grants++
		case e.Interrupted:
			x.w.occurs("a budget is exhausted during an answer")
		default:
			x.w.occurs("a budget is exhausted before an answer")
		}
	}
}

func budgetError(p chat.Part) (e chat.BudgetError) {
	_ = json.Unmarshal(p.Member("input"), &e)
	return e
}

// exhausts reports whether a budget may be exhausted in a message, after a number of grants by calls of that message.
func (w *Observer) exhausts(message string, e *chat.BudgetError, grants int) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	b := w.budget
	named := e.Name == b.scopeOf(message) || b.Scope == chat.BudgetOfDay
	spent := w.modelCalls[e.Name]+w.cut[e.Name] >= b.Calls*(1+grants) || b.Scope == chat.BudgetOfDay
	return e.Scope == b.Scope && named && e.Measure == "cost" && e.Limit == int64(b.Calls) && e.Spent == e.Limit && spent
}

func grantsKey(scope string) string { return "grants/" + scope }

// grant makes the program grant the budget. Request K selects the reply.
func (w *Observer) grant(ctx context.Context, h *dohosttest.Host, in Instr) {
	if w.budget.Calls == 0 {
		return
	}
	q, ok := w.choose(nil, in.K)
	if ok || w.budget.Scope != chat.BudgetOfReply {
		_, _ = dohost.Call(ctx, w.agent(h), (*machine).grant, q.id) // it may end with its incarnation
	}
}

// grant grants the budget, and counts the grant in the same batch.
func (a *machine) grant(ctx context.Context, request string) (struct{}, error) {
	p, err := get[progress](ctx, a, progressKey(request))
	b := a.w.budget
	if err != nil || p.Message == "" && b.Scope == chat.BudgetOfReply {
		return struct{}{}, err
	}
	name := b.scopeOf(p.Message)
	a.w.mu.Lock()
	a.w.grants[name]++
	a.w.sinceGrant[name] = -1 // a call that has begun may reach the model later
	a.w.mu.Unlock()
	before, err := chat.BudgetGrants(ctx, a, b.Scope, name)
	if err != nil {
		return struct{}{}, err
	}
	if err := chat.GrantBudget(ctx, a, b.Scope, name); err != nil {
		return struct{}{}, a.unexpected(ctx, request, err)
	}
	after, err := chat.BudgetGrants(ctx, a, b.Scope, name)
	if err != nil {
		return struct{}{}, err
	}
	a.w.Compared()
	if after != before+1 {
		a.w.Faultf("after a grant of %s %q there are %d; before it there were %d", b.Scope, name, after, before)
	}
	n, err := get[int](ctx, a, grantsKey(name))
	if err != nil {
		return struct{}{}, err
	}
	return struct{}{}, dohost.Put(ctx, a.Storage(), grantsKey(name), n+1)
}

// checkGrants compares the number of the grants with the program and with the completed calls of the conversation, which is at rest.
func (a *machine) checkGrants(ctx context.Context, list []chat.Message) error {
	b, approved := a.w.budget, map[string]int{}
	for _, m := range list {
		for _, p := range m.Parts {
			if p.Type() == "tool-"+budgetTool && p.Text("state") == "output-available" {
				approved[budgetError(p).Name]++
			}
		}
	}
	a.w.mu.Lock()
	names := map[string]bool{}
	for name := range a.w.grants {
		names[name] = true
	}
	for name := range approved {
		names[name] = true
	}
	exact := len(a.w.deletions) == 0 && !slices.ContainsFunc(a.w.requests, func(q *request) bool { return q.restarts > 0 })
	a.w.mu.Unlock()
	for name := range names {
		a.w.Compared()
		stored, err := get[int](ctx, a, grantsKey(name))
		if err != nil {
			return err
		}
		n, err := chat.BudgetGrants(ctx, a, b.Scope, name)
		if err != nil {
			return err
		}
		if want := stored + approved[name]; n < want || n > want && exact {
			a.w.Faultf("at rest %s %q has %d grants; the program has made %d, and %d calls are completed", b.Scope, name, n, stored, approved[name])
		}
	}
	return nil
}
