package agent_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/agent"
	"github.com/dohost/dohost/dohosttest"
)

// TestOnRowsLargeRowsOfAChangedIndex has stored places of rows that the next version of the class does not return, and the rows of one
// call do not fit into one batch. Another row of the index is handled nevertheless.
func TestOnRowsLargeRowsOfAChangedIndex(t *testing.T) {
	o := &postOffice{}
	strict := letters
	strict.Indexes = []dohost.Index[letter]{{Name: "state", Of: func(l letter) dohost.Key {
		if l.Text != "" {
			return ""
		}
		return dohost.KeyOf(l.State)
	}}}
	class := agent.Bind(postmen, func(_ context.Context, a *agent.Agent[struct{}]) (*postman, error) { return &postman{a, o}, nil }, nil,
		agent.OnRowBatch(&strict, "state", func(p *postman, ctx context.Context, rows []dohost.Row[letter]) error {
			for _, row := range rows {
				o.record(row.Key)
				if _, err := strict.Delete(ctx, p.Storage(), row.Key); err != nil {
					return err
				}
			}
			return nil
		}, &agent.RowsOptions{Prefix: dohost.KeyOf("pending")}))
	runPost(t, o, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		o.deliver = func(p *postman, ctx context.Context, l letter) error { return dohost.Sleep(ctx, time.Hour) }
		for i := range 50 {
			inPost(t, ctx, h, func(ctx context.Context, p *postman) error {
				return letters.Insert(ctx, p.Storage(), letter{ID: fmt.Sprintf("a%02d", i), State: "pending", Text: strings.Repeat("x", 1<<20)})
			})
		}
		o.took()
		if err := h.Restart(class); err != nil {
			t.Fatal(err)
		}
		if err := post(ctx, h, "z"); err != nil {
			t.Fatal(err)
		}
		h.Advance(time.Hour)
		wantCalls(t, o, "z")
		inPost(t, ctx, h, func(ctx context.Context, p *postman) error {
			n, err := strict.Count(ctx, p.Storage(), &dohost.Query[letter]{Index: "state"})
			if n != 0 {
				t.Errorf("the index has %d rows", n)
			}
			return err
		})
		for _, r := range o.reports {
			if strings.HasPrefix(r, "rows:") {
				t.Errorf("reported: %s", r)
			}
		}
	})
}
