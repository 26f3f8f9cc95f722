package inbox_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/agent"
	"github.com/dohost/dohost/chat"
	"github.com/dohost/dohost/dohosttest"
	"github.com/dohost/dohost/inbox"
)

// thrifty returns an agent with a budget. Each answer of its model costs 1.
func thrifty(name string, m chat.Model, b chat.Budget) *inbox.Agent {
	return &inbox.Agent{Name: name, Model: m, Budget: b, Price: func(chat.Usage) int64 { return 1 }}
}

// ofDay is a budget of a day.
func ofDay(cost int64) chat.Budget { return chat.Budget{Day: chat.Limit{Cost: cost}} }

// asking returns a request of a sender.
func asking(id string) inbox.Message {
	return inbox.Message{ID: id, From: "planner", To: "clerk", Content: id, Request: id}
}

// budgetDesk runs a host with agents that have budgets. reports returns the reports about them and about rows.
func budgetDesk(t *testing.T, run func(t *testing.T, ctx context.Context, h *dohosttest.Host, reports func() []string), agents ...*inbox.Agent) {
	t.Helper()
	var entries []agent.Entry[desk]
	for _, a := range agents {
		in := inbox.ForMessages[desk](&messages, a)
		in.OnError = func(_ *desk, _ context.Context, err error, _ []dohost.Row[inbox.Message]) { t.Error(err) }
		entries = append(entries, inbox.On(in))
	}
	var reports []string
	o := &dohosttest.Options{Classes: []dohost.Class{deskClass(entries...)}}
	o.Options.Listener.Service = func(_ dohost.ID, event string, attrs ...slog.Attr) {
		for _, a := range attrs {
			if a.Key == "outcome" && event == "inbox:budget" {
				reports = append(reports, a.Value.String())
			}
		}
		if strings.HasPrefix(event, "rows:") {
			reports = append(reports, event)
		}
	}
	dohosttest.Run(t, o, func(t *testing.T, h *dohosttest.Host) {
		run(t, t.Context(), h, func() (list []string) {
			list, reports = reports, nil
			return list
		})
	})
}

// openQuestions returns the open questions.
func openQuestions(t *testing.T, ctx context.Context, h *dohosttest.Host) (list []inbox.BudgetQuestion) {
	t.Helper()
	inDesk(t, ctx, h, func(ctx context.Context, d *desk) (err error) {
		list, err = inbox.BudgetQuestions(ctx, d)
		return err
	})
	return list
}

// decide decides a question.
func decide(ctx context.Context, h *dohosttest.Host, d *inbox.BudgetDecision) error {
	return desks.Get(h, "a").Do(ctx, func(ctx context.Context, of *desk) error { return inbox.DecideBudget(ctx, of, d) })
}

// wantBudgets compares the number of the grants of today and of the agent, and the audit log.
func wantBudgets(t *testing.T, ctx context.Context, h *dohosttest.Host, grants int, log ...string) {
	t.Helper()
	inDesk(t, ctx, h, func(ctx context.Context, d *desk) error {
		day, err := chat.BudgetGrants(ctx, d, chat.BudgetOfDay, time.Now().UTC().Format(time.DateOnly))
		all, allErr := chat.BudgetGrants(ctx, d, chat.BudgetOfAgent, "")
		if err = errors.Join(err, allErr); day+all != grants || err != nil {
			t.Errorf("%d grants, want %d, %v", day+all, grants, err)
		}
		var got []string
		for e, err := range inbox.BudgetEvents(ctx, d) {
			if err != nil {
				return err
			}
			if e.Number != uint64(len(got)+1) || e.Question == "" {
				t.Errorf("an event is %+v", e)
			}
			got = append(got, strings.TrimSpace(fmt.Sprint(e.Agent, " ", e.Action, " ", e.Actor, e.Reason)))
		}
		equal(t, "audit log", got, log...)
		return nil
	})
}

