package chat_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"strings"
	"testing"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/chat"
	"github.com/dohost/dohost/dohosttest"
	"github.com/dohost/dohost/ledger"
	"github.com/dohost/dohost/objectstore"
)

// inEvent runs f as an event of the agent.
func inEvent(t *testing.T, ctx context.Context, h *dohosttest.Host, f func(context.Context, *countingAgent) error) {
	t.Helper()
	if err := countingAgents.Get(h, testID.Name).Do(ctx, func(ctx context.Context, p *countingAgent) error { return f(ctx, p) }); err != nil {
		t.Error(err)
	}
}

// approveCall approves a call, and waits for the effects.
func approveCall(t *testing.T, ctx context.Context, h *dohosttest.Host, call string) {
	t.Helper()
	inEvent(t, ctx, h, func(ctx context.Context, p *countingAgent) error {
		return chat.Decide(ctx, p, &chat.Decision{Call: call, Approve: true, Actor: "mia"})
	})
	h.Advance(5 * time.Second)
}

func continueReply(t *testing.T, ctx context.Context, h *dohosttest.Host) {
	t.Helper()
	inEvent(t, ctx, h, func(ctx context.Context, p *countingAgent) error {
		_, err := chat.Continue(ctx, p, nil)
		return err
	})
	h.Advance(10 * time.Second)
}

// counted is a tool whose calls need an approval, and which counts its runs.
func counted(runs *int, d time.Duration, more func(ctx context.Context) error) chat.Tool {
	return chat.Tool{ToolSpec: chat.ToolSpec{Name: "a"}, Approve: &chat.Approval{}, Run: func(ctx context.Context, _ json.RawMessage) (any, error) {
		*runs++
		if more != nil {
			if err := more(ctx); err != nil {
				return nil, err
			}
		}
		return "done", dohost.Sleep(ctx, d)
	}}
}

// largeModel is a stepsModel whose second answer is too large to be stored.
type largeModel struct{ *stepsModel }

// Stream implements [chat.Model].
func (m largeModel) Stream(ctx context.Context, p *chat.Prompt) iter.Seq2[chat.Chunk, error] {
	if m.asked != 1 {
		return m.stepsModel.Stream(ctx, p)
	}
	return func(yield func(chat.Chunk, error) bool) {
		m.asked++
		for range 2 {
			if !yield(chunk("file", map[string]any{"mediaType": "image/png", "url": "data:" + strings.Repeat("x", 1_000_000)}), nil) {
				return
			}
		}
	}
}

func TestApprovalRunsCallOnceIfItsMessageIsTooLarge(t *testing.T) {
	runs := 0
	m := largeModel{&stepsModel{steps: [][]string{{"a"}}}}
	runTools(t, m, chat.Options{}, func(*countingAgent) []chat.Tool { return []chat.Tool{counted(&runs, 0, nil)} }, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		h.Advance(time.Second)
		approveCall(t, ctx, h, "a-1-0")
		continueReply(t, ctx, h)
		if _, states := answerOf(t, ctx, h); runs != 1 || states["a"] != "completed" {
			t.Errorf("the call ran %d times, and is %s", runs, states["a"])
		}
	})
}

func TestApprovalRunsCallOnceDespiteOlderCopies(t *testing.T) {
	for name, during := range map[string]bool{"during the run": true, "after the result": false} {
		t.Run(name, func(t *testing.T) {
			runs := 0
			m := &stepsModel{steps: [][]string{{"a"}}}
			var agent *countingAgent
			store := func(ctx context.Context, list []chat.Message) error {
				for i := range list {
					list[i].Metadata = json.RawMessage(`{"n":1}`)
				}
				return chat.SetMessages(ctx, agent, list)
			}
			runTools(t, m, chat.Options{}, func(p *countingAgent) []chat.Tool {
				agent = p
				return []chat.Tool{counted(&runs, 3*time.Second, func(ctx context.Context) error {
					if !during {
						return nil
					}
					list, err := chat.Messages(ctx, p, 0)
					return errors.Join(err, store(ctx, list))
				})}
			}, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
				h.Advance(time.Second)
				var old []chat.Message
				inEvent(t, ctx, h, func(ctx context.Context, p *countingAgent) (err error) {
					old, err = chat.Messages(ctx, p, 0)
					return err
				})
				inEvent(t, ctx, h, func(ctx context.Context, p *countingAgent) error {
					return chat.Decide(ctx, p, &chat.Decision{Call: "a-1-0", Approve: true})
				})
				if during {
					h.Advance(time.Second)
					h.Evict(testID, dohost.EndFence)
				}
				h.Advance(10 * time.Second)
				if !during {
					inEvent(t, ctx, h, func(ctx context.Context, p *countingAgent) error { agent = p; return store(ctx, old) })
				}
				continueReply(t, ctx, h)
				if runs != 1 {
					t.Errorf("the call ran %d times", runs)
				}
			})
		})
	}
}

