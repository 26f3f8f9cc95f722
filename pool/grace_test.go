package pool

import (
	"context"
	"testing"
	"time"

	"github.com/dohost/dohost"
)

// TestWorkersDoNotLapseBeforeTheHostIsUpForATTL closes the host for an hour. Its workers live, and send a heartbeat after half a minute.
func TestWorkersDoNotLapseBeforeTheHostIsUpForATTL(t *testing.T) {
	inPool(t, &Options{Lease: 10 * time.Minute}, func(ctx context.Context, f *fixture) {
		call(f, declare, DeclareRequest{"a", true})
		f.join("a", "1")
		f.join("a", "dead")
		id := f.post("a", "x")
		h := f.claim("a", "1", true)
		f.post("a", "y")
		f.close()
		f.sleep(time.Hour)
		f.open()
		f.sleep(30 * time.Second) // the sweep that was due has run
		if f.post("a", "z"); f.requested("a") {
			t.Error("a restart before the end of the first TTL")
		}
		if r := f.role("a"); r.Reachable {
			t.Errorf("a read counts a worker as reachable that has lapsed: %+v", r)
		}
		call(f, (*Pool).Heartbeat, HeartbeatRequest{"a", "1"})
		f.sleep(29 * time.Second)
		call(f, (*Pool).Heartbeat, HeartbeatRequest{"a", "1"})
		if n := len(call(f, (*Pool).Workers, ListQuery{Role: "a"}).Workers); n != 2 {
			t.Errorf("%d workers in the first TTL", n)
		}
		for range 17 { // less than a lease, since the host is up
			f.sleep(30 * time.Second)
			call(f, (*Pool).Heartbeat, HeartbeatRequest{"a", "1"})
		}
		if n := len(call(f, (*Pool).Workers, ListQuery{Role: "a"}).Workers); n != 1 {
			t.Errorf("%d workers after the first TTL", n)
		}
		f.is(id, "running 1")
		f.sleep(20 * time.Second)
		call(f, (*Pool).Renew, RenewRequest{ClaimRef: h})
		if f.requested("a") {
			t.Error("a restart of a role with a live worker")
		}
	})
}

// TestEvictionsDoNotDelayTheSweep ends the incarnation every ten seconds.
func TestEvictionsDoNotDelayTheSweep(t *testing.T) {
	inPool(t, nil, func(ctx context.Context, f *fixture) {
		f.join("a", "1")
		for range 20 {
			f.sleep(10 * time.Second)
			f.host.Evict(f.pool().ID(), dohost.EndFence)
			f.role("a")
		}
		if n := len(call(f, (*Pool).Workers, ListQuery{Role: "a"}).Workers); n != 0 {
			t.Errorf("%d workers", n)
		}
	})
}

// TestClockSetForwardLapsesNoWorker sets the clock of the pool forward. All workers send heartbeats.
func TestClockSetForwardLapsesNoWorker(t *testing.T) {
	inPool(t, nil, func(ctx context.Context, f *fixture) {
		call(f, declare, DeclareRequest{"a", true})
		f.join("a", "1")
		f.offset.Store(int64(3 * time.Hour))
		if f.post("a", "x"); f.requested("a") {
			t.Error("a restart immediately after the clock was set")
		}
		for range 20 {
			f.sleep(30 * time.Second)
			call(f, (*Pool).Heartbeat, HeartbeatRequest{"a", "1"})
		}
		if f.requested("a") {
			t.Error("a restart of a live worker")
		}
		f.sleep(5 * time.Minute) // it dies
		if !f.requested("a") {
			t.Error("no restart of a dead worker")
		}
	})
}

