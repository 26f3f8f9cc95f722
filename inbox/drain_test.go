package inbox_test

import (
	"context"
	"testing"

	"github.com/dohost/dohost/agent"
	"github.com/dohost/dohost/dohosttest"
	"github.com/dohost/dohost/inbox"
)

// TestDrainCompletes drains an inbox as docs/inbox.md does.
func TestDrainCompletes(t *testing.T) {
	drain := func(ctx context.Context, desk *desk) (completed bool, err error) {
		d, err := desk.Rows().Drain(ctx, nil) // at most 50 calls and 25 s
		if err != nil {
			return false, err
		}
		return d.Work == agent.WorkDone, nil
	}
	runDesk(t, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		open(t, ctx, h, ticket{ID: "1", Text: "a"})
		inDesk(t, ctx, h, func(ctx context.Context, d *desk) error {
			completed, err := drain(ctx, d)
			if !completed {
				t.Error("it is not complete")
			}
			return err
		})
		equal(t, "answers", answers(t, ctx, h), "1:A")
	}, inbox.On(ticketInbox()))
}
