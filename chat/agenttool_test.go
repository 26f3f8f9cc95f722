package chat_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/agent"
	"github.com/dohost/dohost/chat"
	"github.com/dohost/dohost/dohosttest"
	"github.com/dohost/dohost/internal/agenttool"
)

const members dohost.Namespace[member] = "member"

// member is an agent of a team. A message "b: text" makes it ask the agent b, "sub b: text" its sub-agent b; " & " separates
// two calls, and " && " those of the agent b. It answers any other text itself.
type member struct {
	*chat.Agent[struct{}]
	team *team
}

// team is the state that the members of a test share.
type team struct {
	options chat.AgentToolOptions
	chat    chat.Options
	think   func(ctx context.Context, m *member, r *chat.Reply) error // called before the model; may be nil
	asked   func(m *member, ctx context.Context, a chat.Asked) error  // OnAsked; may be nil
	extra   []chat.Tool
	after   map[string]time.Duration                                                            // of the handler after Answer, by the agent's name
	recover func(*member, context.Context, *chat.InterruptedReply) (chat.RecoveryAction, error) // OnRecovery; may be nil

	mu    sync.Mutex
	runs  map[string]int        // of the handler, by the agent's name
	askOf map[string]chat.Asked // of the last reply, by the agent's name
}

// askInput is the input of the tools of a member.
type askInput struct {
	To      string `json:"to,omitempty"`
	Message string `json:"message"`
}

func (tm *team) class() dohost.Class {
	tm.runs, tm.askOf = map[string]int{}, map[string]chat.Asked{}
	h := &chat.Handlers[member, struct{}]{Reply: (*member).reply, OnRecovery: tm.recover, Options: tm.chat}
	if tm.asked != nil {
		h.OnAsked = func(m *member, ctx context.Context, a chat.Asked) error { return tm.asked(m, ctx, a) }
	}
	return chat.Bind(members, func(_ context.Context, a *chat.Agent[struct{}]) (*member, error) { return &member{a, tm}, nil },
		h, agent.Sub[member](members))
}

func (m *member) reply(ctx context.Context, r *chat.Reply) error {
	tm := m.team
	tm.mu.Lock()
	tm.runs[m.Name()]++
	if a, ok := r.Asked(); ok {
		tm.askOf[m.Name()] = a
	}
	tm.mu.Unlock()
	if tm.think != nil {
		if err := tm.think(ctx, m, r); err != nil {
			return err
		}
	}
	o := tm.options
	o.Parameters = json.RawMessage(`{"type":"object","properties":{"to":{"type":"string"},"message":{"type":"string"}},"required":["message"]}`)
	o.To = func(_ context.Context, input json.RawMessage) (string, error) {
		var in askInput
		err := json.Unmarshal(input, &in)
		return in.To, err
	}
	tools := append([]chat.Tool{
		chat.AgentTool(members, "ask", "Asks an agent.", &o), chat.SubAgentTool(members, "sub", "Asks a sub-agent.", &o),
	}, tm.extra...)
	err := chat.Answer(ctx, r, relayModel{m.Name()}, &chat.AnswerOptions{Tools: tools})
	return errors.Join(err, dohost.Sleep(ctx, tm.after[m.Name()]))
}

// relayModel is the model of a member.
type relayModel struct{ name string }

