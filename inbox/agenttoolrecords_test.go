package inbox_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/agent"
	"github.com/dohost/dohost/chat"
	"github.com/dohost/dohost/dohosttest"
	"github.com/dohost/dohost/inbox"
	"github.com/dohost/dohost/ledger"
)

// wantRecords compares the numbers of the records of requests of agent tools in an object: of the requests of cycles, and of the requests that cycles wait for.
func wantRecords(t *testing.T, ctx context.Context, d *desk, asked, awaited int) {
	t.Helper()
	for of, want := range map[string]int{"dohost.inbox.asked": asked, "dohost.inbox.awaited": awaited} {
		records := dohost.Collection[any]{Name: of, Key: func(any) string { return "" }}
		if n, err := records.Count(ctx, d.Storage(), nil); n != want || err != nil {
			t.Errorf("%d rows of %q, want %d, %v", n, of, want, err)
		}
	}
}

// wantNoRecords expects that an object has no such record.
func wantNoRecords(t *testing.T, ctx context.Context, h *dohosttest.Host) {
	t.Helper()
	inDesk(t, ctx, h, func(ctx context.Context, d *desk) error {
		wantRecords(t, ctx, d, 0, 0)
		return nil
	})
}

// slowTeam returns an agent a, which may ask b, which thinks for a minute.
func slowTeam() []agent.Entry[desk] {
	return team(func(a *inbox.Agent, _ []inbox.AgentTool) {
		if a.Name == "b" {
			a.Model = &relay{name: "b", wait: time.Minute}
		}
	}, "a", "b")
}

// TestAgentToolOfRepeatedRequest sends a request three times, whose cycles ask another agent. Those that get no response of their own leave no record.
func TestAgentToolOfRepeatedRequest(t *testing.T) {
	runDesk(t, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		for i := range 3 {
			send(t, ctx, h, inbox.Message{ID: fmt.Sprint("m", i), From: "ada", To: "a", Content: "b: hi", Request: "r1"})
			h.Advance(3 * time.Second)
		}
		h.Advance(10 * time.Minute)
		if got := replyTo(t, ctx, h, "a", "r1"); got != "a heard (b says hi)" {
			t.Errorf("%q", got)
		}
		wantNoRecords(t, ctx, h)
	}, slowTeam()...)
}

// TestAgentToolOfDeletedMessage deletes messages, also one with a long id, while their cycles wait for another agent.
func TestAgentToolOfDeletedMessage(t *testing.T) {
	runDesk(t, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		for _, id := range []string{"1", strings.Repeat("x", 900)} {
			send(t, ctx, h, inbox.Message{ID: id, From: "ada", To: "a", Content: "b: hi", Request: id})
			h.Advance(3 * time.Second)
			inDesk(t, ctx, h, func(ctx context.Context, d *desk) error {
				_, err := messages.Delete(ctx, d.Storage(), id)
				return err
			})
			h.Advance(10 * time.Minute)
		}
		wantNoRecords(t, ctx, h)
	}, slowTeam()...)
}

// TestAgentToolOfMovedMessage changes the time and the agent of messages while a cycle waits for another agent. A message with another time
// remains in the inbox, and one of another agent does not.
func TestAgentToolOfMovedMessage(t *testing.T) {
	runDesk(t, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		askA(t, ctx, h, "b: hi")
		h.Advance(3 * time.Second)
		move := func(asked, awaited int, how func(m *inbox.Message)) {
			t.Helper()
			inDesk(t, ctx, h, func(ctx context.Context, d *desk) error {
				rows, err := messages.List(ctx, d.Storage(), nil)
				for _, row := range rows {
					_, moveErr := messages.Update(ctx, d.Storage(), row.Key, func(m *inbox.Message) error { how(m); return nil })
					err = errors.Join(err, moveErr)
				}
				wantRecords(t, ctx, d, asked, awaited)
				return err
			})
		}
		move(1, 1, func(m *inbox.Message) { m.Created = m.Created.Add(time.Second) })
		move(0, 0, func(m *inbox.Message) { m.To = "c" })
	}, slowTeam()...)
}

// TestWaitReplyForOlderMessage waits for a request to an unknown name that is older than the inboxes of the class, and so has no record.
func TestWaitReplyForOlderMessage(t *testing.T) {
	dohosttest.Run(t, &dohosttest.Options{Classes: []dohost.Class{deskClass()}}, func(t *testing.T, h *dohosttest.Host) {
		asked := inbox.Message{ID: "1", From: "ada", To: "b", Content: "hi", Request: "r1"}
		send(t, t.Context(), h, asked)
		h.Advance(time.Second)
		if err := h.Restart(deskClass(team(nil, "a")...)); err != nil {
			t.Fatal(err)
		}
		begun := time.Now()
		if _, err := waitReply(t.Context(), h, asked); !errors.Is(err, inbox.ErrNoReply) || time.Since(begun) > time.Second {
			t.Errorf("%v after %v", err, time.Since(begun))
		}
	})
}

