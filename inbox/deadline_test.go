package inbox_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/agent"
	"github.com/dohost/dohost/chat"
	"github.com/dohost/dohost/dohosttest"
	"github.com/dohost/dohost/inbox"
	"github.com/dohost/dohost/internal/pointtest"
	"github.com/dohost/dohost/ledger"
)

// within returns a request of the planner with a deadline after a time.
func within(id string, after time.Duration) inbox.Message {
	m := inbox.Message{ID: id, From: "planner", To: "clerk", Content: id, Request: "r" + id}
	if after != 0 {
		m.Deadline = time.Now().Add(after)
	}
	return m
}

// states returns the requests in the order of their ids: expired, waiting, or with their responses.
func states(t *testing.T, ctx context.Context, h *dohosttest.Host) (list []string) {
	t.Helper()
	inDesk(t, ctx, h, func(ctx context.Context, d *desk) error {
		rows, err := messages.List(ctx, d.Storage(), &dohost.Query[inbox.Message]{Where: func(m inbox.Message) bool { return m.Request != "" }})
		if err != nil {
			return err
		}
		for _, row := range rows {
			m := row.Value
			r, answered, err := inbox.Reply(ctx, d.Storage(), &messages, m)
			if err != nil {
				return err
			}
			state := m.ID + " " + r.Content
			if m.Processed.IsZero() {
				state += "waiting"
			}
			if m.Expired {
				state += "expired"
			}
			if answered && m.Expired {
				t.Errorf("%s is expired, and has the response %q", m.ID, r.Content)
			}
			list = append(list, state)
		}
		return nil
	})
	return list
}

// TestDeadline sends requests whose deadlines end before the cycle, during it and after it. The model takes a second. It is not asked for an
// expired request, nor is such a request in a later prompt, an attempt that has failed, or an error of the program.
func TestDeadline(t *testing.T) {
	m := &answerModel{}
	in := inbox.ForMessages[desk](&messages, &inbox.Agent{Name: "clerk", Model: m, Options: agent.RowsOptions{Retry: dohost.RetryPolicy{MaxAttempts: 1}}})
	in.OnError = func(_ *desk, _ context.Context, err error, _ []dohost.Row[inbox.Message]) { t.Error(err) }
	generate, cycles := in.Generate, 0
	in.Generate = func(d *desk, ctx context.Context, c *inbox.Cycle[inbox.Message]) (inbox.Response, error) {
		cycles++
		return generate(d, ctx, c)
	}
	var reports []string
	o := &dohosttest.Options{Classes: []dohost.Class{deskClass(inbox.On(in))}}
	o.Options.Listener.Service = func(_ dohost.ID, event string, attrs ...slog.Attr) {
		if event != "chat:model" {
			reports = append(reports, fmt.Sprint(event, attrs))
		}
	}
	dohosttest.Run(t, o, func(t *testing.T, h *dohosttest.Host) {
		ctx := t.Context()
		send(t, ctx, h, within("1", 0), within("2", 1200*time.Millisecond), within("3", 1100*time.Millisecond), within("4", time.Hour), within("5", -time.Second))
		h.Advance(1500 * time.Millisecond)
		equal(t, "states", states(t, ctx, h), "1 1", "2 expired", "3 expired", "4 waiting", "5 waiting")
		h.Advance(10 * time.Second)
		equal(t, "states", states(t, ctx, h), "1 1", "2 expired", "3 expired", "4 4", "5 expired")
		send(t, ctx, h, inbox.Message{ID: "6", From: "ada", Content: "6"})
		h.Advance(10 * time.Second)
		equal(t, "prompts", m.took(), "u:1", "u:1 a:1 u:2", "u:1 a:1 u:4", "u:1 a:1 u:4 a:4 u:6")
		if n := waiting(t, ctx, h); n != 0 || cycles != 4 {
			t.Errorf("%d messages wait after %d calls of Generate", n, cycles)
		}
	})
	equal(t, "reports", reports, "inbox:expired[agent=clerk from=planner request=r2]",
		"inbox:expired[agent=clerk from=planner request=r3]", "inbox:expired[agent=clerk from=planner request=r5]")
}

