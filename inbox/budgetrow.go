package inbox

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/chat"
)

// questionRow is a [BudgetQuestion] in the store.
type questionRow struct {
	ID                string
	Collection, Agent string
	Scope             chat.BudgetScope
	Name              string
	Measure           string
	Spent, Limit      int64
	Grants            int // of the scope, when a cycle last found it exhausted
	Since             int64
}

// The indexes of questions.
const (
	byID    = "id"
	byScope = "scope"
)

var questions = dohost.Collection[questionRow]{
	Name: "dohost.inbox.budgets",
	Key:  func(q questionRow) string { return string(q.agentKey() + q.scopeKey()) },
	Indexes: []dohost.Index[questionRow]{
		{Name: byID, Of: func(q questionRow) dohost.Key { return dohost.KeyOf(q.ID) }},
		{Name: byScope, Of: func(q questionRow) dohost.Key { return q.scopeKey() }},
	},
}

func (q *questionRow) agentKey() dohost.Key {
	return dohost.KeyOf(q.Collection) + dohost.KeyOf(q.Agent)
}

func (q *questionRow) scopeKey() dohost.Key {
	return dohost.KeyOf(string(q.Scope)) + dohost.KeyOf(q.Name)
}

// waits returns the query of the waits of a question.
func (q *questionRow) waits() *dohost.Query[waitRow] {
	return &dohost.Query[waitRow]{Index: byQuestion, Equal: dohost.KeyOf(q.ID)}
}

// waitRow is a message that waits for a decision. Key is that of the message, and Call the agent.Rows.CallID of its cycle.
type waitRow struct{ Collection, Agent, Key, Question, Call string }

// byQuestion is the index of waits by their questions.
const byQuestion = "question"

var waits = dohost.Collection[waitRow]{
	Name: "dohost.inbox.budgetwaits",
	Key: func(w waitRow) string {
		return string(dohost.KeyOf(w.Collection) + dohost.KeyOf(w.Agent) + nameKey(w.Key))
	},
	Indexes: []dohost.Index[waitRow]{
		{Name: byQuestion, Of: func(w waitRow) dohost.Key { return dohost.KeyOf(w.Question) }},
	},
}

// questionOf returns the question with an id.
func questionOf(ctx context.Context, s *dohost.Storage, id string) (questionRow, bool, error) {
	rows, err := questions.List(ctx, s, &dohost.Query[questionRow]{Index: byID, Equal: dohost.KeyOf(id), Limit: 1})
	if err != nil || len(rows) == 0 {
		return questionRow{}, false, err
	}
	return rows[0].Value, true, nil
}

// isOver reports whether the stored state shows that the budget of a question is not exhausted any more: its day has passed, or its scope has
// got a grant, for example by an approval of a reply.
func (q *questionRow) isOver(ctx context.Context, of Ref) (bool, error) {
	if q.Scope == chat.BudgetOfDay && q.Name != time.Now().UTC().Format(time.DateOnly) {
		return true, nil
	}
	n, err := chat.BudgetGrants(ctx, of, q.Scope, q.Name)
	return n != q.Grants, err
}

// end deletes a question and its waits, records how it has ended, and parks the messages after a refusal, or else makes them due.
func (q *questionRow) end(ctx context.Context, of Ref, how BudgetAction, d *BudgetDecision) error {
	s := of.Storage()
	err := dohost.Transaction(ctx, func(ctx context.Context) error {
		waiting, err := waits.List(ctx, s, q.waits())
		if err != nil {
			return err
		}
		var keys []string
		for _, row := range waiting {
			if _, err := waits.Delete(ctx, s, row.Key); err != nil {
				return err
			}
			keys = append(keys, row.Value.Key)
		}
		if how == BudgetDenied {
			if _, err := of.Rows().Park(ctx, q.Collection, keys, fmt.Errorf("inbox: the grant was refused: %w", q.exhausted())); err != nil {
				return err
			}
		}
		if _, err := questions.Delete(ctx, s, questions.Key(*q)); err != nil {
			return err
		}
		if err := q.log(ctx, s, how, d); err != nil || how == BudgetDenied {
			return err
		}
		return makeDue(ctx, of, waiting)
	})
	if err == nil {
		q.report(ctx, of, how, d)
	}
	return err
}

// exhausted returns the error of the exhausted budget.
func (q *questionRow) exhausted() *chat.BudgetError {
	return &chat.BudgetError{Scope: q.Scope, Name: q.Name, Measure: q.Measure, Spent: q.Spent, Limit: q.Limit}
}

// report reports an event of a question.
func (q *questionRow) report(ctx context.Context, of Ref, how BudgetAction, d *BudgetDecision) {
	attrs := []slog.Attr{
		slog.String("outcome", string(how)), slog.String("agent", q.Agent), slog.String("question", q.ID), slog.String("scope", string(q.Scope)),
		slog.String("name", q.Name), slog.String("measure", q.Measure), slog.Int64("spent", q.Spent), slog.Int64("limit", q.Limit),
	}
	if d != nil {
		attrs = append(attrs, slog.String("actor", d.Actor))
	}
	of.Object().Report(ctx, "inbox:budget", attrs...)
}

