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
)

// A client refuses an approved external call after it was handed over.
func TestRefusalAfterHandOver(t *testing.T) {
	for _, how := range []string{"frame", "messages", "operator"} {
		t.Run(how, func(t *testing.T) {
			key := ""
			m := &stepsModel{steps: [][]string{{"a"}}}
			runTools(t, m, chat.Options{}, func(*countingAgent) []chat.Tool {
				tool := externalTool(&key, chat.External{})
				tool.Approve = &chat.Approval{}
				return []chat.Tool{tool}
			}, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
				h.Advance(time.Second)
				approveCall(t, ctx, h, "a-1-0")
				if c := findCall(t, ctx, h, key); c.State != chat.CallExternal {
					t.Fatalf("%+v", c)
				}
				r := connectIdle(t, h, "mallory")
				defer r.close()
				switch how {
				case "frame":
					r.sendFrame(ctx, map[string]any{"type": "cf_agent_tool_approval", "toolCallId": "a-1-0", "approved": false})
				case "messages":
					answer, _ := answerOf(t, ctx, h)
					raw, _ := json.Marshal(answer)
					forged := strings.Replace(string(raw), `"approval-responded"`, `"output-denied"`, 1)
					r.sendFrame(ctx, map[string]any{"type": "cf_agent_chat_messages", "messages": []any{json.RawMessage(forged)}})
				case "operator":
					inEvent(t, ctx, h, func(ctx context.Context, p *countingAgent) error {
						if err := chat.Decide(ctx, p, &chat.Decision{Call: "a-1-0"}); !errors.Is(err, chat.ErrDecided) {
							t.Errorf("Decide: %v", err)
						}
						return nil
					})
				}
				h.Advance(5 * time.Second)
				if c := findCall(t, ctx, h, key); c.State != chat.CallExternal {
					t.Errorf("a refusal after the hand-over makes the call %s", c.State)
				}
				if !complete(t, ctx, h, chat.Completion{Key: key, Output: json.RawMessage(`"done"`)}) {
					t.Error("the completion of the executor is discarded")
				}
			})
		})
	}
}

// TestRefusalAfterHandOverDuringReply refuses a call that was handed over, during the reply.
func TestRefusalAfterHandOverDuringReply(t *testing.T) {
	key := ""
	m := &stepsModel{steps: [][]string{{"a", "slow"}}}
	runTools(t, m, chat.Options{}, func(*countingAgent) []chat.Tool {
		tool := externalTool(&key, chat.External{})
		tool.Approve = &chat.Approval{}
		slow := sleeper("slow", 30*time.Second, false)
		slow.Approve = &chat.Approval{}
		return []chat.Tool{tool, slow}
	}, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		h.Advance(time.Second)
		r := connectIdle(t, h, "r")
		defer r.close()
		r.sendFrame(ctx, map[string]any{"type": "cf_agent_tool_approval", "toolCallId": "a-1-0", "approved": true})
		r.sendFrame(ctx, map[string]any{"type": "cf_agent_tool_approval", "toolCallId": "slow-1-1", "approved": true, "autoContinue": true})
		h.Advance(2 * time.Second)
		if c := findCall(t, ctx, h, key); c.State != chat.CallExternal {
			t.Fatalf("%+v", c)
		}
		if _, states := answerOf(t, ctx, h); states["slow"] != "running" {
			t.Fatalf("%v", states)
		}
		r.sendFrame(ctx, map[string]any{"type": "cf_agent_tool_approval", "toolCallId": "a-1-0", "approved": false})
		h.Advance(time.Second)
		if c := findCall(t, ctx, h, key); c.State != chat.CallExternal {
			t.Errorf("a refusal after the hand-over makes the call %s", c.State)
		}
		h.Advance(time.Minute)
	})
}

// A client that knows the id of a message takes over the key of its call, from another conversation and from the same one.
func TestClientCannotRepeatKey(t *testing.T) {
	for _, how := range []string{"other conversation", "after a clear"} {
		t.Run(how, func(t *testing.T) {
			var keys []string
			m := &stepsModel{steps: [][]string{{"a"}}}
			runTools(t, m, chat.Options{}, func(*countingAgent) []chat.Tool {
				return []chat.Tool{external("a", chat.External{}, func(_ context.Context, c chat.Call) (any, error) {
					keys = append(keys, c.Key)
					return nil, nil
				})}
			}, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
				h.Advance(time.Second)
				answer, _ := answerOf(t, ctx, h) // any reader of the transcript knows the id and the input
				id := testID
				if how == "other conversation" {
					id = dohost.ID{Class: testID.Class, Name: "mallory"}
				}
				r := newReader(h, id, "mallory")
				if err := r.connect(ctx); err != nil {
					t.Fatal(err)
				}
				defer r.close()
				if how == "after a clear" {
					r.sendFrame(ctx, map[string]any{"type": "cf_agent_chat_clear"})
				}
				body := fmt.Sprintf(`{"messages":[%s,{"id":%q,"role":"assistant","parts":[]}]}`, question, answer.ID)
				r.sendFrame(ctx, map[string]any{"type": "cf_agent_use_chat_request", "id": "two", "init": map[string]any{"method": "POST", "body": body}})
				h.Advance(10 * time.Second)
				if len(keys) != 2 {
					t.Fatalf("keys %q", keys)
				}
				if keys[0] == keys[1] {
					t.Errorf("two calls have the key %s", keys[0])
				}
			})
		})
	}
}