// Stream implements [chat.Model].
func (m relayModel) Stream(_ context.Context, p *chat.Prompt) iter.Seq2[chat.Chunk, error] {
	return func(yield func(chat.Chunk, error) bool) {
		if p.Partial.PlainText() != "" {
			return
		}
		var results []string
		for _, part := range p.Partial.Parts {
			if part.Text("toolCallId") != "" {
				var out struct{ Response string }
				_ = json.Unmarshal(part.Member("output"), &out)
				results = append(results, cmp.Or(part.Text("errorText"), out.Response, string(part.Member("output"))))
			}
		}
		text := p.Messages[len(p.Messages)-1].PlainText()
		calls := strings.Split(text, " & ")
		switch {
		case !strings.Contains(text, ":"):
			yield(chat.TextDelta("t", m.name+" says "+text), nil)
			return
		case len(results) >= len(calls):
			yield(chat.TextDelta("t", fmt.Sprintf("%s heard (%s)", m.name, strings.Join(results, ", "))), nil)
			return
		}
		for i := len(results); i < len(calls); i++ { // an interruption may have cut the first answer off
			to, message, _ := strings.Cut(calls[i], ": ")
			tool := "ask"
			if name, ok := strings.CutPrefix(to, "sub "); ok {
				tool, to = "sub", name
			} else if name, ok := strings.CutPrefix(to, "tool "); ok {
				tool, to = name, ""
			}
			in, _ := json.Marshal(askInput{to, strings.ReplaceAll(message, "&&", "&")})
			if !yield(chat.ToolInput(fmt.Sprint("call-", i), tool, string(in)), nil) {
				return
			}
		}
	}
}

// runTeam runs f with a host that has the team.
func runTeam(t *testing.T, tm *team, f func(t *testing.T, h *dohosttest.Host)) {
	t.Helper()
	runWithHost(t, tm.class(), func(t *testing.T, _ context.Context, h *dohosttest.Host) { f(t, h) })
}

// inMember runs f in an event of a member.
func inMember(t *testing.T, h *dohosttest.Host, name string, f func(context.Context, *member) error) {
	t.Helper()
	if err := members.Get(h, name).Do(t.Context(), f); err != nil {
		t.Error(err)
	}
}

// askMember asks a member, in a request with the id "one".
func askMember(ctx context.Context, h *dohosttest.Host, name, text string) error {
	return members.Get(h, name).Do(ctx, func(ctx context.Context, m *member) error {
		_, err := chat.Ask(ctx, m, []chat.Message{chat.Text("u", chat.RoleUser, text)}, &chat.AskOptions{ID: "one"})
		return err
	})
}

// transcriptOf returns the messages of a member, as "role: text".
func transcriptOf(ctx context.Context, h *dohosttest.Host, name string) (all []string, err error) {
	err = members.Get(h, name).Do(ctx, func(ctx context.Context, m *member) error {
		list, err := chat.Messages(ctx, m, 0)
		for _, m := range list {
			all = append(all, fmt.Sprintf("%s: %s", m.Role, m.PlainText()))
		}
		return err
	})
	return all, err
}

// wantTranscript compares the messages of a member.
func wantTranscript(t *testing.T, h *dohosttest.Host, name string, want ...string) {
	t.Helper()
	got, err := transcriptOf(t.Context(), h, name)
	if err != nil || strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("%s has\n\t%s\nwant\n\t%s\n%v", name, strings.Join(got, "\n\t"), strings.Join(want, "\n\t"), err)
	}
}

// callsIn returns the calls that operators see of a member, as "tool state", and its requests, as "state" with the agent that asks.
func callsIn(t *testing.T, h *dohosttest.Host, name string) (calls, requests []string) {
	t.Helper()
	for r, err := range h.Host().Details(t.Context(), dohost.ID{Class: "member", Name: name}) {
		switch {
		case err != nil:
			t.Error(err)
		case r.Kind == "call":
			calls = append(calls, strings.TrimSpace(r.Fields["tool"]+" "+r.State+" "+r.Fields["asks"]))
		case r.Kind == "request" && !strings.HasPrefix(r.ID, "cont_"):
			requests = append(requests, strings.TrimSpace(r.State+" "+r.Fields["asked by"]))
		}
	}
	return calls, requests
}

