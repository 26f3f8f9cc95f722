package agent_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/agent"
	"github.com/dohost/dohost/dohosttest"
	"github.com/dohost/dohost/internal/pointtest"
)

// TestOnRowsAtEveryPoint inserts three letters, a fourth during the call for them, and a fifth later. Each call
// writes a receipt of each letter in the batch that takes the letter out of the index, so there is one receipt for each letter,
// wherever the incarnation or the process ends. No client calls the agent after the inserts.
func TestOnRowsAtEveryPoint(t *testing.T) {
	for name, o := range map[string]*postOffice{
		"one by one":  {deliver: func(p *postman, ctx context.Context, l letter) error { return p.receipts(ctx, l) }},
		"in parallel": {deliver: func(p *postman, ctx context.Context, l letter) error { return p.receipts(ctx, l) }, options: &agent.RowsOptions{Parallel: 2}},
		"in batches":  {batch: func(p *postman, ctx context.Context, ls []letter) error { return p.receipts(ctx, ls...) }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dohosttest.EveryPoint(t, o.scenario())
		})
	}
}

// receipts writes the receipts of letters after an Await. The first call for letter "b" that gets so far fails.
func (p *postman) receipts(ctx context.Context, ls ...letter) error {
	if err := dohost.Sleep(ctx, 300*time.Millisecond); err != nil {
		return err
	}
	for _, l := range ls {
		failed, _, err := dohost.Get[bool](ctx, p.Storage(), "failed")
		if l.ID == "b" && !failed && err == nil {
			return errors.Join(errors.New("the first call"), dohost.Put(ctx, p.Storage(), "failed", true))
		}
		n, _, err2 := dohost.Get[int](ctx, p.Storage(), "receipt "+l.ID)
		err3 := dohost.Transaction(ctx, func(ctx context.Context) error {
			return errors.Join(dohost.Put(ctx, p.Storage(), "receipt "+l.ID, n+1), p.done(ctx, l.ID))
		})
		if err = errors.Join(err, err2, err3); err != nil {
			return err
		}
	}
	return nil
}

func (o *postOffice) scenario() dohosttest.Scenario {
	return pointtest.Scenario(dohosttest.Scenario{
		Classes:  []dohost.Class{postClass(o)},
		Reset:    func() { o.took() },
		Places:   pointtest.Places(),
		FullDisk: true,
		Run: func(ctx context.Context, h *dohosttest.Host) error {
			err := o.postOnce(ctx, h, "a", "b", "c")
			h.Advance(100 * time.Millisecond)
			err = errors.Join(err, o.postOnce(ctx, h, "d"))
			h.Advance(5 * time.Second)
			return errors.Join(err, o.postOnce(ctx, h, "e"))
		},
		Check: checkReceipts,
	}, 30, 60)
}

// postOnce inserts letters once, however often the call is repeated.
func (o *postOffice) postOnce(ctx context.Context, h *dohosttest.Host, ids ...string) error {
	return dohost.Retry(ctx, &dohost.RetryPolicy{ShouldRetry: pointtest.RetryIdempotent}, func(ctx context.Context) error {
		return postmen.Get(h, "a").Do(ctx, func(ctx context.Context, p *postman) error {
			for _, id := range ids {
				_, ok, err := letters.Get(ctx, p.Storage(), id)
				if !ok && err == nil {
					err = letters.Insert(ctx, p.Storage(), letter{ID: id, State: "pending"})
				}
				if err != nil {
					return err
				}
			}
			return nil
		})
	})
}

// checkReceipts expects one receipt of each letter, and no other trace.
func checkReceipts(ctx context.Context, h *dohosttest.Host) error {
	return postmen.Get(h, "a").Do(ctx, func(ctx context.Context, p *postman) error {
		var err error
		for _, id := range []string{"a", "b", "c", "d", "e"} {
			n, _, err2 := dohost.Get[int](ctx, p.Storage(), "receipt "+id)
			if err = errors.Join(err, err2); n != 1 {
				err = errors.Join(err, fmt.Errorf("%d receipts of %s", n, id))
			}
		}
		tasks, err2 := p.Rows().List(ctx, nil)
		pending, err3 := letters.Count(ctx, p.Storage(), &dohost.Query[letter]{Index: "state", Equal: dohost.KeyOf("pending")})
		_, set, err4 := p.Object().GetAlarm(ctx)
		if err = errors.Join(err, err2, err3, err4); err == nil && (len(tasks) > 0 || pending > 0 || set) {
			err = fmt.Errorf("%d letters are pending, the alarm is set: %t, tasks %+v", pending, set, tasks)
		}
		return err
	})
}