// wantNoQuestion expects that no row about budgets remains.
func wantNoQuestion(t *testing.T, ctx context.Context, h *dohosttest.Host) {
	t.Helper()
	inDesk(t, ctx, h, func(ctx context.Context, d *desk) error {
		questions, waits, err := inbox.BudgetRows(ctx, d.Storage())
		if questions+waits > 0 {
			t.Errorf("%d questions and %d waits remain", questions, waits)
		}
		return err
	})
}

// TestBudgetApproved has three cycles that find a budget exhausted, each several times, in several incarnations. They have one question, which is
// reported once. The approval makes all messages due immediately, and counts once.
func TestBudgetApproved(t *testing.T) {
	m := &answerModel{}
	budgetDesk(t, func(t *testing.T, ctx context.Context, h *dohosttest.Host, reports func() []string) {
		day := time.Now().UTC().Format(time.DateOnly)
		send(t, ctx, h, fromAda("1", "2")...)
		h.Advance(5 * time.Second)
		send(t, ctx, h, asking("3"), asking("4"), fromAda("5")[0], fromAda("6")[0])
		h.Advance(5 * time.Second)
		equal(t, "prompts", m.took(), "u:1 u:2", "u:1 u:2 a:1+2 u:3", "u:1 u:2 a:1+2 u:3 a:3 u:4")
		send(t, ctx, h, asking("7"))
		since := time.Time{}
		id := ""
		for i := range 8 {
			h.Advance(6 * time.Minute)
			h.EvictAll()
			list := openQuestions(t, ctx, h)
			if len(list) != 1 {
				t.Fatalf("questions: %+v", list)
			}
			if i == 0 {
				id, since = list[0].ID, list[0].Since
			}
			want := inbox.BudgetQuestion{
				ID: id, Agent: "clerk", Scope: chat.BudgetOfDay, Name: day, Measure: "cost", Spent: 3, Limit: 3, Since: since, Messages: 3,
			}
			if list[0] != want {
				t.Errorf("the question is\n%+v, want\n%+v", list[0], want)
			}
		}
		equal(t, "prompts without a decision", m.took())
		if err := decide(ctx, h, &inbox.BudgetDecision{Question: id, Approve: true, Actor: "mia", Reason: " ok"}); err != nil {
			t.Fatal(err)
		}
		for _, approve := range []bool{true, false} {
			if err := decide(ctx, h, &inbox.BudgetDecision{Question: id, Approve: approve}); !errors.Is(err, inbox.ErrNoQuestion) {
				t.Errorf("a second decision: %v", err)
			}
		}
		h.Advance(5 * time.Second)
		equal(t, "responses", responses(t, ctx, h), "1+2 to ada", "3 to planner 3", "4 to planner 4", "5+6 to ada", "7 to planner 7")
		equal(t, "reports", reports(), "requested", "approved")
		wantBudgets(t, ctx, h, 1, "clerk requested", "clerk approved mia ok")
		wantNoQuestion(t, ctx, h)
	}, thrifty("clerk", m, ofDay(3)))
}

