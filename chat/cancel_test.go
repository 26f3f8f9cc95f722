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
	"github.com/dohost/dohost/agent"
	"github.com/dohost/dohost/chat"
	"github.com/dohost/dohost/dohosttest"
	"github.com/dohost/dohost/runtime"
)

// A request that would leave no space for its result is refused, and concurrent requests are answered.
func TestRequestWithoutSpaceForResultIsRefused(t *testing.T) {
	runWithHost(t, countingClass(&countingState{words: 2}, chat.Options{}), func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		r := connectIdle(t, h, "r")
		r.ask(ctx, "one", "count", nil)
		for i, size := range []int{1 << 20, 2<<20 - 400, 2<<20 - 200, 3 << 20} {
			id := fmt.Sprint("large", i)
			r.ask(ctx, id, "", map[string]any{"more": strings.Repeat("x", size)})
			if f := r.waitEnd(t, id); f.Error != true || !strings.Contains(f.Body, "the limit is 1048576") {
				t.Errorf("%+v", f)
			}
		}
		r.waitEnd(t, "one")
		wantLines(t, "said", storedLines(t, h), "user: count", "assistant: 1.0 1.1")
		r.close()
	})
}

// A reply that is stopped while a tool of the server runs has a result for the call. A later reply does not run the
// call again.
func TestStopDuringToolCall(t *testing.T) {
	ran := 0
	m := &toolModel{countingState: &countingState{words: 1}, tool: "stamp", runs: map[string]int{}}
	class := countingClassOf(m.countingState, &handlers{Reply: func(_ *countingAgent, ctx context.Context, r *chat.Reply) error {
		return chat.Answer(ctx, r, m, &chat.AnswerOptions{Tools: []chat.Tool{{
			ToolSpec: chat.ToolSpec{Name: "stamp"},
			Run: func(ctx context.Context, _ json.RawMessage) (any, error) {
				ran++
				return nil, dohost.Sleep(ctx, time.Minute)
			},
		}}})
	}})
	runWithHost(t, class, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		r := connectIdle(t, h, "r")
		r.ask(ctx, "one", "count", nil)
		r.receiveUntil(t, func(f frame) bool { return strings.Contains(f.Body, "finish-step") })
		r.sendFrame(ctx, map[string]any{"type": "cf_agent_chat_request_cancel", "id": "one"})
		r.waitEnd(t, "one")
		if calls := r.calls("output-error"); len(calls) != 1 || len(r.calls("input-available")) != 0 {
			t.Errorf("%+v", r.views["one"])
		}
		h.Advance(2 * time.Minute)
		if ran != 1 {
			t.Errorf("it ran %d times", ran)
		}
		r.close()
	})
}

// Operations that cannot be rolled back fail in a Transaction.
func TestStopInTransactionIsRefused(t *testing.T) {
	runWithHost(t, countingClass(&countingState{words: 3}, chat.Options{}), func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		r := connectIdle(t, h, "r")
		r.ask(ctx, "one", "count", nil)
		r.waitBegin(t, "one")
		err := countingAgents.Get(h, testID.Name).Do(ctx, func(ctx context.Context, p *countingAgent) error {
			return dohost.Transaction(ctx, func(ctx context.Context) error {
				if _, err := chat.Cancel(ctx, p, "one"); !errors.Is(err, runtime.ErrInTransaction) {
					t.Error(err)
				}
				if err := chat.Clear(ctx, p); !errors.Is(err, runtime.ErrInTransaction) {
					t.Error(err)
				}
				return nil
			})
		})
		if err != nil {
			t.Fatal(err)
		}
		if f := r.waitEnd(t, "one"); f.Outcome != "completed" {
			t.Errorf("%+v", f)
		}
		r.close()
	})
}

