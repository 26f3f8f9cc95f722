package agent_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/agent"
	"github.com/dohost/dohost/dohosttest"
)

// TestRowsPark parks a batch that is postponed. A Park that is rolled back has no effect, the rows of the batch are parked together, other rows
// are not, and a retry makes them due.
func TestRowsPark(t *testing.T) {
	o, open := &postOffice{}, false
	o.batch = func(p *postman, ctx context.Context, ls []letter) error {
		if !open {
			return &agent.PostponeError{After: time.Hour, Err: errors.New("closed")}
		}
		var errs []error
		for _, l := range ls {
			errs = append(errs, p.done(ctx, l.ID))
		}
		return errors.Join(errs...)
	}
	runPost(t, o, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		if err := post(ctx, h, "a", "b"); err != nil {
			t.Fatal(err)
		}
		h.Advance(time.Second)
		if err := post(ctx, h, "c"); err != nil {
			t.Fatal(err)
		}
		h.Advance(time.Second)
		wantCalls(t, o, "a,b", "c")
		inPost(t, ctx, h, func(ctx context.Context, p *postman) error {
			refused, rolledBack := errors.New("refused"), errors.New("rolled back")
			park := func(ctx context.Context, collection string, want int, keys ...string) {
				t.Helper()
				if got, err := p.Rows().Park(ctx, collection, keys, refused); got != want || err != nil {
					t.Errorf("Park of %q: %d, %v", keys, got, err)
				}
			}
			if err := dohost.Transaction(ctx, func(ctx context.Context) error {
				park(ctx, letters.Name, 1, "a")
				return rolledBack
			}); !errors.Is(err, rolledBack) {
				t.Error(err)
			}
			park(ctx, letters.Name, 1, "b", "a", "d") // a is parked with b
			park(ctx, letters.Name, 0, "a")
			park(ctx, "another", 0, "c")
			tasks, err := p.Rows().List(ctx, &agent.RowsQuery{State: agent.RowsParked})
			if len(tasks) != 1 || strings.Join(tasks[0].Keys, ",") != "a,b" || tasks[0].Error != "refused" {
				t.Errorf("parked: %+v", tasks)
			}
			for q, want := range map[agent.RowsQuery]string{
				{}: "a,b c", {State: agent.RowsRunning}: "", {State: agent.RowsWaiting}: "c", {State: agent.RowsWaiting, Limit: 1}: "c",
			} {
				tasks, listErr := p.Rows().List(ctx, &q)
				var keys []string
				for _, task := range tasks {
					keys = append(keys, strings.Join(task.Keys, ","))
				}
				slices.Sort(keys)
				if got := strings.Join(keys, " "); got != want || listErr != nil {
					t.Errorf("List of %+v: %q, %v; want %q", q, got, listErr, want)
				}
			}
			if tasks, listErr := p.Rows().List(ctx, &agent.RowsQuery{Limit: 1}); len(tasks) != 1 || listErr != nil {
				t.Errorf("List with Limit 1: %+v, %v", tasks, listErr)
			}
			if _, listErr := p.Rows().List(ctx, &agent.RowsQuery{Limit: 101}); listErr == nil {
				t.Error("List with Limit 101 returned no error")
			}
			return err
		})
		h.Advance(30 * time.Minute)
		wantCalls(t, o)
		h.Advance(31 * time.Minute)
		wantCalls(t, o, "c")
		open = true
		inPost(t, ctx, h, func(ctx context.Context, p *postman) error {
			tasks, err := p.Rows().List(ctx, &agent.RowsQuery{State: agent.RowsParked})
			for _, task := range tasks {
				_, retryErr := p.Rows().Retry(ctx, task.ID)
				err = errors.Join(err, retryErr)
			}
			return err
		})
		h.Advance(time.Second)
		wantCalls(t, o, "a,b")
		h.Advance(time.Hour)
		wantCalls(t, o, "c")
		wantNothingLeft(t, ctx, h)
	})
}