// TestBudgetDenied refuses a question. The messages are parked, waits for their responses end, and a retry asks again.
func TestBudgetDenied(t *testing.T) {
	m := &answerModel{}
	budgetDesk(t, func(t *testing.T, ctx context.Context, h *dohosttest.Host, reports func() []string) {
		send(t, ctx, h, fromAda("1")...)
		h.Advance(5 * time.Second)
		send(t, ctx, h, asking("2"), fromAda("3")[0], fromAda("4")[0])
		h.Advance(5 * time.Second)
		list := openQuestions(t, ctx, h)
		if len(list) != 1 || list[0].Scope != chat.BudgetOfAgent || list[0].Name != "" || list[0].Messages != 3 {
			t.Fatalf("questions: %+v", list)
		}
		h.Client(func(ctx context.Context) error {
			if err := dohost.Sleep(ctx, time.Second); err != nil {
				return err
			}
			return decide(ctx, h, &inbox.BudgetDecision{Question: list[0].ID})
		})
		begin := time.Now()
		_, err := waitReply(ctx, h, asking("2"))
		if took := time.Since(begin); !errors.Is(err, inbox.ErrNoReply) || took != time.Second {
			t.Errorf("a wait for a refused request: %v after %v", err, took)
		}
		h.Advance(time.Hour)
		equal(t, "reports", reports(), "requested", "rows:parked", "rows:parked", "denied")
		wantNoQuestion(t, ctx, h)
		inDesk(t, ctx, h, func(ctx context.Context, d *desk) error {
			parked, err := d.Rows().List(ctx, &agent.RowsQuery{State: agent.RowsParked})
			if len(parked) != 2 {
				t.Errorf("parked: %+v", parked)
			}
			for _, rows := range parked {
				if rows.Error != "inbox: the grant was refused: chat: the budget of the agent is exhausted: cost 1 of 1" {
					t.Errorf("the error of parked rows: %s", rows.Error)
				}
				if _, retryErr := d.Rows().Retry(ctx, rows.ID); retryErr != nil {
					return retryErr
				}
			}
			return err
		})
		for range 2 { // a grant for each of the two cycles
			h.Advance(5 * time.Second)
			again := openQuestions(t, ctx, h)
			if len(again) != 1 || again[0].ID == list[0].ID {
				t.Fatalf("questions after a retry: %+v", again)
			}
			if err := decide(ctx, h, &inbox.BudgetDecision{Question: again[0].ID, Approve: true}); err != nil {
				t.Error(err)
			}
		}
		h.Advance(5 * time.Second)
		equal(t, "responses", responses(t, ctx, h), "1 to ada", "2 to planner 2", "3+4 to ada")
		wantBudgets(t, ctx, h, 2, "clerk requested", "clerk denied", "clerk requested", "clerk approved", "clerk requested", "clerk approved")
		wantNoQuestion(t, ctx, h)
	}, thrifty("clerk", m, chat.Budget{Agent: chat.Limit{Cost: 1}}))
}

// TestBudgetOfAnotherDay lets the day of a question pass. A decision about it has no effect, and the first cycle of the next day makes the
// messages of the others due.
func TestBudgetOfAnotherDay(t *testing.T) {
	m := &answerModel{}
	budgetDesk(t, func(t *testing.T, ctx context.Context, h *dohosttest.Host, _ func() []string) {
		untilMidnight := func(but time.Duration) {
			h.Advance(time.Until(time.Now().UTC().Truncate(24 * time.Hour).Add(24*time.Hour - but)))
		}
		untilMidnight(10 * time.Minute)
		send(t, ctx, h, asking("1"), asking("2"), asking("3"), asking("4"), asking("5"))
		untilMidnight(time.Second)
		list := openQuestions(t, ctx, h)
		if len(list) != 1 || list[0].Messages != 2 {
			t.Fatalf("questions: %+v", list)
		}
		h.Advance(2 * time.Second)
		if list := openQuestions(t, ctx, h); len(list) != 0 {
			t.Errorf("questions after midnight: %+v", list)
		}
		if err := decide(ctx, h, &inbox.BudgetDecision{Question: list[0].ID}); !errors.Is(err, inbox.ErrNoQuestion) {
			t.Errorf("a decision about the budget of yesterday: %v", err)
		}
		h.Advance(3 * time.Second)
		if n := len(responses(t, ctx, h)); n != 5 {
			t.Errorf("%d responses after the decision", n)
		}
		untilMidnight(10 * time.Minute)
		send(t, ctx, h, asking("6"), asking("7"), asking("8"))
		h.Advance(16 * time.Minute)
		if got := responses(t, ctx, h); len(got) != 8 {
			t.Errorf("responses: %q", got)
		}
		wantBudgets(t, ctx, h, 0, "clerk requested", "clerk withdrawn", "clerk requested", "clerk withdrawn")
		wantNoQuestion(t, ctx, h)
	}, thrifty("clerk", m, ofDay(3)))
}

