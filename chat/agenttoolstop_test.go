package chat_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/chat"
	"github.com/dohost/dohost/dohosttest"
	"github.com/dohost/dohost/ledger"
)

// TestStopOfAgentToolAtEveryPoint stops the reply of a while b waits for an approval, and for c, which thinks for an hour. If a was
// stopped, neither b nor c answers, and no call of b waits.
func TestStopOfAgentToolAtEveryPoint(t *testing.T) {
	slow := sleeper("slow", 2*time.Hour, false)
	slow.Policy, slow.Timeout = ledger.PolicyIdempotent, -1
	careful := sleeper("careful", time.Second, false)
	careful.Approve = &chat.Approval{}
	tm := &team{extra: []chat.Tool{slow, careful}, options: chat.AgentToolOptions{Timeout: 12 * time.Hour}}
	tm.think = func(ctx context.Context, m *member, _ *chat.Reply) error {
		if m.Name() != "c" {
			return nil
		}
		return dohost.Sleep(ctx, time.Hour)
	}
	var stops atomic.Int64
	s := variant(teamScenario(tm, "", "", nil))
	s.Run = func(ctx context.Context, h *dohosttest.Host) error {
		for over := false; !over; time.Sleep(time.Second) {
			lost := askMember(ctx, h, "a", "b: c: hi && tool careful: y & tool slow: x")
			time.Sleep(2 * time.Second)
			err := members.Get(h, "a").Do(ctx, func(ctx context.Context, m *member) error {
				stopped, err := chat.Cancel(ctx, m, "one")
				over = lost == nil && err == nil && !stopped // it has ended
				return err
			})
			if ctx.Err() != nil {
				return err
			}
		}
		return nil
	}
	s.Check = func(ctx context.Context, h *dohosttest.Host) error {
		aborted := false
		err := members.Get(h, "a").Do(ctx, func(ctx context.Context, m *member) error {
			r, ok, err := chat.Wait(ctx, m, "one")
			if aborted = r.Status == chat.StatusAborted; err == nil && !ok {
				err = fmt.Errorf("a does not know its request")
			}
			for c := range chat.Calls(ctx, m) {
				return fmt.Errorf("the call %s of a is %s", c.Tool, c.State)
			}
			return err
		})
		if err != nil || !aborted { // its reply had ended already: an interruption has cut the model off before the slow tool
			return err
		}
		stops.Add(1)
		for _, name := range []string{"b", "c"} {
			got, err := transcriptOf(ctx, h, name)
			if err != nil {
				return err
			}
			if slices.ContainsFunc(got, func(m string) bool { return strings.HasPrefix(m, "assistant: "+name) }) {
				return fmt.Errorf("%s has %q", name, got)
			}
		}
		return members.Get(h, "b").Do(ctx, func(ctx context.Context, m *member) error {
			for c, err := range chat.Calls(ctx, m) {
				return fmt.Errorf("the call %s of b is %s, %v", c.Tool, c.State, err)
			}
			return nil
		})
	}
	dohosttest.EveryPoint(t, s)
	if n := stops.Load(); n == 0 {
		t.Errorf("a was stopped %d times", n)
	} else {
		t.Logf("a was stopped in %d checks", n)
	}
}

