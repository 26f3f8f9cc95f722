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
)

// askA sends a request of ada to the agent a.
func askA(t *testing.T, ctx context.Context, h *dohosttest.Host, text string) {
	t.Helper()
	send(t, ctx, h, inbox.Message{ID: "1", From: "ada", To: "a", Content: text, Request: "r1"})
}

// named replaces the ids of requests by NAME.
func named(text string, list []inbox.Message) string {
	for _, m := range list {
		text = strings.ReplaceAll(text, m.Request, "NAME")
	}
	return text
}

const lateText = "the agent b of desk/a did not answer within 2m0s; its request NAME may still have effects"

// TestAgentToolWithSilentAgent asks a name that is answered elsewhere. The model gets an error after the time limit, which a kill of the process does not
// extend, and asks the same again: that is a second request.
func TestAgentToolWithSilentAgent(t *testing.T) {
	runDesk(t, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		askA(t, ctx, h, "b: hi")
		h.Advance(time.Minute)
		h.Kill()
		h.Advance(59 * time.Second)
		if n := len(requests(t, ctx, h, "a")); n != 1 {
			t.Errorf("%d requests within the time limit", n)
		}
		h.Advance(2 * time.Second)
		if n := len(requests(t, ctx, h, "a")); n != 2 {
			t.Errorf("%d requests after the time limit", n)
		}
		h.Advance(118 * time.Second)
		if got := replyTo(t, ctx, h, "a", "r1"); got != "" {
			t.Errorf("%q before the end of the second limit", got)
		}
		h.Advance(2 * time.Second)
		all := requests(t, ctx, h, "a")
		if got := named(replyTo(t, ctx, h, "a", "r1"), all); got != "a heard ("+lateText+", "+lateText+")" || len(all) != 2 {
			t.Errorf("%q, %d requests", got, len(all))
		}
	}, append(team(func(a *inbox.Agent, tools []inbox.AgentTool) {
		a.Model = &relay{name: "a", then: "b: hi"}
		a.Agents = []inbox.AgentTool{(&inbox.Agent{Name: "b"}).Tool(&messages)}
	}, "a"), answeredElsewhere("b"))...)
}

// TestAgentToolWithParkedRequest asks an agent whose cycles fail.
func TestAgentToolWithParkedRequest(t *testing.T) {
	runDesk(t, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		askA(t, ctx, h, "b: hi")
		h.Advance(20 * time.Second)
		got := replyTo(t, ctx, h, "a", "r1")
		if !strings.Contains(got, "the agent b of desk/a has not answered the request ask_") || !strings.Contains(got, inbox.ErrNoReply.Error()) {
			t.Errorf("%q", got)
		}
	}, team(func(a *inbox.Agent, _ []inbox.AgentTool) {
		if a.Name == "b" {
			a.Model, a.Options.Retry.MaxAttempts = &answerModel{fail: func(int) error { return errors.New("broken") }}, 2
		}
	}, "a", "b")...)
}

// TestAgentToolAcrossDowntime closes the host for 20 minutes while agents wait for each other. The time limit counts, and a response
// within it counts after the downtime.
func TestAgentToolAcrossDowntime(t *testing.T) {
	for name, c := range map[string]struct {
		limit, thinks time.Duration
		object        string // of the asked agents
		want          string
	}{
		"a long limit":                {time.Hour, time.Minute, "a", "b says hi, c says x"},
		"the default limit":           {0, time.Minute, "a", lateText + ", c says x"},
		"a response in the time":      {0, time.Second, "a", "b says hi, c says x"},
		"a response in the time, far": {0, time.Second, "other", "b says hi, c says x"},
		"no limit":                    {-1, time.Minute, "a", "b says hi, c says x"},
	} {
		t.Run(name, func(t *testing.T) {
			runDesk(t, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
				askA(t, ctx, h, "b: hi & c: x") // c keeps the caller busy during the downtime
				h.Advance(10 * time.Second)
				if err := h.Host().Close(); err != nil {
					t.Log(err) // it names the cycles
				}
				h.Advance(20 * time.Minute)
				if err := h.Restart(); err != nil {
					t.Fatal(err)
				}
				h.Advance(5 * time.Minute)
				all := requests(t, ctx, h, c.object)
				if got := named(replyTo(t, ctx, h, "a", "r1"), all); got != "a heard ("+c.want+")" || len(all) != 2 {
					t.Errorf("%q, want %q; %d requests", got, c.want, len(all))
				}
			}, team(func(a *inbox.Agent, tools []inbox.AgentTool) {
				r := &relay{name: a.Name}
				a.Model = r
				if c.object != "a" {
					elsewhere(c.object)(a, tools)
				}
				switch a.Name {
				case "a":
					tools[1].Timeout, tools[2].Timeout = c.limit, time.Hour
				case "b":
					r.wait = c.thinks
				case "c":
					r.wait = time.Minute
				}
			}, "a", "b", "c")...)
		})
	}
}