// TestBudgetGrantedOtherwise grants a scope in the program. The first cycle that looks makes the messages of all groups due.
func TestBudgetGrantedOtherwise(t *testing.T) {
	m := &answerModel{}
	budgetDesk(t, func(t *testing.T, ctx context.Context, h *dohosttest.Host, reports func() []string) {
		send(t, ctx, h, fromAda("1")...)
		h.Advance(5 * time.Second)
		send(t, ctx, h, asking("2"))
		h.Advance(3 * time.Minute)
		send(t, ctx, h, asking("3"))
		h.Advance(5 * time.Second)
		if list := openQuestions(t, ctx, h); len(list) != 0 { // the budget has a call left
			t.Fatalf("questions: %+v", list)
		}
		send(t, ctx, h, asking("4"))
		h.Advance(3 * time.Minute)
		send(t, ctx, h, asking("5"))
		h.Advance(time.Second)
		list := openQuestions(t, ctx, h)
		if len(list) != 1 || list[0].Messages != 2 {
			t.Fatalf("questions: %+v", list)
		}
		inDesk(t, ctx, h, func(ctx context.Context, d *desk) error {
			err := chat.GrantBudget(ctx, d, list[0].Scope, list[0].Name)
			if list, listErr := inbox.BudgetQuestions(ctx, d); len(list) > 0 || listErr != nil {
				t.Errorf("questions after the grant: %+v, %v", list, listErr)
			}
			return err
		})
		h.Advance(2*time.Minute + 10*time.Second) // the first checks the budget, the second would check it three minutes later
		if got := responses(t, ctx, h); len(got) != 5 {
			t.Errorf("responses: %q", got)
		}
		equal(t, "reports", reports(), "requested", "withdrawn")
		wantBudgets(t, ctx, h, 1, "clerk requested", "clerk withdrawn")
		wantNoQuestion(t, ctx, h)
	}, thrifty("clerk", m, ofDay(3)))
}

// TestBudgetMessagesLeave deletes a message that waits, and lets the deadline of another one pass. The question ends with the last of them.
func TestBudgetMessagesLeave(t *testing.T) {
	m := &answerModel{}
	budgetDesk(t, func(t *testing.T, ctx context.Context, h *dohosttest.Host, _ func() []string) {
		send(t, ctx, h, fromAda("1")...)
		h.Advance(5 * time.Second)
		late := asking("3")
		late.Deadline = time.Now().Add(8 * time.Minute)
		send(t, ctx, h, asking("2"), late)
		h.Advance(5 * time.Second)
		want := func(n int) {
			t.Helper()
			if list := openQuestions(t, ctx, h); len(list) != 1 || list[0].Messages != n {
				t.Fatalf("questions: %+v, want %d messages", list, n)
			}
		}
		want(2)
		inDesk(t, ctx, h, func(ctx context.Context, d *desk) error {
			_, err := messages.Update(ctx, d.Storage(), "2", func(m *inbox.Message) error {
				m.Content = "changed"
				return nil
			})
			return err
		})
		h.Advance(5 * time.Second)
		want(2)
		inDesk(t, ctx, h, func(ctx context.Context, d *desk) error {
			_, err := messages.Delete(ctx, d.Storage(), "2")
			return err
		})
		want(1)
		inDesk(t, ctx, h, func(ctx context.Context, d *desk) error { // a message that changes still waits
			_, err := messages.Update(ctx, d.Storage(), "3", func(m *inbox.Message) error {
				m.Content = "changed"
				return nil
			})
			return err
		})
		want(1)
		h.Advance(11 * time.Minute)
		equal(t, "states", states(t, ctx, h), "3 expired")
		wantBudgets(t, ctx, h, 0, "clerk requested", "clerk withdrawn")
		wantNoQuestion(t, ctx, h)
	}, thrifty("clerk", m, ofDay(1)))
}

