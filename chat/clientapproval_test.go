package chat_test

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"testing"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/chat"
	"github.com/dohost/dohost/dohosttest"
)

// slowStepModel makes a call, and ends its answer 20 seconds later.
type slowStepModel struct{ *stepsModel }

// Stream implements [chat.Model].
func (m slowStepModel) Stream(ctx context.Context, p *chat.Prompt) iter.Seq2[chat.Chunk, error] {
	return func(yield func(chat.Chunk, error) bool) {
		for c, err := range m.stepsModel.Stream(ctx, p) {
			if !yield(c, err) {
				return
			}
			select {
			case <-time.After(20 * time.Second):
			case <-ctx.Done():
			}
		}
	}
}

// TestClientAnswersBeforeApproval has a client that sends the result of a call while the model still answers, so that no
// approval was requested. The result counts only if the call needs none.
func TestClientAnswersBeforeApproval(t *testing.T) {
	for _, c := range []struct{ asks, interrupted bool }{{true, false}, {true, true}, {false, false}} {
		t.Run(fmt.Sprintf("%+v", c), func(t *testing.T) {
			m := slowStepModel{&stepsModel{steps: [][]string{{"sign"}}}}
			asks := func(context.Context, json.RawMessage) (bool, error) { return c.asks, nil }
			class := toolClass(m, chat.Options{}, func(*countingAgent) []chat.Tool {
				return []chat.Tool{{ToolSpec: chat.ToolSpec{Name: "sign"}, Approve: &chat.Approval{If: asks}}}
			})
			runAsked(t, class, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
				result := func(output string) {
					r := connectIdle(t, h, "r")
					r.sendFrame(ctx, map[string]any{"type": "cf_agent_tool_result", "toolCallId": "sign-1-0", "output": output, "autoContinue": true})
					r.close()
				}
				h.Advance(10 * time.Second)
				result("early")
				if c.interrupted {
					h.Evict(testID, dohost.EndFence)
				}
				h.Advance(time.Minute)
				answer, states := answerOf(t, ctx, h)
				if !c.asks {
					if got := resultOf(answer, "sign"); got != `output-available "early"` || answer.PlainText() != "done " {
						t.Errorf("%v, %s, %q", states, got, answer.PlainText())
					}
					return
				}
				if states["sign"] != "approval" || answer.PlainText() != "" {
					t.Fatalf("%v, %s, %q", states, resultOf(answer, "sign"), answer.PlainText())
				}
				approveCall(t, ctx, h, "sign-1-0")
				result("approved")
				h.Advance(time.Minute)
				answer, states = answerOf(t, ctx, h)
				if got := resultOf(answer, "sign"); got != `output-available "approved"` || states["sign"] != "completed" || answer.PlainText() != "done " {
					t.Errorf("%v, %s, %q", states, got, answer.PlainText())
				}
			})
		})
	}
}
