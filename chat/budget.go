package chat

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Budget bounds the use of models by the agents of a class. The zero Budget bounds nothing. The agent checks it with the recorded usage
// (see [ModelCalls]), including estimates, before each model call, and in a reply also while the model answers.
//
// [Answer] asks for a decision when a budget is exhausted: it runs the complete tool calls of the model's answer, the message of the reply
// gets a call of the tool "dohost_budget" that waits for an approval, and the reply ends as for any approval. An approval gives the scope
// its whole limit again from then on, and the reply continues in the same message. After a refusal the message stays as it is. In a
// [Worker] and in a summary, where no reply can wait, the model call is refused with a [*BudgetError].
type Budget struct {
	// Reply bounds a message of the assistant: the steps of [Answer], its continuations, and the workers of its tools.
	Reply Limit
	// Day bounds the calls that begin on a day in UTC. A call that lasts beyond midnight counts on the day on which it began.
	Day Limit
	// Agent bounds all calls of the object.
	Agent Limit
	// ClientsDecide lets clients approve exhausted budgets. Otherwise only operators and the program may approve; a client may refuse,
	// with the frame of an approval.
	ClientsDecide bool
}

// Limit is a limit of a [Budget]. A zero field sets no limit; a negative field is an error of [dohost.Open].
type Limit struct {
	Tokens int64         // of the input and the output
	Cost   int64         // in millionths of the currency of [Options].Price
	Time   time.Duration // of the calls of models together
}

// BudgetScope is the scope of a [Limit].
type BudgetScope string

// The scopes.
const (
	BudgetOfReply BudgetScope = "reply"
	BudgetOfDay   BudgetScope = "day"
	BudgetOfAgent BudgetScope = "agent"
)

// BudgetError is the error of a model call that a [Budget] does not allow. Its fields are also the input of the call of the tool
// dohost_budget.
type BudgetError struct {
	Scope   BudgetScope `json:"scope"`
	Name    string      `json:"name,omitempty"` // of the scope: the id of the message, or the day
	Measure string      `json:"measure"`        // "tokens", "cost" (in millionths), or "time" (in milliseconds)
	Spent   int64       `json:"spent"`          // since the last approval for the scope
	Limit   int64       `json:"limit"`
	// Interrupted reports that the model was stopped in the middle of an answer.
	Interrupted bool `json:"interrupted,omitempty"`
}

// Error implements error.
func (e *BudgetError) Error() string {
	return fmt.Sprintf("chat: the budget of the %s is exhausted: %s %d of %d", e.Scope, e.Measure, e.Spent, e.Limit)
}

// exhaustedError is the error of a call that the budget of its meter refuses or stops. A model may return a BudgetError too, such as the error
// of another agent: no decision about this agent helps then.
type exhaustedError struct{ *BudgetError }

// Unwrap returns the public error.
func (e exhaustedError) Unwrap() error { return e.BudgetError }

// exhaustedBudget returns the error in an exhaustedError, or nil for any other error.
func exhaustedBudget(err error) *BudgetError {
	e, _ := errors.AsType[exhaustedError](err)
	return e.BudgetError
}

// check returns an error for the first wrong limit of a budget. prefix precedes the field in its text.
func (b *Budget) check(prefix string) error {
	for _, l := range []struct {
		name string
		Limit
	}{{"Reply", b.Reply}, {"Day", b.Day}, {"Agent", b.Agent}} {
		if l.Tokens < 0 || l.Cost < 0 || l.Time < 0 || l.Time > 0 && l.Time < time.Millisecond {
			return fmt.Errorf("%sBudget.%s is %d tokens, cost %d, time %v: want at least 1 token, 1 millionth and 1 ms, or 0 for no limit", prefix, l.name, l.Tokens, l.Cost, l.Time)
		}
	}
	return nil
}

// limit returns the limit of a scope.
func (b *Budget) limit(s scopeKind) Limit {
	switch s {
	case replyScope:
		return b.Reply
	case dayScope:
		return b.Day
	}
	return b.Agent
}

