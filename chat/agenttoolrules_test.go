package chat_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/chat"
	"github.com/dohost/dohost/dohosttest"
	"github.com/dohost/dohost/internal/pointtest"
)

// requestIDs finds the random ids of requests, which would differ in a replay.
var requestIDs = regexp.MustCompile(`ask_[0-9a-z]+`)

// teamScenario returns a scenario: the member a gets a text, and answers want. Each of the others has exactly its transcript.
func teamScenario(tm *team, text, want string, others map[string][]string) dohosttest.Scenario {
	s := variant(scenario(&countingState{}, &testClients{}, tm.class()))
	s.Reset = func() { clear(tm.runs) }
	s.Run = func(ctx context.Context, h *dohosttest.Host) error {
		for answered := false; !answered; time.Sleep(10 * time.Second) {
			err := askMember(ctx, h, "a", text)
			if ctx.Err() != nil {
				return err
			}
			list, _ := transcriptOf(ctx, h, "a")
			answered = len(list) == 2 && list[1] != "assistant: "
		}
		return nil
	}
	s.Check = func(ctx context.Context, h *dohosttest.Host) error {
		all := map[string][]string{"a": {"user: " + text, "assistant: " + want}}
		for name, list := range others {
			all[name] = list
		}
		for name, want := range all {
			got, err := transcriptOf(ctx, h, name)
			if err != nil {
				return err
			}
			slices.Sort(got) // concurrent calls have no order
			slices.Sort(want)
			if !slices.Equal(got, want) {
				return fmt.Errorf("%s has %s, want %q", name, requestIDs.ReplaceAllString(fmt.Sprintf("%q", got), "ask_…"), want)
			}
			err = members.Get(h, name).Do(ctx, func(ctx context.Context, m *member) error { return m.Idle(ctx) })
			if err != nil {
				return err
			}
		}
		return nil
	}
	return s
}

// TestAgentToolAtEveryPoint ends the planner a and the researcher b everywhere: b gets one request for each call, and a uses one
// answer of each.
func TestAgentToolAtEveryPoint(t *testing.T) {
	cases := map[string]struct {
		text, want string
		others     map[string][]string
	}{
		"two calls": {"b: x & b: y", "a heard (b says x, b says y)",
			map[string][]string{"b": {"user: x", "assistant: b says x", "user: y", "assistant: b says y"}}},
		"chain": {"b: c: hi", "a heard (b heard (c says hi))",
			map[string][]string{"b": {"user: c: hi", "assistant: b heard (c says hi)"}, "c": {"user: hi", "assistant: c says hi"}}},
		"two chains": {"b: c: x & b: c: y", "a heard (b heard (c says x), b heard (c says y))", map[string][]string{
			"b": {"user: c: x", "assistant: b heard (c says x)", "user: c: y", "assistant: b heard (c says y)"},
			"c": {"user: x", "assistant: c says x", "user: y", "assistant: c says y"}}},
		"sub-agent": {"sub b: hi", "a heard (b says hi)", nil},
	}
	if !pointtest.Case(false) {
		delete(cases, "chain") // two chains have all its steps
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tm := &team{options: chat.AgentToolOptions{Timeout: 12 * time.Hour}}
			tm.think = func(ctx context.Context, m *member, _ *chat.Reply) error {
				return dohost.Sleep(ctx, 100*time.Millisecond)
			}
			s := teamScenario(tm, c.text, c.want, c.others)
			if strings.Contains(name, "chain") {
				s = variant(s)
			}
			dohosttest.EveryPoint(t, s)
		})
	}
}