// TestRequestThatIsCancelledWithdrawsItsCalls stops a, which waits for b. The calls of b that wait end with the request: an approval does
// not run them, a completion has no effect, and the message does not continue.
func TestRequestThatIsCancelledWithdrawsItsCalls(t *testing.T) {
	for name, text := range map[string]string{
		"waiting": "tool careful: x & tool press: y",
		"running": "tool careful: x & tool press: y & tool slow: z",
	} {
		t.Run(name, func(t *testing.T) {
			ran := 0
			careful := sleeper("careful", time.Second, false)
			run := careful.Run
			careful.Approve, careful.Run = &chat.Approval{}, func(ctx context.Context, in json.RawMessage) (any, error) {
				ran++
				return run(ctx, in)
			}
			press := sleeper("press", 0, false)
			press.External, press.Run = &chat.External{}, func(context.Context, json.RawMessage) (any, error) { return nil, nil }
			slow := sleeper("slow", time.Hour, false)
			slow.Timeout = -1
			tm := &team{extra: []chat.Tool{careful, press, slow}, options: chat.AgentToolOptions{Timeout: 2 * time.Hour}}
			runTeam(t, tm, func(t *testing.T, h *dohosttest.Host) {
				if err := askMember(t.Context(), h, "a", "b: "+strings.ReplaceAll(text, "&", "&&")+" & tool slow: x"); err != nil {
					t.Fatal(err)
				}
				h.Advance(10 * time.Second)
				var keys []string
				inMember(t, h, "b", func(ctx context.Context, m *member) error {
					for c := range chat.Calls(ctx, m) {
						if c.Tool == "press" {
							keys = append(keys, c.Key)
						}
					}
					return nil
				})
				inMember(t, h, "a", func(ctx context.Context, m *member) error {
					_, err := chat.Cancel(ctx, m, "one")
					return err
				})
				h.Advance(10 * time.Second)
				if calls, _ := callsIn(t, h, "b"); !slices.Contains(calls, "careful denied") || !slices.Contains(calls, "press unknown") {
					t.Errorf("%q", calls)
				}
				inMember(t, h, "b", func(ctx context.Context, m *member) error {
					if err := chat.Decide(ctx, m, &chat.Decision{Call: "call-0", Approve: true}); !errors.Is(err, chat.ErrDecided) {
						t.Errorf("the approval returns %v", err)
					}
					if len(keys) != 1 {
						return fmt.Errorf("%d calls of the press", len(keys))
					}
					applied, err := chat.Complete(ctx, m, &chat.Completion{Key: keys[0]})
					if applied {
						t.Error("the completion was applied")
					}
					var log []string
					for e, failed := range chat.Approvals(ctx, m, "call-0") {
						err = errors.Join(err, failed)
						log = append(log, fmt.Sprint(e.Action, " ", e.Actor, " ", e.Reason, " ", e.Late))
					}
					wantLines(t, "the audit log has", log, "requested   false", "denied member/a The request was cancelled. false", "approved   true")
					return err
				})
				h.Advance(3 * time.Hour)
				list, err := transcriptOf(t.Context(), h, "b")
				if err != nil || len(list) != 2 || list[1] != "assistant: " || ran != 0 || tm.runs["b"] != 1 {
					t.Errorf("b has %q, %v; %d runs of the tool, %d of the handler", list, err, ran, tm.runs["b"])
				}
			})
		})
	}
}

// TestOnAskedThatIsSlowDoesNotRepeatRequest has an OnAsked that takes longer than an ended request stays known. Until then, a repetition of
// the request is accepted and answered.
func TestOnAskedThatIsSlowDoesNotRepeatRequest(t *testing.T) {
	calls := 0
	tm := &team{options: chat.AgentToolOptions{Timeout: -1}, asked: func(_ *member, ctx context.Context, _ chat.Asked) error {
		if calls++; calls > 1 {
			return nil
		}
		return dohost.Sleep(ctx, 40*time.Minute)
	}}
	runTeam(t, tm, func(t *testing.T, h *dohosttest.Host) {
		if err := askMember(t.Context(), h, "a", "b: hi"); err != nil {
			t.Fatal(err)
		}
		h.Advance(10 * time.Second)
		h.Evict(dohost.ID{Class: "member", Name: "a"}, dohost.EndFence)
		inMember(t, h, "a", func(context.Context, *member) error { return nil })
		h.Advance(time.Minute)
		wantTranscript(t, h, "a", "user: b: hi", "assistant: a heard (b says hi)")
		h.Advance(20 * time.Minute)
		if err := askMember(t.Context(), h, "b", "news"); err != nil { // its end deletes the rows of old requests
			t.Fatal(err)
		}
		h.Advance(time.Hour)
		wantTranscript(t, h, "b", "user: hi", "assistant: b says hi", "user: news", "assistant: b says news")
		if calls != 2 {
			t.Errorf("OnAsked was called %d times", calls)
		}
	})
}

