package agent_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/agent"
	"github.com/dohost/dohost/dohosttest"
)

// TestOnRowsPostponed postpones a row more often than it may fail, while incarnations and processes end. No attempt counts, other rows are
// handled, and a write makes the row due.
func TestOnRowsPostponed(t *testing.T) {
	o := &postOffice{options: &agent.RowsOptions{Retry: dohost.RetryPolicy{MaxAttempts: 2}}}
	closed := errors.New("the counter is closed")
	after := time.Minute
	open := false
	o.deliver = func(p *postman, ctx context.Context, l letter) error {
		if l.ID == "late" && !open {
			return dohost.Transaction(ctx, func(ctx context.Context) error {
				return &agent.PostponeError{After: after, Err: closed}
			})
		}
		return p.done(ctx, l.ID)
	}
	runPost(t, o, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		if err := post(ctx, h, "late", "good"); err != nil {
			t.Fatal(err)
		}
		h.Advance(30 * time.Second)
		wantCalls(t, o, "good", "late")
		for i := range 6 {
			if i%2 == 0 {
				h.EvictAll()
			} else if err := h.Restart(); err != nil {
				t.Fatal(err)
			}
			h.Advance(30 * time.Second) // to a minute after the last call
			h.Advance(29 * time.Second)
			wantCalls(t, o, "late")
			h.Advance(time.Second)
		}
		inPost(t, ctx, h, func(ctx context.Context, p *postman) error {
			tasks, err := p.Rows().List(ctx, nil)
			if len(tasks) != 1 || tasks[0].Attempt != 0 || tasks[0].Error != "agent: postponed for 1m0s: the counter is closed" {
				t.Errorf("the tasks are %+v", tasks)
			}
			return err
		})
		if len(o.reports) > 0 {
			t.Errorf("reports: %q", o.reports)
		}
		after, open = 0, true
		if err := post(ctx, h, "late"); err != nil {
			t.Fatal(err)
		}
		h.Advance(time.Millisecond)
		wantCalls(t, o, "late")
		wantNothingLeft(t, ctx, h)

		// The shortest postponement is a second.
		open = false
		if err := post(ctx, h, "late"); err != nil {
			t.Fatal(err)
		}
		h.Advance(9500 * time.Millisecond)
		if n := len(o.took()); n != 10 {
			t.Errorf("%d calls in 9.5 s, want 10", n)
		}
	})
}
