package inbox_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/agent"
	"github.com/dohost/dohost/chat"
	"github.com/dohost/dohost/dohosttest"
	"github.com/dohost/dohost/inbox"
	"github.com/dohost/dohost/internal/pointtest"
)

// many returns messages of a user, with ids of a prefix.
func many(prefix string, n int) []inbox.Message {
	var texts []string
	for i := range n {
		texts = append(texts, fmt.Sprintf("%s%04d", prefix, i))
	}
	return fromAda(texts...)
}

// exhaust uses up a budget of the object that has a cost of 100.
func exhaust(ctx context.Context, h *dohosttest.Host) error {
	w := &chat.Worker[string, string]{Name: "w", Model: &answerModel{}, Price: func(chat.Usage) int64 { return 100 }}
	return idempotently(ctx, h, func(ctx context.Context, d *desk) error {
		_, err := w.Run(ctx, d, "x")
		return err
	})
}

// parkedRows returns the number of the parked messages.
func parkedRows(ctx context.Context, d *desk) (n int, err error) {
	tasks, err := d.Rows().List(ctx, &agent.RowsQuery{State: agent.RowsParked, Limit: 100})
	for _, task := range tasks {
		n += len(task.Keys)
	}
	return n, err
}

// TestBudgetOfManyMessages decides a question with more messages than the waits of a batch: of three calls. The decision has the effect on the first ones, and
// counts once. A fiber has the effect on the others. If it is cancelled, the next check by a cycle starts another.
func TestBudgetOfManyMessages(t *testing.T) {
	const n = 2*inbox.WaitsPerBatch + 30
	for _, c := range []struct{ approve, cancel bool }{{true, false}, {false, false}, {true, true}, {false, true}} {
		t.Run(fmt.Sprintf("%+v", c), func(t *testing.T) {
			a := thrifty("clerk", &answerModel{}, chat.Budget{Agent: chat.Limit{Cost: 100}})
			budgetDesk(t, func(t *testing.T, ctx context.Context, h *dohosttest.Host, reports func() []string) {
				if err := exhaust(ctx, h); err != nil {
					t.Error(err)
				}
				send(t, ctx, h, many("m", n)...)
				h.Advance(5 * time.Second)
				list := openQuestions(t, ctx, h)
				if len(list) != 1 || list[0].Messages != n {
					t.Fatalf("questions: %+v", list)
				}
				inDesk(t, ctx, h, func(ctx context.Context, d *desk) error {
					decision := &inbox.BudgetDecision{Question: list[0].ID, Approve: c.approve}
					decided, again := inbox.DecideBudget(ctx, d, decision), inbox.DecideBudget(ctx, d, decision)
					asked, waiting, err := inbox.BudgetRows(ctx, d.Storage())
					open, listErr := inbox.BudgetQuestions(ctx, d)
					if !errors.Is(again, inbox.ErrNoQuestion) || asked != 1 || waiting != n-inbox.WaitsPerBatch || len(open) > 0 {
						t.Errorf("after the decision: %v, %d questions, %d waits, open: %+v", again, asked, waiting, open)
					}
					_, postponed := errors.AsType[*agent.PostponeError](a.ReviewQuestions(ctx, d, &messages, pendingRow(t, ctx, d, fmt.Sprintf("m%04d", n-1))))
					if postponed == c.approve {
						t.Errorf("a cycle with messages that still wait: postponed %t", postponed)
					}
					fibers, fiberErr := d.Fibers().List(ctx, nil)
					for _, f := range fibers {
						if c.cancel {
							_, cancelErr := d.Fibers().Cancel(ctx, f.ID)
							fiberErr = errors.Join(fiberErr, cancelErr)
						}
					}
					return errors.Join(decided, err, listErr, fiberErr)
				})
				if c.cancel {
					h.Advance(6 * time.Minute)
				}
				h.Advance(30 * time.Second)
				answered, parked, log := n, 0, "approved"
				if !c.approve {
					answered, parked, log = 0, n, "denied"
				}
				inDesk(t, ctx, h, func(ctx context.Context, d *desk) error {
					left, err := messages.Count(ctx, d.Storage(), &dohost.Query[inbox.Message]{Index: "pending"})
					got, parkedErr := parkedRows(ctx, d)
					if left != n-answered || got != parked {
						t.Errorf("%d messages wait, and %d are parked, want %d and %d", left, got, n-answered, parked)
					}
					return errors.Join(err, parkedErr)
				})
				wantBudgets(t, ctx, h, min(1, answered), "clerk requested", "clerk "+log)
				wantNoQuestion(t, ctx, h)
			}, a)
		})
	}
}

// pendingRow returns a message that waits, as the only one of a cycle.
func pendingRow(t *testing.T, ctx context.Context, d *desk, id string) []dohost.Row[inbox.Message] {
	t.Helper()
	row, ok, err := messages.Get(ctx, d.Storage(), id)
	if !ok || err != nil {
		t.Fatalf("the message %s: %t, %v", id, ok, err)
	}
	return []dohost.Row[inbox.Message]{row}
}