func TestAgentToolAsksAgent(t *testing.T) {
	tm := &team{}
	runTeam(t, tm, func(t *testing.T, h *dohosttest.Host) {
		if err := askMember(t.Context(), h, "a", "b: hello"); err != nil {
			t.Fatal(err)
		}
		h.Advance(10 * time.Second)
		wantTranscript(t, h, "a", "user: b: hello", "assistant: a heard (b says hello)")
		wantTranscript(t, h, "b", "user: hello", "assistant: b says hello")
		calls, _ := callsIn(t, h, "a")
		_, requests := callsIn(t, h, "b")
		if fmt.Sprint(calls, requests) != "[ask completed member/b] [completed member/a]" {
			t.Errorf("%q, %q", calls, requests)
		}
		a := tm.askOf["b"]
		if a.From.String() != "member/a" || fmt.Sprint(a.Path) != "[member/a]" || !strings.HasPrefix(a.Request, "ask_") || a.Deadline.IsZero() {
			t.Errorf("%+v", a)
		}
		if _, ok := tm.askOf["a"]; ok {
			t.Error("the request of the program is a request of an agent")
		}
		for _, name := range []string{"a", "b"} {
			inMember(t, h, name, func(ctx context.Context, m *member) error { return m.Idle(ctx) })
		}
		h.Advance(20 * time.Minute) // the answer was delivered, so b may forget the request when the next one ends
		if err := askMember(t.Context(), h, "b", "news"); err != nil {
			t.Fatal(err)
		}
		h.Advance(10 * time.Second)
		if _, requests := callsIn(t, h, "b"); fmt.Sprint(requests) != "[completed]" {
			t.Errorf("%q", requests)
		}
	})
}

// TestAgentToolChain has agents that wait for agents: a reply that waits for a call of its own answers after its end.
func TestAgentToolChain(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"two calls":         {"b: x & c: y", "a heard (b says x, c says y)"},
		"one agent twice":   {"b: x & b: y", "a heard (b says x, b says y)"},
		"in the middle":     {"b: c: hi", "a heard (b heard (c says hi))"},
		"two in the middle": {"b: c: x & d: y", "a heard (b heard (c says x), d says y)"},
		"two chains":        {"b: c: x & b: c: y", "a heard (b heard (c says x), b heard (c says y))"},
		"two longer chains": {"b: c: d: x & b: c: d: y", "a heard (b heard (c heard (d says x)), b heard (c heard (d says y)))"},
		"a sub-agent":       {"sub b: hi", "a heard (b says hi)"},
		"of a sub-agent":    {"sub b: sub c: hi", "a heard (b heard (c says hi))"},
		"five":              {"b: c: d: e: f: hi", "a heard (b heard (c heard (d heard (e heard (f says hi)))))"},
		"six": {"b: c: d: e: f: g: hi", "a heard (b heard (c heard (d heard (e heard (f heard (no agent was asked: " +
			"6 agents would ask each other, the limit is 5: member/a → member/b → member/c → member/d → member/e → member/f))))))"},
		"a cycle": {"b: a: hi", "a heard (b heard (the agent member/a was not asked: it waits for this answer: member/a → member/b → member/a))"},
		"itself":  {"a: hi", "a heard (the agent member/a was not asked: it waits for this answer: member/a → member/a)"},
		"a cycle by a sub-agent": {"sub b: a: hi", "a heard (b heard (the agent member/a was not asked: it waits for this answer: " +
			"member/a → member/sub/member/a/b → member/a))"},
	} {
		t.Run(name, func(t *testing.T) {
			runTeam(t, &team{}, func(t *testing.T, h *dohosttest.Host) {
				if err := askMember(t.Context(), h, "a", c.text); err != nil {
					t.Fatal(err)
				}
				h.Advance(20 * time.Second) // much less than the time limit of a call
				wantTranscript(t, h, "a", "user: "+c.text, "assistant: "+c.want)
			})
		})
	}
}

