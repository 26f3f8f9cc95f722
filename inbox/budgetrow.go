package inbox

import (
	"context"
	"errors"
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
	// Ended is set if the question has ended, but messages still wait for it. Fiber ends their waits.
	Ended BudgetAction `msgpack:",omitempty"`
	Fiber string       `msgpack:",omitempty"`
}

// The indexes of questions.
const (
	byID    = "id"
	byScope = "scope" // open questions alone
)

var questions = dohost.Collection[questionRow]{
	Name: "dohost.inbox.budgets",
	Key: func(q questionRow) string {
		if q.Ended != "" { // the agent may have another question for the scope
			return string(q.agentKey() + q.scopeKey() + dohost.KeyOf(q.ID))
		}
		return string(q.agentKey() + q.scopeKey())
	},
	Indexes: []dohost.Index[questionRow]{
		{Name: byID, Of: func(q questionRow) dohost.Key { return dohost.KeyOf(q.ID) }},
		{Name: byScope, Of: func(q questionRow) dohost.Key {
			if q.Ended != "" {
				return ""
			}
			return q.scopeKey()
		}},
	},
}

func (q *questionRow) agentKey() dohost.Key {
	return dohost.KeyOf(q.Collection) + dohost.KeyOf(q.Agent)
}

func (q *questionRow) scopeKey() dohost.Key {
	return dohost.KeyOf(string(q.Scope)) + dohost.KeyOf(q.Name)
}

// waits returns the query of the waits of a question, ordered by call.
func (q *questionRow) waits() *dohost.Query[waitRow] {
	return &dohost.Query[waitRow]{Index: byQuestion, Prefix: dohost.KeyOf(q.ID)}
}

// waitRow is a message that waits for a decision. Key is that of the message, and Call the agent.Rows.CallID of its cycle.
type waitRow struct{ Collection, Agent, Key, Question, Call string }

// byQuestion is the index of waits by their questions and calls.
const byQuestion = "question"

var waits = dohost.Collection[waitRow]{
	Name: "dohost.inbox.budgetwaits",
	Key: func(w waitRow) string {
		return string(dohost.KeyOf(w.Collection) + dohost.KeyOf(w.Agent) + nameKey(w.Key))
	},
	Indexes: []dohost.Index[waitRow]{
		{Name: byQuestion, Of: func(w waitRow) dohost.Key { return dohost.KeyOf(w.Question) + dohost.KeyOf(w.Call) }},
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

// otherBudget is the error of a model that itself returns a [chat.BudgetError], for example because it asks another agent.
type otherBudget struct{ error }

// Unwrap returns the error of the model.
func (e otherBudget) Unwrap() error { return e.error }

// askForDecision stores a question about the exhausted budget of the agent, and the messages that wait for it, and reports whether that budget is
// exhausted. The check and the question are one batch: the call may have been refused before a grant, and the model may have
// returned the error of another budget. If the disk is full, the next cycle asks.
func (a *Agent) askForDecision(
	ctx context.Context, of Ref, messages *dohost.Collection[Message], pending []dohost.Row[Message],
) (exhausted bool, err error) {
	over, err := a.run().Exhausted(ctx, of)
	if over == nil || err != nil {
		return false, err
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
		return true, nil
	}
	if err == nil && asked {
		q.report(ctx, of, BudgetRequested, nil)
	}
	return true, err
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
	n, err := waits.Count(ctx, s, &dohost.Query[waitRow]{Index: byQuestion, Prefix: dohost.KeyOf(id), Limit: 1})
	if err != nil || n > 0 {
		return err
	}
	q, ok, err := questionOf(ctx, s, id)
	if err != nil || !ok {
		return err
	}
	if _, err := questions.Delete(ctx, s, questions.Key(q)); err != nil || q.Ended != "" {
		return err
	}
	return q.log(ctx, s, BudgetWithdrawn, nil)
}