// makeDue makes waiting messages due: it wakes each of their cycles once.
func makeDue(ctx context.Context, of Ref, waiting []dohost.Row[waitRow]) error {
	woken := map[string]bool{}
	for _, row := range waiting {
		call := row.Value.Call
		if woken[call] {
			continue
		}
		woken[call] = true
		if err := of.Rows().Wake(ctx, call); err != nil {
			return err
		}
	}
	return nil
}

// withdrawQuestions ends the questions of an agent whose budget allows a call of the model.
func (a *Agent) withdrawQuestions(ctx context.Context, of Ref, messages *dohost.Collection[Message]) error {
	key := questionRow{Collection: messages.Name, Agent: a.Name}
	open, err := questions.List(ctx, of.Storage(), &dohost.Query[questionRow]{Prefix: key.agentKey()})
	if err != nil || len(open) == 0 {
		return err
	}
	if over, err := a.run().Exhausted(ctx, of); over != nil || err != nil {
		return err
	}
	for _, row := range open {
		if err := row.Value.end(ctx, of, BudgetWithdrawn, nil); err != nil && !errors.Is(err, dohost.ErrNoSpace) {
			return err
		}
	}
	return nil
}

// askForDecision stores a question about the exhausted budget of the agent, and the messages that wait for it. It stores nothing if that budget
// is not exhausted, since the model may have returned the [chat.BudgetError] of another agent. If the disk is full, the next cycle asks.
func (a *Agent) askForDecision(ctx context.Context, of Ref, messages *dohost.Collection[Message], pending []dohost.Row[Message]) error {
	over, err := a.run().Exhausted(ctx, of)
	if over == nil || err != nil {
		return err
	}
	var q questionRow
	var asked bool
	err = dohost.Transaction(ctx, func(ctx context.Context) (err error) {
		if q, asked, err = putQuestion(ctx, of, messages.Name, a.Name, over); err != nil {
			return err
		}
		return putWaits(ctx, of.Storage(), messages, &q, pending, of.Rows().CallID(ctx))
	})
	if errors.Is(err, dohost.ErrNoSpace) {
		return nil
	}
	if err == nil && asked {
		q.report(ctx, of, BudgetRequested, nil)
	}
	return err
}

// putQuestion stores a question, unless the agent has one for that scope, whose amounts it updates.
func putQuestion(ctx context.Context, of Ref, collection, name string, over *chat.BudgetError) (q questionRow, asked bool, err error) {
	s := of.Storage()
	q = questionRow{Collection: collection, Agent: name, Scope: over.Scope, Name: over.Name}
	stored, ok, err := questions.Get(ctx, s, questions.Key(q))
	if err != nil {
		return q, false, err
	}
	if q.ID, q.Since = stored.Value.ID, stored.Value.Since; !ok {
		q.ID, q.Since = "budget_"+ulid.Make().String(), time.Now().UnixMilli()
	}
	q.Measure, q.Spent, q.Limit = over.Measure, over.Spent, over.Limit
	if q.Grants, err = chat.BudgetGrants(ctx, of, q.Scope, q.Name); err != nil {
		return q, false, err
	}
	if !ok {
		err = q.log(ctx, s, BudgetRequested, nil)
	}
	if err == nil && q != stored.Value {
		err = questions.Put(ctx, s, q)
	}
	return q, !ok, err
}

// putWaits stores the waits of the messages that are still in the inbox.
func putWaits(
	ctx context.Context, s *dohost.Storage, messages *dohost.Collection[Message], q *questionRow, pending []dohost.Row[Message], call string,
) error {
	for _, row := range pending {
		now, ok, err := messages.Get(ctx, s, row.Key)
		if err != nil {
			return err
		}
		if !ok || !messages.InIndex(now.Value, pendingIndex, nameKey(q.Agent)) {
			continue
		}
		w := waitRow{q.Collection, q.Agent, row.Key, q.ID, call}
		old, _, err := waits.Get(ctx, s, waits.Key(w))
		if err != nil {
			return err
		}
		if old.Value == w {
			continue
		}
		if err := waits.Put(ctx, s, w); err != nil {
			return err
		}
		if err := endUnused(ctx, s, old.Value.Question); err != nil {
			return err
		}
	}
	return endUnused(ctx, s, q.ID)
}

// endUnused deletes a question that has no wait.
func endUnused(ctx context.Context, s *dohost.Storage, id string) error {
	if id == "" {
		return nil
	}
	n, err := waits.Count(ctx, s, &dohost.Query[waitRow]{Index: byQuestion, Equal: dohost.KeyOf(id), Limit: 1})
	if err != nil || n > 0 {
		return err
	}
	q, ok, err := questionOf(ctx, s, id)
	if err != nil || !ok {
		return err
	}
	if _, err := questions.Delete(ctx, s, questions.Key(q)); err != nil {
		return err
	}
	return q.log(ctx, s, BudgetWithdrawn, nil)
}