// elsewhere makes the tools of agents ask those of another object.
func elsewhere(object string) func(*inbox.Agent, []inbox.AgentTool) {
	return func(_ *inbox.Agent, tools []inbox.AgentTool) {
		for i := range tools {
			tools[i].To = func(_ context.Context, by inbox.Ref, _ json.RawMessage) (dohost.ID, error) {
				to := object
				if by.Object().ID().Name == object {
					to = "a"
				}
				return dohost.ID{Class: "desk", Name: to}, nil
			}
		}
	}
}

// TestAgentToolAsksAnotherObject has agents of two objects, of one name as well.
func TestAgentToolAsksAnotherObject(t *testing.T) {
	for text, want := range map[string]string{
		"b: hi":    "a heard (b says hi)",
		"a: hi":    "a heard (a says hi)", // that of the other object
		"b: c: hi": "a heard (b heard (c says hi))",
		"b: a: hi": "a heard (b heard (the agent a of desk/a was not asked: it waits for this answer: a of desk/a → b of desk/other → a of desk/a))",
	} {
		t.Run(text, func(t *testing.T) {
			runDesk(t, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
				askA(t, ctx, h, text)
				h.Advance(1500 * time.Millisecond)
				h.EvictAll()
				h.Advance(30 * time.Second)
				if got := replyTo(t, ctx, h, "a", "r1"); got != want {
					t.Errorf("%q, want %q", got, want)
				}
				if n := len(requests(t, ctx, h, "other")); n != 1 {
					t.Errorf("%d requests in the other object", n)
				}
			}, team(elsewhere("other"), "a", "b", "c")...)
		})
	}
}

// lab is an agent of another class, with a collection of its own.
type lab struct{ *agent.Agent[struct{}] }

// TestAgentToolAsksAnotherClass has two agents of different classes that share nothing but the collection of one of them.
func TestAgentToolAsksAnotherClass(t *testing.T) {
	const labs dohost.Namespace[lab] = "lab"
	samples := inbox.Messages("samples", nil)
	researcher := &inbox.Agent{Name: "researcher", Model: &relay{name: "researcher"}}
	labClass := agent.Bind(labs, func(_ context.Context, a *agent.Agent[struct{}]) (*lab, error) { return &lab{a}, nil }, nil,
		inbox.On(inbox.ForMessages[lab](&samples, researcher)))
	tool := researcher.Tool(&samples)
	tool.To = func(_ context.Context, by inbox.Ref, _ json.RawMessage) (dohost.ID, error) {
		return labs.Get(by.Object(), "north").ID(), nil
	}
	a := &inbox.Agent{Name: "a", Model: &relay{name: "a"}, Agents: []inbox.AgentTool{tool}}
	classes := []dohost.Class{labClass, deskClass(inbox.On(inbox.ForMessages[desk](&messages, a)))}
	dohosttest.Run(t, &dohosttest.Options{Classes: classes}, func(t *testing.T, h *dohosttest.Host) {
		askA(t, t.Context(), h, "researcher: hi")
		h.Advance(500 * time.Millisecond)
		h.Kill()
		h.Advance(20 * time.Second)
		if got := replyTo(t, t.Context(), h, "a", "r1"); got != "a heard (researcher says hi)" {
			t.Errorf("%q", got)
		}
		err := labs.Get(h, "north").Do(t.Context(), func(ctx context.Context, l *lab) error {
			rows, err := samples.List(ctx, l.Storage(), &dohost.Query[inbox.Message]{Where: func(m inbox.Message) bool { return len(m.Path) > 0 }})
			if len(rows) != 1 || rows[0].Value.Path[0].String() != "a of desk/a" {
				t.Errorf("the requests %+v", rows)
			}
			return err
		})
		if err != nil {
			t.Error(err)
		}
	})
}

