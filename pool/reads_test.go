package pool

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
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
		if _, err := p.Join(ctx, JoinRequest{Role: role, Conn: conn}); err != nil {
			return err
		}
		if _, err := p.Post(ctx, NewTask{Role: role}); err != nil {
			return err
		}
		c, err := p.Claim(ctx, ClaimRequest{Role: role, Conn: conn})
		if err != nil {
			return err
		}
		if _, err := p.Start(ctx, ClaimRef{c.Task.ID, conn, c.Task.Fence}); err != nil {
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

// TestRestartWakesTheDaemonsOfItsRole has 90 daemons that wait for the restarts of one role each, and 90 requested restarts of other
// roles that no daemon takes. The request of one more restart reads few rows.
func TestRestartWakesTheDaemonsOfItsRole(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 90
		var reads objectstore.Reads
		o := kernel.OnFS(&dohost.Options{IdleAfter: -1}, objectstore.NewMemFS())
		kernel.Tune(o, func(ro *runtime.Options) { ro.Store.Reads = &reads })
		h, err := dohost.Open("data", o, Class(nil))
		if err != nil {
			t.Fatal(err)
		}
		defer h.Close()
		err = Pools.Get(h, "p").Do(t.Context(), func(ctx context.Context, p *Pool) (err error) {
			for i := range n {
				for _, role := range []string{fmt.Sprint("waits", i), fmt.Sprint("requested", i)} {
					err = errors.Join(err, p.Declare(ctx, DeclareRequest{Role: role, Managed: true}))
				}
				_, posted := p.Post(ctx, NewTask{Role: fmt.Sprint("requested", i)})
				err = errors.Join(err, posted)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		var woken atomic.Int64
		for i := range n {
			go func() {
				q := PollRequest{Daemon: fmt.Sprint("d", i), Role: fmt.Sprint("waits", i), WaitMS: maxWait.Milliseconds()}
				polled, err := dohost.Call(t.Context(), Pools.Get(h, "p"), (*Pool).Commands, q)
				if err != nil || len(polled.Commands) != 0 && (i != 7 || len(polled.Commands) != 1) {
					t.Errorf("the daemon %d: %+v, %v", i, polled, err)
				}
				woken.Add(int64(len(polled.Commands)))
			}()
		}
		synctest.Wait()
		before := reads.Gets.Load() + reads.Steps.Load()
		if _, err := dohost.Call(t.Context(), Pools.Get(h, "p"), (*Pool).Post, NewTask{Role: "waits7"}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if n := reads.Gets.Load() + reads.Steps.Load() - before; n > 30 || woken.Load() != 1 {
			t.Errorf("the request of a restart has read %d rows and entries, and woken %d daemons", n, woken.Load())
		}
		time.Sleep(time.Minute)
	})
}