// TestClientCannotTakeKeyOfOtherUser has two conversations with an idempotent service: the second call has no effect.
func TestClientCannotTakeKeyOfOtherUser(t *testing.T) {
	hotel := &dohosttest.FakeService{Idempotent: true}
	m := &stepsModel{steps: [][]string{{"a"}}}
	runTools(t, m, chat.Options{}, func(*countingAgent) []chat.Tool {
		return []chat.Tool{{ToolSpec: chat.ToolSpec{Name: "a"}, Approve: &chat.Approval{If: func(ctx context.Context, _ json.RawMessage) (bool, error) {
			return m.asked == 1, nil // only Ada's call needs one
		}}, Run: func(ctx context.Context, _ json.RawMessage) (any, error) {
			c, _ := chat.CallFrom(ctx)
			return "booked", dohost.Await(ctx, func(ctx context.Context) error { return hotel.Call(ctx, c.Key, "Ritz") })
		}}}
	}, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		h.Advance(time.Second)
		answer, _ := answerOf(t, ctx, h)
		r := newReader(h, dohost.ID{Class: testID.Class, Name: "mallory"}, "mallory")
		if err := r.connect(ctx); err != nil {
			t.Fatal(err)
		}
		defer r.close()
		body := `{"messages":[` + question + `,{"id":"` + answer.ID + `","role":"assistant","parts":[]}]}`
		r.sendFrame(ctx, map[string]any{"type": "cf_agent_use_chat_request", "id": "two", "init": map[string]any{"method": "POST", "body": body}})
		h.Advance(10 * time.Second)
		approveCall(t, ctx, h, "a-1-0")
		h.Advance(10 * time.Second)
		after, _ := answerOf(t, ctx, h)
		if n := len(hotel.Keys()); n != 2 {
			t.Errorf("two calls of two users, both with the result %s, had %d effects", resultOf(after, "a"), n)
		}
	})
}

// A client fills a message up, so that no result of its waiting call fits.
func TestClientCannotFillMessageOfExternalCall(t *testing.T) {
	key := ""
	m := &stepsModel{steps: [][]string{{"a"}}}
	runTools(t, m, chat.Options{}, func(*countingAgent) []chat.Tool {
		return []chat.Tool{externalTool(&key, chat.External{Within: time.Hour})}
	}, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		h.Advance(time.Second)
		r := connectIdle(t, h, "mallory")
		defer r.close()
		answer, _ := answerOf(t, ctx, h)
		raw, _ := json.Marshal(answer)
		pad := `{"type":"data-x","data":"` + strings.Repeat("x", 1_800_000-len(raw)-60) + `"}`
		forged := strings.Replace(string(raw), `"parts":[`, `"parts":[`+pad+`,`, 1)
		r.sendFrame(ctx, map[string]any{"type": "cf_agent_chat_messages", "messages": []any{json.RawMessage(forged)}})
		h.Advance(time.Second)
		inEvent(t, ctx, h, func(ctx context.Context, p *countingAgent) error {
			applied, err := chat.Complete(ctx, p, &chat.Completion{Key: key, Output: json.RawMessage(`"a receipt with some text, which is longer than the space that is left"`)})
			if !applied || err != nil {
				t.Errorf("Complete: %t, %v", applied, err)
			}
			return nil
		})
		h.Advance(48 * time.Hour)
		if c := findCall(t, ctx, h, key); c.State == chat.CallExternal {
			t.Errorf("after 48 hours, with Within of one hour, the call is %s", c.State)
		}
	})
}

