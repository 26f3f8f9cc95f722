package inbox_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/agent"
	"github.com/dohost/dohost/chat"
	"github.com/dohost/dohost/inbox"
	"github.com/dohost/dohost/internal/kernel"
	"github.com/dohost/dohost/objectstore"
)

// TestBudgetOnFullDisk ends a cycle with an exhausted budget while the disk is full. The cycle has no other error than the exhausted budget, and
// the next check of the budget asks.
func TestBudgetOnFullDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs := objectstore.NewMemFS()
		fs.SetFree(1 << 40)
		a := thrifty("clerk", &answerModel{}, chat.Budget{Agent: chat.Limit{Cost: 1}})
		// The inbox of the class begins after the messages of the test, which calls the end of a cycle itself.
		waits := &agent.RowsOptions{Prefix: dohost.KeyOf("cook")}
		class := deskClass(agent.OnRows(&messages, "pending", func(*desk, context.Context, dohost.Row[inbox.Message]) error { return nil }, waits))
		h, err := dohost.Open("data", kernel.OnFS(&dohost.Options{}, fs), class)
		if err != nil {
			t.Fatal(err)
		}
		ask := func(ctx context.Context, d *desk) error {
			rows, err := messages.List(ctx, d.Storage(), &dohost.Query[inbox.Message]{Index: "pending"})
			if err != nil || len(rows) != 1 {
				t.Errorf("%d messages, %v", len(rows), err)
			}
			return a.AskForDecision(ctx, d, &messages, rows)
		}
		in := func(fn func(ctx context.Context, d *desk) error) {
			t.Helper()
			if err := desks.Get(h, "a").Do(t.Context(), fn); err != nil {
				t.Error(err)
			}
		}
		in(func(ctx context.Context, d *desk) error {
			_, err := inbox.Send(ctx, d.Storage(), &messages, asking("1"))
			w := &chat.Worker[string, string]{Name: "w", Model: &answerModel{}, Price: a.Price}
			_, runErr := w.Run(ctx, d, "x")
			return errors.Join(err, runErr)
		})
		fs.SetFree(0)
		time.Sleep(time.Second)
		in(ask)
		in(func(ctx context.Context, d *desk) error {
			questions, waits, err := inbox.BudgetRows(ctx, d.Storage())
			if questions+waits > 0 {
				t.Errorf("%d questions and %d waits on a full disk", questions, waits)
			}
			return err
		})
		fs.SetFree(1 << 40)
		time.Sleep(time.Minute)
		in(ask)
		in(func(ctx context.Context, d *desk) error {
			list, err := inbox.BudgetQuestions(ctx, d)
			if len(list) != 1 || list[0].Messages != 1 {
				t.Errorf("questions: %+v", list)
			}
			return err
		})
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	})
}