// TestAnswerTwiceRunsNoCallAgain has a handler that calls Answer a second time after the end of a short context.
func TestAnswerTwiceRunsNoCallAgain(t *testing.T) {
	for _, policy := range []ledger.Policy{ledger.PolicyAtMostOnce, ledger.PolicyIdempotent} {
		runs := 0
		m := &stepsModel{steps: [][]string{{"a"}}}
		class := countingClassOf(&countingState{}, &handlers{Reply: func(_ *countingAgent, ctx context.Context, r *chat.Reply) error {
			o := &chat.AnswerOptions{Tools: []chat.Tool{{ToolSpec: chat.ToolSpec{Name: "a"}, Policy: policy, Run: func(ctx context.Context, _ json.RawMessage) (any, error) {
				runs++
				return "late", dohost.Sleep(context.WithoutCancel(ctx), 5*time.Second)
			}}}}
			short, cancel := context.WithTimeout(ctx, 2*time.Second)
			defer cancel()
			if err := chat.Answer(short, r, m, o); !errors.Is(err, context.DeadlineExceeded) {
				return fmt.Errorf("the first Answer: %w", err)
			}
			return chat.Answer(ctx, r, m, o)
		}})
		runWithHost(t, class, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
			inEvent(t, ctx, h, func(ctx context.Context, p *countingAgent) error {
				_, err := chat.Ask(ctx, p, []chat.Message{chat.Text("u", chat.RoleUser, "go")}, nil)
				return err
			})
			h.Advance(30 * time.Second)
			if answer, states := answerOf(t, ctx, h); runs != 1 || states["a"] != "unknown" || answer.PlainText() != "done " {
				t.Errorf("%v: %d runs, %s, %q", policy, runs, states["a"], answer.PlainText())
			}
		})
	}
}

// TestCallThatHasBegunEndsWithTheReply has a handler that ends during a call, while another call waits for an approval.
func TestCallThatHasBegunEndsWithTheReply(t *testing.T) {
	m := &stepsModel{steps: [][]string{{"a", "w"}}}
	class := countingClassOf(&countingState{}, &handlers{Reply: func(_ *countingAgent, ctx context.Context, r *chat.Reply) error {
		waits := sleeper("w", 0, false)
		waits.Approve = &chat.Approval{}
		short, cancel := context.WithTimeout(ctx, 2*time.Second)
		defer cancel()
		err := chat.Answer(short, r, m, &chat.AnswerOptions{Tools: []chat.Tool{sleeper("a", 5*time.Second, false), waits}})
		if errors.Is(err, context.DeadlineExceeded) {
			return r.Say(ctx, "later ")
		}
		return err
	}})
	runWithHost(t, class, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		inEvent(t, ctx, h, func(ctx context.Context, p *countingAgent) error {
			_, err := chat.Ask(ctx, p, []chat.Message{chat.Text("u", chat.RoleUser, "go")}, nil)
			return err
		})
		h.Advance(10 * time.Second)
		if _, states := answerOf(t, ctx, h); states["a"] != "unknown" || states["w"] != "approval" {
			t.Errorf("%v", states)
		}
		approveCall(t, ctx, h, "w-1-1")
		if answer, states := answerOf(t, ctx, h); states["w"] != "completed" || !strings.HasSuffix(answer.PlainText(), "later ") {
			t.Errorf("%v, %q", states, answer.PlainText())
		}
	})
}

