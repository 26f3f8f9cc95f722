package chat_test

import (
	"context"
	"encoding/json"
	"iter"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/chat"
	"github.com/dohost/dohost/dohosttest"
	"github.com/dohost/dohost/ledger"
	"github.com/dohost/dohost/objectstore"
)

// hugeModel sends a file before its call.
type hugeModel struct {
	*stepsModel
	size int
}

// Stream implements [chat.Model].
func (m *idModel) Stream(_ context.Context, p *chat.Prompt) iter.Seq2[chat.Chunk, error] {
	return func(yield func(chat.Chunk, error) bool) {
		if len(p.Partial.Parts) > 1 {
			yield(chat.TextDelta("t", "done "), nil)
			return
		}
		tool := "a"
		if len(p.Messages) > 1 {
			tool = "b"
		}
		yield(chat.ToolInput("call_0", tool, `{}`), nil)
	}
}

// idModel calls a in the first message and b in the second one, with the same id.
type idModel struct{}

func chatMessages(t *testing.T, ctx context.Context, h *dohosttest.Host) (list []chat.Message, err error) {
	inEvent(t, ctx, h, func(ctx context.Context, p *countingAgent) (err error) {
		list, err = chat.Messages(ctx, p, 0)
		return err
	})
	return list, err
}

// TestStopAfterComplete stops a reply after one of its calls was completed. The continuation of that result does not run.
func TestStopAfterComplete(t *testing.T) {
	key := ""
	m := &stepsModel{steps: [][]string{{"a", "slow"}}}
	runTools(t, m, chat.Options{}, func(*countingAgent) []chat.Tool {
		return []chat.Tool{externalTool(&key, chat.External{}), sleeper("slow", 30*time.Second, false)}
	}, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		h.Advance(time.Second)
		complete(t, ctx, h, chat.Completion{Key: key})
		inEvent(t, ctx, h, func(ctx context.Context, p *countingAgent) error {
			_, err := chat.Cancel(ctx, p, "one")
			return err
		})
		h.Advance(time.Minute)
		if answer, states := answerOf(t, ctx, h); m.asked != 1 || answer.PlainText() != "" {
			t.Errorf("after the stop the model was asked %d times: %q, %v", m.asked, answer.PlainText(), states)
		}
	})
}

// A deployment makes a tool external while a call of it is interrupted.
func TestToolBecomesExternal(t *testing.T) {
	for _, back := range []bool{false, true} {
		t.Run(map[bool]string{false: "becomes external", true: "is no longer async"}[back], func(t *testing.T) {
			key, runs := "", 0
			m := &stepsModel{steps: [][]string{{"a"}}}
			runTools(t, m, chat.Options{}, func(*countingAgent) []chat.Tool {
				tool := external("a", chat.External{Async: back}, func(ctx context.Context, c chat.Call) (any, error) {
					key = c.Key
					if runs++; runs == 1 {
						return nil, dohost.Sleep(ctx, 30*time.Second)
					}
					if back {
						return "result", nil
					}
					return nil, nil
				})
				tool.Policy = ledger.PolicyIdempotent
				if (runs == 0) != back {
					tool.External = nil
				}
				return []chat.Tool{tool}
			}, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
				h.Advance(time.Second)
				h.Evict(testID, dohost.EndFence)
				h.Advance(time.Minute)
				if runs != 2 {
					t.Fatalf("%d runs", runs)
				}
				answer, states := answerOf(t, ctx, h)
				if back {
					if states["a"] != "" && states["a"] != "completed" {
						t.Errorf("the tool has returned its result, and the call is %s: %s", states["a"], resultOf(answer, "a"))
					}
					return
				}
				if states["a"] == "completed" {
					return
				}
				inEvent(t, ctx, h, func(ctx context.Context, p *countingAgent) error {
					applied, err := chat.Complete(ctx, p, &chat.Completion{Key: key})
					if !applied || err != nil {
						t.Errorf("the call is %s, and Complete returns %t, %v", states["a"], applied, err)
					}
					return nil
				})
			})
		})
	}
}