// TestAgentToolAcrossDowntime closes the host for 20 minutes while the researcher thinks. The time limit of the call counts.
func TestAgentToolAcrossDowntime(t *testing.T) {
	for limit, want := range map[time.Duration]string{
		time.Hour: "b says hi",
		0:         "The agent member/b did not answer within 2m0s. Its request NAME may still have effects.",
	} {
		tm := &team{options: chat.AgentToolOptions{Timeout: limit}}
		tm.think = func(ctx context.Context, m *member, _ *chat.Reply) error {
			if m.Name() == "a" {
				return nil
			}
			return dohost.Sleep(ctx, time.Minute)
		}
		runTeam(t, tm, func(t *testing.T, h *dohosttest.Host) {
			if err := askMember(t.Context(), h, "a", "b: hi"); err != nil {
				t.Fatal(err)
			}
			h.Advance(10 * time.Second)
			if err := h.Host().Close(); err != nil {
				t.Log(err) // it names the handler of b
			}
			h.Advance(20 * time.Minute)
			if tm.runs["b"] != 1 {
				t.Errorf("during the downtime the handler of b ran %d times", tm.runs["b"])
			}
			if err := h.Restart(); err != nil {
				t.Fatal(err)
			}
			h.Advance(2 * time.Minute)
			wantTranscript(t, h, "a", "user: b: hi", "assistant: a heard ("+strings.ReplaceAll(want, "NAME", tm.askOf["b"].Request)+")")
			wantTranscript(t, h, "b", "user: hi", "assistant: b says hi")
			if _, requests := callsIn(t, h, "b"); len(requests) != 1 || tm.runs["b"] != 2 {
				t.Errorf("limit %v: %q in %d runs", limit, requests, tm.runs["b"])
			}
		})
	}
}

// TestAgentToolDiscardsLateAnswer has an agent that answers after the time limit of the call.
func TestAgentToolDiscardsLateAnswer(t *testing.T) {
	tm := &team{think: func(ctx context.Context, m *member, _ *chat.Reply) error {
		if m.Name() == "a" {
			return nil
		}
		return dohost.Sleep(ctx, 3*time.Minute)
	}}
	late := 0
	o := &dohosttest.Options{Classes: []dohost.Class{tm.class()}, Options: dohost.Options{Listener: dohost.Listener{
		Service: func(_ dohost.ID, event string, _ ...slog.Attr) {
			if event == "chat:late" {
				late++
			}
		},
	}}}
	dohosttest.Run(t, o, func(t *testing.T, h *dohosttest.Host) {
		if err := askMember(t.Context(), h, "a", "b: hi"); err != nil {
			t.Fatal(err)
		}
		h.Advance(119 * time.Second)
		wantTranscript(t, h, "a", "user: b: hi", "assistant: ")
		h.Advance(2 * time.Second)
		told := "assistant: a heard (The agent member/b did not answer within 2m0s. Its request " + tm.askOf["b"].Request + " may still have effects.)"
		for range 2 {
			wantTranscript(t, h, "a", "user: b: hi", told)
			h.Advance(5 * time.Minute)
			wantTranscript(t, h, "b", "user: hi", "assistant: b says hi")
		}
		if late != 1 {
			t.Errorf("%d reports of late answers", late)
		}
		inMember(t, h, "a", func(ctx context.Context, m *member) error { return m.Idle(ctx) })
	})
}