// TestBudgetOfManyMessagesAtEveryPoint refuses a question with more messages than the waits of a batch, retries the parked messages, and approves the next
// question. Wherever the incarnation or the process ends, all messages are parked by the refusal and answered after the approval, and there are no other
// questions.
func TestBudgetOfManyMessagesAtEveryPoint(t *testing.T) {
	const n = inbox.WaitsPerBatch + 10
	a := thrifty("clerk", &answerModel{}, chat.Budget{Agent: chat.Limit{Cost: 100}})
	a.Options.Batch = 20
	s := dohosttest.Scenario{
		Classes:  []dohost.Class{deskClass(inbox.On(inbox.ForMessages[desk](&messages, a)))},
		Places:   pointtest.Places(),
		FullDisk: pointtest.Case(false),
		Run: func(ctx context.Context, h *dohosttest.Host) error {
			if err := exhaust(ctx, h); err != nil {
				return err
			}
			if err := sendOnce(ctx, h, many("m", n)...); err != nil {
				return err
			}
			for _, approve := range []bool{false, true} {
				if err := decideMany(ctx, h, n, approve); err != nil {
					return err
				}
			}
			return nil
		},
		Check: func(ctx context.Context, h *dohosttest.Host) error { return checkMany(ctx, h, n) },
	}
	dohosttest.EveryPoint(t, pointtest.Scenario(s, 8, 20))
}

// untilRest looks every 500 ms until no call for messages runs and a condition holds.
func untilRest(ctx context.Context, h *dohosttest.Host, holds func(ctx context.Context, d *desk, pending int) bool) error {
	for {
		rest := false
		err := idempotently(ctx, h, func(ctx context.Context, d *desk) error {
			tasks, err := d.Rows().List(ctx, &agent.RowsQuery{Limit: 100})
			pending, countErr := messages.Count(ctx, d.Storage(), &dohost.Query[inbox.Message]{Index: "pending"})
			rest = holds(ctx, d, pending)
			for _, task := range tasks {
				rest = rest && task.State != agent.RowsRunning
			}
			return errors.Join(err, countErr)
		})
		if err != nil || rest {
			return err
		}
		if err := dohost.Sleep(ctx, 500*time.Millisecond); err != nil {
			return err
		}
	}
}

// decideMany decides the question of n messages, and waits for the effect. After a refusal it retries the parked messages.
func decideMany(ctx context.Context, h *dohosttest.Host, n int, approve bool) error {
	var open []inbox.BudgetQuestion
	err := untilRest(ctx, h, func(ctx context.Context, d *desk, _ int) bool {
		var err error
		open, err = inbox.BudgetQuestions(ctx, d)
		return err == nil && len(open) == 1 && open[0].Messages == n
	})
	if err != nil {
		return err
	}
	decision := &inbox.BudgetDecision{Question: open[0].ID, Approve: approve}
	err = idempotently(ctx, h, func(ctx context.Context, d *desk) error { return inbox.DecideBudget(ctx, d, decision) })
	if err != nil && !errors.Is(err, inbox.ErrNoQuestion) { // a lost answer
		return err
	}
	err = untilRest(ctx, h, func(ctx context.Context, d *desk, pending int) bool {
		asked, waiting, err := inbox.BudgetRows(ctx, d.Storage())
		return err == nil && asked+waiting == 0 && (pending == 0 || !approve)
	})
	if err != nil || approve {
		return err
	}
	err = idempotently(ctx, h, func(ctx context.Context, d *desk) error {
		parked, err := parkedRows(ctx, d)
		if err == nil && parked != n {
			err = fmt.Errorf("%d messages are parked", parked)
		}
		return err
	})
	if err != nil {
		return err
	}
	return idempotently(ctx, h, func(ctx context.Context, d *desk) error { // an event of its own: after a lost answer none is parked
		tasks, err := d.Rows().List(ctx, &agent.RowsQuery{State: agent.RowsParked, Limit: 100})
		for _, task := range tasks {
			_, retryErr := d.Rows().Retry(ctx, task.ID)
			err = errors.Join(err, retryErr)
		}
		return err
	})
}

// checkMany compares the messages and the audit log.
func checkMany(ctx context.Context, h *dohosttest.Host, n int) error {
	return desks.Get(h, "a").Do(ctx, func(ctx context.Context, d *desk) error {
		log := ""
		for e, err := range inbox.BudgetEvents(ctx, d) {
			if err != nil {
				return err
			}
			log += string(e.Action) + " "
		}
		answered, err := messages.Count(ctx, d.Storage(), &dohost.Query[inbox.Message]{
			Index: "conversation", Prefix: dohost.KeyOf("clerk"), Where: func(m inbox.Message) bool { return m.Role == chat.RoleUser },
		})
		asked, waiting, rowsErr := inbox.BudgetRows(ctx, d.Storage())
		tasks, listErr := d.Rows().List(ctx, nil)
		if answered != n || asked+waiting+len(tasks) > 0 || log != "requested denied requested approved " {
			err = errors.Join(err, fmt.Errorf("%d messages are answered, %d questions and %d waits remain, tasks %+v, log %s", answered, asked, waiting, tasks, log))
		}
		return errors.Join(err, rowsErr, listErr)
	})
}