// TestBudgetUntilDeadline sends requests with deadlines while a budget is exhausted. A cycle that waits ends at the deadline, and not before it.
func TestBudgetUntilDeadline(t *testing.T) {
	budgetDesk(t, func(t *testing.T, ctx context.Context, h *dohosttest.Host, _ func() []string) {
		send(t, ctx, h, fromAda("1")...)
		h.Advance(5 * time.Second)
		send(t, ctx, h, within("2", 90*time.Second), within("3", 7*time.Minute), within("4", 0))
		for _, c := range []struct {
			until  time.Duration
			states []string
		}{
			{89990 * time.Millisecond, []string{"2 waiting", "3 waiting", "4 waiting"}}, {20 * time.Millisecond, []string{"2 expired", "3 waiting", "4 waiting"}},
			{329980 * time.Millisecond, []string{"2 expired", "3 waiting", "4 waiting"}}, {20 * time.Millisecond, []string{"2 expired", "3 expired", "4 waiting"}},
		} {
			h.Advance(c.until)
			equal(t, "states", states(t, ctx, h), c.states...)
		}
		if list := openQuestions(t, ctx, h); len(list) != 1 || list[0].Messages != 1 {
			t.Errorf("questions: %+v", list)
		}
	}, thrifty("clerk", &answerModel{}, ofDay(1)))
}

// TestBudgetGrantedDuringRefusal grants a budget when the call of a cycle is refused already, and its question is not stored yet. The cycle is repeated
// after a second, without a question.
func TestBudgetGrantedDuringRefusal(t *testing.T) {
	in := inbox.ForMessages[desk](&messages, thrifty("clerk", &answerModel{}, chat.Budget{Agent: chat.Limit{Cost: 1}}))
	generate, refused := in.Generate, func() {}
	in.Generate = func(d *desk, ctx context.Context, c *inbox.Cycle[inbox.Message]) (inbox.Response, error) {
		refused()
		return generate(d, ctx, c)
	}
	runDesk(t, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		send(t, ctx, h, asking("1"))
		h.Advance(5 * time.Second)
		event := func(fn func(ctx context.Context, d *desk) error) {
			h.Client(func(ctx context.Context) error { return desks.Get(h, "a").Do(ctx, fn) })
			time.Sleep(time.Millisecond) // with the turn: the event is in line
		}
		refused = func() {
			refused = func() {}
			event(func(ctx context.Context, _ *desk) error {
				time.Sleep(time.Second) // the call that will be refused is in line
				event(func(ctx context.Context, d *desk) error { return chat.GrantBudget(ctx, d, chat.BudgetOfAgent, "") })
				return nil
			})
		}
		send(t, ctx, h, asking("2"))
		h.Advance(5 * time.Second)
		equal(t, "responses", responses(t, ctx, h), "1 to planner 1", "2 to planner 2")
		wantBudgets(t, ctx, h, 1)
		wantNoQuestion(t, ctx, h)
	}, inbox.On(in))
}

// TestBudgetMessageLeavesDuringCycle has a cycle whose only message leaves the inbox before the agent finds its budget exhausted.
func TestBudgetMessageLeavesDuringCycle(t *testing.T) {
	in := inbox.ForMessages[desk](&messages, thrifty("clerk", &answerModel{}, ofDay(1)))
	generate := in.Generate
	in.Generate = func(d *desk, ctx context.Context, c *inbox.Cycle[inbox.Message]) (inbox.Response, error) {
		if _, err := messages.Delete(ctx, d.Storage(), "2"); err != nil {
			return inbox.Response{}, err
		}
		return generate(d, ctx, c)
	}
	runDesk(t, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		for _, id := range []string{"1", "2"} {
			send(t, ctx, h, asking(id))
			h.Advance(5 * time.Second)
		}
		wantBudgets(t, ctx, h, 0, "clerk requested", "clerk withdrawn")
		wantNoQuestion(t, ctx, h)
	}, inbox.On(in))
}