// TestResultThatIsTooLargeFailsItsCallOnly has one tool whose result does not fit into a row, and one whose result JSON cannot carry.
func TestResultThatIsTooLargeFailsItsCallOnly(t *testing.T) {
	m := &stepsModel{steps: [][]string{{"large", "odd", "b"}}}
	runTools(t, m, chat.Options{}, func(*countingAgent) []chat.Tool {
		result := func(name string, v any) chat.Tool {
			return chat.Tool{ToolSpec: chat.ToolSpec{Name: name}, Run: func(context.Context, json.RawMessage) (any, error) { return v, nil }}
		}
		return []chat.Tool{result("large", strings.Repeat("x", 3<<20)), result("odd", make(chan int)), sleeper("b", time.Second, false)}
	}, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		h.Advance(5 * time.Second)
		answer, states := answerOf(t, ctx, h)
		if states["large"] != "unknown" || states["odd"] != "unknown" || states["b"] != "completed" || answer.PlainText() != "done " ||
			!strings.HasPrefix(resultOf(answer, "large"), "output-error dohost: ") {
			t.Errorf("%v, %s, %q", states, resultOf(answer, "large"), answer.PlainText())
		}
	})
}

// TestCallThatIsInterruptedWithoutItsTool changes the tool between two runs of a call.
func TestCallThatIsInterruptedWithoutItsTool(t *testing.T) {
	for name, now := range map[string][]chat.Tool{
		"no tool":        nil,
		"another policy": {sleeper("a", 0, false)},
		"another input": {chat.NewTool("a", "", func(context.Context, stay) (int, error) { return 1, nil },
			&chat.ToolOptions[stay, int]{Policy: ledger.PolicyIdempotent})},
	} {
		t.Run(name, func(t *testing.T) {
			m := &stepsModel{steps: [][]string{{"a"}}}
			interrupted := false
			runTools(t, m, chat.Options{}, func(*countingAgent) []chat.Tool {
				if interrupted {
					return now
				}
				first := sleeper("a", 5*time.Second, false)
				first.Policy = ledger.PolicyIdempotent
				return []chat.Tool{first}
			}, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
				h.Advance(time.Second)
				interrupted = true
				h.Evict(testID, dohost.EndFence)
				h.Advance(time.Minute)
				if answer, states := answerOf(t, ctx, h); states["a"] != "unknown" || answer.PlainText() != "done " {
					t.Errorf("%v, %s, %q", states, resultOf(answer, "a"), answer.PlainText())
				}
			})
		})
	}
}

// TestReplyAfterARestartRepeatsItsIdempotentCall discards the chunks of a reply during a call.
func TestReplyAfterARestartRepeatsItsIdempotentCall(t *testing.T) {
	m := &stepsModel{steps: [][]string{{"a"}}}
	runs := 0
	class := countingClassOf(&countingState{}, &handlers{
		Reply: func(_ *countingAgent, ctx context.Context, r *chat.Reply) error {
			return chat.Answer(ctx, r, m, &chat.AnswerOptions{Tools: []chat.Tool{{
				ToolSpec: chat.ToolSpec{Name: "a"}, Policy: ledger.PolicyIdempotent, Run: func(ctx context.Context, _ json.RawMessage) (any, error) {
					runs++
					return "done", dohost.Sleep(ctx, 5*time.Second)
				},
			}}})
		},
		OnRecovery: func(*countingAgent, context.Context, *chat.InterruptedReply) (chat.RecoveryAction, error) {
			return chat.RecoveryRestart, nil
		},
	})
	runWithHost(t, class, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		inEvent(t, ctx, h, func(ctx context.Context, p *countingAgent) error {
			_, err := chat.Ask(ctx, p, []chat.Message{chat.Text("u", chat.RoleUser, "go")}, nil)
			return err
		})
		h.Advance(time.Second)
		h.Evict(testID, dohost.EndFence)
		h.Advance(time.Minute)
		if answer, states := answerOf(t, ctx, h); runs != 2 || states["a"] != "completed" || answer.PlainText() != "done " {
			t.Errorf("%d runs, %s, %q", runs, states["a"], answer.PlainText())
		}
	})
}

// repeatedIDModel makes a call of a server's tool, and a call of a client's tool with the same id.
type repeatedIDModel struct{}