// MaxSteps bounds the model's answers for one message.
func TestCompleteCountsSteps(t *testing.T) {
	for _, inside := range []bool{false, true} {
		t.Run(map[bool]string{false: "later", true: "inside Run"}[inside], func(t *testing.T) {
			key := ""
			m := &stepsModel{steps: [][]string{{"a:1"}, {"a:2"}, {"a:3"}, {"a:4"}, {"a:5"}, {"a:6"}, {"a:7"}, {"a:8"}}}
			class := countingClassOf(&countingState{}, &handlers{Reply: func(p *countingAgent, ctx context.Context, r *chat.Reply) error {
				tool := external("a", chat.External{}, func(ctx context.Context, c chat.Call) (any, error) {
					key = c.Key
					if !inside {
						return nil, nil
					}
					_, err := chat.Complete(ctx, p, &chat.Completion{Key: c.Key})
					return nil, err
				})
				return chat.Answer(ctx, r, m, &chat.AnswerOptions{MaxSteps: 2, Tools: []chat.Tool{tool}})
			}})
			runAsked(t, class, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
				h.Advance(10 * time.Second)
				for range 8 {
					if !inside {
						complete(t, ctx, h, chat.Completion{Key: key})
					}
				}
				h.Advance(time.Minute)
				if m.asked > 2 {
					t.Errorf("MaxSteps is 2, and the model was asked %d times for one message", m.asked)
				}
			})
		})
	}
}

// A reply that only finds that the call still waits is not a reply.
func TestExternalCallThatWaitsBeginsNoReply(t *testing.T) {
	keys := map[string]string{}
	replies := 0
	m := &stepsModel{steps: [][]string{{"a", "b"}}}
	class := countingClassOf(&countingState{}, &handlers{
		Reply: func(_ *countingAgent, ctx context.Context, r *chat.Reply) error {
			replies++
			var tools []chat.Tool
			for _, name := range []string{"a", "b"} {
				tool := external(name, chat.External{}, func(_ context.Context, c chat.Call) (any, error) { keys[name] = c.Key; return nil, nil })
				if name == "a" {
					tool.Approve = &chat.Approval{}
				}
				tools = append(tools, tool)
			}
			return chat.Answer(ctx, r, m, &chat.AnswerOptions{Tools: tools})
		},
		OnResponse: func(_ *countingAgent, _ context.Context, r chat.Response) error { return nil },
	})
	runAsked(t, class, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		h.Advance(time.Second)
		approveCall(t, ctx, h, "a-1-0")
		before := replies
		complete(t, ctx, h, chat.Completion{Key: keys["b"]})
		if replies != before {
			t.Errorf("a result that leaves another call waiting has begun %d replies", replies-before)
		}
		continueReply(t, ctx, h)
		if replies != before {
			t.Errorf("after Continue: %d replies", replies-before)
		}
	})
}

// A repetition of a completion is not late.
func TestCompletionThatIsRepeatedIsNotLate(t *testing.T) {
	key, late := "", 0
	m := &stepsModel{steps: [][]string{{"a"}}}
	o := &dohosttest.Options{
		Classes: []dohost.Class{toolClass(m, chat.Options{}, func(*countingAgent) []chat.Tool { return []chat.Tool{externalTool(&key, chat.External{})} })},
		Options: dohost.Options{Listener: dohost.Listener{Service: func(_ dohost.ID, event string, _ ...slog.Attr) {
			if event == "chat:late" {
				late++
			}
		}}},
	}
	dohosttest.Run(t, o, func(t *testing.T, h *dohosttest.Host) {
		ctx := t.Context()
		inEvent(t, ctx, h, func(ctx context.Context, p *countingAgent) error {
			_, err := chat.Ask(ctx, p, []chat.Message{chat.Text("u", chat.RoleUser, "go")}, nil)
			return err
		})
		h.Advance(time.Second)
		for range 2 {
			complete(t, ctx, h, chat.Completion{Key: key, Error: "no answer", Unknown: true})
		}
		if late != 0 {
			t.Errorf("%d reports of late completions, of a call without Within", late)
		}
	})
}