// TestAgentToolParameters has schemas of the program: the message is the member of that name, or the input.
func TestAgentToolParameters(t *testing.T) {
	for schema, want := range map[string]string{
		`{"type":"object","required":["of"]}`:      `user: {"of":"7"}`,
		`{"type":"object","required":["message"]}`: "",
		`{"type":"nonsense"`:                       "",
	} {
		m := &stepsModel{steps: [][]string{{"ask:7"}}}
		tool := chat.AgentTool(countingAgents, "ask", "", &chat.AgentToolOptions{
			Parameters: json.RawMessage(schema), To: func(context.Context, json.RawMessage) (string, error) { return "other", nil },
		})
		runTools(t, m, chat.Options{}, func(*countingAgent) []chat.Tool { return []chat.Tool{tool} }, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
			h.Advance(10 * time.Second)
			list := []string{}
			err := countingAgents.Get(h, "other").Do(ctx, func(ctx context.Context, p *countingAgent) error {
				all, err := chat.Messages(ctx, p, 0)
				for _, m := range all[:min(1, len(all))] {
					list = append(list, string(m.Role)+": "+m.PlainText())
				}
				return err
			})
			if got := strings.Join(list, " "); err != nil || got != want {
				t.Errorf("%s: %q, want %q, %v", schema, got, want, err)
			}
		})
	}
}

func TestAgentToolDepthIsConfigurable(t *testing.T) {
	for depth, want := range map[int]string{
		1:  "a heard (b heard (no agent was asked: 2 agents would ask each other, the limit is 1: member/a → member/b))",
		2:  "a heard (b heard (c says hi))",
		6:  "",
		-1: "",
	} {
		runTeam(t, &team{options: chat.AgentToolOptions{Depth: depth}}, func(t *testing.T, h *dohosttest.Host) {
			if err := askMember(t.Context(), h, "a", "b: c: hi"); err != nil {
				t.Fatal(err)
			}
			h.Advance(20 * time.Second)
			if want != "" {
				wantTranscript(t, h, "a", "user: b: c: hi", "assistant: "+want)
				return
			}
			inMember(t, h, "a", func(ctx context.Context, m *member) error {
				r, _, err := chat.Wait(ctx, m, "one")
				if !strings.Contains(r.Error, fmt.Sprintf("the Depth is %d: want 1 to 5", depth)) {
					t.Errorf("depth %d: %+v", depth, r)
				}
				return err
			})
		})
	}
}

