package inbox_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/dohost/dohost/agent"
	"github.com/dohost/dohost/chat"
	"github.com/dohost/dohost/dohosttest"
	"github.com/dohost/dohost/inbox"
)

// countOf returns how often a text is in a list.
func countOf(list []string, text string) (n int) {
	for _, one := range list {
		if one == text {
			n++
		}
	}
	return n
}

// rowsOf returns the states of the rows of the desk, and whether the message q waits.
func rowsOf(t *testing.T, ctx context.Context, h *dohosttest.Host) (rows []agent.RowsInfo, waits bool) {
	t.Helper()
	inDesk(t, ctx, h, func(ctx context.Context, d *desk) error {
		row, ok, err := messages.Get(ctx, d.Storage(), "q")
		waits = ok && row.Value.Processed.IsZero()
		var listErr error
		rows, listErr = d.Rows().List(ctx, nil)
		return errors.Join(err, listErr)
	})
	return rows, waits
}

// While a slow summary is being made, a message whose prompt is too long is postponed, without an attempt, and then answered. An interruption does not
// change that.
func TestHistoryWhileAttemptsFail(t *testing.T) {
	a := &inbox.Agent{Name: "clerk", Model: &limitModel{}, History: &chat.History{Model: terseModel{7 * time.Minute}, Threshold: 10, Window: 2}}
	runReporting(t, a, func(t *testing.T, ctx context.Context, h *dohosttest.Host, in *deskInbox, outcomes func() []string) {
		store(t, ctx, h, strings.Repeat("m", 28), 11, time.Now().Add(-time.Hour))
		send(t, ctx, h, fromAda("q")...)
		h.Advance(3 * time.Minute)
		rows, waits := rowsOf(t, ctx, h)
		if !waits || len(rows) != 1 || rows[0].State != agent.RowsWaiting || rows[0].Attempt != 0 || !strings.Contains(rows[0].Error, "too long") {
			t.Errorf("during the summary the message waits: %t, the rows are %+v", waits, rows)
		}
		if n := countOf(outcomes(), "awaited"); n < 9 || n > 15 {
			t.Errorf("%d reports of failures in 3 min: %q", n, outcomes())
		}
		h.EvictAll()
		h.Advance(12 * time.Minute)
		if rows, waits := rowsOf(t, ctx, h); waits || len(rows) > 0 {
			t.Errorf("after the summary the message waits: %t, the rows are %+v", waits, rows)
		}
		h.Advance(2 * time.Hour)
		before := countOf(outcomes(), "awaited")
		store(t, ctx, h, strings.Repeat("n", 28), 11, time.Now().Add(-time.Minute))
		send(t, ctx, h, fromAda("q2")...)
		h.Advance(time.Minute)
		if n := countOf(outcomes(), "awaited") - before; n < 5 {
			t.Errorf("%d reports of failures during the next summary", n)
		}
	})
}

// When the fiber has given up, and without a fiber, each failure is an attempt.
func TestHistoryFailuresCountWithoutFiber(t *testing.T) {
	broken := errors.New("the model is broken")
	for name, c := range map[string]struct {
		stored int
		parked time.Duration // the time until the message is parked
	}{
		"no fiber":     {0, time.Minute},
		"has given up": {11, 30 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			s := &scribe{fail: func(int) error { return broken }}
			a := s.agent("clerk", 10, 2)
			a.Model = &answerModel{fail: func(int) error { return broken }}
			runReporting(t, a, func(t *testing.T, ctx context.Context, h *dohosttest.Host, in *deskInbox, outcomes func() []string) {
				store(t, ctx, h, "m", c.stored, time.Now().Add(-time.Hour))
				send(t, ctx, h, fromAda("q")...)
				h.Advance(c.parked)
				awaited := countOf(outcomes(), "awaited")
				if rows, _ := rowsOf(t, ctx, h); len(rows) != 1 || rows[0].State != agent.RowsParked || (awaited > 0) != (c.stored > 0) {
					t.Errorf("%d postponed cycles, the rows are %+v", awaited, rows)
				}
				h.Advance(2 * time.Hour)
				send(t, ctx, h, fromAda("q2")...)
				h.Advance(time.Minute)
				if again := countOf(outcomes(), "awaited") > awaited; again != (c.stored > 0) {
					t.Errorf("later a cycle is postponed: %t", again)
				}
			})
		})
	}
}

// A client that changes the messages during each summary, so that no summary is stored, postpones no message for longer than two hours.
func TestHistoryAwaitsDiscardedSummariesForTwoHours(t *testing.T) {
	s := &scribe{delay: 3 * time.Minute}
	a := s.agent("clerk", 10, 2)
	a.Model = &answerModel{fail: func(int) error { return errors.New("the prompt is too long") }}
	runReporting(t, a, func(t *testing.T, ctx context.Context, h *dohosttest.Host, in *deskInbox, outcomes func() []string) {
		store(t, ctx, h, "m", 11, time.Now().Add(-time.Hour))
		send(t, ctx, h, fromAda("q")...)
		var parked time.Duration
		for n := range 140 {
			h.Advance(time.Minute)
			update(t, ctx, h, "m0", func(m *inbox.Message) { m.Content = strings.Repeat("x", 1+n%2) })
			rows, _ := rowsOf(t, ctx, h)
			if len(rows) == 1 && rows[0].State == agent.RowsParked {
				parked = time.Duration(n) * time.Minute
				break
			}
		}
		if parked < 119*time.Minute || parked > 125*time.Minute || countOf(outcomes(), "discarded") < 20 {
			t.Errorf("parked after %v; %d summaries were discarded", parked, countOf(outcomes(), "discarded"))
		}
	})
}