// TestCallCompletedBeforeItsRunBegins completes a call whose row is stored as running, and whose Run waits for the turn. Run is not called,
// and the reply continues.
func TestCallCompletedBeforeItsRunBegins(t *testing.T) {
	m := &stepsModel{steps: [][]string{{"a", "b"}}}
	runs := 0
	runTools(t, m, chat.Options{}, func(p *countingAgent) []chat.Tool {
		first := chat.Tool{ToolSpec: chat.ToolSpec{Name: "a"}, Run: func(ctx context.Context, _ json.RawMessage) (any, error) {
			for c, err := range chat.Calls(ctx, p) {
				if err != nil || c.Tool != "b" {
					continue
				}
				applied, err := chat.Complete(ctx, p, &chat.Completion{Key: c.Key, Output: json.RawMessage(`"early"`)})
				return applied, err
			}
			return "there is no call of b", nil
		}}
		return []chat.Tool{first, external("b", chat.External{}, func(context.Context, chat.Call) (any, error) { runs++; return nil, nil })}
	}, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		h.Advance(time.Minute)
		var r chat.Response
		inEvent(t, ctx, h, func(ctx context.Context, p *countingAgent) (err error) {
			r, _, err = chat.Wait(ctx, p, "one")
			return err
		})
		_, states := answerOf(t, ctx, h)
		if runs != 0 || m.asked != 2 || states["b"] != "completed" || r.Status != chat.StatusCompleted {
			t.Errorf("b ran %d times, and is %s; the model was asked %d times; the request is %s", runs, states["b"], m.asked, r.Status)
		}
	})
}

// A completion of a service, as JSON.
func TestOutputOfNullWithError(t *testing.T) {
	key := ""
	m := &stepsModel{steps: [][]string{{"a"}}}
	runTools(t, m, chat.Options{}, func(*countingAgent) []chat.Tool { return []chat.Tool{externalTool(&key, chat.External{})} },
		func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
			h.Advance(time.Second)
			var c chat.Completion
			if err := json.Unmarshal([]byte(`{"key":"`+key+`","output":null,"error":"no stock"}`), &c); err != nil {
				t.Fatal(err)
			}
			inEvent(t, ctx, h, func(ctx context.Context, p *countingAgent) error {
				_, err := chat.Complete(ctx, p, &c)
				return err
			})
		})
}

func TestDetailOfExternalCall(t *testing.T) {
	key := ""
	m := &stepsModel{steps: [][]string{{"a"}}}
	runTools(t, m, chat.Options{}, func(*countingAgent) []chat.Tool { return []chat.Tool{externalTool(&key, chat.External{})} },
		func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
			h.Advance(time.Second)
			for r, err := range h.Host().Details(ctx, testID) {
				if err == nil && r.Kind == "call" && !strings.Contains(r.Text, key) {
					t.Errorf("the text of the call has no key: %q", r.Text)
				}
			}
		})
}

// An asynchronous call whose message the program has replaced with an older copy.
func TestExternalCallInOlderCopy(t *testing.T) {
	for _, async := range []bool{false, true} {
		t.Run(map[bool]string{false: "sync", true: "async"}[async], func(t *testing.T) {
			key := ""
			m := &stepsModel{steps: [][]string{{"a"}}}
			runTools(t, m, chat.Options{}, func(*countingAgent) []chat.Tool {
				tool := externalTool(&key, chat.External{Async: async})
				tool.Approve = &chat.Approval{}
				return []chat.Tool{tool}
			}, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
				h.Advance(time.Second)
				var old []chat.Message
				inEvent(t, ctx, h, func(ctx context.Context, p *countingAgent) (err error) {
					old, err = chat.Messages(ctx, p, 0)
					return err
				})
				approveCall(t, ctx, h, "a-1-0")
				inEvent(t, ctx, h, func(ctx context.Context, p *countingAgent) error { return chat.SetMessages(ctx, p, old) })
				complete(t, ctx, h, chat.Completion{Key: key, Output: json.RawMessage(`"printed"`)})
				h.Advance(time.Minute)
				inEvent(t, ctx, h, func(ctx context.Context, p *countingAgent) error { return p.Idle(ctx) })
				if c := findCall(t, ctx, h, key); c.State != chat.CallCompleted {
					t.Errorf("%+v", c)
				}
			})
		})
	}
}

