package inbox_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/agent"
	"github.com/dohost/dohost/dohosttest"
	"github.com/dohost/dohost/inbox"
)

// TestAgentToolLeavesTheAgentFree has an agent that waits for another one, which thinks for a minute in another object. Until then it answers
// another message, and is idle. The models are asked once for each answer, although the conversation has become longer.
func TestAgentToolLeavesTheAgentFree(t *testing.T) {
	log := &asked{}
	runDesk(t, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		askA(t, ctx, h, "b: hi")
		h.Advance(5 * time.Second)
		send(t, ctx, h, inbox.Message{ID: "2", From: "bob", To: "a", Content: "and I"})
		h.Advance(2 * time.Second)
		inDesk(t, ctx, h, func(ctx context.Context, d *desk) error {
			n, err := messages.Count(ctx, d.Storage(), &dohost.Query[inbox.Message]{Where: func(m inbox.Message) bool { return m.Content == "a says and I" }})
			tasks, err2 := d.Rows().List(ctx, nil)
			if n != 1 || len(tasks) != 1 || tasks[0].State != agent.RowsWaiting || tasks[0].Attempt != 0 ||
				!strings.Contains(tasks[0].Error, "the agent b of desk/other has not answered the request ask_") {
				t.Errorf("%d responses; the rows are %+v", n, tasks)
			}
			return errors.Join(err, err2)
		})
		h.Advance(40 * time.Second)
		for info := range h.Host().Live() {
			if info.ID.Name == "a" && (len(info.Pins) > 0 || info.Idle < 35*time.Second) {
				t.Errorf("the object of the caller is busy: %+v", info)
			}
		}
		h.Advance(15 * time.Second) // b has been thinking for 60 s
		if got := replyTo(t, ctx, h, "a", "r1"); got != "a heard (b says hi)" {
			t.Errorf("%q", got)
		}
		equal(t, "the prompts", log.took(), "a got b: hi", "b got hi", "a got and I")
	}, team(func(a *inbox.Agent, tools []inbox.AgentTool) {
		r := &relay{name: a.Name, log: log}
		if a.Model = r; a.Name == "b" {
			r.wait = time.Minute
		}
		elsewhere("other")(a, tools)
	}, "a", "b")...)
}

// TestAgentsAskEachOther has two agents that ask each other for two users. Neither waits for the other's cycle.
func TestAgentsAskEachOther(t *testing.T) {
	for _, object := range []string{"a", "other"} {
		t.Run(object, func(t *testing.T) {
			runDesk(t, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
				askA(t, ctx, h, "b: hi")
				at := desks.Get(h, object)
				err := at.Do(ctx, func(ctx context.Context, d *desk) error {
					_, err := inbox.Send(ctx, d.Storage(), &messages, inbox.Message{ID: "2", From: "bob", To: "b", Content: "a: hello", Request: "r2"})
					return err
				})
				if err != nil {
					t.Fatal(err)
				}
				h.Advance(5 * time.Second)
				if got := replyTo(t, ctx, h, "a", "r1"); got != "a heard (b says hi)" {
					t.Errorf("%q", got)
				}
				err = at.Do(ctx, func(ctx context.Context, d *desk) error {
					m, _, err := inbox.Reply(ctx, d.Storage(), &messages, inbox.Message{From: "bob", To: "b", Request: "r2"})
					if m.Content != "b heard (a says hello)" {
						t.Errorf("%q", m.Content)
					}
					return err
				})
				if err != nil {
					t.Error(err)
				}
			}, team(func(a *inbox.Agent, tools []inbox.AgentTool) {
				if object != "a" {
					elsewhere(object)(a, tools)
				}
			}, "a", "b")...)
		})
	}
}

// TestAgentToolWithManyCallers has more callers than the asked object may have events. All of them get their answers.
func TestAgentToolWithManyCallers(t *testing.T) {
	o := &dohosttest.Options{
		Options: dohost.Options{MaxEvents: 8},
		Classes: []dohost.Class{deskClass(team(func(a *inbox.Agent, tools []inbox.AgentTool) {
			if a.Name == "a" {
				elsewhere("other")(a, tools)
			}
		}, "a", "b")...)},
	}
	const callers = 40
	dohosttest.Run(t, o, func(t *testing.T, h *dohosttest.Host) {
		ctx := t.Context()
		for i := range callers {
			err := askOnce(ctx, h, fmt.Sprint("a", i), inbox.Message{ID: "1", To: "a", Content: fmt.Sprint("b: ", i)})
			if err != nil {
				t.Fatal(err)
			}
		}
		h.Advance(time.Minute) // b answers one request in a second
		for i := range callers {
			err := desks.Get(h, fmt.Sprint("a", i)).Do(ctx, func(ctx context.Context, d *desk) error {
				m, _, err := inbox.Reply(ctx, d.Storage(), &messages, inbox.Message{From: "ada", To: "a", Request: "r1"})
				if want := fmt.Sprintf("a heard (b says %d)", i); m.Content != want {
					t.Errorf("%q, want %q", m.Content, want)
				}
				return err
			})
			if err != nil {
				t.Error(err)
			}
		}
	})
}