// TestDeadlineOfAnsweredRequest sends a request again after its response, with a deadline that is over, and one in two messages: the later
// deadline counts.
func TestDeadlineOfAnsweredRequest(t *testing.T) {
	in := inbox.ForMessages[desk](&messages, &inbox.Agent{Name: "clerk", Model: &answerModel{}})
	runDesk(t, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		again := func(of, id string, after time.Duration) inbox.Message {
			m := within(id, after)
			m.Request = "r" + of
			return m
		}
		send(t, ctx, h, within("1", time.Hour))
		h.Advance(5 * time.Second)
		send(t, ctx, h, within("3", 100*time.Millisecond), again("3", "4", time.Hour), within("5", 100*time.Millisecond), again("5", "6", 0))
		h.Advance(10 * time.Second)
		send(t, ctx, h, again("1", "2", -time.Second))
		h.Advance(10 * time.Second)
		equal(t, "states", states(t, ctx, h), "1 1", "2 1", "3 3+4", "4 3+4", "5 5+6", "6 5+6")
		if got := responses(t, ctx, h); len(got) != 3 {
			t.Errorf("the responses %q", got)
		}
	}, inbox.On(in))
}

// TestWaitReplyUntilDeadline waits for requests that expire: of an agent that is busy, of a name that is answered elsewhere, and after the deadline.
func TestWaitReplyUntilDeadline(t *testing.T) {
	in := inbox.ForMessages[desk](&messages, &inbox.Agent{Name: "clerk", Model: &relay{name: "clerk", wait: time.Minute}})
	runDesk(t, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		nobody := within("2", 3*time.Second)
		nobody.To = "nobody"
		send(t, ctx, h, within("1", 0), nobody, within("3", 2*time.Second), within("4", -time.Second))
		begun := time.Now()
		for _, c := range []struct {
			id    string
			after time.Duration
		}{{"4", 0}, {"3", 2 * time.Second}, {"2", 3 * time.Second}, {"3", 3 * time.Second}} {
			asked := within(c.id, 0)
			if c.id == nobody.ID {
				asked = nobody
			}
			if _, err := waitReply(ctx, h, asked); !errors.Is(err, inbox.ErrExpired) || !errors.Is(err, inbox.ErrNoReply) {
				t.Errorf("%s: %v", c.id, err)
			}
			if took := time.Since(begun); took < c.after || took > c.after+10*time.Millisecond {
				t.Errorf("the wait for %s ended after %v, want %v", c.id, took, c.after)
			}
		}
		equal(t, "states", states(t, ctx, h), "1 waiting", "2 waiting", "3 waiting", "4 waiting")
		h.Advance(2 * time.Minute)
		equal(t, "states", states(t, ctx, h), "1 clerk says 1", "2 waiting", "3 expired", "4 expired")
		if _, err := waitReply(ctx, h, nobody); !errors.Is(err, inbox.ErrExpired) { // no call for the messages runs or will begin
			t.Errorf("2, at rest: %v", err)
		}
	}, inbox.On(in), answeredElsewhere("nobody"))
}

// TestDeadlineMistakes sends messages with deadlines that are not valid.
func TestDeadlineMistakes(t *testing.T) {
	runDesk(t, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		plain, far, expired := within("1", time.Hour), within("2", 0), within("3", 0)
		plain.Request, far.Deadline, expired.Expired = "", time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC), true
		for _, m := range []inbox.Message{plain, far, expired} {
			inDesk(t, ctx, h, func(ctx context.Context, d *desk) error {
				if _, err := inbox.Send(ctx, d.Storage(), &messages, m); !errors.Is(err, dohost.ErrMisuse) {
					t.Errorf("%+v: %v", m, err)
				}
				return nil
			})
		}
	})
}

