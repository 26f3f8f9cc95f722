package inbox_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/dohost/dohost/agent"
	"github.com/dohost/dohost/dohosttest"
	"github.com/dohost/dohost/inbox"
)

// TestAgentToolWithCrashingAgent asks an agent that ends its process in each cycle, as a crash of its code does. Its request is parked. The caller,
// whose cycle does not run, has no failed attempt, and answers with the error of a parked request.
func TestAgentToolWithCrashingAgent(t *testing.T) {
	for _, object := range []string{"a", "other"} {
		t.Run(object, func(t *testing.T) {
			runDesk(t, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
				askA(t, ctx, h, "b: hi")
				for range 10 {
					h.Advance(500 * time.Millisecond) // the cycle of b takes a second
					h.Kill()
				}
				h.Advance(time.Minute)
				var parked []agent.RowsInfo
				err := desks.Get(h, object).Do(ctx, func(ctx context.Context, d *desk) (err error) {
					parked, err = d.Rows().List(ctx, &agent.RowsQuery{State: agent.RowsParked})
					return err
				})
				if got := replyTo(t, ctx, h, "a", "r1"); !strings.Contains(got, inbox.ErrNoReply.Error()) || len(parked) != 1 || parked[0].Keys[0] == "1" || err != nil {
					t.Errorf("%q, %v; parked are %+v", got, err, parked)
				}
			}, team(func(a *inbox.Agent, tools []inbox.AgentTool) {
				a.Options.Retry.MaxAttempts = 2
				if object != "a" {
					elsewhere(object)(a, tools)
				}
			}, "a", "b")...)
		})
	}
}