// Cancelling the fiber of a reply stops the reply, and the next request is answered.
func TestReplyStopsWhenItsFiberIsCancelled(t *testing.T) {
	runWithHost(t, countingClass(&countingState{words: 3}, chat.Options{}), func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		r := connectIdle(t, h, "r")
		r.ask(ctx, "one", "count", nil)
		r.ask(ctx, "two", "count", nil)
		r.waitBegin(t, "one")
		err := countingAgents.Get(h, testID.Name).Do(ctx, func(ctx context.Context, p *countingAgent) error {
			fs, err := p.Fibers().List(ctx, &agent.FiberQuery{Status: []agent.FiberStatus{agent.FiberRunning}})
			if err != nil || len(fs) != 1 {
				return fmt.Errorf("%d fibers: %w", len(fs), err)
			}
			_, err = p.Fibers().Cancel(ctx, fs[0].ID)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		if f := r.waitEnd(t, "one"); f.Outcome != "aborted" {
			t.Errorf("%+v", f)
		}
		r.waitEnd(t, "two")
		r.close()
	})
}

// The same if the fiber is cancelled before its first step and its row is cleared, while the incarnation ends or not;
// and if the handler ignores the cancellation.
func TestReplyStopsWhenFiberIsCancelledBeforeStart(t *testing.T) {
	for name, end := range map[string]func(h *dohosttest.Host){
		"": func(*dohosttest.Host) {}, "evicted": func(h *dohosttest.Host) { h.Evict(testID, dohost.EndFence) },
		"crashed": (*dohosttest.Host).Crash,
	} {
		for _, begins := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s %t", name, begins), func(t *testing.T) {
				var responses []string
				class := countingClassOf(&countingState{}, &handlers{
					Reply: func(_ *countingAgent, ctx context.Context, r *chat.Reply) error {
						if r.ID == "one" && begins {
							return dohost.Sleep(context.WithoutCancel(ctx), 30*time.Second)
						}
						return r.Say(ctx, r.ID)
					},
					OnResponse: func(_ *countingAgent, _ context.Context, r chat.Response) error {
						responses = append(responses, fmt.Sprintf("%s %s %s", r.ID, r.Status, r.Error))
						return nil
					},
				})
				runWithHost(t, class, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
					do := func(f func(ctx context.Context, p *countingAgent) error) {
						t.Helper()
						if err := countingAgents.Get(h, testID.Name).Do(ctx, f); err != nil {
							t.Fatal(err)
						}
					}
					ask := func(ctx context.Context, p *countingAgent) error {
						for _, id := range []string{"one", "two"} {
							if _, err := chat.Ask(ctx, p, []chat.Message{chat.Text(id, chat.RoleUser, id)}, &chat.AskOptions{ID: id}); err != nil {
								return err
							}
						}
						return nil
					}
					cancel := func(ctx context.Context, p *countingAgent) error {
						fs, err := p.Fibers().List(ctx, nil)
						if err != nil || len(fs) != 1 {
							return fmt.Errorf("%d fibers: %w", len(fs), err)
						}
						_, err = p.Fibers().Cancel(ctx, fs[0].ID)
						return err
					}
					if begins {
						do(ask)
						h.Advance(time.Second)
						do(cancel)
					} else {
						do(func(ctx context.Context, p *countingAgent) error { return errors.Join(ask(ctx, p), cancel(ctx, p)) })
						do(func(ctx context.Context, p *countingAgent) error {
							_, err := p.Fibers().DeleteEnded(ctx, nil)
							return err
						})
					}
					end(h)
					h.Advance(time.Minute)
					wantLines(t, "said", storedLines(t, h), "user: one", "user: two", "assistant: two")
					wantLines(t, "told", responses, "one aborted chat: the fiber of the reply was cancelled", "two completed ")
				})
			})
		}
	}
}

// Invalid messages are not stored, from any source.
// A client gets an error for a request with a message with an id out of bounds. The same list as a frame of messages
// changes nothing.
func TestMessageIDsOfClientsAreBounded(t *testing.T) {
	for id, want := range map[string]string{
		"a\x1b]0;b":              `messages of request "one": chat: id of a message: "a\x1b]0;b" contains a control character`,
		strings.Repeat("a", 513): `messages of request "one": chat: id of a message: it has 513 bytes, the limit is 512`,
	} {
		runWithHost(t, countingClass(&countingState{words: 1}, chat.Options{}), func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
			r := connectIdle(t, h, "r")
			list := []any{map[string]any{"id": id, "role": "user", "parts": []any{map[string]any{"type": "text", "text": "hi"}}}}
			r.sendFrame(ctx, map[string]any{"type": "cf_agent_chat_messages", "messages": list})
			body, err := json.Marshal(map[string]any{"messages": list})
			if err != nil {
				t.Fatal(err)
			}
			r.sendFrame(ctx, map[string]any{"type": "cf_agent_use_chat_request", "id": "one", "init": map[string]any{"method": "POST", "body": string(body)}})
			if f := r.waitEnd(t, "one"); f.Outcome != "error" || !strings.Contains(f.Body, want) {
				t.Errorf("%+v, want %q", f, want)
			}
			if got := storedLines(t, h); len(got) > 0 {
				t.Errorf("%q is stored", got)
			}
			r.close()
		})
	}
}

