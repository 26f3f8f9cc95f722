package cli

import (
	"context"
	"iter"
	"strings"
	"testing"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/agent"
	"github.com/dohost/dohost/chat"
	"github.com/dohost/dohost/inbox"
)

// inboxAgents are agents with an inbox, and with a model that has a budget of one answer.
const inboxAgents dohost.Namespace[inboxAgent] = "clerk"

type inboxAgent struct{ *agent.Agent[struct{}] }

var letters = inbox.Messages("letters", nil)

// TestBudgetCommands runs the commands of an operator about exhausted budgets.
func TestBudgetCommands(t *testing.T) {
	a := &inbox.Agent{
		Name: "ada", Model: echoModel{}, Budget: chat.Budget{Agent: chat.Limit{Cost: 1}}, Price: func(chat.Usage) int64 { return 1 },
	}
	h, s := serveAdmin(t, agent.Bind(inboxAgents, func(_ context.Context, a *agent.Agent[struct{}]) (*inboxAgent, error) { return &inboxAgent{a}, nil }, nil,
		inbox.On(inbox.ForMessages[inboxAgent](&letters, a))))
	// ask sends a request, and returns when it has a response, or a question about the budget.
	ask := func(id string) (question string) {
		t.Helper()
		m := inbox.Message{ID: id, From: "mia", To: "ada", Content: id, Request: id}
		err := inboxAgents.Get(h, "1").Do(t.Context(), func(ctx context.Context, c *inboxAgent) error {
			if _, err := inbox.Send(ctx, c.Storage(), &letters, m); err != nil {
				return err
			}
			for {
				list, err := inbox.BudgetQuestions(ctx, c)
				if err != nil || len(list) > 0 {
					question = list[0].ID
					return err
				}
				if _, ok, err := inbox.Reply(ctx, c.Storage(), &letters, m); ok || err != nil {
					return err
				}
				if err := c.Rows().Wait(ctx); err != nil {
					return err
				}
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		return question
	}
	expect := func(status int, want string, args ...string) {
		t.Helper()
		var stdout, stderr strings.Builder
		args = append(args, "--admin", strings.TrimPrefix(s.URL, "http://"))
		if got := (App{}).run(t.Context(), args, stdio{strings.NewReader(""), &stdout, &stderr}); got != status ||
			!strings.Contains(stdout.String()+stderr.String(), want) {
			t.Errorf("%q: status %d, %s%swant %d, %s", args, got, stdout.String(), stderr.String(), status, want)
		}
	}
	if q := ask("one"); q != "" {
		t.Errorf("the first request has the question %s", q)
	}
	expect(0, "clerk/1 has no call and no budget that waits for an approval\n", "approvals", "clerk/1")
	q := ask("two")
	const text = `agent "ada", budget of the agent: cost 1 of 1, since `
	expect(0, q+", waiting, "+text, "show", "clerk/1")
	expect(0, q+"  waiting  "+text, "approvals", "clerk/1")
	expect(1, "clerk/1 has no call and no budget budget_1", "approve", "clerk/1", "budget_1")
	expect(1, "has no digest", "approve", "clerk/1", q, "--digest", "d")
	expect(0, "denied budget "+q+" of clerk/1: "+text, "deny", "clerk/1", q, "--actor", "ben")
	expect(1, "clerk/1 has no call and no budget "+q, "approve", "clerk/1", q)
	again := ask("three")
	if again == "" || again == q {
		t.Errorf("the questions are %q and %q", q, again)
	}
	expect(0, "approved budget "+again+" of clerk/1: "+text, "approve", "clerk/1", again, "--actor", "mia", "--reason", "it is cheap")
	err := inboxAgents.Get(h, "1").Do(t.Context(), func(ctx context.Context, c *inboxAgent) error {
		ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		_, err := inbox.WaitReply(ctx, c, &letters, inbox.Message{ID: "three", From: "mia", To: "ada", Request: "three"})
		return err
	})
	if err != nil {
		t.Error(err)
	}
	expect(0, `by "mia", because "it is cheap"`, "approvals", "clerk/1", "--log")
	expect(0, `by "ben"`, "approvals", "clerk/1", "--log")
}

// echoModel answers with the last message.
type echoModel struct{}

// Stream implements [chat.Model].
func (echoModel) Stream(_ context.Context, p *chat.Prompt) iter.Seq2[chat.Chunk, error] {
	return func(yield func(chat.Chunk, error) bool) {
		yield(chat.TextDelta("1", p.Messages[len(p.Messages)-1].PlainText()), nil)
	}
}