// TestDeadlineWaitsForTool has a deadline during a tool. The tool is not interrupted: its effect would be unknown. Then the model is not asked
// again.
func TestDeadlineWaitsForTool(t *testing.T) {
	ended := 0
	slow := chat.Tool{ToolSpec: chat.ToolSpec{Name: "slow"}, Run: func(ctx context.Context, _ json.RawMessage) (any, error) {
		err := dohost.Sleep(ctx, 10*time.Second)
		ended++
		return "done", err
	}}
	chunks := chat.StoredChunks("chunks", nil)
	a := &inbox.Agent{Name: "clerk", Model: lookingModel{"slow"}, Tools: []chat.Tool{slow}, Chunks: chunks}
	generations := dohost.Collection[struct{ Place string }]{
		Name: "dohost.inbox.generations", Key: func(r struct{ Place string }) string { return r.Place },
	}
	begun := func(ctx context.Context, d *desk) int {
		n, err := generations.Count(ctx, d.Storage(), nil)
		if err != nil {
			t.Error(err)
		}
		return n
	}
	runDesk(t, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		send(t, ctx, h, within("1", 2*time.Second))
		h.Advance(5 * time.Second)
		equal(t, "states", states(t, ctx, h), "1 waiting")
		inDesk(t, ctx, h, func(ctx context.Context, d *desk) error {
			if n := begun(ctx, d); n != 1 {
				t.Errorf("%d generations during the cycle", n)
			}
			return nil
		})
		h.Advance(6 * time.Second)
		equal(t, "states", states(t, ctx, h), "1 expired")
		inDesk(t, ctx, h, func(ctx context.Context, d *desk) error {
			if rows, err := chunks.Rows.List(ctx, d.Storage(), nil); len(rows) != 2 || begun(ctx, d) != 0 {
				t.Errorf("%d chunks, %d generations after the cycle, %v", len(rows), begun(ctx, d), err)
			}
			var outcomes []string
			for op, err := range ledger.All(ctx, d.Object()) {
				if err != nil {
					return err
				}
				outcomes = append(outcomes, fmt.Sprint(op.Kind, " ", op.Status))
			}
			slices.Sort(outcomes)
			equal(t, "operations", outcomes, "clerk/model step completed", "clerk/model step failed", "clerk/slow completed")
			return nil
		})
		if ended != 1 {
			t.Errorf("the tool has ended %d times", ended)
		}
	}, inbox.On(inbox.ForMessages[desk](&messages, a)))
}

// TestAgentToolExpiresRequest has an agent that would answer a minute after the time limit, and a caller that is killed later. The asked agent
// ends at the limit, and asks no other agent for longer. The repeated cycle has the error of the first one.
func TestAgentToolExpiresRequest(t *testing.T) {
	for _, limit := range []time.Duration{-1, time.Hour} {
		t.Run(fmt.Sprint(limit), func(t *testing.T) { askExpiring(t, limit) })
	}
}

// askExpiring has an agent b that answers a, and asks d with a time limit of its own.
func askExpiring(t *testing.T, limit time.Duration) {
	log := &asked{}
	runDesk(t, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		askA(t, ctx, h, "b: d: hi & c: slowly")
		h.Advance(119 * time.Second)
		all := requests(t, ctx, h, "a")
		for _, m := range all { // d has the deadline of b
			if want := map[string]time.Duration{"b": 2 * time.Minute, "c": time.Hour, "d": 2 * time.Minute}[m.To]; m.Deadline.Sub(all[0].Created) != want {
				t.Errorf("the request to %s has the deadline after %v, want %v", m.To, m.Deadline.Sub(all[0].Created), want)
			}
		}
		h.Advance(2 * time.Second)
		for _, m := range requests(t, ctx, h, "a") {
			if m.Expired != (m.To != "c") || m.Expired == m.Processed.IsZero() {
				t.Errorf("the request to %s is %+v", m.To, m)
			}
		}
		h.Advance(time.Minute)
		h.Kill()
		h.Advance(10 * time.Minute)
		if got := named(replyTo(t, ctx, h, "a", "r1"), all); got != "a heard ("+lateText+", c says slowly)" || len(all) != 3 {
			t.Errorf("%q, %d requests", got, len(all))
		}
		equal(t, "prompts", log.took(), "a got b: d: hi & c: slowly") // and none with a response
	}, team(func(a *inbox.Agent, tools []inbox.AgentTool) {
		r := &relay{name: a.Name}
		a.Model = r
		switch a.Name {
		case "a":
			tools[2].Timeout, r.log = time.Hour, log
		case "b":
			tools[3].Timeout = limit
		case "c":
			r.wait = 8 * time.Minute
		case "d":
			r.wait = 3 * time.Minute
		}
	}, "a", "b", "c", "d")...)
}

