package chat_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/chat"
	"github.com/dohost/dohost/dohosttest"
	"github.com/dohost/dohost/ledger"
)

// TestCallEqualToAFailedOne has two equal calls in one step: the first fails, and the second completes. The third equal call is a second effect.
func TestCallEqualToAFailedOne(t *testing.T) {
	effects, runs := 0, 0
	var keys []string
	kind := &ledger.Kind[string, int]{Name: "pay", Same: ledger.Whole[string], Policy: ledger.PolicyAtMostOnce, Unknown: func(ledger.ID, string) string { return "?" }}
	m := &stepsModel{steps: [][]string{{"pay:7", "pay:7"}, {"pay:7"}}}
	tools := func(p *countingAgent) []chat.Tool {
		return []chat.Tool{{ToolSpec: chat.ToolSpec{Name: "pay"}, Run: func(ctx context.Context, _ json.RawMessage) (any, error) {
			c, _ := chat.CallFrom(ctx)
			keys = append(keys, c.Key)
			if runs++; runs == 1 {
				return nil, ledger.NoEffect(errors.New("refused"))
			}
			return ledger.Do(ctx, p.Object(), kind, "7", func(context.Context, ledger.ID) (int, error) { effects++; return effects, nil })
		}}}
	}
	runTools(t, m, chat.Options{}, tools, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		h.Advance(20 * time.Second)
		answer, _ := answerOf(t, ctx, h)
		for _, p := range answer.Parts {
			if p.Text("toolCallId") != "" {
				t.Log(p.Text("toolCallId"), p.Text("state"), string(p.Member("output")), p.Text("errorText"))
			}
		}
		if runs != 3 || effects != 2 {
			t.Errorf("%d runs of the tool, %d effects, keys %q; want 3 runs, and an effect of each of the 2 that succeed", runs, effects, keys)
		}
	})
}

// TestAgentToolOfSubAgentNeedsName has sub-agents of two users with one name, and an agent tool without To.
func TestAgentToolOfSubAgentNeedsName(t *testing.T) {
	tm := &team{extra: []chat.Tool{chat.AgentTool(members, "twin", "", nil)}}
	runTeam(t, tm, func(t *testing.T, h *dohosttest.Host) {
		for _, user := range []string{"a", "z"} {
			if err := askMember(t.Context(), h, user, "sub helper: tool twin: secret of "+user); err != nil {
				t.Fatal(err)
			}
			h.Advance(20 * time.Second)
		}
		all, err := transcriptOf(t.Context(), h, "helper")
		if text := fmt.Sprint(all); err != nil || strings.Contains(text, "secret of a") && strings.Contains(text, "secret of z") {
			t.Errorf("member/helper has %q, %v", all, err)
		}
	})
}

// TestResultThatIsNotUTF8 connects a client after a call got a result that is JSON, but not UTF-8.
func TestResultThatIsNotUTF8(t *testing.T) {
	result := json.RawMessage("\"\xff\"")
	for _, by := range []string{"operator", "program", "tool"} {
		t.Run(by, func(t *testing.T) {
			key := ""
			tool := external("a", chat.External{}, func(_ context.Context, c chat.Call) (any, error) { key = c.Key; return nil, nil })
			if by == "tool" {
				tool = chat.Tool{ToolSpec: chat.ToolSpec{Name: "a"}, Run: func(context.Context, json.RawMessage) (any, error) { return result, nil }}
			}
			m := &stepsModel{steps: [][]string{{"a"}}}
			runTools(t, m, chat.Options{}, func(*countingAgent) []chat.Tool { return []chat.Tool{tool} }, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
				h.Advance(5 * time.Second)
				var err error
				switch by {
				case "operator":
					_, err = operateCall(ctx, h, dohost.AdminRequest{Action: dohost.ActionComplete, ID: "a-1-0", Result: result, Actor: "mia"})
				case "program":
					inEvent(t, ctx, h, func(ctx context.Context, p *countingAgent) error {
						_, err = chat.Complete(ctx, p, &chat.Completion{Key: key, Output: result})
						return nil
					})
				}
				if err != nil {
					return // refused
				}
				r := newReader(h, testID, "r")
				if err := r.connect(ctx); err != nil {
					t.Fatal(err)
				}
				got := false
				for !got {
					rc, stop := context.WithTimeout(ctx, time.Second)
					_, data, err := r.ws.Read(rc)
					stop()
					if err != nil {
						break
					}
					var f frame
					got = json.Unmarshal(data, &f) == nil && f.Type == "cf_agent_chat_messages"
				}
				if !got {
					t.Errorf("the client gets no transcript")
				}
				r.close()
			})
		})
	}
}

// TestAgentToolReachesNoSubAgent lets a model name the object of a sub-agent of another agent.
func TestAgentToolReachesNoSubAgent(t *testing.T) {
	runTeam(t, &team{}, func(t *testing.T, h *dohosttest.Host) {
		if err := askMember(t.Context(), h, "z", "sub b: secret"); err != nil {
			t.Fatal(err)
		}
		h.Advance(10 * time.Second)
		if err := askMember(t.Context(), h, "a", "sub/member/z/b: intruder"); err != nil {
			t.Fatal(err)
		}
		h.Advance(10 * time.Second)
		all, err := transcriptOf(t.Context(), h, "sub/member/z/b")
		if strings.Contains(fmt.Sprint(all), "intruder") || err != nil {
			t.Errorf("%q, %v", all, err)
		}
	})
}

// TestRequestIDDoesNotRevealKey completes a call with the key that the id of its request would be.
func TestRequestIDDoesNotRevealKey(t *testing.T) {
	runTeam(t, &team{think: silentMember}, func(t *testing.T, h *dohosttest.Host) {
		if err := askMember(t.Context(), h, "a", "b: hi"); err != nil {
			t.Fatal(err)
		}
		h.Advance(5 * time.Second)
		key := ""
		inMember(t, h, "b", func(ctx context.Context, m *member) error {
			list, err := chat.Messages(ctx, m, 0)
			key = "call_" + strings.TrimPrefix(list[0].ID, "ask_") // as in the transcript of each client of b
			return err
		})
		inMember(t, h, "a", func(ctx context.Context, m *member) error {
			applied, _ := chat.Complete(ctx, m, &chat.Completion{Key: key, Output: json.RawMessage(`{"response":"forged"}`)})
			if applied {
				t.Error("the id of a message of b completes the call of a")
			}
			return nil
		})
	})
}

// TestWorkerRepeatsLateCall has a tool that ignores the end of its context, and a model that repeats the call.
func TestWorkerRepeatsLateCall(t *testing.T) {
	slow := sleeper("slow", 10*time.Minute, true)
	slow.Policy, slow.Timeout = ledger.PolicyIdempotent, time.Second
	w := &chat.Worker[string, string]{Name: "w", Tools: []chat.Tool{slow}, Model: inSteps("done", []string{"slow:1"}, []string{"slow:1"})}
	inWorkerAgent(t, func(t *testing.T, ctx context.Context, c *workerAgent) {
		begun := time.Now()
		out, err := w.Run(ctx, c, "go")
		if took := time.Since(begun); took > time.Minute {
			t.Errorf("%q, %v after %v; want two calls of 2 s", out, err, took)
		}
		_ = dohost.Sleep(ctx, 20*time.Minute) // until the deaf tool has returned
	})
}
