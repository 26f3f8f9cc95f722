package chat

import (
	"context"
	"fmt"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/agent"
)

// The budgets of workers, whose callers wait for decisions in a way of their own, such as the cycles of package inbox.

// Exhausted returns the error that the next call of the worker's model would get from the [Budget] that applies to a run in an agent now,
// or nil if the call is allowed. ctx must hold the turn of a.
//
// Errors: [dohost.ErrMisuse] for a nil agent, and the errors of [dohost.Collection.Get].
func (w *Worker[In, Out]) Exhausted(ctx context.Context, a agent.Ref) (*BudgetError, error) {
	st, err := objectOf(a)
	if err != nil {
		return nil, err
	}
	return workerMeter(ctx, a, st, w.spec()).exhausted(ctx, time.Now())
}

// GrantBudget gives a scope its whole limit again, starting now, as the approval of an exhausted budget does. name is the id of the message or
// the day, and empty for the agent. Each call adds a grant. So code that may run again must store, in the same batch, that it has made the
// grant. GrantBudget does not continue a suspended reply: see [Decide]. ctx must hold the turn of a.
//
// Errors: [dohost.ErrMisuse] for a nil agent, an unknown scope, and a name that is missing or, for the agent, is not empty; the error of
// [agent.CheckWrite] in an event of a read-only client; the errors of [dohost.Collection.Put].
func GrantBudget(ctx context.Context, a agent.Ref, s BudgetScope, name string) error {
	if err := agent.CheckWrite(ctx); err != nil {
		return err
	}
	st, err := objectOf(a)
	if err != nil {
		return err
	}
	known := s == BudgetOfReply || s == BudgetOfDay || s == BudgetOfAgent
	if !known || (name == "") != (s == BudgetOfAgent) {
		return fmt.Errorf("chat: a grant for the scope %.20q with the name %.64q: %w", s, name, dohost.ErrMisuse)
	}
	return (&meter{st: st}).grant(ctx, usageScope{scopeKind(s), name})
}

// BudgetGrants returns the number of grants of a scope: approvals that extended its budget, and calls of [GrantBudget]. name is the id of
// the message or the day, and empty for the agent. ctx must hold the turn of a.
//
// Errors: [dohost.ErrMisuse] for a nil agent, and the errors of [dohost.Collection.Get].
func BudgetGrants(ctx context.Context, a agent.Ref, s BudgetScope, name string) (int, error) {
	st, err := objectOf(a)
	if err != nil {
		return 0, err
	}
	row, _, err := usageTotals.Get(ctx, st.Storage(), usageScope{scopeKind(s), name}.key())
	return int(row.Value.Grants), err
}
