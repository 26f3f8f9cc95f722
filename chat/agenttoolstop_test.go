package chat_test

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/chat"
	"github.com/dohost/dohost/dohosttest"
	"github.com/dohost/dohost/ledger"
)

// TestStopOfAgentToolAtEveryPoint stops the reply of a while b waits for c, which thinks for an hour. If a was stopped, neither b
// nor c answers.
func TestStopOfAgentToolAtEveryPoint(t *testing.T) {
	slow := sleeper("slow", 2*time.Hour, false)
	slow.Policy, slow.Timeout = ledger.Idempotent, -1
	tm := &team{extra: []chat.Tool{slow}, options: chat.AgentToolOptions{Timeout: 12 * time.Hour}}
	tm.think = func(ctx context.Context, m *member, _ *chat.Reply) error {
		if m.Name() != "c" {
			return nil
		}
		return dohost.Sleep(ctx, time.Hour)
	}
	var stops atomic.Int64
	s := fewest(teamScenario(tm, "", "", nil))
	s.Run = func(ctx context.Context, h *dohosttest.Host) error {
		for over := false; !over; time.Sleep(time.Second) {
			lost := askMember(ctx, h, "a", "b: c: hi & tool slow: x")
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
		for name, answer := range map[string]string{"b": "assistant: b heard (c says hi)", "c": "assistant: c says hi"} {
			got, err := transcriptOf(ctx, h, name)
			if err != nil {
				return err
			}
			if slices.Contains(got, answer) {
				return fmt.Errorf("%s has %q", name, got)
			}
		}
		return nil
	}
	dohosttest.EveryPoint(t, s)
	if n := stops.Load(); n == 0 {
		t.Errorf("a was stopped %d times", n)
	} else {
		t.Logf("a was stopped in %d checks", n)
	}
}