// TestAgentToolFailures has requests that get no answer, each with the state of the call.
func TestAgentToolFailures(t *testing.T) {
	for name, c := range map[string]struct {
		tm   *team
		text string
		then func(t *testing.T, h *dohosttest.Host)
		want string // NAME stands for the request
		call string
	}{
		"the agent fails": {&team{think: func(_ context.Context, m *member, _ *chat.Reply) error {
			if m.Name() == "b" {
				return &dohost.PublicError{Message: "no model"}
			}
			return nil
		}}, "b: hi", nil, "The agent member/b failed: no model", "failed"},
		"with a private error": {&team{think: func(_ context.Context, m *member, _ *chat.Reply) error {
			if m.Name() == "b" {
				return errors.New("secret")
			}
			return nil
		}}, "b: hi", nil, "The agent member/b failed: internal error", "failed"},
		"the agent refuses": {&team{asked: func(m *member, _ context.Context, a chat.Asked) error {
			return fmt.Errorf("%s does not answer %v", m.Name(), a.From)
		}}, "b: hi", nil, "The agent member/b was not asked: it refused: b does not answer member/a", "failed"},
		"the agent decides too late": {&team{asked: func(_ *member, ctx context.Context, _ chat.Asked) error {
			return dohost.Sleep(ctx, 150*time.Second)
		}}, "b: hi", func(t *testing.T, h *dohosttest.Host) {
			h.Advance(5 * time.Minute)
			wantTranscript(t, h, "b")
		}, "The agent member/b did not answer within 2m0s. ", "unknown"},
		"an invalid name": {&team{}, strings.Repeat("x", 5000) + ": hi", nil, "dohost: name ", "failed"},
		"no name":         {&team{}, ": hi", nil, "the function To returned no name", "failed"},
		"silence": {&team{think: silentMember}, "b: hi", func(_ *testing.T, h *dohosttest.Host) { h.Advance(2 * time.Minute) },
			"The agent member/b did not answer within 2m0s. Its request NAME may still have effects.", "unknown"},
		"silence, with a limit": {&team{think: silentMember, options: chat.AgentToolOptions{Timeout: 30 * time.Second}}, "b: hi",
			func(_ *testing.T, h *dohosttest.Host) { h.Advance(30 * time.Second) },
			"The agent member/b did not answer within 30s. Its request NAME may still have effects.", "unknown"},
		"the agent is stopped": {&team{think: silentMember}, "b: hi", func(t *testing.T, h *dohosttest.Host) {
			inMember(t, h, "b", func(ctx context.Context, m *member) error {
				_, err := chat.Cancel(ctx, m, m.team.askOf["b"].Request)
				return err
			})
		}, "The reply of the agent member/b was stopped.", "failed"},
		"the conversation is deleted": {&team{think: silentMember}, "b: hi", func(t *testing.T, h *dohosttest.Host) {
			inMember(t, h, "b", func(ctx context.Context, m *member) error { return chat.Clear(ctx, m) })
		}, "The reply of the agent member/b was stopped.", "failed"},
		"the conversation is deleted while the agent waits": {&team{think: silentMember}, "b: c: hi", func(t *testing.T, h *dohosttest.Host) {
			inMember(t, h, "b", func(ctx context.Context, m *member) error { return chat.Clear(ctx, m) })
		}, "The agent member/b did not answer: its conversation was deleted.", "failed"},
		"the answer is too large": {&team{think: func(ctx context.Context, m *member, r *chat.Reply) error {
			if m.Name() != "b" {
				return nil
			}
			empty, err := json.Marshal(agenttool.Output{})
			for left := 1<<20 + 1 - len(empty); left > 0 && err == nil; left -= 1 << 14 {
				err = r.Say(ctx, strings.Repeat("x", min(left, 1<<14)))
			}
			return err
		}}, "b: hi", nil, "The answer of the agent member/b has 1048577 bytes, the limit is 1048576.", "failed"},
		"the agent is destroyed": {&team{think: silentMember}, "b: hi", func(t *testing.T, h *dohosttest.Host) {
			_ = members.Get(h, "b").Do(t.Context(), func(ctx context.Context, m *member) error { return m.Destroy(ctx) })
			h.Advance(2 * time.Minute)
		}, "The agent member/b did not answer within 2m0s. Its request NAME may still have effects.", "unknown"},
	} {
		t.Run(name, func(t *testing.T) {
			tm := c.tm
			runTeam(t, tm, func(t *testing.T, h *dohosttest.Host) {
				if err := askMember(t.Context(), h, "a", c.text); err != nil {
					t.Fatal(err)
				}
				h.Advance(10 * time.Second)
				if c.then != nil {
					wantTranscript(t, h, "a", "user: "+c.text, "assistant: ")
					c.then(t, h)
					h.Advance(10 * time.Second)
				}
				got, err := transcriptOf(t.Context(), h, "a")
				want := strings.ReplaceAll(c.want, "NAME", tm.askOf["b"].Request)
				if err != nil || len(got) != 2 || !strings.HasPrefix(got[1], "assistant: a heard ("+want) {
					t.Errorf("%q, %v; want %s", got, err, want)
				}
				calls, _ := callsIn(t, h, "a")
				if len(calls) != 1 || !strings.HasPrefix(calls[0], "ask "+c.call) {
					t.Errorf("%q", calls)
				}
			})
		})
	}
}

// silentMember is a think function: no agent answers a message that asks no other agent.
func silentMember(ctx context.Context, m *member, r *chat.Reply) error {
	list, err := r.Messages(ctx, 1)
	if err != nil || strings.Contains(list[0].PlainText(), ":") {
		return err
	}
	return dohost.Sleep(ctx, 24*time.Hour)
}