// TestAgentToolLimitWithSlowTool has a step that asks a silent agent and calls a tool that takes ten minutes. The error of the time limit is there when
// the tool has ended.
func TestAgentToolLimitWithSlowTool(t *testing.T) {
	slow := chat.Tool{ToolSpec: chat.ToolSpec{Name: "slow"}, Policy: ledger.PolicyIdempotent, Timeout: -1, Run: func(ctx context.Context, _ json.RawMessage) (any, error) {
		return map[string]string{"response": "s"}, dohost.Sleep(ctx, 10*time.Minute)
	}}
	runDesk(t, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		askA(t, ctx, h, "person: hi & slow: x")
		h.Advance(10*time.Minute + 5*time.Second)
		if got := replyTo(t, ctx, h, "a", "r1"); !strings.Contains(got, "did not answer within 2m0s") || !strings.HasSuffix(got, ", s)") {
			t.Errorf("%q", got)
		}
	}, append(team(func(a *inbox.Agent, _ []inbox.AgentTool) {
		a.Agents = []inbox.AgentTool{(&inbox.Agent{Name: "person"}).Tool(&messages)}
		a.Tools = []chat.Tool{slow}
	}, "a"), answeredElsewhere("person"))...)
}

// TestAgentToolOfMovedRequest has a large response of another name to a request: a program has changed its To.
func TestAgentToolOfMovedRequest(t *testing.T) {
	text := strings.Repeat("y", 600<<10)
	runDesk(t, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		askA(t, ctx, h, "person: hi")
		h.Advance(5 * time.Second)
		m := requests(t, ctx, h, "other")[0]
		err := desks.Get(h, "other").Do(ctx, func(ctx context.Context, d *desk) error {
			_, err := messages.Update(ctx, d.Storage(), m.ID, func(m *inbox.Message) error { m.To = "person2"; return nil })
			return errors.Join(err, messages.Insert(ctx, d.Storage(), inbox.Message{
				ID: "answer", Role: chat.RoleAssistant, Content: text, From: "person2", To: "a", InReplyTo: m.Request, Created: time.Now(), Processed: time.Now(),
			}))
		})
		h.Advance(5 * time.Second)
		if got := replyTo(t, ctx, h, "a", "r1"); got != "a heard ("+text+")" || err != nil {
			t.Errorf("%.100q, %v", got, err)
		}
	}, append(team(func(a *inbox.Agent, _ []inbox.AgentTool) {
		a.Agents = []inbox.AgentTool{(&inbox.Agent{Name: "person"}).Tool(&messages)}
		elsewhere("other")(a, a.Agents)
	}, "a"), inbox.Elsewhere[desk](func(name string) bool { return strings.HasPrefix(name, "person") }))...)
}

// TestAgentToolAsksClassWithoutInbox asks an object whose class has an OnRows over the messages, and no inbox: it would wake no caller.
func TestAgentToolAsksClassWithoutInbox(t *testing.T) {
	const labs dohost.Namespace[lab] = "lab"
	class := agent.Bind(labs, func(_ context.Context, a *agent.Agent[struct{}]) (*lab, error) { return &lab{a}, nil }, nil,
		agent.OnRows(&messages, "pending", func(*lab, context.Context, dohost.Row[inbox.Message]) error { return errors.New("not yet") }, nil))
	asking := deskClass(team(func(a *inbox.Agent, _ []inbox.AgentTool) {
		tool := (&inbox.Agent{Name: "person"}).Tool(&messages)
		tool.To = func(context.Context, inbox.Ref, json.RawMessage) (dohost.ID, error) {
			return dohost.ID{Class: "lab", Name: "x"}, nil
		}
		a.Agents = []inbox.AgentTool{tool}
	}, "a")...)
	dohosttest.Run(t, &dohosttest.Options{Classes: []dohost.Class{asking, class}}, func(t *testing.T, h *dohosttest.Host) {
		askA(t, t.Context(), h, "person: hi")
		h.Advance(time.Second)
		if got := replyTo(t, t.Context(), h, "a", "r1"); !strings.Contains(got, "the object is no agent, or has no such inbox") {
			t.Errorf("%q", got)
		}
	})
}