// Two completions wait for space. One of them is applied.
func TestCompletionIsAppliedOnceOnFullDisk(t *testing.T) {
	key := ""
	m := &stepsModel{steps: [][]string{{"a"}}}
	class := toolClass(m, chat.Options{}, func(*countingAgent) []chat.Tool { return []chat.Tool{externalTool(&key, chat.External{})} })
	runLong(t, func(t *testing.T, h *dohost.Host, disk *objectstore.FS) {
		askToGo(t, h)
		time.Sleep(time.Second)
		disk.SetFree(0)
		applied := make(chan bool, 2)
		for range 2 {
			go func() {
				err := countingAgents.Get(h, testID.Name).Do(t.Context(), func(ctx context.Context, p *countingAgent) error {
					ok, err := chat.Complete(ctx, p, &chat.Completion{Key: key})
					applied <- ok
					return err
				})
				if err != nil {
					t.Error(err)
				}
			}()
			time.Sleep(300 * time.Millisecond)
		}
		time.Sleep(3 * time.Second)
		disk.SetFree(1 << 40)
		if a, b := <-applied, <-applied; a == b {
			t.Errorf("both completions report applied = %t", a)
		}
		time.Sleep(10 * time.Second)
	}, class)
}

// A result that does not fit into its message ends the call nevertheless.
func TestCompleteInLargeMessage(t *testing.T) {
	for name, c := range map[string]struct {
		size int
		by   chat.Completion
	}{
		"error":  {1_799_000, chat.Completion{Error: strings.Repeat("x", 60_000)}},
		"output": {1_799_000, chat.Completion{Output: json.RawMessage(`"` + strings.Repeat("x", 990) + `"`)}},
	} {
		t.Run(name, func(t *testing.T) {
			key := ""
			m := hugeModel{&stepsModel{steps: [][]string{{"a"}}}, c.size}
			runTools(t, m, chat.Options{}, func(*countingAgent) []chat.Tool {
				return []chat.Tool{externalTool(&key, chat.External{Within: time.Hour})}
			},
				func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
					h.Advance(time.Second)
					c.by.Key = key
					if got := findCall(t, ctx, h, key); got.State != chat.CallExternal {
						t.Fatalf("%+v", got)
					}
					if !complete(t, ctx, h, c.by) {
						t.Error("not applied")
					}
					if got := findCall(t, ctx, h, key); got.State == chat.CallExternal || m.asked < 2 {
						t.Errorf("%+v, asked %d times", got, m.asked)
					}
				})
		})
	}
}

// Within ends a call whose message has no space for the error.
func TestExpiryInLargeMessage(t *testing.T) {
	size := 1_799_000
	for range 2 {
		key := ""
		m := hugeModel{&stepsModel{steps: [][]string{{"a"}}}, size}
		runTools(t, m, chat.Options{}, func(*countingAgent) []chat.Tool {
			return []chat.Tool{externalTool(&key, chat.External{Within: time.Hour})}
		},
			func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
				h.Advance(time.Second)
				list, _ := chatMessages(t, ctx, h)
				raw, _ := json.Marshal(list[len(list)-1])
				h.Advance(240 * time.Hour)
				if c := findCall(t, ctx, h, key); c.State != chat.CallUnknown {
					t.Errorf("after ten days with Within = 1 h, the call of a message of %d bytes is %s; the model was asked %d times", len(raw), c.State, m.asked)
				}
				size += 1_799_980 - len(raw)
			})
	}
}