// TestStopCancelsRequestsToAgents stops the reply of a while another tool runs.
func TestStopCancelsRequestsToAgents(t *testing.T) {
	stop := func(t *testing.T, h *dohosttest.Host) {
		inMember(t, h, "a", func(ctx context.Context, m *member) error {
			if ok, err := chat.Cancel(ctx, m, "one"); !ok {
				return fmt.Errorf("nothing to stop: %w", err)
			}
			return nil
		})
		h.Advance(10 * time.Second)
	}
	for name, c := range map[string]struct {
		text   string
		others map[string]string // the request and the last message of each agent
	}{
		"running":           {"b: hi & tool slow: x", map[string]string{"b": "[aborted member/a] user: hi"}},
		"waiting":           {"b: c: hi & tool slow: x", map[string]string{"b": "[completed member/a] assistant: ", "c": "[aborted member/b] user: hi"}},
		"running and waits": {"b: c: hi && tool slow: y & tool slow: x", map[string]string{"b": "[aborted member/a] assistant: ", "c": "[aborted member/b] user: hi"}},
		"two waiting": {"b: c: d: hi & tool slow: x", map[string]string{
			"b": "[completed member/a] assistant: ", "c": "[completed member/b] assistant: ", "d": "[aborted member/c] user: hi"}},
		"two calls": {"b: x & c: y & tool slow: x", map[string]string{"b": "[aborted member/a] user: x", "c": "[aborted member/a] user: y"}},
	} {
		t.Run(name, func(t *testing.T) {
			tm := &team{think: silentMember, extra: []chat.Tool{sleeper("slow", time.Hour, false)}, options: chat.AgentToolOptions{Timeout: 2 * time.Hour}}
			runTeam(t, tm, func(t *testing.T, h *dohosttest.Host) {
				if err := askMember(t.Context(), h, "a", c.text); err != nil {
					t.Fatal(err)
				}
				h.Advance(10 * time.Second)
				stop(t, h)
				for range 2 {
					calls, _ := callsIn(t, h, "a")
					if len(calls) < 2 || strings.Contains(fmt.Sprint(calls), "external") {
						t.Errorf("a: %q", calls)
					}
					for name, want := range c.others {
						list, err := transcriptOf(t.Context(), h, name)
						calls, requests := callsIn(t, h, name)
						if got := fmt.Sprintf("%s %s", requests, list[len(list)-1]); err != nil || got != want || strings.Contains(fmt.Sprint(calls), "external") {
							t.Errorf("%s: %q, calls %q, %v; want %q", name, got, calls, err, want)
						}
					}
					h.Advance(3 * time.Hour)
				}
				wantTranscript(t, h, "a", "user: "+c.text, "assistant: ")
			})
		})
	}
}

// TestCancellationBeforeTheRequest has an agent that gets the cancellation while OnAsked decides about the request.
func TestCancellationBeforeTheRequest(t *testing.T) {
	tm := &team{extra: []chat.Tool{sleeper("slow", time.Hour, false)}, asked: func(_ *member, ctx context.Context, _ chat.Asked) error {
		return dohost.Sleep(ctx, time.Minute)
	}}
	runTeam(t, tm, func(t *testing.T, h *dohosttest.Host) {
		if err := askMember(t.Context(), h, "a", "b: hi & tool slow: x"); err != nil {
			t.Fatal(err)
		}
		h.Advance(10 * time.Second)
		inMember(t, h, "a", func(ctx context.Context, m *member) error {
			_, err := chat.Cancel(ctx, m, "one")
			return err
		})
		h.Advance(10 * time.Minute)
		wantTranscript(t, h, "b")
		if _, requests := callsIn(t, h, "b"); fmt.Sprint(requests) != "[aborted]" || tm.runs["b"] != 0 {
			t.Errorf("%q, %d runs", requests, tm.runs["b"])
		}
	})
}

// TestAgentToolWaitsForAnApproval has a reply of the asked agent that ends while a call waits for an approval. The prompt of the
// continuation has the messages before the reply, and no newer ones; the body is not that of a newer request.
func TestAgentToolWaitsForAnApproval(t *testing.T) {
	for name, c := range map[string]struct {
		text, want string
		newer      bool // a newer message follows the reply
	}{
		"continued":     {"tool careful: x", `b heard ("careful")`, false},
		"newer message": {"tool careful: x", `b heard ("careful")`, true},
		"two calls":     {"tool careful: x & c: y", `b heard ("careful", c says y)`, true},
	} {
		t.Run(name, func(t *testing.T) {
			careful := sleeper("careful", time.Second, false)
			careful.Approve = &chat.Approval{}
			var prompts []string
			tm := &team{extra: []chat.Tool{careful}, options: chat.AgentToolOptions{Timeout: 48 * time.Hour}}
			tm.think = func(ctx context.Context, m *member, r *chat.Reply) error {
				list, err := r.Messages(ctx, 0)
				for _, before := range list {
					prompts = append(prompts, m.Name()+": "+before.PlainText()+string(r.Body()))
				}
				return err
			}
			runTeam(t, tm, func(t *testing.T, h *dohosttest.Host) {
				text := "b: " + strings.ReplaceAll(c.text, "&", "&&")
				if err := askMember(t.Context(), h, "a", text); err != nil {
					t.Fatal(err)
				}
				h.Advance(24 * time.Hour)
				h.Evict(dohost.ID{Class: "member", Name: "b"}, dohost.EndFence)
				wantTranscript(t, h, "a", "user: "+text, "assistant: ")
				if c.newer {
					inMember(t, h, "b", func(ctx context.Context, m *member) error {
						_, err := chat.Ask(ctx, m, []chat.Message{chat.Text("u", chat.RoleUser, "news")}, &chat.AskOptions{Body: []int{1}})
						return err
					})
					h.Advance(time.Minute)
				}
				prompts = nil
				inMember(t, h, "b", func(ctx context.Context, m *member) error {
					return chat.Decide(ctx, m, &chat.Decision{Call: "call-0", Approve: true, Actor: "mia"})
				})
				h.Advance(time.Minute)
				wantTranscript(t, h, "a", "user: "+text, "assistant: a heard ("+c.want+")")
				wantLines(t, "the prompts have", prompts, "b: "+c.text, "a: "+text)
			})
		})
	}
}

