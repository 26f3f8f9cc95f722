package inbox

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/chat"
)

// BudgetAction is an event of a [BudgetQuestion].
type BudgetAction string

// The actions.
const (
	BudgetRequested BudgetAction = "requested"
	BudgetApproved  BudgetAction = "approved"
	BudgetDenied    BudgetAction = "denied"
	BudgetWithdrawn BudgetAction = "withdrawn" // without a decision: see ErrNoQuestion
)

// BudgetEvent is an entry of the audit log of the questions about budgets in an object. An entry does not change. The log has at most the newest
// 10,000 entries. Each new entry deletes up to two, the oldest first, that are too many or older than 90 days.
type BudgetEvent struct {
	Number        uint64 // in the order of the log, from 1 without a gap
	Question      string // its id
	Agent         string // its name
	Scope         chat.BudgetScope
	Name          string // of the scope
	Action        BudgetAction
	Actor, Reason string // of a decision
	Time          time.Time
}

// budgetEventRow is a BudgetEvent in the store.
type budgetEventRow struct {
	Number            uint64
	Question          string
	Collection, Agent string
	Scope             chat.BudgetScope
	Name              string
	Action            BudgetAction
	Actor, Reason     string
	At                int64
}

var budgetEvents = dohost.Collection[budgetEventRow]{
	Name: "dohost.inbox.budgetevents",
	Key:  func(r budgetEventRow) string { return string(dohost.KeyOf(r.Number)) },
}

const (
	// maxActor and maxReason bound the texts of a decision, in bytes.
	maxActor  = 256
	maxReason = 2 << 10
	// keepBudgetEvents is the retention period of the events, and maxBudgetEvents bounds their number: a client that inserts and deletes messages
	// while a budget is exhausted adds two with each.
	keepBudgetEvents = 90 * 24 * time.Hour
	maxBudgetEvents  = 10_000
	// listedBudgetEvents is the number of the events that operators see, the newest.
	listedBudgetEvents = 100
)

// The kinds of the items that operators see of the budgets.
const (
	detailBudget      = "budget"
	detailBudgetEvent = "budget-event"
)

// BudgetEvents yields the audit log of the questions about the budgets of all agents in an object, the oldest event first. ctx must hold the turn.
//
// Errors: the errors of the collection.
func BudgetEvents(ctx context.Context, of Ref) iter.Seq2[BudgetEvent, error] {
	return func(yield func(BudgetEvent, error) bool) {
		for row, err := range budgetEvents.All(ctx, of.Storage(), nil) {
			r := row.Value
			e := BudgetEvent{r.Number, r.Question, r.Agent, r.Scope, r.Name, r.Action, r.Actor, r.Reason, time.UnixMilli(r.At)}
			if !yield(e, err) || err != nil {
				return
			}
		}
	}
}

// log appends an event of a question, and deletes up to two that are too old or too many.
func (q *questionRow) log(ctx context.Context, s *dohost.Storage, how BudgetAction, d *BudgetDecision) error {
	last, err := budgetEvents.List(ctx, s, &dohost.Query[budgetEventRow]{Reverse: true, Limit: 1})
	if err != nil {
		return err
	}
	now := time.Now()
	e := budgetEventRow{
		Number: 1, Question: q.ID, Collection: q.Collection, Agent: q.Agent, Scope: q.Scope, Name: q.Name, Action: how, At: now.UnixMilli(),
	}
	if len(last) > 0 {
		e.Number = last[0].Value.Number + 1
	}
	if d != nil {
		e.Actor, e.Reason = d.Actor, d.Reason
	}
	if err := budgetEvents.Insert(ctx, s, e); err != nil {
		return err
	}
	old, err := budgetEvents.List(ctx, s, &dohost.Query[budgetEventRow]{Limit: 2})
	for _, row := range old {
		tooOld := row.Value.Number < e.Number && row.Value.At < now.Add(-keepBudgetEvents).UnixMilli()
		if err == nil && (tooOld || row.Value.Number+maxBudgetEvents <= e.Number) {
			_, err = budgetEvents.Delete(ctx, s, row.Key)
		}
	}
	return err
}

// budgetItems has the hooks of the class for the questions about the budgets of an agent.
type budgetItems struct{ collection, agent string }

// rowWritten deletes the wait of a message that leaves the inbox of the agent, and ends the question if that was its last wait.
func (b *budgetItems) rowWritten(ctx context.Context, s *dohost.Storage, w *dohost.RowWrite) error {
	if w.Collection != b.collection || leftInbox(w) != nameKey(b.agent) {
		return nil
	}
	key := waits.Key(waitRow{Collection: b.collection, Agent: b.agent, Key: w.Key})
	wait, ok, err := waits.Get(ctx, s, key)
	if err != nil || !ok {
		return err
	}
	if _, err := waits.Delete(ctx, s, key); err != nil {
		return err
	}
	return endUnused(ctx, s, wait.Value.Question)
}

