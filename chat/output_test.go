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
	"github.com/dohost/dohost/pool"
)

// rooms is the result of the tool of these tests.
type rooms struct {
	Rooms []room `json:"rooms"`
}

type room struct {
	Number int    `json:"number"`
	Notes  string `json:"notes,omitempty"`
}

const (
	validRooms   = `{"rooms":[{"number":7}]}`
	invalidRooms = `{"rooms":[{"number":"seven"}]}`
	roomsPlace   = `/properties/rooms/items/properties/number`
)

// wantMismatch checks that a text names the place of the mismatch in invalidRooms.
func wantMismatch(t *testing.T, text string) {
	t.Helper()
	if !strings.Contains(text, "the output does not match the schema of the tool") || !strings.Contains(text, roomsPlace) {
		t.Errorf("%q does not have the place %s", text, roomsPlace)
	}
}

// TestOutputOfExternalCall completes calls of a tool with an Output: after the reply and during it, after the end of the incarnation.
func TestOutputOfExternalCall(t *testing.T) {
	ran := 0
	for name, c := range map[string]struct {
		step    []string
		e       chat.External
		by      chat.Completion
		invalid bool
		state   chat.CallState
	}{
		"valid":                 {[]string{"a"}, chat.External{}, chat.Completion{Output: json.RawMessage(validRooms)}, false, chat.CallCompleted},
		"invalid":               {[]string{"a"}, chat.External{}, chat.Completion{Output: json.RawMessage(invalidRooms)}, true, chat.CallUnknown},
		"invalid, in the reply": {[]string{"a", "slow"}, chat.External{}, chat.Completion{Output: json.RawMessage(invalidRooms)}, true, chat.CallUnknown},
		"invalid, asynchronous": {[]string{"a"}, chat.External{Async: true}, chat.Completion{Output: json.RawMessage(invalidRooms)}, true, chat.CallUnknown},
		"an error":              {[]string{"a"}, chat.External{}, chat.Completion{Error: "no room"}, false, chat.CallFailed},
	} {
		ran++
		t.Run(name, func(t *testing.T) {
			key := ""
			m := &stepsModel{steps: [][]string{c.step}}
			tool := externalTool(&key, c.e)
			tool.Output = chat.OutputOf[rooms]()
			runTools(t, m, chat.Options{}, func(*countingAgent) []chat.Tool {
				return []chat.Tool{tool, sleeper("slow", 30*time.Second, false)}
			}, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
				h.Advance(time.Second)
				if len(c.step) == 1 {
					h.Evict(testID, dohost.EndFence) // the schema is in the row
				}
				c.by.Key = key
				inEvent(t, ctx, h, func(ctx context.Context, p *countingAgent) error {
					applied, err := chat.Complete(ctx, p, &c.by)
					if applied == c.invalid || errors.Is(err, chat.ErrInvalidOutput) != c.invalid {
						t.Errorf("applied %t, %v", applied, err)
					}
					if c.invalid {
						wantMismatch(t, err.Error())
					}
					return nil
				})
				h.Advance(time.Minute)
				if complete(t, ctx, h, chat.Completion{Key: key, Output: json.RawMessage(validRooms)}) {
					t.Error("a second completion is applied")
				}
				call := findCall(t, ctx, h, key)
				answer, _ := answerOf(t, ctx, h)
				if call.State != c.state || answer.PlainText() != "done " {
					t.Errorf("%+v, %q", call, answer.PlainText())
				}
				if c.invalid {
					wantMismatch(t, call.Error)
				}
			})
		})
	}
	if ran == 0 {
		t.Fatal("no case ran")
	}
}

// An operator that completes a call with an invalid output gets an error, and may correct it.
func TestOutputOfOperator(t *testing.T) {
	key := ""
	tool := externalTool(&key, chat.External{})
	tool.Output = chat.OutputOf[rooms]()
	runTools(t, &stepsModel{steps: [][]string{{"a"}}}, chat.Options{}, func(*countingAgent) []chat.Tool { return []chat.Tool{tool} },
		func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
			h.Advance(time.Second)
			r := dohost.AdminRequest{ID: "a-1-0", Action: dohost.ActionComplete, Actor: "mia", Result: json.RawMessage(invalidRooms)}
			_, err := operateCall(ctx, h, r)
			if _, ok := errors.AsType[*dohost.ArgumentError](err); !ok {
				t.Errorf("%v, want an ArgumentError", err)
			}
			wantMismatch(t, fmt.Sprint(err))
			if c := findCall(t, ctx, h, key); c.State != chat.CallExternal {
				t.Errorf("after a refused completion: %+v", c)
			}
			r.Result = json.RawMessage(validRooms)
			if done, err := operateCall(ctx, h, r); !done || err != nil {
				t.Errorf("%t, %v", done, err)
			}
			if answer, _ := answerOf(t, ctx, h); resultOf(answer, "a") != "output-available "+validRooms {
				t.Error(resultOf(answer, "a"))
			}
		})
}

