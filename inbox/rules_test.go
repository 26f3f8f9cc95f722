package inbox_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/chat"
	"github.com/dohost/dohost/dohosttest"
	"github.com/dohost/dohost/inbox"
	"github.com/dohost/dohost/ledger"
)

type chargeArgs struct{ Cents int }

func chargeKind() *ledger.Kind[chargeArgs, string] {
	return &ledger.Kind[chargeArgs, string]{Name: "charge", Same: ledger.Whole[chargeArgs], Policy: ledger.PolicyIdempotent, Unknown: func(ledger.ID, chargeArgs) string { return "charged?" }}
}

// TestInboxWithReinsertedRow deletes a row and inserts it again with the same key during its cycle, so that its version is the same.
func TestInboxWithReinsertedRow(t *testing.T) {
	runDesk(t, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		open(t, ctx, h, ticket{ID: "1", Text: "pay 5"})
		h.Advance(500 * time.Millisecond)
		inDesk(t, ctx, h, func(ctx context.Context, d *desk) error {
			_, err := tickets.Delete(ctx, d.Storage(), "1")
			return errors.Join(err, tickets.Insert(ctx, d.Storage(), ticket{ID: "1", Text: "pay 10"}))
		})
		h.Advance(time.Minute)
		equal(t, "answers", answers(t, ctx, h), "1:PAY 10")
	}, inbox.On(ticketInbox()))
}

// TestInboxWithReinsertedRowAfterDeleteAll does the same with a DeleteAll.
func TestInboxWithReinsertedRowAfterDeleteAll(t *testing.T) {
	runDesk(t, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		open(t, ctx, h, ticket{ID: "1", Text: "pay 5"})
		h.Advance(500 * time.Millisecond)
		inDesk(t, ctx, h, func(ctx context.Context, d *desk) error {
			err := d.Storage().DeleteAll(ctx)
			return errors.Join(err, tickets.Insert(ctx, d.Storage(), ticket{ID: "1", Text: "pay 10"}))
		})
		h.Advance(time.Minute)
		equal(t, "answers", answers(t, ctx, h), "1:PAY 10")
	}, inbox.On(ticketInbox()))
}

// TestInboxWithFencedErrorOfAnotherObject fails the cycle of one group with an ErrFenced of another object.
func TestInboxWithFencedErrorOfAnotherObject(t *testing.T) {
	in := ticketInbox()
	in.Group = func(v ticket) string { return v.ID }
	generate := in.Generate
	in.Generate = func(d *desk, ctx context.Context, c *inbox.Cycle[ticket]) (string, error) {
		if c.Group == "1" {
			return "", fmt.Errorf("other object: %w", dohost.ErrFenced)
		}
		return generate(d, ctx, c)
	}
	runDesk(t, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		open(t, ctx, h, ticket{ID: "1", Text: "a"}, ticket{ID: "2", Text: "b"}, ticket{ID: "3", Text: "c"})
		h.Advance(time.Hour)
		equal(t, "answers", answers(t, ctx, h), "1:", "2:B", "3:C")
	}, inbox.On(in))
}

// TestInboxOperationsAreNotRepeated writes a row during its cycle, which must not repeat the operation of Generate.
func TestInboxOperationsAreNotRepeated(t *testing.T) {
	effects := map[string]int{}
	in := ticketInbox()
	in.OnError = func(_ *desk, _ context.Context, err error, _ []dohost.Row[ticket]) { t.Log(err) }
	generate := in.Generate
	in.Generate = func(d *desk, ctx context.Context, c *inbox.Cycle[ticket]) (string, error) {
		_, err := ledger.Do(ctx, d.Object(), chargeKind(), chargeArgs{5}, func(ctx context.Context, id ledger.ID) (string, error) {
			effects[fmt.Sprint(id)]++
			return "charged", nil
		})
		if err != nil {
			return "", err
		}
		return generate(d, ctx, c)
	}
	runDesk(t, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		open(t, ctx, h, ticket{ID: "1", Text: "a"})
		h.Advance(500 * time.Millisecond)
		open(t, ctx, h, ticket{ID: "1", Text: "a"}) // equal value, a new version
		h.Advance(time.Minute)
		equal(t, "answers", answers(t, ctx, h), "1:A")
		if len(effects) != 1 {
			t.Errorf("%d operations in the ledger for one ticket", len(effects))
		}
	}, inbox.On(in))
}