// inspect yields the open questions of the agent, and then the newest events, the newest first.
func (b *budgetItems) inspect(_ context.Context, v *dohost.Snapshot) iter.Seq2[dohost.Resource, error] {
	return func(yield func(dohost.Resource, error) bool) {
		of := questionRow{Collection: b.collection, Agent: b.agent}
		open := func(q questionRow) bool { return q.Ended == "" }
		for row, err := range questions.Scan(v, &dohost.Query[questionRow]{Prefix: of.agentKey(), Where: open}) {
			var d dohost.Resource
			if err == nil {
				d, err = row.Value.resource(v)
			}
			if !yield(d, err) || err != nil {
				return
			}
		}
		mine := func(r budgetEventRow) bool { return r.Collection == b.collection && r.Agent == b.agent }
		newest := &dohost.Query[budgetEventRow]{Reverse: true, Limit: listedBudgetEvents, Where: mine}
		for row, err := range budgetEvents.Scan(v, newest) {
			var d dohost.Resource
			if err == nil {
				d = row.Value.resource()
			}
			if !yield(d, err) || err != nil {
				return
			}
		}
	}
}

// resource describes a question for operators.
func (q *questionRow) resource(v *dohost.Snapshot) (dohost.Resource, error) {
	n := int64(0)
	for _, err := range waits.Scan(v, q.waits()) {
		if err != nil {
			return dohost.Resource{}, err
		}
		n++
	}
	since := time.UnixMilli(q.Since).UTC().Format(time.RFC3339)
	return dohost.Resource{
		Kind: detailBudget, ID: q.ID, State: "waiting", Can: []dohost.Action{dohost.ActionApprove, dohost.ActionDeny},
		Text:   fmt.Sprintf("agent %q, %s: %s %d of %d, since %s, %d messages wait", q.Agent, scopeText(q.Scope, q.Name), q.Measure, q.Spent, q.Limit, since, n),
		Counts: map[string]int64{"spent": q.Spent, "limit": q.Limit, "messages": n},
		Fields: map[string]string{"agent": q.Agent, "scope": string(q.Scope), "name": q.Name, "measure": q.Measure, "since": since},
	}, nil
}

// resource describes an event for operators.
func (r *budgetEventRow) resource() dohost.Resource {
	at := time.UnixMilli(r.At).UTC().Format(time.RFC3339)
	d := dohost.Resource{
		Kind: detailBudgetEvent, ID: fmt.Sprint(r.Number), State: string(r.Action),
		Fields: map[string]string{"question": r.Question, "agent": r.Agent, "scope": string(r.Scope), "name": r.Name, "time": at},
	}
	text := []string{fmt.Sprintf("question %s of the agent %q", r.Question, r.Agent), scopeText(r.Scope, r.Name), at}
	for _, f := range []struct{ name, before, text string }{{"actor", "by", r.Actor}, {"reason", "because", r.Reason}} {
		if f.text != "" {
			text = append(text, fmt.Sprintf("%s %q", f.before, f.text))
			d.Fields[f.name] = f.text
		}
	}
	d.Text = strings.Join(text, ", ")
	return d
}

// scopeText describes a scope for a reader.
func scopeText(s chat.BudgetScope, name string) string {
	return strings.TrimSpace("budget of the " + string(s) + " " + name)
}

// decideByOperator decides a question for an operator.
func decideByOperator(ctx context.Context, of Ref, r *dohost.AdminRequest) (bool, error) {
	wrong := func(err error) error { return &dohost.ArgumentError{Method: "operate", Err: err} }
	switch {
	case r.Kind != detailBudget || r.Action != dohost.ActionApprove && r.Action != dohost.ActionDeny:
		return false, wrong(fmt.Errorf("items of kind %q do not allow the action %s", r.Kind, r.Action))
	case r.Digest != "":
		return false, wrong(errors.New("a question about a budget has no digest"))
	}
	err := DecideBudget(ctx, of, &BudgetDecision{Question: r.ID, Approve: r.Action == dohost.ActionApprove, Actor: r.Actor, Reason: r.Reason})
	if errors.Is(err, ErrNoQuestion) {
		return false, nil
	}
	if _, large := errors.AsType[*dohost.LimitError](err); large {
		err = wrong(err)
	}
	return err == nil, err
}