// A client sends the result of its call as a frame, in its copy of the message, and during the reply.
func TestOutputOfClient(t *testing.T) {
	ran := 0
	for name, step := range map[string][]string{"frame": {"a"}, "messages": {"a"}, "frame during the reply": {"a", "slow"}} {
		for result, output := range map[string]string{"valid": validRooms, "invalid": invalidRooms} {
			ran++
			t.Run(name+", "+result, func(t *testing.T) {
				tool := chat.Tool{ToolSpec: chat.ToolSpec{Name: "a"}, Output: chat.OutputOf[rooms]()}
				runTools(t, &stepsModel{steps: [][]string{step}}, chat.Options{}, func(*countingAgent) []chat.Tool {
					return []chat.Tool{tool, sleeper("slow", 10*time.Second, false)}
				}, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
					h.Advance(time.Second)
					r := connectIdle(t, h, "r")
					if name == "messages" {
						answer, _ := answerOf(t, ctx, h)
						raw, _ := json.Marshal(answer)
						copied := strings.Replace(string(raw), `"state":"input-available"`, `"state":"output-available","output":`+output, 1)
						r.sendFrame(ctx, map[string]any{"type": "cf_agent_chat_messages", "messages": []any{json.RawMessage(copied)}})
						h.Advance(time.Second)
						r.close()
						continueReply(t, ctx, h)
					} else {
						r.sendFrame(ctx, map[string]any{"type": "cf_agent_tool_result", "toolCallId": "a-1-0", "output": json.RawMessage(output), "autoContinue": true})
						if result == "invalid" {
							wantMismatch(t, fmt.Sprint(r.receiveUntil(t, func(f frame) bool { return f.Type == "" }).Error))
						}
					}
					h.Advance(time.Second)
					r.close()
					h.Advance(time.Minute)
					answer, _ := answerOf(t, ctx, h)
					switch got := resultOf(answer, "a"); {
					case result == "valid" && got != "output-available "+validRooms:
						t.Error(got)
					case result == "invalid":
						wantMismatch(t, got)
					}
					if answer.PlainText() != "done " {
						t.Errorf("the model says %q", answer.PlainText())
					}
				})
			})
		}
	}
	if ran == 0 {
		t.Fatal("no case ran")
	}
}

// TestOutputOfRun returns invalid results from the function of a tool: of a reply, of a worker, and of a task of a pool.
func TestOutputOfRun(t *testing.T) {
	returns := func(text string, policy ledger.Policy) chat.Tool {
		return chat.Tool{ToolSpec: chat.ToolSpec{Name: "a"}, Policy: policy, Output: chat.OutputOf[rooms](), Run: func(context.Context, json.RawMessage) (any, error) {
			return json.RawMessage(text), nil
		}}
	}
	for name, c := range map[string]struct {
		tool  chat.Tool
		state string
	}{
		"valid":               {returns(validRooms, ledger.PolicyAtMostOnce), "completed"},
		"invalid":             {returns(invalidRooms, ledger.PolicyAtMostOnce), "unknown"},
		"invalid, idempotent": {returns(invalidRooms, ledger.PolicyIdempotent), "failed"},
	} {
		t.Run(name, func(t *testing.T) {
			runTools(t, &stepsModel{steps: [][]string{{"a"}}}, chat.Options{}, func(*countingAgent) []chat.Tool { return []chat.Tool{c.tool} },
				func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
					h.Advance(5 * time.Second)
					answer, states := answerOf(t, ctx, h)
					if states["a"] != c.state {
						t.Errorf("%v, want %s", states, c.state)
					}
					if c.state != "completed" {
						wantMismatch(t, resultOf(answer, "a"))
					}
				})
		})
	}
	t.Run("worker", func(t *testing.T) {
		inWorkerAgent(t, func(t *testing.T, ctx context.Context, c *workerAgent) {
			result := ""
			w := chat.Worker[string, string]{Name: "w", Tools: []chat.Tool{returns(invalidRooms, ledger.PolicyIdempotent)}, Model: promptModel(func(p *chat.Prompt) []chat.Chunk {
				if calls := callsOf(p); len(calls) > 0 {
					result = calls[0].Text("errorText")
					return says("done")
				}
				return []chat.Chunk{chat.ToolInput("1", "a", `{}`)}
			})}
			if _, err := w.Run(ctx, c, "go"); err != nil {
				t.Error(err)
			}
			wantMismatch(t, result)
		})
	})
	t.Run("pool", func(t *testing.T) {
		for result, valid := range map[string]bool{invalidRooms: false, validRooms: true} {
			withPool(t, bookTeam(chat.PoolToolOptions[booking]{Output: chat.OutputOf[rooms]()}), func(t *testing.T, h *dohosttest.Host) {
				askForBooking(t, h, "tool book: x")
				_, hold := claimBooking(t, h, "w")
				inPool(t, h, (*pool.Pool).Handoff, pool.HandoffRequest{ClaimRef: hold, Result: json.RawMessage(result)})
				h.Advance(5 * time.Second)
				text := ""
				inMember(t, h, "a", func(ctx context.Context, m *member) error {
					list, err := chat.Messages(ctx, m, 1)
					if err == nil {
						text = list[0].PlainText()
					}
					return err
				})
				if want := "a heard (" + validRooms + ")"; valid && text != want {
					t.Errorf("%q, want %q", text, want)
				} else if !valid {
					wantMismatch(t, text)
				}
			})
		}
	})
}

