package agent

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/internal/kernel"
	"github.com/dohost/dohost/objectstore"
)

// idleRow is a row that waits until it is deleted.
type idleRow struct{ Key, Group string }

var idleRows = dohost.Collection[idleRow]{
	Name: "rows", Key: func(r idleRow) string { return r.Key },
	Indexes: []dohost.Index[idleRow]{{Name: "key", Of: func(r idleRow) dohost.Key { return dohost.KeyOf(r.Key) }}},
}

// idleRowAgent has the numbers of rows that were handled, and of running rows that a call has seen.
type idleRowAgent struct {
	*Agent[struct{}]
	handled, running int
}

func (a *idleRowAgent) work() *indexWork { return a.core.rowWork.indexes[0] }

// TestRowWorkThatIsIdleHasNoMaps lets an agent handle rows of two groups. The agent stays in memory, but not the maps of its calls.
func TestRowWorkThatIsIdleHasNoMaps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const ns = dohost.Namespace[idleRowAgent]("rows")
		class := Bind(ns, func(_ context.Context, a *Agent[struct{}]) (*idleRowAgent, error) {
			return &idleRowAgent{Agent: a}, nil
		}, nil,
			OnRowGroups(&idleRows, "key", func(r idleRow) string { return r.Group },
				func(a *idleRowAgent, ctx context.Context, rows []dohost.Row[idleRow]) error {
					a.running += len(a.work().running)
					for _, row := range rows {
						a.handled++
						if _, err := idleRows.Delete(ctx, a.Storage(), row.Key); err != nil {
							return err
						}
					}
					return nil
				}, nil))
		h, err := dohost.Open("data", kernel.OnFS(&dohost.Options{IdleAfter: -1}, objectstore.NewMemFS()), class)
		if err != nil {
			t.Fatal(err)
		}
		defer h.Close()
		do := func(fn func(ctx context.Context, a *idleRowAgent) error) {
			if err := ns.Get(h, "a").Do(t.Context(), fn); err != nil {
				t.Error(err)
			}
		}
		do(func(ctx context.Context, a *idleRowAgent) error {
			if x := a.work(); x.running != nil || x.groups != nil {
				t.Errorf("before the first row: %v, %v", x.running, x.groups)
			}
			for _, r := range []idleRow{{"1", "a"}, {"2", "b"}, {"3", "a"}} {
				if err := idleRows.Insert(ctx, a.Storage(), r); err != nil {
					return err
				}
			}
			return nil
		})
		time.Sleep(time.Minute)
		do(func(_ context.Context, a *idleRowAgent) error {
			if a.handled != 3 || a.running != 3 {
				t.Errorf("%d rows were handled, and %d were running: want 3 and 3", a.handled, a.running)
			}
			if x := a.work(); x.running != nil || x.groups != nil {
				t.Errorf("after the last row: %v, %v", x.running, x.groups)
			}
			return nil
		})
	})
}
