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

// TestAgentToolWithCrashingAgent asks an agent that ends its process in each cycle, as a crash of its code does. The interruptions count for the
// caller, too. So it is parked with the asked agent if both have the same MaxAttempts. With a larger one it has the error of a request
// that was parked.
func TestAgentToolWithCrashingAgent(t *testing.T) {
	for name, c := range map[string]struct {
		attempts int
		object   string
		want     string // of the response
		parked   int    // cycles of the caller
	}{
		"the default":          {0, "a", "", 1},
		"more attempts":        {6, "a", inbox.ErrNoReply.Error(), 0},
		"more attempts, apart": {6, "other", inbox.ErrNoReply.Error(), 0},
	} {
		t.Run(name, func(t *testing.T) {
			runDesk(t, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
				askA(t, ctx, h, "b: hi")
				for range 10 {
					h.Advance(500 * time.Millisecond) // the cycle of b takes a second
					h.Kill()
				}
				h.Advance(time.Minute)
				var parked []agent.RowsInfo
				inDesk(t, ctx, h, func(ctx context.Context, d *desk) (err error) {
					parked, err = d.Rows().List(ctx, true, 0)
					return err
				})
				n := 0
				for _, info := range parked {
					if info.Keys[0] == "1" {
						n++
					}
				}
				if got := replyTo(t, ctx, h, "a", "r1"); n != c.parked || !strings.Contains(got, c.want) || (got == "") != (c.want == "") {
					t.Errorf("%q, want %q; parked are %+v", got, c.want, parked)
				}
			}, team(func(a *inbox.Agent, tools []inbox.AgentTool) {
				if c.object != "a" {
					elsewhere(c.object)(a, tools)
				}
				if a.Name == "a" {
					a.Options.MaxAttempts = c.attempts
				}
			}, "a", "b")...)
		})
	}
}
