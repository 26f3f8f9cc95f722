package chat_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/chat"
	"github.com/dohost/dohost/dohosttest"
)

// TestGrantForWorker exhausts the budget of a worker in a method, and grants it again: the scope has its whole limit, and a grant that is
// rolled back does not count.
func TestGrantForWorker(t *testing.T) {
	w := &chat.Worker[string, string]{
		Name: "w", Model: &meteredModel{words: 1, reports: []chat.Usage{{InputTokens: 3, OutputTokens: 2}}}, Budget: chat.Budget{Day: chat.Limit{Tokens: 5}},
	}
	runWorkerAgent(t, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		err := workerAgents.Get(h, "7").Do(ctx, func(ctx context.Context, c *workerAgent) error {
			day := time.Now().UTC().Format(time.DateOnly)
			state := func(exhausted bool, grants int) {
				t.Helper()
				over, err := w.Exhausted(ctx, c)
				n, grantErr := chat.BudgetGrants(ctx, c, chat.BudgetOfDay, day)
				want := chat.BudgetError{Scope: chat.BudgetOfDay, Name: day, Measure: "tokens", Spent: 5, Limit: 5}
				if err = errors.Join(err, grantErr); err != nil || exhausted != (over != nil) || exhausted && *over != want || n != grants {
					t.Errorf("exhausted %+v, %d grants, want %t and %d, %v", over, n, exhausted, grants, err)
				}
			}
			state(false, 0)
			if _, err := w.Run(ctx, c, "x"); err != nil {
				return err
			}
			state(true, 0)
			rolledBack := errors.New("rolled back")
			err := dohost.Transaction(ctx, func(ctx context.Context) error {
				return errors.Join(chat.GrantBudget(ctx, c, chat.BudgetOfDay, day), rolledBack)
			})
			if !errors.Is(err, rolledBack) {
				t.Error(err)
			}
			state(true, 0)
			if err := chat.GrantBudget(ctx, c, chat.BudgetOfDay, day); err != nil {
				t.Error(err)
			}
			state(false, 1)
			if _, err := w.Run(ctx, c, "y"); err != nil {
				return err
			}
			state(true, 1)
			for _, of := range [][2]string{{"day", ""}, {"agent", "x"}, {"reply", ""}, {"week", "1"}} {
				if err := chat.GrantBudget(ctx, c, chat.BudgetScope(of[0]), of[1]); !errors.Is(err, dohost.ErrMisuse) {
					t.Errorf("a grant for %q: %v", of, err)
				}
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	})
}