// TestBudgetOfTwoAgents has two agents in one object, which share the amounts. An approval for one extends both, and counts once.
func TestBudgetOfTwoAgents(t *testing.T) {
	m, other := &answerModel{}, &answerModel{}
	budgetDesk(t, func(t *testing.T, ctx context.Context, h *dohosttest.Host, reports func() []string) {
		send(t, ctx, h, asking("1"), asking("2"))
		h.Advance(5 * time.Second)
		forCook := asking("4")
		forCook.To = "cook"
		send(t, ctx, h, asking("3"), forCook)
		h.Advance(5 * time.Second)
		list := openQuestions(t, ctx, h)
		if len(list) != 2 || list[0].Agent != "clerk" || list[1].Agent != "cook" {
			t.Fatalf("questions: %+v", list)
		}
		if err := decide(ctx, h, &inbox.BudgetDecision{Question: list[1].ID, Approve: true}); err != nil {
			t.Error(err)
		}
		if err := decide(ctx, h, &inbox.BudgetDecision{Question: list[0].ID, Approve: true}); !errors.Is(err, inbox.ErrNoQuestion) {
			t.Errorf("a decision about the other question: %v", err)
		}
		h.Advance(5 * time.Second)
		equal(t, "prompts", m.took(), "u:1", "u:1 a:1 u:2", "u:1 a:1 u:2 a:2 u:3")
		equal(t, "prompts of the cook", other.took(), "u:4")
		equal(t, "reports", reports(), "requested", "requested", "withdrawn", "approved")
		wantBudgets(t, ctx, h, 1, "clerk requested", "cook requested", "clerk withdrawn", "cook approved")
		wantNoQuestion(t, ctx, h)
	}, thrifty("clerk", m, ofDay(2)), thrifty("cook", other, ofDay(2)))
}

// TestBudgetOfAnotherAgent has a model that returns the error of the budget of another agent. The cycle waits, and asks nothing.
func TestBudgetOfAnotherAgent(t *testing.T) {
	foreign := fmt.Errorf("asked: %w", &chat.BudgetError{Scope: chat.BudgetOfAgent, Measure: "cost", Spent: 1, Limit: 1})
	m := &answerModel{fail: func(asked int) error {
		if asked == 1 {
			return foreign
		}
		return nil
	}}
	budgetDesk(t, func(t *testing.T, ctx context.Context, h *dohosttest.Host, reports func() []string) {
		send(t, ctx, h, fromAda("1")...)
		h.Advance(4 * time.Minute)
		wantNoQuestion(t, ctx, h)
		equal(t, "responses", responses(t, ctx, h))
		h.Advance(2 * time.Minute)
		equal(t, "responses", responses(t, ctx, h), "1 to ada")
		equal(t, "reports", reports())
	}, thrifty("clerk", m, chat.Budget{Agent: chat.Limit{Cost: 10}}))
}