// TestOutputErrors has the errors of Answer for an Output that cannot be compared with a result.
func TestOutputErrors(t *testing.T) {
	for want, output := range map[string]*chat.Output{
		"the output has no schema":          chat.OutputOf[chan int](),
		"the schema of the output: ":        {Schema: json.RawMessage(`{"type":7}`)},
		"it is recursive":                   {Schema: json.RawMessage(`{"$ref":"#"}`)},
		"want one such as #/$defs/name":     {Schema: json.RawMessage(`{"$ref":"#a","$anchor":"a"}`)},
		"it has a $dynamicRef":              {Schema: json.RawMessage(`{"$dynamicRef":"#a","$dynamicAnchor":"a"}`)},
		"a schema in it has an $id":         {Schema: json.RawMessage(`{"items":{"$id":"a"}}`)},
		"nested":                            {Schema: json.RawMessage(strings.Repeat(`{"not":`, 200) + `true` + strings.Repeat(`}`, 200))},
		"the schema of the output has 7000": {Schema: json.RawMessage(`{"title":"` + strings.Repeat("x", 70_000-12) + `"}`)},
	} {
		tool := sleeper("a", 0, false)
		tool.Output = output
		runTools(t, &stepsModel{}, chat.Options{}, func(*countingAgent) []chat.Tool { return []chat.Tool{tool} }, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
			inEvent(t, ctx, h, func(ctx context.Context, p *countingAgent) error {
				r, _, err := chat.Wait(ctx, p, "one")
				if !strings.HasPrefix(r.Error, `chat: tool "a": `) || !strings.Contains(r.Error, want) {
					t.Errorf("%q, want %q", r.Error, want)
				}
				return err
			})
		})
	}
}

// TestOutputSchemas has schemas that a comparison would not end with, or only after an exponential time, and schemas with references
// that have a bound.
func TestOutputSchemas(t *testing.T) {
	for schema, recursive := range map[string]bool{
		`{"$ref":"#"}`:             true,
		`{"ALLOF":[{"$ref":"#"}]}`: true,
		`{"items":{"$ref":"#"}}`:   true,
		`{"items":{"$ref":"#/%24defs/a"},"$defs":{"a":{"not":{"$ref":"#/$defs/b~1c"}},"b/c":{"if":{"$ref":"#/items"}}}}`: true,
		doublings(11):                   true,
		`{"$id":"https://a.example/b"}`: false,
		`{"$defs":{"a":{"$ref":"#"}}}`:  false,
		`{"enum":[{"$ref":"#"}]}`:       false,
		`{"properties":{"$ref":{"$ref":"#/$defs/a"},"b":{"$ref":"#/allOf/0"}},"allOf":[true],"$defs":{"a":{"type":"string"}}}`: false,
		doublings(10): false,
	} {
		err := chat.CheckOutput(&chat.Output{Schema: json.RawMessage(schema)})
		if got := err != nil && strings.Contains(err.Error(), "it is recursive"); got != recursive || !recursive && err != nil {
			t.Errorf("%s: %v", schema, err)
		}
	}
}

// doublings returns a schema with references that lead to one schema 2^n times.
func doublings(n int) string {
	defs := `"0":true`
	for i := range n {
		defs += fmt.Sprintf(`,"%d":{"allOf":[{"$ref":"#/$defs/%d"},{"$ref":"#/$defs/%d"}]}`, i+1, i, i)
	}
	return fmt.Sprintf(`{"$ref":"#/$defs/%d","$defs":{%s}}`, n, defs)
}
