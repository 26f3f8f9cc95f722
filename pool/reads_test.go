package pool

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/internal/kernel"
	"github.com/dohost/dohost/objectstore"
	"github.com/dohost/dohost/runtime"
)

// fill adds workers of one role with a task each, and pending tasks.
func fill(ctx context.Context, p *Pool, role string, first, n, pending int) error {
	for i := range n {
		conn := fmt.Sprint(role, first+i)
		if _, err := p.Join(ctx, Join{Role: role, Conn: conn}); err != nil {
			return err
		}
		if _, err := p.Post(ctx, NewTask{Role: role}); err != nil {
			return err
		}
		c, err := p.Claim(ctx, Claim{Role: role, Conn: conn})
		if err != nil {
			return err
		}
		if _, err := p.Start(ctx, Hold{c.Task.ID, conn, c.Task.Fence}); err != nil {
			return err
		}
	}
	for range pending {
		if _, err := p.Post(ctx, NewTask{Role: role}); err != nil {
			return err
		}
	}
	return nil
}

// TestSweepReadsOnlyLapsedRows sweeps a pool with 1,000 live workers that have tasks, 1,000 pending tasks, and two lapsed workers with tasks.
func TestSweepReadsOnlyLapsedRows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var reads objectstore.Reads
		o := kernel.OnFS(&dohost.Options{IdleAfter: -1}, objectstore.NewMemFS())
		kernel.Tune(o, func(ro *runtime.Options) { ro.Store.Reads = &reads })
		h, err := dohost.Open("data", o, Class(&Options{Lease: time.Hour, TTL: 10 * time.Hour, Sweep: 24 * time.Hour}))
		if err != nil {
			t.Fatal(err)
		}
		defer h.Close()
		do := func(fn func(ctx context.Context, p *Pool) error) {
			t.Helper()
			if err := Pools.Get(h, "p").Do(t.Context(), fn); err != nil {
				t.Fatal(err)
			}
		}
		do(func(ctx context.Context, p *Pool) error { return fill(ctx, p, "lapsed", 0, 2, 0) })
		time.Sleep(11 * time.Hour)
		for i := range 10 {
			do(func(ctx context.Context, p *Pool) error { return fill(ctx, p, "live", 100*i, 100, 100) })
		}
		before := reads.Gets.Load() + reads.Steps.Load()
		do(func(ctx context.Context, p *Pool) error { return p.sweep(ctx) })
		n := reads.Gets.Load() + reads.Steps.Load() - before
		if n > 200 {
			t.Errorf("a sweep of two workers and two tasks has read %d rows and entries", n)
		}
		t.Logf("%d rows and entries", n)
		for role, want := range map[string]int{"lapsed": 0, "live": 1000} {
			list, err := dohost.Call(t.Context(), Pools.Get(h, "p"), (*Pool).Workers, ListQuery{Role: role, Limit: maxListed})
			if err != nil || len(list.Workers) != want {
				t.Errorf("%d workers of %s, %v", len(list.Workers), role, err)
			}
		}
	})
}
