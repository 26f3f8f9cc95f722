package inbox_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/agent"
	"github.com/dohost/dohost/chat"
	"github.com/dohost/dohost/dohosttest"
	"github.com/dohost/dohost/inbox"
)

// TestHistoryAwaitsAgainAfterAnAnswer has a cycle that fails while a summary is made that is then discarded, and three hours later, after an answer,
// another such cycle. Both are postponed.
func TestHistoryAwaitsAgainAfterAnAnswer(t *testing.T) {
	a := &inbox.Agent{Name: "clerk", Model: &limitModel{}, History: &chat.History{Model: terseModel{7 * time.Minute}, Threshold: 10, Window: 2}}
	runReporting(t, a, func(t *testing.T, ctx context.Context, h *dohosttest.Host, _ *deskInbox, outcomes func() []string) {
		fails := func(id string) {
			store(t, ctx, h, strings.Repeat(id, 28), 11, time.Now().Add(-time.Minute))
			send(t, ctx, h, inbox.Message{ID: id, From: "ada", Content: id})
			h.Advance(2 * time.Minute)
			inDesk(t, ctx, h, func(ctx context.Context, d *desk) error {
				rows, err := d.Rows().List(ctx, nil)
				if len(rows) != 1 || rows[0].State != agent.RowsWaiting || rows[0].Attempt != 0 {
					t.Errorf("%s: %+v", id, rows)
				}
				return err
			})
		}
		fails("q")
		inDesk(t, ctx, h, func(ctx context.Context, d *desk) error {
			rows, err := messages.List(ctx, d.Storage(), &dohost.Query[inbox.Message]{Where: func(m inbox.Message) bool { return m.ID != "q" }})
			for _, row := range rows {
				if err == nil {
					_, err = messages.Delete(ctx, d.Storage(), row.Key)
				}
			}
			return err
		})
		h.Advance(3 * time.Hour)
		if n := waiting(t, ctx, h); n != 0 {
			t.Errorf("%d messages wait", n)
		}
		fails("r")
		if got := outcomes(); len(got) == 0 {
			t.Error("nothing was reported")
		}
	})
}