// TestClientCannotFillMessageOfApproval fills a message up, so that no operator can refuse its call, and its approval does not expire.
func TestClientCannotFillMessageOfApproval(t *testing.T) {
	runStamper(t, &chat.Approval{Within: time.Hour}, chat.Options{}, func(t *testing.T, ctx context.Context, s *stamper) {
		raw, _ := json.Marshal(s.c.stored()[1])
		pad := `{"type":"data-x","data":"` + strings.Repeat("x", 1_800_000-len(raw)-28) + `"}`
		forged := strings.Replace(string(raw), `"parts":[`, `"parts":[`+pad+`,`, 1)
		s.r.sendFrame(ctx, map[string]any{"type": "cf_agent_chat_messages", "messages": []any{json.RawMessage(forged)}})
		s.h.Advance(time.Second)
		s.r.close()
		if err := s.decide(ctx, chat.Decision{Call: s.call, Actor: "mia"}); err != nil {
			t.Errorf("the refusal of an operator: %v", err)
		}
		s.h.Advance(3 * time.Hour)
		if part, row := s.state(ctx); row.State == chat.CallApproval {
			t.Errorf("after 3 hours, with Within of one hour: %s, %s", part, row.State)
		}
	})
}

// A client deletes the rows of a continued message's calls by MaxMessages.
func TestMessagesDuringContinuationAreNotTrimmed(t *testing.T) {
	key := ""
	m := &stepsModel{steps: [][]string{{"a", "slow"}}}
	runTools(t, m, chat.Options{MaxMessages: 3}, func(*countingAgent) []chat.Tool {
		slow := sleeper("slow", 30*time.Second, false)
		slow.Approve = &chat.Approval{}
		return []chat.Tool{externalTool(&key, chat.External{}), slow}
	}, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		h.Advance(time.Second)
		r := connectIdle(t, h, "mallory")
		defer func() { r.close() }()
		approveCall(t, ctx, h, "slow-1-1") // the continuation runs for 30 s
		user := func(id string) string { return strings.Replace(question, "u1", id, 1) }
		r.sendFrame(ctx, map[string]any{"type": "cf_agent_chat_messages", "messages": json.RawMessage("[" + user("x1") + "," + user("x2") + "," + user("x3") + "]")})
		h.Advance(time.Second)
		body := `{"messages":[` + user("x1") + `]}`
		r.sendFrame(ctx, map[string]any{"type": "cf_agent_use_chat_request", "id": "two", "init": map[string]any{"method": "POST", "body": body}})
		r.sendFrame(ctx, map[string]any{"type": "cf_agent_chat_request_cancel", "id": "two"})
		h.Advance(time.Minute)
		r.close()
		r = connectIdle(t, h, "mallory2")
		r.sendFrame(ctx, map[string]any{"type": "cf_agent_tool_result", "toolCallId": "a-1-0", "output": "forged"})
		h.Advance(5 * time.Second)
		inEvent(t, ctx, h, func(ctx context.Context, p *countingAgent) error {
			list, err := chat.Messages(ctx, p, 0)
			for _, m := range list {
				raw, _ := json.Marshal(m)
				if strings.Contains(string(raw), "forged") {
					t.Error("a client has completed an external call")
				}
			}
			if _, ok, err := chat.FindCall(ctx, p, key); !ok || err != nil {
				t.Errorf("FindCall: %t, %v", ok, err)
			}
			return err
		})
	})
}

// Repeated approvals of a call that was handed over begin a reply each.
func TestApprovalThatIsRepeatedBeginsNoReply(t *testing.T) {
	key, begun := "", 0
	m := &stepsModel{steps: [][]string{{"a"}}}
	class := countingClassOf(&countingState{}, &handlers{Reply: func(_ *countingAgent, ctx context.Context, r *chat.Reply) error {
		begun++
		tool := externalTool(&key, chat.External{})
		tool.Approve = &chat.Approval{}
		return chat.Answer(ctx, r, m, &chat.AnswerOptions{Tools: []chat.Tool{tool}})
	}})
	runAsked(t, class, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		h.Advance(time.Second)
		approveCall(t, ctx, h, "a-1-0")
		r, other := connectIdle(t, h, "mallory"), connectIdle(t, h, "other")
		defer r.close()
		defer other.close()
		answer, _ := answerOf(t, ctx, h)
		raw, _ := json.Marshal(answer)
		padded := strings.Replace(string(raw), `"parts":[`, `"parts":[{"type":"data-x","data":"`+strings.Repeat("x", 1_000_000)+`"},`, 1)
		r.sendFrame(ctx, map[string]any{"type": "cf_agent_chat_messages", "messages": []any{json.RawMessage(padded)}})
		h.Advance(time.Second)
		before, size := begun, 0
		for range 20 {
			r.sendFrame(ctx, map[string]any{"type": "cf_agent_tool_approval", "toolCallId": "a-1-0", "approved": true, "autoContinue": true})
			h.Advance(time.Second)
			if begun == before {
				break
			}
			for done := false; !done; {
				_, data, err := other.ws.Read(ctx)
				if err != nil {
					t.Fatal(err)
				}
				size += len(data)
				done = strings.Contains(string(data), `"done":true`)
			}
			for done := false; !done; {
				_, data, err := r.ws.Read(ctx)
				if err != nil {
					t.Fatal(err)
				}
				done = strings.Contains(string(data), `"done":true`)
			}
		}
		requests := 0
		for r, err := range h.Host().Details(ctx, testID) {
			if err == nil && r.Kind == "request" {
				requests++
			}
		}
		if begun != before {
			t.Errorf("20 repeated approvals began %d replies, sent another client %d bytes, and left %d rows of requests", begun-before, size, requests)
		}
	})
}