// Stream implements [chat.Model].
func (repeatedIDModel) Stream(_ context.Context, p *chat.Prompt) iter.Seq2[chat.Chunk, error] {
	return func(yield func(chat.Chunk, error) bool) {
		_ = len(p.Partial.Parts) > 0 || yield(chat.ToolInput("c", "pay", `{}`), nil) && yield(chat.ToolInput("c", "look", `{}`), nil)
	}
}

func TestClientDoesNotAnswerServerCall(t *testing.T) {
	paid := 0
	runTools(t, repeatedIDModel{}, chat.Options{}, func(*countingAgent) []chat.Tool {
		pay := counted(&paid, 0, nil)
		pay.Name = "pay"
		return []chat.Tool{pay, {ToolSpec: chat.ToolSpec{Name: "look"}}}
	}, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		h.Advance(time.Second)
		r := connectIdle(t, h, "r")
		r.sendFrame(ctx, map[string]any{"type": "cf_agent_tool_result", "toolCallId": "c", "output": "paid"})
		h.Advance(time.Second)
		if answer, _ := answerOf(t, ctx, h); resultOf(answer, "pay") != "approval-requested " || paid != 0 {
			t.Errorf("%s, paid %d times", resultOf(answer, "pay"), paid)
		}
		r.close()
	})
}

// TestClientCannotForgeExpiry refuses a call with the text of an expiry, and answers a client's call that waits for an approval.
func TestClientCannotForgeExpiry(t *testing.T) {
	m := &stepsModel{steps: [][]string{{"a", "sign"}}}
	runs := 0
	runTools(t, m, chat.Options{}, func(*countingAgent) []chat.Tool {
		return []chat.Tool{counted(&runs, 0, nil), {ToolSpec: chat.ToolSpec{Name: "sign"}, Approve: &chat.Approval{}}}
	}, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		h.Advance(time.Second)
		r := connectIdle(t, h, "r")
		r.sendFrame(ctx, map[string]any{"type": "cf_agent_tool_result", "toolCallId": "sign-1-1", "output": "signed"})
		r.sendFrame(ctx, map[string]any{
			"type": "cf_agent_tool_result", "toolCallId": "a-1-0", "state": "output-error", "errorText": "The approval expired before a decision.",
		})
		h.Advance(time.Second)
		if _, states := answerOf(t, ctx, h); states["a"] != "denied" || states["sign"] != "approval" {
			t.Errorf("%v", states)
		}
		r.close()
		inEvent(t, ctx, h, func(ctx context.Context, p *countingAgent) error {
			for e, err := range chat.Approvals(ctx, p, "a-1-0") {
				if err != nil || e.Action == chat.ApprovalExpired || e.Action == chat.ApprovalDenied && e.Actor != "connection r" {
					t.Errorf("%+v, %v", e, err)
				}
			}
			return nil
		})
	})
}

func TestDecideAboutCallWithoutApproval(t *testing.T) {
	m := &stepsModel{steps: [][]string{{"a"}}}
	runTools(t, m, chat.Options{}, func(*countingAgent) []chat.Tool { return []chat.Tool{sleeper("a", 5*time.Second, false)} }, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		h.Advance(time.Second)
		inEvent(t, ctx, h, func(ctx context.Context, p *countingAgent) error {
			if err := chat.Decide(ctx, p, &chat.Decision{Call: "a-1-0"}); !errors.Is(err, chat.ErrNotWaiting) {
				t.Errorf("%v", err)
			}
			for c, err := range chat.Calls(ctx, p) {
				if err != nil || c.Changed.Before(c.Created) {
					t.Errorf("%+v, %v", c, err)
				}
			}
			return nil
		})
	})
}

