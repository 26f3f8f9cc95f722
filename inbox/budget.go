package inbox

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/agent"
	"github.com/dohost/dohost/chat"
)

// An exhausted budget of an Agent makes its cycles wait, and asks for a decision. Invariants:
//
//   - A question is a stored row. An agent has at most one open question for each scope of its budget: a repeated cycle, and the cycles of other
//     groups, find it. Its id belongs to no other question.
//   - A wait is a stored row for each message of a cycle that has found the budget exhausted. It names the question. A wait exists only while its
//     message is in the inbox, and a question only while it has a wait: see budgetItems.rowWritten.
//   - The question and the waits are in the batch that postpones the cycle. A crash before that batch is durable repeats the cycle, which asks.
//   - A decision ends the question in one batch, with the grant. So the repetition of a decision, for example after a lost answer, finds no open
//     question, and has no effect. The messages are due, or parked, in that batch and, if there are many, in later ones: see questionRow.end.
//   - A grant extends the scope, which all agents of the object have in common. So it ends the questions of all of them about that scope.
//   - A cycle that begins while the budget allows a call ends the questions of its agent: the budget is that of another day, a higher one, or
//     was granted otherwise. The messages are due then.
//
// A grant may come between the refusal of the call and the question. Then there is no question, and the cycle is repeated after a second.
//
// The cycle of a request that waits is repeated at the deadline, which marks the request as expired.
//
// The order in a cycle: the questions that are out of date end; the agent asks its model; after an exhausted budget, the question and the waits
// are written, and the method returns a PostponeError without releasing the turn in between. A decision while the cycle runs does not start or park
// the messages of the cycle: after an approval the cycle uses the grant, and after a refusal it asks again.

// BudgetQuestion is an exhausted budget of an [Agent] that waits for a decision.
type BudgetQuestion struct {
	ID    string
	Agent string // its name
	// Scope and Name identify the exhausted budget: see [chat.BudgetError]. Measure, Spent and Limit are its state at the last check by a cycle.
	Scope        chat.BudgetScope
	Name         string
	Measure      string
	Spent, Limit int64
	Since        time.Time // of the first cycle that waits
	Messages     int       // the number of the messages that wait
}

// BudgetDecision is a decision about a [BudgetQuestion]. Without Approve it is a refusal.
type BudgetDecision struct {
	Question string // its ID
	Approve  bool   // false refuses the grant
	Actor    string // at most 256 bytes
	Reason   string // at most 2 KiB
}

// ErrNoQuestion is the error of a decision about a question that does not exist: it was decided, its messages have left the inbox, or the budget
// is not exhausted any more.
var ErrNoQuestion = errors.New("inbox: there is no such question about a budget")

// BudgetQuestions returns the open questions about the budgets of the agents in an object, in the order of the names of their collections and
// agents. ctx must hold the turn.
//
// Errors: the errors of the collections.
func BudgetQuestions(ctx context.Context, of Ref) (list []BudgetQuestion, err error) {
	rows, err := questions.List(ctx, of.Storage(), &dohost.Query[questionRow]{Where: func(q questionRow) bool { return q.Ended == "" }})
	for _, row := range rows {
		q := row.Value
		over, err := q.isOver(ctx, of)
		if err != nil {
			return nil, err
		}
		if over {
			continue
		}
		n, err := waits.Count(ctx, of.Storage(), q.waits())
		if err != nil {
			return nil, err
		}
		list = append(list, BudgetQuestion{
			ID: q.ID, Agent: q.Agent, Scope: q.Scope, Name: q.Name, Measure: q.Measure, Spent: q.Spent, Limit: q.Limit,
			Since: time.UnixMilli(q.Since), Messages: n,
		})
	}
	return list, err
}

// DecideBudget decides a question, and records the decision in the audit log of [BudgetEvents]. An approval gives the scope its whole limit again,
// from now on, for all agents of the object, as [chat.GrantBudget] does. All messages that wait for the budget of that scope are due then. A
// refusal parks the messages that wait for this question, with the exhausted budget as the reason: a [WaitReply] for them returns [ErrNoReply].
// [agent.Rows.List] lists the parked messages. After a retry, their cycle asks again.
//
// One batch contains the decision, the grant, the end of the question, and their effect on the first 50 messages and on the other messages of
// the same cycles. A fiber applies the effect to the rest, in batches of that size, also after a crash. A question is decided once: a second
// decision returns ErrNoQuestion, so a caller may repeat a decision if its answer was lost. DecideBudget is for the program: clients decide only
// if it exposes a method. ctx must hold the turn.
//
// Errors: [ErrNoQuestion]; a [*dohost.LimitError] for a long Actor or Reason; the error of [agent.CheckWrite] in an event of a read-only client;
// [dohost.ErrMisuse] for a nil decision; the errors of the collections.
func DecideBudget(ctx context.Context, of Ref, d *BudgetDecision) error {
	if d == nil {
		return fmt.Errorf("inbox: the decision is nil: %w", dohost.ErrMisuse)
	}
	if err := agent.CheckWrite(ctx); err != nil {
		return err
	}
	switch {
	case len(d.Actor) > maxActor:
		return &dohost.LimitError{Subject: "actor of a decision", Size: len(d.Actor), Limit: maxActor}
	case len(d.Reason) > maxReason:
		return &dohost.LimitError{Subject: "reason of a decision", Size: len(d.Reason), Limit: maxReason}
	}
	q, ok, err := questionOf(ctx, of.Storage(), d.Question)
	if ok = ok && q.Ended == ""; err == nil && ok {
		var over bool
		if over, err = q.isOver(ctx, of); over && err == nil {
			ok = false
			_, err = q.end(ctx, of, BudgetWithdrawn, nil, waitsPerBatch)
		}
	}
	switch {
	case err != nil:
		return err
	case !ok:
		return fmt.Errorf("%w: %.64q", ErrNoQuestion, d.Question)
	case !d.Approve:
		_, err := q.end(ctx, of, BudgetDenied, d, waitsPerBatch)
		return err
	}
	return q.approve(ctx, of, d)
}

// approve grants the scope of a question, and ends all questions about it.
func (q *questionRow) approve(ctx context.Context, of Ref, d *BudgetDecision) error {
	return dohost.Transaction(ctx, func(ctx context.Context) error {
		if err := chat.GrantBudget(ctx, of, q.Scope, q.Name); err != nil {
			return err
		}
		same, err := questions.List(ctx, of.Storage(), &dohost.Query[questionRow]{Index: byScope, Equal: q.scopeKey()})
		most, n := waitsPerBatch, 0 // of all questions together
		for _, row := range same {
			action, by := BudgetWithdrawn, (*BudgetDecision)(nil)
			if row.Value.ID == q.ID {
				action, by = BudgetApproved, d
			}
			if err == nil {
				n, err = row.Value.end(ctx, of, action, by, most)
				most = max(0, most-n)
			}
		}
		return err
	})
}