// TestBudgetByOperator lists a question as operators see it, and decides it with their requests.
func TestBudgetByOperator(t *testing.T) {
	m := &answerModel{}
	budgetDesk(t, func(t *testing.T, ctx context.Context, h *dohosttest.Host, _ func() []string) {
		id := dohost.ID{Class: string(desks), Name: "a"}
		budgets := func(kind string) (list []dohost.Resource) {
			t.Helper()
			for d, err := range h.Host().FindDetails(ctx, id, &dohost.DetailQuery{Kind: kind}) {
				if err != nil {
					t.Fatal(err)
				}
				list = append(list, d)
			}
			return list
		}
		operate := func(r dohost.AdminRequest) (bool, error) {
			r.Kind = "budget"
			return h.Host().Operate(ctx, id, &r)
		}
		send(t, ctx, h, fromAda("1")...)
		for i, action := range []dohost.Action{dohost.ActionDeny, dohost.ActionApprove} {
			send(t, ctx, h, asking(fmt.Sprint("r", i)))
			h.Advance(5 * time.Second)
			list := budgets("budget")
			if len(list) != 1 || !strings.HasPrefix(list[0].Text, `agent "clerk", budget of the day `) || !strings.Contains(list[0].Text, ": cost 1 of 1, since ") ||
				!strings.HasSuffix(list[0].Text, ", 1 messages wait") || len(list[0].Can) != 2 || list[0].Fields["agent"] != "clerk" || list[0].Counts["messages"] != 1 {
				t.Fatalf("questions: %+v", list)
			}
			for _, wrong := range []dohost.AdminRequest{
				{Action: action, ID: list[0].ID, Digest: "d"}, {Action: dohost.ActionRetry, ID: list[0].ID},
				{Action: action, ID: list[0].ID, Actor: strings.Repeat("a", 257)}, {Action: action, ID: list[0].ID, Reason: strings.Repeat("r", 2049)},
			} {
				done, err := operate(wrong)
				if _, ok := errors.AsType[*dohost.ArgumentError](err); done || !ok {
					t.Errorf("the request %.60v: %t, %v", wrong, done, err)
				}
			}
			for _, want := range []bool{true, false} {
				if done, err := operate(dohost.AdminRequest{Action: action, ID: list[0].ID, Actor: "mia", Reason: "x"}); done != want || err != nil {
					t.Errorf("%s: %t, %v", action, done, err)
				}
			}
		}
		h.Advance(5 * time.Second)
		equal(t, "responses", responses(t, ctx, h), "1 to ada", "r1 to planner r1")
		var log []string
		for _, d := range budgets("budget-event") {
			log = append(log, d.State+" "+d.Fields["actor"]+" "+d.Fields["reason"])
		}
		equal(t, "events", log, "approved mia x", "requested  ", "denied mia x", "requested  ")
		if err := decide(ctx, h, nil); !errors.Is(err, dohost.ErrMisuse) {
			t.Errorf("no decision: %v", err)
		}
	}, thrifty("clerk", m, ofDay(1)))
}

// TestBudgetForClients has a class that lets clients decide. A client that may only read cannot, and cannot grant.
func TestBudgetForClients(t *testing.T) {
	in := inbox.ForMessages[desk](&messages, thrifty("clerk", &answerModel{}, ofDay(1)))
	runDesk(t, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		send(t, ctx, h, asking("1"), asking("2"))
		h.Advance(5 * time.Second)
		list := openQuestions(t, ctx, h)
		if len(list) != 1 {
			t.Fatalf("questions: %+v", list)
		}
		id := dohost.ID{Class: string(desks), Name: "a"}
		call := func(rights dohost.Rights, method, arg string) error {
			r := httptest.NewRequestWithContext(dohost.GrantAccess(ctx, dohost.Access{Rights: rights}), http.MethodPost, "/", nil)
			ctx, err := h.Host().AuthorizeCall(r, id, method)
			if err == nil {
				_, err = h.Host().Invoke(ctx, id, method, []byte(`"`+arg+`"`))
			}
			return err
		}
		for method, arg := range map[string]string{"approve": list[0].ID, "deny": list[0].ID, "grant": list[0].Name} {
			if err := call(dohost.RightsReadOnly, method, arg); !errors.Is(err, dohost.ErrForbidden) {
				t.Errorf("%s by a client that may only read: %v", method, err)
			}
		}
		wantBudgets(t, ctx, h, 0, "clerk requested")
		if err := call(dohost.RightsReadWrite, "approve", list[0].ID); err != nil {
			t.Error(err)
		}
		wantBudgets(t, ctx, h, 1, "clerk requested", "clerk approved")
	}, inbox.On(in),
		agent.Callable("approve", dohost.NoResult(func(d *desk, ctx context.Context, id string) error {
			return inbox.DecideBudget(ctx, d, &inbox.BudgetDecision{Question: id, Approve: true})
		})),
		agent.Callable("deny", dohost.NoResult(func(d *desk, ctx context.Context, id string) error {
			return inbox.DecideBudget(ctx, d, &inbox.BudgetDecision{Question: id})
		})),
		agent.Callable("grant", dohost.NoResult(func(d *desk, ctx context.Context, day string) error {
			return chat.GrantBudget(ctx, d, chat.BudgetOfDay, day)
		})))
}