// The model repeats the id of a call in two messages: the decision is about the call that waits for one.
func TestDecisionAboutRepeatedID(t *testing.T) {
	for _, async := range []bool{false, true} {
		t.Run(map[bool]string{false: "sync", true: "async"}[async], func(t *testing.T) {
			runs, key := 0, ""
			m := &idModel{}
			runTools(t, m, chat.Options{}, func(*countingAgent) []chat.Tool {
				b := externalTool(&key, chat.External{Async: async})
				b.Name = "b"
				return []chat.Tool{counted(&runs, 0, nil), b}
			}, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
				h.Advance(time.Second)
				inEvent(t, ctx, h, func(ctx context.Context, p *countingAgent) error {
					_, err := chat.Ask(ctx, p, []chat.Message{chat.Text("u2", chat.RoleUser, "b")}, nil)
					return err
				})
				h.Advance(time.Second)
				inEvent(t, ctx, h, func(ctx context.Context, p *countingAgent) error {
					return chat.Decide(ctx, p, &chat.Decision{Call: "call_0", Approve: true})
				})
				h.Advance(5 * time.Second)
			})
		})
	}
}

// The state of an asynchronous call that has failed does not change when its message is stored again.
func TestExternalCallAsyncFailureStays(t *testing.T) {
	for name, c := range map[string]struct {
		unknown bool
		during  bool
	}{"failed": {false, false}, "unknown": {true, false}, "failed during the reply": {false, true}, "unknown during the reply": {true, true}} {
		t.Run(name, func(t *testing.T) {
			key := ""
			m := &stepsModel{steps: [][]string{{"a", "slow"}}}
			runTools(t, m, chat.Options{}, func(*countingAgent) []chat.Tool {
				return []chat.Tool{externalTool(&key, chat.External{Async: true}), sleeper("slow", 20*time.Second, false)}
			}, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
				h.Advance(time.Second)
				if !c.during {
					h.Advance(time.Minute)
				}
				complete(t, ctx, h, chat.Completion{Key: key, Error: "no stock", Unknown: c.unknown})
				before := findCall(t, ctx, h, key)
				h.Advance(time.Minute)
				if !c.during {
					inEvent(t, ctx, h, func(ctx context.Context, p *countingAgent) error {
						list, err := chat.Messages(ctx, p, 1)
						if err != nil {
							return err
						}
						list[0].Metadata = json.RawMessage(`{"n":1}`)
						return chat.SetMessages(ctx, p, list)
					})
				}
				if after := findCall(t, ctx, h, key); after.State != before.State {
					t.Errorf("the call was %s, and is %s with the error %q", before.State, after.State, after.Error)
				}
			})
		})
	}
}

// Two external calls, one with an approval, and one for a client, in each order of their ends.
func TestStepOfSeveralParties(t *testing.T) {
	for name, order := range map[string]string{"cab": "cab", "abc": "abc", "bca": "bca", "acb": "acb"} {
		t.Run(name, func(t *testing.T) {
			keys := map[string]string{}
			m := &stepsModel{steps: [][]string{{"a", "b", "c"}}}
			class := toolClass(m, chat.Options{}, func(*countingAgent) []chat.Tool {
				tools := []chat.Tool{{ToolSpec: chat.ToolSpec{Name: "c"}}}
				for _, n := range []string{"a", "b"} {
					tools = append(tools, external(n, chat.External{}, func(_ context.Context, c chat.Call) (any, error) { keys[n] = c.Key; return nil, nil }))
				}
				return tools
			})
			runWithHost(t, class, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
				r := connectIdle(t, h, "r")
				r.ask(ctx, "one", "go", nil)
				r.waitEnd(t, "one")
				for i, n := range order {
					if n == 'c' {
						r.sendFrame(ctx, map[string]any{"type": "cf_agent_tool_result", "toolCallId": "c-1-2", "output": "signed", "autoContinue": true})
						h.Advance(5 * time.Second)
					} else if !complete(t, ctx, h, chat.Completion{Key: keys[string(n)]}) {
						t.Error("not applied")
					}
					if want := 1 + i/2; m.asked != want {
						t.Errorf("after %d results the model was asked %d times", i+1, m.asked)
					}
				}
				inEvent(t, ctx, h, func(ctx context.Context, p *countingAgent) error { return p.Idle(ctx) })
				r.close()
			})
		})
	}
}