// TestAgentToolDiscardsLateResponse has a Wait that returns a response of a time after the time limit.
func TestAgentToolDiscardsLateResponse(t *testing.T) {
	for after, want := range map[time.Duration]string{time.Minute: "a heard (tea)", 2 * time.Minute: "a heard (" + lateText + ")"} {
		t.Run(fmt.Sprint(after), func(t *testing.T) {
			var asked []inbox.Message
			tool := inbox.AgentTool{
				Name: "b",
				Insert: func(_ context.Context, _ inbox.Ref, m inbox.Message) (inbox.Message, error) {
					asked = append(asked, m)
					return m, nil
				},
				Wait: func(_ context.Context, _ inbox.Ref, m inbox.Message) (inbox.Message, error) {
					if got := m.Deadline.Sub(m.Created); got != 2*time.Minute {
						t.Errorf("the deadline is after %v", got)
					}
					return inbox.Message{Content: "tea", Created: m.Created.Add(after)}, nil
				},
			}
			a := &inbox.Agent{Name: "a", Model: &relay{name: "a"}, Agents: []inbox.AgentTool{tool}}
			runDesk(t, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
				askA(t, ctx, h, "b: hi")
				h.Advance(10 * time.Second)
				if got := named(replyTo(t, ctx, h, "a", "r1"), asked); got != want {
					t.Errorf("%q, want %q", got, want)
				}
			}, inbox.On(inbox.ForMessages[desk](&messages, a)))
		})
	}
}

// TestDeadlineAtEveryPoint has a researcher with two requests of ada, the first of them with a deadline during its cycle, and a planner that asks
// it twice, one after the other. The first question expires while the researcher is busy. Wherever an incarnation of either or the process ends,
// each request has one response and is not expired, or has none and is; the planner has the response that is stored, or an error. The
// two are in one object, and in two objects.
func TestDeadlineAtEveryPoint(t *testing.T) {
	for name, researcher := range map[string]string{"one object": "a", "two objects": "other"} {
		t.Run(name, func(t *testing.T) {
			set := func(a *inbox.Agent, tools []inbox.AgentTool) {
				a.Model = &relay{name: a.Name, then: "b: z"}
				if researcher != "a" {
					elsewhere(researcher)(a, tools)
				}
				tools[1].Timeout = 1400 * time.Millisecond
			}
			s := dohosttest.Scenario{
				Classes:  []dohost.Class{deskClass(team(set, "a", "b")...)},
				Places:   pointtest.Places(),
				FullDisk: true,
				Run: func(ctx context.Context, h *dohosttest.Host) error {
					soon := time.Now().Add(500 * time.Millisecond)
					err := askOnce(ctx, h, researcher, inbox.Message{ID: "2", To: "b", Content: "v", Deadline: soon}, inbox.Message{ID: "3", To: "b", Content: "w"})
					return errors.Join(err, askOnce(ctx, h, "a", inbox.Message{ID: "1", To: "a", Content: "b: x"}))
				},
				Check: func(ctx context.Context, h *dohosttest.Host) error { return checkExpired(ctx, h, researcher) },
			}
			dohosttest.EveryPoint(t, pointtest.Scenario(s, 6, 40))
		})
	}
}

// checkExpired compares the requests of the researcher and of the planner with their responses.
func checkExpired(ctx context.Context, h *dohosttest.Host, object string) error {
	heard := map[string]string{}
	err := desks.Get(h, object).Do(ctx, func(ctx context.Context, d *desk) error {
		rows, err := messages.List(ctx, d.Storage(), &dohost.Query[inbox.Message]{Where: func(m inbox.Message) bool { return m.To == "b" }})
		if err != nil {
			return err
		}
		for _, row := range rows {
			m := row.Value
			r, answered, err := inbox.Reply(ctx, d.Storage(), &messages, m)
			if err != nil || m.Processed.IsZero() || answered == m.Expired || answered && !m.Deadline.IsZero() && !r.Created.Before(m.Deadline) {
				return fmt.Errorf("the request %+v with the response %t, %+v, %w", m, answered, r, err)
			}
			heard[m.Content] = r.Content
			if m.Expired {
				heard[m.Content] = fmt.Sprintf("the agent b of desk/%s did not answer within 1.4s; its request %s may still have effects", object, m.Request)
			}
		}
		tasks, err := d.Rows().List(ctx, nil)
		if len(rows) != 4 || len(tasks) > 0 || heard["w"] != "b says w" || heard["v"] == "b says v" {
			return fmt.Errorf("%d requests, %q, the tasks %+v, %w", len(rows), heard, tasks, err)
		}
		return err
	})
	if err != nil {
		return err
	}
	return desks.Get(h, "a").Do(ctx, func(ctx context.Context, d *desk) error {
		m, _, err := inbox.Reply(ctx, d.Storage(), &messages, inbox.Message{From: "ada", To: "a", Request: "r1"})
		if want := fmt.Sprintf("a heard (%s, %s)", heard["x"], heard["z"]); m.Content != want {
			return fmt.Errorf("the response %q, want %q, %w", m.Content, want, err)
		}
		return err
	})
}