// budgetState is the state of a scope that has a limit.
type budgetState struct {
	scope usageScope
	limit Limit
	spent usageAmounts // since the last approval
}

// exhausted returns an error if the budget is exhausted after more amounts, or else nil.
func (s *budgetState) exhausted(more usageAmounts) *BudgetError {
	now := s.spent.add(more)
	for _, m := range []struct {
		name         string
		spent, limit int64
	}{{"tokens", now.Input + now.Output, s.limit.Tokens}, {"cost", now.Cost, s.limit.Cost}, {"time", now.Millis, s.limit.Time.Milliseconds()}} {
		if m.limit > 0 && m.spent >= m.limit {
			return &BudgetError{Scope: BudgetScope(s.scope.Kind), Name: s.scope.Name, Measure: m.name, Spent: m.spent, Limit: m.limit}
		}
	}
	return nil
}

// budgets returns the states of the scopes of a call that began at a time, in Unix milliseconds. The totals in the store are the state: an
// ending loses nothing of it but the amounts that no row has.
func (m *meter) budgets(ctx context.Context, began int64) (list []budgetState, err error) {
	if m.budget == (Budget{}) {
		return nil, nil
	}
	call := modelCallRow{Message: m.message, Began: began}
	for _, scope := range call.scopes() {
		limit := m.budget.limit(scope.Kind)
		if limit == (Limit{}) {
			continue
		}
		total, _, err := usageTotals.Get(ctx, m.st.Storage(), scope.key())
		if err != nil {
			return nil, err
		}
		list = append(list, budgetState{scope, limit, total.Value.Amounts.minus(total.Value.Base)})
	}
	return list, nil
}

// exhausted returns the error of the first budget that allows no call at a time, or nil.
func (m *meter) exhausted(ctx context.Context, at time.Time) (*BudgetError, error) {
	list, err := m.budgets(ctx, at.UnixMilli())
	return firstExhausted(list, usageAmounts{}), err
}

func firstExhausted(list []budgetState, more usageAmounts) *BudgetError {
	for i := range list {
		if e := list[i].exhausted(more); e != nil {
			return e
		}
	}
	return nil
}

// grant gives a scope its whole limit again. The caller writes the end of the wait for the approval in the same batch.
func (m *meter) grant(ctx context.Context, s usageScope) error {
	stored, _, err := usageTotals.Get(ctx, m.st.Storage(), s.key())
	if err != nil {
		return err
	}
	total := stored.Value
	total.Kind, total.Name, total.Base = s.Kind, s.Name, total.Amounts
	total.Grants++
	return usageTotals.Put(ctx, m.st.Storage(), total)
}

// The checks of a call while the model answers. Only the calls of a reply have them: a worker could not keep its text.

// watchBudgets reads the budgets after the row of the call was written: those of the day on which the call began.
func (u *usageCall) watchBudgets(ctx context.Context) (err error) {
	if u.suspends {
		u.budgetsLeft, err = u.budgets(ctx, u.row.Began)
	}
	return err
}

// overBudget returns an error if the call has exhausted a budget: with the amounts that the row does not have yet.
func (u *usageCall) overBudget() error {
	if len(u.budgetsLeft) == 0 {
		return nil
	}
	if e := firstExhausted(u.budgetsLeft, u.amounts().minus(u.row.Amounts)); e != nil {
		return exhaustedError{e}
	}
	return nil
}

// errBudgetTime ends the wait for a chunk when a budget of time is exhausted.
var errBudgetTime = errors.New("chat: the time of the budget is over")

// withBudgetTime returns a context that ends when a budget of time is exhausted.
func (u *usageCall) withBudgetTime(ctx context.Context) (context.Context, context.CancelFunc) {
	left, bounded := time.Duration(0), false
	for _, s := range u.budgetsLeft {
		if s.limit.Time > 0 {
			rest := s.limit.Time - time.Duration(s.spent.Millis)*time.Millisecond
			if !bounded || rest < left {
				left, bounded = rest, true
			}
		}
	}
	if !bounded {
		return ctx, func() {}
	}
	return context.WithTimeoutCause(ctx, left, errBudgetTime)
}