// The class loses a tool while its call waits.
func TestToolIsRemovedWhileCallWaits(t *testing.T) {
	for _, async := range []bool{false, true} {
		t.Run(map[bool]string{false: "sync", true: "async"}[async], func(t *testing.T) {
			key := ""
			m := &stepsModel{steps: [][]string{{"a"}}}
			runTools(t, m, chat.Options{}, func(*countingAgent) []chat.Tool {
				if key != "" {
					return nil
				}
				return []chat.Tool{externalTool(&key, chat.External{Async: async})}
			}, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
				h.Advance(time.Second)
				h.Evict(testID, dohost.EndFence)
				if !complete(t, ctx, h, chat.Completion{Key: key}) {
					t.Error("not applied")
				}
				if answer, _ := answerOf(t, ctx, h); answer.PlainText() != "done " || m.asked != 2 {
					t.Errorf("%q, asked %d", answer.PlainText(), m.asked)
				}
				inEvent(t, ctx, h, func(ctx context.Context, p *countingAgent) error { return p.Idle(ctx) })
			})
		})
	}
}

// The handler ends its message with a step of its own after Answer.
func TestHandlerAddsStep(t *testing.T) {
	key := ""
	m := &stepsModel{steps: [][]string{{"a"}}}
	said := false
	class := countingClassOf(&countingState{}, &handlers{Reply: func(_ *countingAgent, ctx context.Context, r *chat.Reply) error {
		err := chat.Answer(ctx, r, m, &chat.AnswerOptions{Tools: []chat.Tool{externalTool(&key, chat.External{})}})
		if err != nil || said {
			return err
		}
		said = true
		for _, c := range []chat.Chunk{chunk("start-step", nil), chat.TextDelta("w", "Please wait. "), chunk("finish-step", nil)} {
			if err := r.Send(ctx, c); err != nil {
				return err
			}
		}
		return nil
	}})
	runAsked(t, class, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		h.Advance(time.Second)
		complete(t, ctx, h, chat.Completion{Key: key})
		h.Advance(time.Minute)
		if m.asked != 2 {
			answer, _ := answerOf(t, ctx, h)
			t.Errorf("the model was asked %d times: %q", m.asked, answer.PlainText())
		}
	})
}

func TestHandlerAddsStepBeforeClientResult(t *testing.T) {
	m := &stepsModel{steps: [][]string{{"c"}}}
	said := false
	class := countingClassOf(&countingState{}, &handlers{Reply: func(_ *countingAgent, ctx context.Context, r *chat.Reply) error {
		err := chat.Answer(ctx, r, m, nil)
		if err != nil || said {
			return err
		}
		said = true
		for _, c := range []chat.Chunk{chunk("start-step", nil), chat.TextDelta("w", "Please wait. "), chunk("finish-step", nil)} {
			if err := r.Send(ctx, c); err != nil {
				return err
			}
		}
		return nil
	}})
	runWithHost(t, class, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		r := connectIdle(t, h, "r")
		r.ask(ctx, "one", "go", map[string]any{"clientTools": []any{map[string]any{"name": "c"}}})
		r.waitEnd(t, "one")
		r.sendFrame(ctx, map[string]any{"type": "cf_agent_tool_result", "toolCallId": "c-1-0", "output": "signed", "autoContinue": true})
		h.Advance(10 * time.Second)
		if m.asked != 2 {
			t.Errorf("the model was asked %d times", m.asked)
		}
		r.close()
	})
}

// A call that waits for a client keeps waiting when an approved call of its step begins.
func TestApprovalOfACallKeepsClientCall(t *testing.T) {
	for _, ext := range []bool{false, true} {
		t.Run(map[bool]string{false: "server", true: "external"}[ext], func(t *testing.T) {
			key := ""
			m := &stepsModel{steps: [][]string{{"a", "c"}}}
			runTools(t, m, chat.Options{}, func(*countingAgent) []chat.Tool {
				a := sleeper("a", 0, false)
				if ext {
					a = externalTool(&key, chat.External{})
				}
				a.Approve = &chat.Approval{}
				return []chat.Tool{a, {ToolSpec: chat.ToolSpec{Name: "c"}}}
			}, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
				h.Advance(time.Second)
				if answer, _ := answerOf(t, ctx, h); !strings.HasPrefix(resultOf(answer, "c"), "input-available") {
					t.Fatalf("before: %s", resultOf(answer, "c"))
				}
				approveCall(t, ctx, h, "a-1-0")
				if answer, states := answerOf(t, ctx, h); !strings.HasPrefix(resultOf(answer, "c"), "input-available") {
					t.Errorf("after the approval of another call: %s, %v", resultOf(answer, "c"), states)
				}
			})
		})
	}
}

