package inbox_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/dohosttest"
	"github.com/dohost/dohost/inbox"
)

// progress is the state of a ticket during its cycle, in a collection of its own.
type progress struct{ ID, State string }

var progresses = dohost.Collection[progress]{Name: "progresses", Key: func(p progress) string { return p.ID }}

// TestInboxWithStateOfItsRows has a Generate that stores the state "generating", and a Respond that stores "done". One cycle answers the row.
func TestInboxWithStateOfItsRows(t *testing.T) {
	asked := 0
	set := func(d *desk, ctx context.Context, pending []dohost.Row[ticket], state string) error {
		var err error
		for _, row := range pending {
			err = errors.Join(err, progresses.Put(ctx, d.Storage(), progress{row.Key, state}))
		}
		return err
	}
	in := ticketInbox()
	generate, respond := in.Generate, in.Respond
	in.Generate = func(d *desk, ctx context.Context, c *inbox.Cycle[ticket]) (string, error) {
		asked++
		if err := set(d, ctx, c.Pending, "generating"); err != nil {
			return "", err
		}
		return generate(d, ctx, c)
	}
	in.Respond = func(d *desk, ctx context.Context, r string, pending []dohost.Row[ticket]) error {
		return errors.Join(respond(d, ctx, r, pending), set(d, ctx, pending, "done"))
	}
	runDesk(t, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		open(t, ctx, h, ticket{ID: "1", Text: "a"})
		for _, want := range []string{"generating", "done"} {
			h.Advance(600 * time.Millisecond)
			inDesk(t, ctx, h, func(ctx context.Context, d *desk) error {
				p, _, err := progresses.Get(ctx, d.Storage(), "1")
				if p.Value.State != want {
					t.Errorf("the state %q, want %q", p.Value.State, want)
				}
				return err
			})
		}
		equal(t, "answers", answers(t, ctx, h), "1:A")
		if asked != 1 {
			t.Errorf("%d cycles", asked)
		}
	}, inbox.On(in))
}