// TestRequestOfAgentInTheQueueIsStopped deletes a conversation with a running and a queued request of an agent.
func TestRequestOfAgentInTheQueueIsStopped(t *testing.T) {
	runTeam(t, &team{think: silentMember}, func(t *testing.T, h *dohosttest.Host) {
		if err := askMember(t.Context(), h, "a", "b: x & b: y"); err != nil {
			t.Fatal(err)
		}
		h.Advance(10 * time.Second)
		inMember(t, h, "b", func(ctx context.Context, m *member) error { return chat.Clear(ctx, m) })
		h.Advance(10 * time.Second)
		const stopped = "The reply of the agent member/b was stopped."
		wantTranscript(t, h, "a", "user: b: x & b: y", "assistant: a heard ("+stopped+", "+stopped+")")
	})
}

// TestRequestToBusyAgent asks an agent with 100 open requests, until it has space, or the call has ended.
func TestRequestToBusyAgent(t *testing.T) {
	for _, ended := range []bool{false, true} {
		busy := true
		tm := &team{options: chat.AgentToolOptions{Timeout: -1}, think: func(ctx context.Context, m *member, _ *chat.Reply) error {
			if m.Name() == "b" && busy {
				return dohost.Sleep(ctx, 24*time.Hour)
			}
			return nil
		}}
		runTeam(t, tm, func(t *testing.T, h *dohosttest.Host) {
			inMember(t, h, "b", func(ctx context.Context, m *member) (err error) {
				for range 100 {
					_, failed := chat.Ask(ctx, m, nil, nil)
					err = errors.Join(err, failed)
				}
				return err
			})
			if err := askMember(t.Context(), h, "a", "b: hi"); err != nil {
				t.Fatal(err)
			}
			h.Advance(5 * time.Minute)
			wantTranscript(t, h, "a", "user: b: hi", "assistant: ")
			wantTranscript(t, h, "b")
			if ended {
				inMember(t, h, "a", func(ctx context.Context, m *member) error {
					for c := range chat.Calls(ctx, m) {
						_, err := chat.Complete(ctx, m, &chat.Completion{Key: c.Key, Error: "enough"})
						return err
					}
					return errors.New("no call")
				})
			}
			busy = false
			inMember(t, h, "b", func(ctx context.Context, m *member) error { return chat.Clear(ctx, m) })
			h.Advance(5 * time.Minute)
			if ended {
				wantTranscript(t, h, "a", "user: b: hi", "assistant: a heard (enough)")
				wantTranscript(t, h, "b")
				return
			}
			wantTranscript(t, h, "a", "user: b: hi", "assistant: a heard (b says hi)")
		})
	}
}