// Within ends while Run still runs, in an incarnation that ends.
func TestExternalCallWithinEndsDuringRun(t *testing.T) {
	for _, async := range []bool{false, true} {
		for _, evict := range []bool{false, true} {
			t.Run(map[bool]string{false: "sync", true: "async"}[async]+map[bool]string{false: "", true: ", evicted"}[evict], func(t *testing.T) {
				key, runs := "", 0
				m := &stepsModel{steps: [][]string{{"a"}}}
				runTools(t, m, chat.Options{}, func(*countingAgent) []chat.Tool {
					tool := external("a", chat.External{Async: async, Within: 10 * time.Second}, func(ctx context.Context, c chat.Call) (any, error) {
						key, runs = c.Key, runs+1
						return nil, dohost.Sleep(ctx, 30*time.Second)
					})
					tool.Policy = ledger.PolicyIdempotent
					return []chat.Tool{tool}
				}, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
					h.Advance(8 * time.Second)
					if evict {
						h.Evict(testID, dohost.EndKill)
					}
					h.Advance(2 * time.Minute)
					c := findCall(t, ctx, h, key)
					answer, _ := answerOf(t, ctx, h)
					if c.State != chat.CallUnknown || answer.PlainText() != "done " || m.asked != 2 {
						t.Errorf("%+v, %s, %q, asked %d, %d runs", c, resultOf(answer, "a"), answer.PlainText(), m.asked, runs)
					}
					inEvent(t, ctx, h, func(ctx context.Context, p *countingAgent) error { return p.Idle(ctx) })
				})
			})
		}
	}
}

// Recovery hooks that end the reply, with a call that was handed over.
func TestRecoveryStopKeepsExternalCall(t *testing.T) {
	for name, action := range map[string]chat.RecoveryAction{"stop": chat.RecoveryStop, "discard": chat.RecoveryDiscard} {
		for _, before := range []bool{false, true} {
			t.Run(name+map[bool]string{false: ", then completed", true: ", completed before"}[before], func(t *testing.T) {
				key := ""
				m := &stepsModel{steps: [][]string{{"a", "slow"}}}
				slow := sleeper("slow", 20*time.Second, false)
				slow.Policy = ledger.PolicyIdempotent
				class := countingClassOf(&countingState{}, &handlers{
					Reply: func(_ *countingAgent, ctx context.Context, r *chat.Reply) error {
						return chat.Answer(ctx, r, m, &chat.AnswerOptions{Tools: []chat.Tool{externalTool(&key, chat.External{}), slow}})
					},
					OnRecovery: func(*countingAgent, context.Context, *chat.InterruptedReply) (chat.RecoveryAction, error) {
						return action, nil
					},
				})
				runAsked(t, class, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
					h.Advance(time.Second)
					if before {
						complete(t, ctx, h, chat.Completion{Key: key, Output: json.RawMessage("7")})
					}
					h.Evict(testID, dohost.EndFence)
					h.Advance(time.Minute)
					if before && m.asked > 1 {
						t.Errorf("after %s the model was asked %d times", name, m.asked)
					}
					inEvent(t, ctx, h, func(ctx context.Context, p *countingAgent) error { return p.Idle(ctx) })
					if !before && !complete(t, ctx, h, chat.Completion{Key: key, Output: json.RawMessage("7")}) {
						t.Error("not applied")
					}
					h.Advance(time.Minute)
					inEvent(t, ctx, h, func(ctx context.Context, p *countingAgent) error { return p.Idle(ctx) })
				})
			})
		}
	}
}