// TestAgentToolAsksNoAgent asks objects that have no such agent.
func TestAgentToolAsksNoAgent(t *testing.T) {
	for object, want := range map[string]string{
		"nobody/a": "there is no such object",
		"desk/":    "is empty",
		"!":        "no desk today",
	} {
		t.Run(object, func(t *testing.T) {
			runDesk(t, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
				askA(t, ctx, h, "b: hi")
				h.Advance(10 * time.Second)
				if got := replyTo(t, ctx, h, "a", "r1"); !strings.HasPrefix(got, "a heard (") || !strings.Contains(got, want) {
					t.Errorf("%q, want %q", got, want)
				}
			}, team(func(_ *inbox.Agent, tools []inbox.AgentTool) {
				tools[1].To = func(context.Context, inbox.Ref, json.RawMessage) (dohost.ID, error) {
					class, name, ok := strings.Cut(object, "/")
					if !ok {
						return dohost.ID{}, errors.New("no desk today")
					}
					return dohost.ID{Class: class, Name: name}, nil
				}
			}, "a", "b")...)
		})
	}
}

// TestAgentToolParameters has schemas of the program: the content is the member "message", or the input.
func TestAgentToolParameters(t *testing.T) {
	for schema, want := range map[string]string{
		`{"type":"object","required":["message"]}`: "hi",
		`{"type":"object"}`:                        "hi",
		`{"type":"object","required":["of"]}`:      "",
		`{"properties":{"message":{"enum":[7]}}}`:  "",
	} {
		t.Run(schema, func(t *testing.T) {
			runDesk(t, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
				askA(t, ctx, h, "b: hi")
				h.Advance(10 * time.Second)
				content := ""
				for _, m := range requests(t, ctx, h, "a") {
					content += m.Content
				}
				if content != want {
					t.Errorf("the content is %q, want %q", content, want)
				}
			}, team(func(_ *inbox.Agent, tools []inbox.AgentTool) { tools[1].Parameters = json.RawMessage(schema) }, "a", "b")...)
		})
	}
}

// TestAgentToolWithFunctions asks an agent with rows of its own, by Insert and Wait, which may have the name of the agent that asks.
func TestAgentToolWithFunctions(t *testing.T) {
	for _, name := range []string{"tickets", "a"} {
		t.Run(name, func(t *testing.T) { askByFunctions(t, name) })
	}
}

func askByFunctions(t *testing.T, name string) {
	tool := inbox.AgentTool{
		Name: name, Parameters: json.RawMessage(`{"type":"object"}`),
		Insert: func(ctx context.Context, by inbox.Ref, m inbox.Message) (inbox.Message, error) {
			_, ok, err := tickets.Get(ctx, by.Storage(), m.ID)
			if err == nil && !ok {
				err = tickets.Insert(ctx, by.Storage(), ticket{ID: m.ID, Text: m.Content})
			}
			return m, err
		},
		Wait: func(ctx context.Context, by inbox.Ref, asked inbox.Message) (inbox.Message, error) {
			for {
				row, _, err := tickets.Get(ctx, by.Storage(), asked.ID)
				if err != nil || row.Value.Answer != "" {
					return inbox.Message{Content: row.Value.Answer}, err
				}
				if err := by.Rows().Wait(ctx); err != nil {
					return inbox.Message{}, err
				}
			}
		},
	}
	a := &inbox.Agent{Name: "a", Model: &relay{name: "a"}, Agents: []inbox.AgentTool{tool}}
	runDesk(t, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		askA(t, ctx, h, name+": hi")
		h.Advance(1500 * time.Millisecond)
		h.Kill()
		h.Advance(20 * time.Second)
		if got := replyTo(t, ctx, h, "a", "r1"); got != "a heard (HI)" {
			t.Errorf("%q", got)
		}
	}, inbox.On(inbox.ForMessages[desk](&messages, a)), inbox.On(ticketInbox()))
}