// TestAgentToolWithoutWakeUp has a response that a version of the program without inboxes has stored: no wake-up follows. The caller polls again after
// five minutes.
func TestAgentToolWithoutWakeUp(t *testing.T) {
	for _, object := range []string{"a", "other"} {
		t.Run(object, func(t *testing.T) {
			class := func() dohost.Class {
				return deskClass(append(team(func(a *inbox.Agent, _ []inbox.AgentTool) {
					a.Agents = []inbox.AgentTool{(&inbox.Agent{Name: "person"}).Tool(&messages)}
					a.Agents[0].Timeout = time.Hour
					if object != "a" {
						elsewhere(object)(a, a.Agents)
					}
				}, "a"), answeredElsewhere("person"))...)
			}
			dohosttest.Run(t, &dohosttest.Options{Classes: []dohost.Class{class()}}, func(t *testing.T, h *dohosttest.Host) {
				ctx := t.Context()
				askA(t, ctx, h, "person: hi")
				h.Advance(time.Minute)
				if err := h.Restart(deskClass()); err != nil {
					t.Fatal(err)
				}
				err := desks.Get(h, object).Do(ctx, func(ctx context.Context, d *desk) error {
					rows, err := messages.List(ctx, d.Storage(), &dohost.Query[inbox.Message]{Where: func(m inbox.Message) bool { return m.To == "person" && m.From == "a" }})
					if err != nil || len(rows) != 1 {
						return fmt.Errorf("%d requests, %w", len(rows), err)
					}
					m := rows[0].Value
					return messages.Insert(ctx, d.Storage(), inbox.Message{
						ID: "answer", Role: "assistant", Content: "yes", From: "person", To: "a", InReplyTo: m.Request, Created: time.Now(), Processed: time.Now(),
					})
				})
				if err != nil {
					t.Fatal(err)
				}
				if err := h.Restart(class()); err != nil {
					t.Fatal(err)
				}
				h.Advance(3 * time.Minute)
				if got := replyTo(t, ctx, h, "a", "r1"); got != "" {
					t.Errorf("%q after four minutes", got)
				}
				h.Advance(2 * time.Minute)
				if got := replyTo(t, ctx, h, "a", "r1"); got != "a heard (yes)" {
					t.Errorf("%q after six minutes", got)
				}
			})
		})
	}
}

// TestAgentToolAnsweredByAProgram has a response and other outcomes that code of the program makes, to a name that no agent has. The caller learns of
// each immediately.
func TestAgentToolAnsweredByAProgram(t *testing.T) {
	outcomes := map[string]struct {
		make func(ctx context.Context, d *desk, m inbox.Message) error
		want string
	}{
		"a response": {func(ctx context.Context, d *desk, m inbox.Message) error {
			return messages.Insert(ctx, d.Storage(), inbox.Message{
				ID: "answer", Role: "assistant", Content: "yes", From: m.To, To: m.From, InReplyTo: m.Request, Created: time.Now(), Processed: time.Now(),
			})
		}, "a heard (yes)"},
		"a deletion": {func(ctx context.Context, d *desk, m inbox.Message) error {
			_, err := messages.Delete(ctx, d.Storage(), m.ID)
			return err
		}, "a heard (the agent person of desk/a has not answered the request NAME: inbox: no agent is going to answer the request)"},
		"a mark": {func(ctx context.Context, d *desk, m inbox.Message) error {
			_, err := messages.Update(ctx, d.Storage(), m.ID, func(m *inbox.Message) error {
				m.Processed = time.Now()
				return nil
			})
			return err
		}, "a heard (the agent person of desk/a has not answered the request NAME: inbox: no agent is going to answer the request)"},
		"an expiry": {func(ctx context.Context, d *desk, m inbox.Message) error {
			_, err := messages.Update(ctx, d.Storage(), m.ID, func(m *inbox.Message) error {
				m.Processed, m.Expired = time.Now(), true
				return nil
			})
			return err
		}, "a heard (the agent person of desk/a did not answer within 2m0s; its request NAME may still have effects)"},
	}
	for name, c := range outcomes {
		t.Run(name, func(t *testing.T) {
			runDesk(t, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
				askA(t, ctx, h, "person: hi")
				h.Advance(20 * time.Second)
				all := requests(t, ctx, h, "a")
				inDesk(t, ctx, h, func(ctx context.Context, d *desk) error { return c.make(ctx, d, all[0]) })
				h.Advance(time.Second)
				if got := named(replyTo(t, ctx, h, "a", "r1"), all); got != c.want || len(all) != 1 {
					t.Errorf("%q, want %q; %d requests", got, c.want, len(all))
				}
			}, append(team(func(a *inbox.Agent, _ []inbox.AgentTool) {
				a.Agents = []inbox.AgentTool{(&inbox.Agent{Name: "person"}).Tool(&messages)}
			}, "a"), answeredElsewhere("person"))...)
		})
	}
}

// answeredElsewhere declares a name that no agent has.
func answeredElsewhere(name string) agent.Entry[desk] {
	return inbox.Elsewhere[desk](func(other string) bool { return other == name })
}

// TestAgentToolWithUnknownName asks a name that no agent has, in the caller's object and in another one. The model has the error immediately.
func TestAgentToolWithUnknownName(t *testing.T) {
	for _, object := range []string{"a", "other"} {
		t.Run(object, func(t *testing.T) {
			runDesk(t, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
				askA(t, ctx, h, "person: hi")
				h.Advance(time.Second)
				want := "a heard (the agent person of desk/" + object + " has not answered the request NAME: inbox: no agent is going to answer the request)"
				if got := named(replyTo(t, ctx, h, "a", "r1"), requests(t, ctx, h, object)); got != want {
					t.Errorf("%q, want %q", got, want)
				}
			}, team(func(a *inbox.Agent, tools []inbox.AgentTool) {
				tools[0] = (&inbox.Agent{Name: "person"}).Tool(&messages)
				if object != "a" {
					elsewhere(object)(a, tools)
				}
			}, "a")...)
		})
	}
}