// TestRefusalOnFullDisk approves a call, fills the disk when its continuation begins, and refuses the call while both wait for
// space. Either the refusal counts or the call runs, and the audit log agrees. The offsets decide which waits longer.
func TestRefusalOnFullDisk(t *testing.T) {
	outcomes := map[string]int{}
	for offset := range 12 {
		var disk *objectstore.FS
		runs, calls := 0, 0
		m := &stepsModel{steps: [][]string{{"a"}}}
		class := countingClassOf(&countingState{}, &handlers{Reply: func(_ *countingAgent, ctx context.Context, r *chat.Reply) error {
			if calls++; calls == 2 {
				disk.SetFree(0)
				if err := dohost.Sleep(ctx, time.Second); err != nil {
					return err
				}
			}
			return chat.Answer(ctx, r, m, &chat.AnswerOptions{Tools: []chat.Tool{counted(&runs, time.Second, nil)}})
		}})
		runLong(t, func(t *testing.T, h *dohost.Host, fs *objectstore.FS) {
			disk = fs
			decide := func(approve bool) (decided error) {
				inAgent(t, h, func(ctx context.Context, p *countingAgent) error {
					decided = chat.Decide(ctx, p, &chat.Decision{Call: "a-1-0", Approve: approve})
					return nil
				})
				return decided
			}
			askToGo(t, h)
			time.Sleep(time.Second)
			if err := decide(true); err != nil {
				t.Fatal(err)
			}
			refused := make(chan error, 1)
			go func() {
				time.Sleep(2*time.Second + time.Duration(offset)*100*time.Millisecond)
				refused <- decide(false)
			}()
			time.Sleep(5*time.Second + 550*time.Millisecond)
			disk.SetFree(1 << 40)
			err := <-refused
			time.Sleep(10 * time.Second)
			last := chat.ApprovalAction("")
			inAgent(t, h, func(ctx context.Context, p *countingAgent) error {
				for e, err := range chat.Approvals(ctx, p, "a-1-0") {
					if err != nil {
						return err
					}
					if !e.Late {
						last = e.Action
					}
				}
				return nil
			})
			ran := runs == 1 && errors.Is(err, chat.ErrDecided) && last == chat.ApprovalApproved
			denied := runs == 0 && err == nil && last == chat.ApprovalDenied
			if !ran && !denied {
				t.Errorf("offset %d: the call ran %d times, the refusal: %v, the last decision %q", offset, runs, err, last)
			}
			outcomes[fmt.Sprint("ran ", ran)]++
		}, class)
	}
	if t.Log(outcomes); len(outcomes) != 2 {
		t.Errorf("outcomes %v, want both", outcomes)
	}
}

// TestToolInTheQueueDoesNotRunAfterTheReply has a tool that cancels its reply while the task of another tool waits for the turn.
func TestToolInTheQueueDoesNotRunAfterTheReply(t *testing.T) {
	m := &stepsModel{steps: [][]string{{"a", "b"}}}
	runs := 0
	runTools(t, m, chat.Options{}, func(p *countingAgent) []chat.Tool {
		return []chat.Tool{
			{ToolSpec: chat.ToolSpec{Name: "a"}, Run: func(ctx context.Context, _ json.RawMessage) (any, error) {
				_, err := chat.Cancel(ctx, p, "one")
				return nil, err
			}},
			{ToolSpec: chat.ToolSpec{Name: "b"}, Run: func(context.Context, json.RawMessage) (any, error) {
				runs++
				return nil, nil
			}},
		}
	}, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		h.Advance(time.Second)
		if _, states := answerOf(t, ctx, h); runs != 0 || states["b"] != "unknown" {
			t.Errorf("b ran %d times, and is %s", runs, states["b"])
		}
	})
}

// TestDecideAfterAnswer approves a call while the handler still runs after Answer.
func TestDecideAfterAnswer(t *testing.T) {
	runs := 0
	m := &stepsModel{steps: [][]string{{"a"}}}
	class := countingClassOf(&countingState{}, &handlers{Reply: func(_ *countingAgent, ctx context.Context, r *chat.Reply) error {
		err := chat.Answer(ctx, r, m, &chat.AnswerOptions{Tools: []chat.Tool{counted(&runs, 0, nil)}})
		return errors.Join(err, dohost.Sleep(ctx, 10*time.Second))
	}})
	runAsked(t, class, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		h.Advance(time.Second)
		approveCall(t, ctx, h, "a-1-0")
		h.Advance(time.Minute)
		if answer, _ := answerOf(t, ctx, h); answer.PlainText() != "done " || runs != 1 {
			t.Errorf("%q after %d runs", answer.PlainText(), runs)
		}
	})
}