// TestAnswerOfAgentDuringReply has an agent that answers while another tool of the step runs: of the first agent, and of an
// asked one. That one answers when the reply that uses the answer has ended.
func TestAnswerOfAgentDuringReply(t *testing.T) {
	for text, want := range map[string]string{
		"b: c: hi & tool slow: x":  `a heard (b heard (c says hi), "slow")`,
		"b: c: hi && tool slow: x": `a heard (b heard (c says hi, "slow"))`,
		"b: c: hi":                 `a heard (b heard (c says hi))`, // while the handler runs after Answer
	} {
		runTeam(t, &team{after: map[string]time.Duration{"b": 5 * time.Second}, extra: []chat.Tool{sleeper("slow", 20*time.Second, false)}}, func(t *testing.T, h *dohosttest.Host) {
			if err := askMember(t.Context(), h, "a", text); err != nil {
				t.Fatal(err)
			}
			h.Advance(time.Minute)
			wantTranscript(t, h, "a", "user: "+text, "assistant: "+want)
		})
	}
}

// TestAgentToolOfWrongClass asks a class that the host does not have, and an object that is no chat agent.
func TestAgentToolOfWrongClass(t *testing.T) {
	for _, class := range []string{"nobody", "plain"} {
		tm := &team{}
		tm.extra = []chat.Tool{chat.AgentTool(dohost.Namespace[member](class), "wrong", "", nil)}
		plain := dohost.Bind(dohost.Namespace[struct{}]("plain"), func(context.Context, *dohost.State) (*struct{}, error) { return &struct{}{}, nil }, nil)
		dohosttest.Run(t, &dohosttest.Options{Classes: []dohost.Class{tm.class(), plain}}, func(t *testing.T, h *dohosttest.Host) {
			if err := askMember(t.Context(), h, "a", "tool wrong: hi"); err != nil {
				t.Fatal(err)
			}
			h.Advance(10 * time.Second)
			wantTranscript(t, h, "a", "user: tool wrong: hi",
				"assistant: a heard (The agent "+class+"/a was not asked: there is no such chat agent)")
		})
	}
}

// TestAnswerWithoutCallerIsKept removes the class of the caller. The delivery fails after a day, and an operator repeats it.
func TestAnswerWithoutCallerIsKept(t *testing.T) {
	tm := &team{}
	m := &stepsModel{steps: [][]string{{"ask"}}}
	tool := chat.AgentTool(members, "ask", "", &chat.AgentToolOptions{
		Timeout: -1, Parameters: []byte(`{"type":"object"}`), To: func(context.Context, json.RawMessage) (string, error) { return "b", nil },
	})
	tm.think = func(ctx context.Context, _ *member, _ *chat.Reply) error { return dohost.Sleep(ctx, time.Minute) }
	caller, asked := toolClass(m, chat.Options{}, func(*countingAgent) []chat.Tool { return []chat.Tool{tool} }), tm.class()
	dohosttest.Run(t, &dohosttest.Options{Classes: []dohost.Class{caller, asked}}, func(t *testing.T, h *dohosttest.Host) {
		inEvent(t, t.Context(), h, func(ctx context.Context, p *countingAgent) error {
			_, err := chat.Ask(ctx, p, []chat.Message{chat.Text("u", chat.RoleUser, "go")}, nil)
			return err
		})
		h.Advance(10 * time.Second)
		if err := h.Restart(asked); err != nil {
			t.Log(err)
		}
		h.Advance(26 * time.Hour)
		if err := h.Restart(caller, asked); err != nil {
			t.Fatal(err)
		}
		fiber := ""
		for r, err := range h.Host().Details(t.Context(), dohost.ID{Class: "member", Name: "b"}) {
			if err == nil && r.Kind == "fiber" && r.State == "failed" {
				fiber = r.ID
			}
		}
		done, err := h.Host().Operate(t.Context(), dohost.ID{Class: "member", Name: "b"}, &dohost.AdminRequest{Kind: "fiber", ID: fiber, Action: dohost.ActionRetry})
		if fiber == "" || !done || err != nil {
			t.Errorf("fiber %q: %t, %v", fiber, done, err)
		}
		h.Advance(time.Minute)
		if answer, _ := answerOf(t, t.Context(), h); answer.PlainText() != "done " {
			t.Errorf("%q", answer.PlainText())
		}
	})
}