// TestInboxReadsRowsBeforeEachCycle deletes and changes rows whose cycle has not begun, during the cycle of another group.
func TestInboxReadsRowsBeforeEachCycle(t *testing.T) {
	var generated []string
	in := ticketInbox()
	in.Group = func(v ticket) string { return v.ID }
	generate := in.Generate
	in.Generate = func(d *desk, ctx context.Context, c *inbox.Cycle[ticket]) (string, error) {
		generated = append(generated, c.Pending[0].Value.Text)
		return generate(d, ctx, c)
	}
	runDesk(t, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		open(t, ctx, h, ticket{ID: "1", Text: "a"}, ticket{ID: "2", Text: "refund 2"}, ticket{ID: "3", Text: "refund 5"})
		h.Advance(500 * time.Millisecond) // the cycle of 1
		inDesk(t, ctx, h, func(ctx context.Context, d *desk) error {
			_, err := tickets.Delete(ctx, d.Storage(), "2")
			return errors.Join(err, tickets.Put(ctx, d.Storage(), ticket{ID: "3", Text: "refund 3"}))
		})
		h.Advance(time.Minute)
		equal(t, "generated", generated, "a", "refund 3")
	}, inbox.On(in))
}

// TestInboxWhoseRowsChangeInEachCycle has a Generate that writes its row.
func TestInboxWhoseRowsChangeInEachCycle(t *testing.T) {
	asked := 0
	in := ticketInbox()
	generate := in.Generate
	in.Generate = func(d *desk, ctx context.Context, c *inbox.Cycle[ticket]) (string, error) {
		if asked++; asked <= 3000 {
			_, err := tickets.Update(ctx, d.Storage(), c.Pending[0].Key, func(v *ticket) error { v.Text = "seen"; return nil })
			if err != nil {
				return "", err
			}
		}
		return generate(d, ctx, c)
	}
	runDesk(t, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		open(t, ctx, h, ticket{ID: "1", Text: "a"})
		h.Advance(10 * time.Minute)
		if asked > 50 {
			t.Errorf("the model was asked %d times in 10 minutes, without an error", asked)
		}
	}, inbox.On(in))
}

// TestInboxAcrossRestarts kills the process five times, each time after an answer.
func TestInboxAcrossRestarts(t *testing.T) {
	in := ticketInbox()
	in.Group = func(v ticket) string { return v.ID }
	runDesk(t, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		var list []ticket
		for i := range 20 {
			list = append(list, ticket{ID: fmt.Sprintf("%02d", i), Text: "a"})
		}
		open(t, ctx, h, list...)
		for range 5 {
			h.Advance(1500 * time.Millisecond)
			h.Kill()
			h.Advance(time.Millisecond)
		}
		h.Advance(time.Hour)
		n := 0
		for _, a := range answers(t, ctx, h) {
			if strings.HasSuffix(a, ":A") {
				n++
			}
		}
		if n != 20 {
			t.Errorf("%d of 20 are answered", n)
		}
	}, inbox.On(in))
}

// TestInboxWithPanic has a Build that panics for the row of one group.
func TestInboxWithPanic(t *testing.T) {
	in := ticketInbox()
	in.Group = func(v ticket) string { return v.ID }
	build := in.Build
	in.Build = func(d *desk, ctx context.Context, pending []dohost.Row[ticket]) ([]chat.Message, error) {
		if pending[0].Key == "1" {
			panic("poison")
		}
		return build(d, ctx, pending)
	}
	runDesk(t, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		open(t, ctx, h, ticket{ID: "1", Text: "a"}, ticket{ID: "2", Text: "b"}, ticket{ID: "3", Text: "c"})
		h.Advance(time.Hour)
		equal(t, "answers", answers(t, ctx, h), "1:", "2:B", "3:C")
	}, inbox.On(in))
}

// TestInboxWithReusedKey inserts an answered row again while another group of its call runs and fails. The row is new work.
func TestInboxWithReusedKey(t *testing.T) {
	effects := 0
	in := ticketInbox()
	in.Group = func(v ticket) string { return v.ID }
	generate := in.Generate
	in.Generate = func(d *desk, ctx context.Context, c *inbox.Cycle[ticket]) (string, error) {
		if c.Group == "2" {
			return "", errors.Join(dohost.Sleep(ctx, time.Second), errors.New("busy"))
		}
		_, err := ledger.Do(ctx, d.Object(), chargeKind(), chargeArgs{5}, func(ctx context.Context, id ledger.ID) (string, error) {
			effects++
			return "charged", nil
		})
		if err != nil {
			return "", err
		}
		return generate(d, ctx, c)
	}
	runDesk(t, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		open(t, ctx, h, ticket{ID: "1", Text: "charge 5"}, ticket{ID: "2"})
		h.Advance(1500 * time.Millisecond) // 1 is answered, 2 is being generated
		inDesk(t, ctx, h, func(ctx context.Context, d *desk) error {
			_, err := tickets.Delete(ctx, d.Storage(), "1")
			return errors.Join(err, tickets.Insert(ctx, d.Storage(), ticket{ID: "1", Text: "charge 5"}))
		})
		h.Advance(time.Hour)
		if effects != 2 {
			t.Errorf("%d charges for two tickets, answers %q", effects, answers(t, ctx, h))
		}
	}, inbox.On(in))
}
