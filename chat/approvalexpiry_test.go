package chat_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/chat"
	"github.com/dohost/dohost/dohosttest"
)

// keepTurn begins an event that keeps the turn of the agent for a while.
func keepTurn(h *dohosttest.Host, agent dohost.Stub[countingAgent], d time.Duration) *dohosttest.Client {
	return h.Client(func(ctx context.Context) error {
		return agent.Do(ctx, func(context.Context, *countingAgent) error {
			time.Sleep(d)
			return nil
		})
	})
}

// TestDecisionAheadOfDueExpiry has an event that keeps the turn beyond the time to decide. An approval waits for the turn ahead of
// the schedule of the expiry.
func TestDecisionAheadOfDueExpiry(t *testing.T) {
	for name, approve := range map[string]func(ctx context.Context, s *stamper, message string){
		"the program": func(ctx context.Context, s *stamper, _ string) {
			if err := s.decide(ctx, chat.Decision{Call: s.call, Approve: true, Actor: "mia"}); !errors.Is(err, chat.ErrDecided) {
				s.t.Errorf("an approval after the end: %v", err)
			}
		},
		"an operator": func(ctx context.Context, s *stamper, _ string) {
			_, err := s.h.Host().Operate(ctx, testID, &dohost.AdminRequest{Action: dohost.ActionApprove, Kind: "call", ID: s.call, Actor: "mia"})
			if !errors.Is(err, chat.ErrDecided) {
				s.t.Errorf("an approval after the end: %v", err)
			}
		},
		"a frame": func(ctx context.Context, s *stamper, _ string) { s.frame(ctx, true, true) },
		"a message": func(ctx context.Context, s *stamper, message string) {
			copied := strings.Replace(message, `"state":"approval-requested"`, `"state":"approval-responded"`, 1)
			copied = strings.Replace(copied, `"approval":{`, `"approval":{"approved":true,`, 1)
			s.r.sendFrame(ctx, map[string]any{"type": "cf_agent_chat_messages", "messages": []any{json.RawMessage(question), json.RawMessage(copied)}})
		},
	} {
		t.Run(name, func(t *testing.T) {
			runStamper(t, &chat.Approval{Within: time.Minute}, chat.Options{}, func(t *testing.T, ctx context.Context, s *stamper) {
				raw, err := json.Marshal(s.c.stored()[1])
				if err != nil {
					t.Fatal(err)
				}
				s.h.Advance(55 * time.Second)
				s.r.close()
				s.r = connectIdle(t, s.h, "late") // the first connection may have been idle for too long
				busy := keepTurn(s.h, s.agent, 6*time.Second)
				time.Sleep(time.Second)
				approve(ctx, s, string(raw))
				if err := busy.Wait(); err != nil {
					t.Error(err)
				}
				s.h.Advance(10 * time.Second)
				s.c.wantRuns()
				if part, row := s.state(ctx); part != "output-error" || row.State != chat.CallExpired {
					t.Errorf("%s, %s", part, row.State)
				}
				if got := s.events(ctx); len(got) < 2 || got[1] != "2 expired" {
					t.Errorf("the audit log has %q", got)
				}
			})
		})
	}
}
