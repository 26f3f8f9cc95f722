package research_test

import (
	"context"
	"fmt"
	"maps"
	"sync/atomic"
	"testing"
	"testing/fstest"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/dohosttest"
	"github.com/dohost/dohost/examples/research"
	"github.com/dohost/dohost/internal/pointtest"
)

// TestResearchCountIsExactAtEveryPoint interrupts the job of the demo at every point, with a few words to count,
// and at some pairs of points.
func TestResearchCountIsExactAtEveryPoint(t *testing.T) {
	fsys := fstest.MapFS{"a.txt": {Data: []byte("one two one three")}, "b.txt": {Data: []byte("two one")}}
	var done atomic.Bool
	cfg := &research.Config{Files: fsys, Piece: 8, Mergers: 2, Together: 2, KeepAlive: 100 * time.Millisecond, Done: func() { done.Store(true) }}
	s := dohosttest.Scenario{
		Classes: cfg.Classes(),
		Reset:   func() { done.Store(false) },
		Run: func(ctx context.Context, h *dohosttest.Host) error {
			err := retryCall(ctx, func(ctx context.Context) error {
				_, err := dohost.CallNoArg(ctx, research.Catalogs.Get(h, research.CatalogName), (*research.Catalog).Begin)
				return err
			})
			for err == nil && !done.Load() {
				h.Advance(10 * time.Millisecond)
				err = context.Cause(ctx)
			}
			return err
		},
		SettleTime: time.Millisecond, // the catalog keeps calling Done
		Check: func(ctx context.Context, h *dohosttest.Host) error {
			got, want := map[string]int{}, countDirectly(fsys)
			for w := range want {
				n, err := dohost.Call(ctx, research.Mergers.Get(h, cfg.MergerName(w)), (*research.Merger).Count, w)
				if err != nil {
					return err
				}
				got[w] = n
			}
			if !maps.Equal(got, want) {
				return fmt.Errorf("counted %v, want %v", got, want)
			}
			return nil
		},
	}
	dohosttest.EveryPoint(t, pointtest.Scenario(s, 20, 100))
}

// retryCall repeats an idempotent call until it succeeds.
func retryCall(ctx context.Context, fn func(context.Context) error) error {
	return dohost.Retry(ctx, &dohost.RetryPolicy{ShouldRetry: dohost.RetryIdempotent, MaxAttempts: 1000, MaxElapsed: time.Hour}, fn)
}