// TestAgentToolMistakes has descriptions that lack parts: Open names them.
func TestAgentToolMistakes(t *testing.T) {
	plain := dohost.Collection[inbox.Message]{Name: "plain", Key: func(m inbox.Message) string { return m.ID }}
	insert := func(_ context.Context, _ inbox.Ref, m inbox.Message) (inbox.Message, error) { return m, nil }
	for want, tool := range map[string]inbox.AgentTool{
		`"b" needs Messages, the collection of the asked agent, or else Insert`: {Name: "b"},
		`"b" needs Wait, which waits for the response`:                          {Name: "b", Insert: insert},
		`"b" needs Insert, which inserts the request`:                           {Name: "b", Wait: insert},
		`"b" has Messages and one of Insert and Wait`:                           {Name: "b", Messages: &messages, Wait: insert},
		`"b" has the collection "plain", which has no index "reply"`:            {Name: "b", Messages: &plain},
		`"" needs a Name`:             {Messages: &messages},
		`"b" has the Depth 6`:         {Name: "b", Messages: &messages, Depth: 6},
		`two tools have the name "x"`: {Name: "x", Messages: &messages},
		`tool "b": the Parameters`:    {Name: "b", Messages: &messages, Parameters: json.RawMessage(`{"type":`)},
	} {
		a := &inbox.Agent{Name: "a", Model: &answerModel{}, Agents: []inbox.AgentTool{tool}, Tools: []chat.Tool{
			{ToolSpec: chat.ToolSpec{Name: "x"}, Run: func(context.Context, json.RawMessage) (any, error) { return nil, nil }},
		}}
		h, err := dohost.Open(t.TempDir(), nil, deskClass(inbox.On(inbox.ForMessages[desk](&messages, a))))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
		if err == nil {
			h.Close()
		}
	}
}

// TestAgentToolKeep has records of an agent that end before the time limit of its agent tool.
func TestAgentToolKeep(t *testing.T) {
	for _, c := range []struct {
		keep, limit time.Duration
		ok          bool
	}{{0, -1, true}, {time.Hour, 59 * time.Minute, true}, {time.Hour, time.Hour, false}, {time.Hour, -1, false}, {2 * time.Minute, 0, false}} {
		tool := inbox.AgentTool{Name: "b", Messages: &messages, Timeout: c.limit}
		a := &inbox.Agent{Name: "a", Model: &answerModel{}, Keep: c.keep, Agents: []inbox.AgentTool{tool}}
		h, err := dohost.Open(t.TempDir(), nil, deskClass(inbox.On(inbox.ForMessages[desk](&messages, a))))
		if (err == nil) != c.ok || err != nil && !strings.Contains(err.Error(), `the agent tool "b" may wait as long or longer`) {
			t.Errorf("Keep %v, a limit of %v: %v", c.keep, c.limit, err)
		}
		if err == nil {
			h.Close()
		}
	}
}

// TestAgentToolDepthIsConfigurable bounds a chain of three agents to two.
func TestAgentToolDepthIsConfigurable(t *testing.T) {
	runDesk(t, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		askA(t, ctx, h, "b: c: hi")
		h.Advance(10 * time.Second)
		want := "a heard (b heard (no agent was asked: 2 agents would ask each other, the limit is 1: a of desk/a → b of desk/a))"
		if got := replyTo(t, ctx, h, "a", "r1"); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}, team(func(_ *inbox.Agent, tools []inbox.AgentTool) { tools[2].Depth = 1 }, "a", "b", "c")...)
}

// TestAgentToolInRepeatedCycle changes the message of a user while its agent waits for another one. The repeated cycle makes the same call, which
// is the same request.
func TestAgentToolInRepeatedCycle(t *testing.T) {
	runDesk(t, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		askA(t, ctx, h, "b: hi")
		h.Advance(500 * time.Millisecond)
		change(t, ctx, h, "1", func(m *inbox.Message) error { m.Created = m.Created.Add(time.Millisecond); return nil })
		h.Advance(20 * time.Second)
		if got, all := replyTo(t, ctx, h, "a", "r1"), requests(t, ctx, h, "a"); got != "a heard (b says hi)" || len(all) != 1 {
			t.Errorf("%q, %d requests: %s", got, len(all), fmt.Sprint(all))
		}
	}, team(nil, "a", "b")...)
}