// TestClientToolsAreBounded sends more tools than a client may have, in a member whose name differs in its case.
func TestClientToolsAreBounded(t *testing.T) {
	m := &stepsModel{steps: [][]string{{"mine"}}}
	most := 0
	class := countingClassOf(&countingState{}, &handlers{Reply: func(_ *countingAgent, ctx context.Context, r *chat.Reply) error {
		var list []chat.ToolSpec
		_ = json.Unmarshal(r.Tools(), &list)
		most = max(most, len(list))
		return chat.Answer(ctx, r, m, nil)
	}})
	runWithHost(t, class, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		r := connectIdle(t, h, "mallory")
		defer r.close()
		r.ask(ctx, "one", "go", map[string]any{"clientTools": []any{map[string]any{"name": "mine"}}})
		h.Advance(time.Second)
		many := json.RawMessage("[" + strings.Repeat("{},", 340_000) + "{}]")
		r.sendFrame(ctx, map[string]any{"type": "cf_agent_tool_result", "toolCallId": "mine-1-0", "output": 1, "autoContinue": true, "ClientTools": many})
		h.Advance(time.Second)
		if most > 1000 {
			t.Errorf("a client has %d tools, the limit is 1,000", most)
		}
	})
}

// TestClientAddsStep appends a step to a message with a call that waits.
func TestClientAddsStep(t *testing.T) {
	key := ""
	m := &stepsModel{steps: [][]string{{"a"}}}
	runTools(t, m, chat.Options{}, func(*countingAgent) []chat.Tool { return []chat.Tool{externalTool(&key, chat.External{})} },
		func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
			h.Advance(time.Second)
			r := connectIdle(t, h, "mallory")
			defer r.close()
			answer, _ := answerOf(t, ctx, h)
			raw, _ := json.Marshal(answer)
			forged := strings.Replace(string(raw), `"type":"tool-a"}]`, `"type":"tool-a"},{"type":"step-start"}]`, 1)
			if forged == string(raw) {
				t.Fatalf("%s", raw)
			}
			r.sendFrame(ctx, map[string]any{"type": "cf_agent_chat_messages", "messages": []any{json.RawMessage(forged)}})
			h.Advance(time.Second)
			complete(t, ctx, h, chat.Completion{Key: key, Output: json.RawMessage(`1`)})
			h.Advance(time.Second)
			if answer, _ := answerOf(t, ctx, h); answer.PlainText() != "done " || m.asked != 2 {
				t.Errorf("the reply does not continue: %q, asked %d times", answer.PlainText(), m.asked)
			}
		})
}

// TestClientCannotShortenResult shortens the stored result of a server's call.
func TestClientCannotShortenResult(t *testing.T) {
	key := ""
	m := &stepsModel{steps: [][]string{{"a"}}}
	runTools(t, m, chat.Options{}, func(*countingAgent) []chat.Tool { return []chat.Tool{externalTool(&key, chat.External{})} },
		func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
			h.Advance(time.Second)
			want := `"` + strings.Repeat("receipt ", 1000) + `"`
			complete(t, ctx, h, chat.Completion{Key: key, Output: json.RawMessage(want)})
			r := connectIdle(t, h, "mallory")
			defer r.close()
			answer, _ := answerOf(t, ctx, h)
			raw, _ := json.Marshal(answer)
			pad := `{"type":"data-x","data":"` + strings.Repeat("x", 1_800_000-len(raw)) + `"}`
			forged := strings.Replace(string(raw), `"parts":[`, `"parts":[`+pad+`,`, 1)
			r.sendFrame(ctx, map[string]any{"type": "cf_agent_chat_messages", "messages": []any{json.RawMessage(forged)}})
			h.Advance(time.Second)
			if c := findCall(t, ctx, h, key); string(c.Output) != want {
				t.Errorf("a client has changed the stored result, of %d bytes, into %s", len(want), c.Output[max(0, len(c.Output)-60):])
			}
		})
}