// TestCancellationDoesNotRestoreDeletedAgent deletes a sub-agent that has a request, and stops the caller then.
func TestCancellationDoesNotRestoreDeletedAgent(t *testing.T) {
	tm := &team{think: silentMember, extra: []chat.Tool{sleeper("slow", time.Hour, false)}}
	runTeam(t, tm, func(t *testing.T, h *dohosttest.Host) {
		stored := func() (all []string) {
			for id, err := range h.Host().Objects(t.Context(), "member", "") {
				if err != nil {
					t.Fatal(err)
				}
				all = append(all, id.Name)
			}
			return all
		}
		if err := askMember(t.Context(), h, "a", "sub b: hi & tool slow: x"); err != nil {
			t.Fatal(err)
		}
		h.Advance(10 * time.Second)
		wantLines(t, "stored are", stored(), "a", "sub/member/a/b")
		inMember(t, h, "a", func(ctx context.Context, m *member) error {
			_, err := m.SubAgents().Delete(ctx, "member", "b")
			return err
		})
		h.Advance(10 * time.Second)
		wantLines(t, "stored are", stored(), "a")
		inMember(t, h, "a", func(ctx context.Context, m *member) error {
			_, err := chat.Cancel(ctx, m, "one")
			return err
		})
		h.Advance(10 * time.Second)
		wantLines(t, "stored are", stored(), "a")
	})
}

// TestRequestThatIsCancelledAndForgotten cancels a request whose row is forgotten while its message waits: the program of the asked agent
// has waited for the first reply.
func TestRequestThatIsCancelledAndForgotten(t *testing.T) {
	ran := 0
	careful := sleeper("careful", time.Second, false)
	run := careful.Run
	careful.Approve, careful.Run = &chat.Approval{}, func(ctx context.Context, in json.RawMessage) (any, error) {
		ran++
		return run(ctx, in)
	}
	slow := sleeper("slow", 5*time.Hour, false)
	slow.Timeout = -1
	tm := &team{extra: []chat.Tool{careful, slow}, options: chat.AgentToolOptions{Timeout: -1}}
	runTeam(t, tm, func(t *testing.T, h *dohosttest.Host) {
		if err := askMember(t.Context(), h, "a", "b: tool careful: x & tool slow: x"); err != nil {
			t.Fatal(err)
		}
		h.Advance(10 * time.Second)
		inMember(t, h, "b", func(ctx context.Context, m *member) error {
			_, _, err := chat.Wait(ctx, m, tm.askOf["b"].Request)
			return err
		})
		h.Advance(time.Hour)
		inMember(t, h, "b", func(ctx context.Context, m *member) error {
			id, err := chat.Ask(ctx, m, []chat.Message{chat.Text("u", chat.RoleUser, "hi")}, nil)
			if err != nil {
				return err
			}
			_, _, err = chat.Wait(ctx, m, id)
			return err
		})
		inMember(t, h, "a", func(ctx context.Context, m *member) error {
			_, err := chat.Cancel(ctx, m, "one")
			return err
		})
		h.Advance(time.Minute)
		inMember(t, h, "b", func(ctx context.Context, m *member) error {
			if err := chat.Decide(ctx, m, &chat.Decision{Call: "call-0", Approve: true}); err == nil {
				t.Error("a call of the cancelled request is approved")
			}
			return nil
		})
		h.Advance(time.Minute)
		if ran != 0 {
			t.Errorf("the call of the cancelled request ran %d times", ran)
		}
	})
}