// eventNumbers returns the numbers and the actions of the audit log.
func eventNumbers(t *testing.T, ctx context.Context, h *dohosttest.Host) (list []string) {
	t.Helper()
	inDesk(t, ctx, h, func(ctx context.Context, d *desk) error {
		for e, err := range inbox.BudgetEvents(ctx, d) {
			if err != nil {
				return err
			}
			list = append(list, fmt.Sprint(e.Number, " ", e.Action))
		}
		return nil
	})
	return list
}

// TestBudgetEventsExpire lets the retention period of the audit log pass. Each new event deletes up to two that are too old.
func TestBudgetEventsExpire(t *testing.T) {
	budgetDesk(t, func(t *testing.T, ctx context.Context, h *dohosttest.Host, _ func() []string) {
		want := func(numbers ...string) {
			t.Helper()
			equal(t, "events", eventNumbers(t, ctx, h), numbers...)
		}
		send(t, ctx, h, asking("0"))
		for _, id := range []string{"1", "2"} {
			send(t, ctx, h, asking(id))
			h.Advance(5 * time.Second)
			if err := decide(ctx, h, &inbox.BudgetDecision{Question: openQuestions(t, ctx, h)[0].ID, Approve: true}); err != nil {
				t.Error(err)
			}
			h.Advance(5 * time.Second)
		}
		want("1 requested", "2 approved", "3 requested", "4 approved")
		inDesk(t, ctx, h, func(ctx context.Context, d *desk) error {
			return inbox.AgeBudgetEvents(ctx, d.Storage(), 90*24*time.Hour)
		})
		send(t, ctx, h, asking("3"))
		h.Advance(5 * time.Second)
		want("3 requested", "4 approved", "5 requested")
	}, thrifty("clerk", &answerModel{}, chat.Budget{Agent: chat.Limit{Cost: 1}}))
}

// TestBudgetEventsAreBounded fills the audit log: a message that waits for a decision is inserted and deleted. The log keeps the newest 10,000 events.
func TestBudgetEventsAreBounded(t *testing.T) {
	budgetDesk(t, func(t *testing.T, ctx context.Context, h *dohosttest.Host, _ func() []string) {
		wait := func(id string) {
			send(t, ctx, h, asking(id))
			h.Advance(time.Second)
		}
		leave := func(id string) {
			inDesk(t, ctx, h, func(ctx context.Context, d *desk) error {
				_, err := messages.Delete(ctx, d.Storage(), id)
				return err
			})
		}
		want := func(numbers ...string) {
			t.Helper()
			equal(t, "events", eventNumbers(t, ctx, h), numbers...)
		}
		send(t, ctx, h, asking("0"))
		h.Advance(5 * time.Second)
		for _, id := range []string{"1", "2"} {
			wait(id)
			leave(id)
		}
		want("1 requested", "2 withdrawn", "3 requested", "4 withdrawn")
		inDesk(t, ctx, h, func(ctx context.Context, d *desk) error {
			return inbox.NumberBudgetEvent(ctx, d.Storage(), 4, inbox.MaxBudgetEvents)
		})
		wait("3")
		want("2 withdrawn", "3 requested", "10000 withdrawn", "10001 requested")
		leave("3")
		want("3 requested", "10000 withdrawn", "10001 requested", "10002 withdrawn")
		inDesk(t, ctx, h, func(ctx context.Context, d *desk) error { // as if the log had had no bound: it becomes shorter
			return errors.Join(inbox.NumberBudgetEvent(ctx, d.Storage(), 10_000, 2), inbox.NumberBudgetEvent(ctx, d.Storage(), 10_001, 5))
		})
		wait("4")
		want("5 requested", "10002 withdrawn", "10003 requested")
	}, thrifty("clerk", &answerModel{}, chat.Budget{Agent: chat.Limit{Cost: 1}}))
}
