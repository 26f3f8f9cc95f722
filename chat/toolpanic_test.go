package chat_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/dohost/dohost/chat"
	"github.com/dohost/dohost/dohosttest"
	"github.com/dohost/dohost/ledger"
)

// guarded returns a tool whose panics are errors of its calls, as docs/chat.md has it.
func guarded(t chat.Tool) chat.Tool {
	run := t.Run
	t.Run = func(ctx context.Context, input json.RawMessage) (out any, err error) {
		defer func() {
			if p := recover(); p != nil {
				err = fmt.Errorf("the tool panicked: %v", p)
			}
		}()
		return run(ctx, input)
	}
	return t
}

// TestPanicOfToolEndsIncarnation has a tool whose first run panics. The policy decides about the call, unless the tool recovers.
func TestPanicOfToolEndsIncarnation(t *testing.T) {
	for name, c := range map[string]struct {
		policy  ledger.Policy
		guarded bool
		runs    int
		result  string
		state   string
		ends    bool // the incarnation
	}{
		"AtMostOnce": {0, false, 1, "output-error The call was interrupted. Whether it took effect is not known.", "unknown", true},
		"Idempotent": {ledger.PolicyIdempotent, false, 2, `output-available "ok"`, "completed", true},
		"recovered":  {0, true, 1, "output-error the tool panicked: bad", "unknown", false},
	} {
		t.Run(name, func(t *testing.T) {
			runs := 0
			tool := chat.Tool{ToolSpec: chat.ToolSpec{Name: "a"}, Policy: c.policy, Run: func(context.Context, json.RawMessage) (any, error) {
				if runs++; runs == 1 {
					panic("bad")
				}
				return "ok", nil
			}}
			if c.guarded {
				tool = guarded(tool)
			}
			m := &stepsModel{steps: [][]string{{"a"}}}
			runTools(t, m, chat.Options{}, func(*countingAgent) []chat.Tool { return []chat.Tool{tool} }, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
				epoch := func() (s string) {
					inEvent(t, ctx, h, func(_ context.Context, p *countingAgent) error { s = p.Object().Epoch().String(); return nil })
					return s
				}
				h.Advance(time.Minute)
				answer, states := answerOf(t, ctx, h)
				if got := resultOf(answer, "a"); got != c.result || states["a"] != c.state || runs != c.runs || answer.PlainText() != "done " {
					t.Errorf("%q, %v, %q, %d runs", got, states, answer.PlainText(), runs)
				}
				if last := epoch(); !strings.HasSuffix(last, ".1") != c.ends {
					t.Errorf("the epoch is %s at the end", last)
				}
			})
		})
	}
}