func TestMessagesThatAreInvalidAreNotStored(t *testing.T) {
	runWithHost(t, countingClass(&countingState{words: 1}, chat.Options{}), func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		bad := chat.Text("x", chat.RoleUser, "x")
		bad.Metadata = json.RawMessage("{")
		err := countingAgents.Get(h, testID.Name).Do(ctx, func(ctx context.Context, p *countingAgent) error {
			for _, m := range []chat.Message{{ID: "x"}, {ID: "x", Role: "robot"}, {Role: chat.RoleUser}, {ID: "\x1b]0;x", Role: chat.RoleUser},
				{ID: "x", Role: chat.RoleUser, Parts: []chat.Part{{}}}, bad} {
				if err := chat.SetMessages(ctx, p, []chat.Message{m}); err == nil {
					t.Errorf("%+v is stored", m)
				}
				if _, err := chat.Ask(ctx, p, []chat.Message{m}, nil); err == nil {
					t.Errorf("%+v is asked", m)
				}
			}
			_, err := chat.Messages(ctx, p, 0)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	})
}

// A continuation is for the message with the answered call: if the conversation has newer messages, the continuation
// is skipped.
func TestContinuationOfOlderToolCallIsSkipped(t *testing.T) {
	m := &toolModel{countingState: &countingState{words: 1}, tool: "ask", runs: map[string]int{}}
	runWithHost(t, toolModelClass(m, false), func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		r := connectIdle(t, h, "r")
		tools := map[string]any{"clientTools": []any{map[string]any{"name": "ask"}}}
		r.ask(ctx, "one", "count", tools)
		r.waitEnd(t, "one")
		call := r.calls("input-available")[0]
		if err := m.sendSecond(ctx, r, t); err != nil {
			t.Fatal(err)
		}
		before := m.calls.Load()
		r.sendFrame(ctx, map[string]any{"type": "cf_agent_tool_result", "toolCallId": call, "output": "late", "autoContinue": true})
		r.receiveUntil(t, func(f frame) bool { return f.Type == "cf_agent_use_chat_response" && f.Done && f.Outcome == "skipped" })
		if n := m.calls.Load() - before; n != 0 {
			t.Errorf("the model was asked %d times more", n)
		}
		r.close()
	})
}

// sendSecond sends a second request and waits for its end.
func (m *toolModel) sendSecond(ctx context.Context, r *reader, t *testing.T) error {
	list, err := r.fetch(ctx)
	if err != nil {
		return err
	}
	r.messages = list
	r.ask(ctx, "two", "count", nil)
	r.waitEnd(t, "two")
	return nil
}

// TestClearBeginsNoQueuedRequest clears a conversation with a running request and two queued ones: no fiber starts for a queued request.
func TestClearBeginsNoQueuedRequest(t *testing.T) {
	runWithHost(t, countingClass(&countingState{words: 5}, chat.Options{}), func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		inEvent(t, ctx, h, func(ctx context.Context, p *countingAgent) error {
			var ids []string
			for range 3 {
				id, err := chat.Ask(ctx, p, []chat.Message{chat.Text(fmt.Sprint("u", len(ids)), chat.RoleUser, "count")}, nil)
				if err != nil {
					return err
				}
				ids = append(ids, id)
			}
			if err := dohost.Sleep(ctx, 10*time.Millisecond); err != nil {
				return err
			}
			if err := chat.Clear(ctx, p); err != nil {
				return err
			}
			for i, id := range ids {
				if r, _, err := chat.Wait(ctx, p, id); err != nil || r.Status != chat.StatusAborted {
					t.Errorf("request %d: %+v, %v", i, r, err)
				}
			}
			list, err := p.Fibers().List(ctx, &agent.FiberQuery{Kind: "chat.reply"})
			if len(list) != 1 {
				t.Errorf("the fibers are %+v", list)
			}
			return err
		})
	})
}