// TestClockSetBackRevivesNoWorker sets the clock back by a day. A dead worker, its task and a restart lapse as they do otherwise.
func TestClockSetBackRevivesNoWorker(t *testing.T) {
	inPool(t, nil, func(ctx context.Context, f *fixture) {
		call(f, declare, DeclareRequest{"a", true})
		call(f, declare, DeclareRequest{"b", true})
		f.join("a", "1")
		id := f.post("a", "x")
		f.claim("a", "1", true)
		f.post("b", "y")
		f.take("b")
		f.offset.Store(int64(-24 * time.Hour))
		f.sleep(8 * time.Minute)
		if n := len(call(f, (*Pool).Workers, ListQuery{Role: "a"}).Workers); n != 0 {
			t.Errorf("%d workers", n)
		}
		f.is(id, "pending 1")
		if !f.requested("a") || !f.requested("b") {
			t.Errorf("%+v, %+v", f.role("a"), f.role("b"))
		}
	})
}

// TestClockIsSetBackWhileNothingIsSwept sets the clock back by a day while the pool has no schedule. A worker that joins then, and dies, is
// removed.
func TestClockIsSetBackWhileNothingIsSwept(t *testing.T) {
	inPool(t, nil, func(ctx context.Context, f *fixture) {
		call(f, declare, DeclareRequest{"a", true})
		if _, ok, err := f.alarm(ctx); ok || err != nil {
			t.Errorf("the pool has an alarm: %t, %v", ok, err)
		}
		f.offset.Store(int64(-24 * time.Hour))
		f.join("a", "1")
		f.sleep(5 * time.Minute)
		if n := len(call(f, (*Pool).Workers, ListQuery{Role: "a"}).Workers); n != 0 {
			t.Errorf("%d workers", n)
		}
	})
}

// TestIntervalOfTheSweepChanges opens the host with another interval.
func TestIntervalOfTheSweepChanges(t *testing.T) {
	inPool(t, &Options{Sweep: 10 * time.Hour}, func(ctx context.Context, f *fixture) {
		f.join("a", "1")
		f.close()
		f.options = nil
		f.open()
		f.join("a", "2")
		f.sleep(5 * time.Minute)
		if n := len(call(f, (*Pool).Workers, ListQuery{Role: "a"}).Workers); n != 0 {
			t.Errorf("%d workers", n)
		}
	})
}

// TestSweepHandlesManyRows lets more rows lapse than one turn handles.
func TestSweepHandlesManyRows(t *testing.T) {
	inPool(t, &Options{Keep: time.Hour}, func(ctx context.Context, f *fixture) {
		const n = 2*sweepBatch + 1
		err := f.pool().Do(ctx, func(ctx context.Context, p *Pool) error {
			for i := range n {
				conn := "c" + string(rune('A'+i/26)) + string(rune('A'+i%26))
				if _, err := p.Join(ctx, JoinRequest{Role: "a", Conn: conn}); err != nil {
					return err
				}
				if _, err := p.Post(ctx, NewTask{Role: "a"}); err != nil {
					return err
				}
				c, err := p.Claim(ctx, ClaimRequest{Role: "a", Conn: conn})
				if err != nil {
					return err
				}
				if _, err := p.Start(ctx, ClaimRef{c.Task.ID, conn, c.Task.Fence}); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		f.sleep(4 * time.Minute)
		list := call(f, (*Pool).Tasks, ListQuery{Role: "a", Status: StatusPending, Limit: maxListed})
		if w := call(f, (*Pool).Workers, ListQuery{Role: "a"}).Workers; len(w) != 0 || len(list.Tasks) != n {
			t.Errorf("%d workers, %d pending tasks of %d", len(w), len(list.Tasks), n)
		}
		var pages []Task
		for q := (ListQuery{Role: "a", Limit: 50}); ; {
			page := call(f, (*Pool).Tasks, q)
			pages = append(pages, page.Tasks...)
			if q.After = page.Next; q.After == "" {
				break
			}
		}
		if len(pages) != n {
			t.Errorf("%d tasks in pages", len(pages))
		}
		f.join("a", "1")
		for range n {
			call(f, (*Pool).Fail, FailRequest{ClaimRef: f.claim("a", "1", false)})
		}
		f.sleep(2 * time.Hour)
		if list := call(f, (*Pool).Tasks, ListQuery{Role: "a"}); len(list.Tasks) != 0 {
			t.Errorf("%d tasks remain", len(list.Tasks))
		}
	})
}
