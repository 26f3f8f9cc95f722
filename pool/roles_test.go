package pool

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/dohost/dohost"
)

var declare = dohost.NoResult((*Pool).Declare)

// TestWorkerWithoutHeartbeatsIsUnreachableAfterTTL lets a worker send no heartbeat. Reads notice it after the TTL, and the sweep removes it.
func TestWorkerWithoutHeartbeatsIsUnreachableAfterTTL(t *testing.T) {
	inPool(t, nil, func(ctx context.Context, f *fixture) {
		f.join("a", "1")
		f.sleep(30 * time.Second)
		call(f, (*Pool).Heartbeat, HeartbeatRequest{"a", "1"})
		f.sleep(59 * time.Second)
		if r := f.role("a"); !r.Reachable {
			t.Errorf("before the TTL: %+v", r)
		}
		f.sleep(time.Second)
		list := call(f, (*Pool).Workers, ListQuery{Role: "a"}).Workers
		if r := f.role("a"); r.Reachable || len(list) != 1 || list[0].Reachable {
			t.Errorf("after the TTL: %+v, %+v", r, list)
		}
		f.sleep(2 * time.Minute)
		if list := call(f, (*Pool).Workers, ListQuery{Role: "a"}).Workers; len(list) != 0 {
			t.Errorf("after the sweep: %+v", list)
		}
		equal(t, "reports", f.took(), "swept 1 0")
	})
}

// TestRoleThatIsBusyIsNotRestarted posts a second task while the worker, which has left the pool, works on the first.
func TestRoleThatIsBusyIsNotRestarted(t *testing.T) {
	inPool(t, nil, func(ctx context.Context, f *fixture) {
		call(f, declare, DeclareRequest{"a", true})
		f.join("a", "1")
		f.post("a", "first")
		h := f.claim("a", "1", true)
		call(f, leave, LeaveRequest{"a", "1"})
		f.post("a", "second")
		for range 30 {
			f.sleep(20 * time.Second)
			call(f, (*Pool).Renew, RenewRequest{ClaimRef: h})
			if f.requested("a") {
				t.Fatal("the pool requests the restart of a busy role")
			}
		}
		if r := f.role("a"); !r.Busy || r.Reachable || !r.Waiting {
			t.Errorf("%+v", r)
		}
		call(f, (*Pool).Handoff, HandoffRequest{ClaimRef: h})
		if !f.requested("a") { // the second task waits
			t.Error("no restart is requested")
		}
		equal(t, "reports", f.took(), "unattended a", "restart a")
	})
}

// TestPostsToAnOfflineRoleRequestOneRestart posts two tasks concurrently, and more while the role is starting.
func TestPostsToAnOfflineRoleRequestOneRestart(t *testing.T) {
	inPool(t, nil, func(ctx context.Context, f *fixture) {
		call(f, declare, DeclareRequest{"a", true})
		if f.requested("a") {
			t.Error("a restart of a role without tasks")
		}
		f.post("a", "1")
		f.post("a", "2")
		number := f.take("a")
		f.post("a", "3")
		if f.requested("a") {
			t.Error("a restart of a role that is starting")
		}
		f.sleep(80 * time.Second)
		if f.requested("a") {
			t.Error("a restart of a role that is starting")
		}
		f.join("a", "1")
		f.post("a", "4")
		refused(f, ErrNotFound, (*Pool).Take, TakeRequest{"d", "a", number}) // it has ended
		f.claim("a", "1", true)
		equal(t, "reports", f.took(), "restart a")
	})
}

// TestRestartOfALiveRoleIsNotTaken has a worker whose heartbeat is late: the pool has requested a restart, and no daemon has taken it yet.
// Its count of restarts may have been reset in between.
func TestRestartOfALiveRoleIsNotTaken(t *testing.T) {
	for _, reset := range []bool{false, true} {
		inPool(t, nil, func(ctx context.Context, f *fixture) {
			call(f, declare, DeclareRequest{"a", true})
			f.join("a", "1")
			f.sleep(65 * time.Second)
			f.post("a", "x")
			q := call(f, (*Pool).Commands, PollRequest{Daemon: "d"})
			call(f, (*Pool).Heartbeat, HeartbeatRequest{"a", "1"})
			if len(q.Commands) != 1 {
				t.Fatalf("%+v", q)
			}
			if reset {
				call(f, declare, DeclareRequest{"a", true})
			}
			if _, err := dohost.Call(ctx, f.pool(), (*Pool).Take, TakeRequest{"d", "a", q.Commands[0].Number}); !errors.Is(err, ErrNotFound) {
				t.Error(err)
			}
			if r := f.role("a"); r.Requested != nil || r.Restarts != 0 || r.Starting != nil {
				t.Errorf("%+v", r)
			}
		})
	}
}

// TestRestartThatDoesNotLeadToAWorkerLapses takes each restart, and no worker joins. The delays double, and then the role is given up.
func TestRestartThatDoesNotLeadToAWorkerLapses(t *testing.T) {
	inPool(t, &Options{MaxRestarts: 4, Sweep: 25 * time.Second, RestartDelay: time.Minute}, func(ctx context.Context, f *fixture) {
		call(f, declare, DeclareRequest{"a", true})
		f.post("a", "x")
		for i, delay := range []time.Duration{0, time.Minute, 2 * time.Minute, 4 * time.Minute} {
			q := call(f, (*Pool).Commands, PollRequest{Daemon: "d"})
			if (len(q.Commands) == 0) != (delay > 0) {
				t.Fatalf("%v: %+v", delay, q)
			}
			if delay > 0 {
				refused(f, ErrNotFound, (*Pool).Take, TakeRequest{"d", "a", uint64(i + 1)})
				for q = (PollResponse{}); len(q.Commands) == 0; {
					q = call(f, (*Pool).Commands, PollRequest{Daemon: "d", WaitMS: 50_000})
				}
				if c := q.Commands[0]; c.After.Sub(c.Asked) != delay || !time.Now().Equal(c.After) {
					t.Errorf("%v: %+v at %v", delay, c, time.Now())
				}
			}
			if n := f.take("a"); n != uint64(i+1) {
				t.Errorf("restart %d is the number %d", i+1, n)
			}
			f.sleep(116 * time.Second)
		}
		f.sleep(time.Hour)
		if r := f.role("a"); !r.GivenUp || r.Requested != nil || r.Restarts != 4 {
			t.Errorf("%+v", r)
		}
		f.post("a", "y")
		if f.requested("a") {
			t.Error("a restart of a role that is given up")
		}
		equal(t, "reports", f.took(), "restart a", "start_lapsed a", "restart a", "start_lapsed a", "restart a", "unattended a", "start_lapsed a",
			"restart a", "start_lapsed a", "given_up a")
		call(f, declare, DeclareRequest{"a", true})
		if r := f.role("a"); r.GivenUp || r.Requested == nil || r.Restarts != 1 {
			t.Errorf("after a declaration: %+v", r)
		}
	})
}

// TestRoleWhoseWorkersDieIsGivenUp has workers that claim a task and end. A worker that hands a task off begins the count again.
func TestRoleWhoseWorkersDieIsGivenUp(t *testing.T) {
	inPool(t, &Options{MaxRestarts: 3, MaxAttempts: 100}, func(ctx context.Context, f *fixture) {
		call(f, declare, DeclareRequest{"a", true})
		f.post("a", "x")
		dies := func(conn string, handsOff bool) {
			t.Helper()
			f.sleep(maxDelay)
			number := f.take("a")
			f.join("a", conn)
			h := f.claim("a", conn, true)
			if handsOff {
				call(f, (*Pool).Handoff, HandoffRequest{ClaimRef: h})
				f.post("a", "next")
			}
			call(f, exited, ProcessExit{Role: "a", Number: number, Conn: conn, Reason: "signal: killed"})
			refused(f, ErrClaimLost, (*Pool).Renew, RenewRequest{ClaimRef: h})
		}
		dies("1", false)
		dies("2", false)
		f.sleep(maxDelay)
		number := f.take("a")
		f.join("a", "3")
		h := f.claim("a", "3", true)
		call(f, (*Pool).Handoff, HandoffRequest{ClaimRef: h})
		id := f.post("a", "next")
		call(f, exited, ProcessExit{Role: "a", Number: number, Conn: "3"})
		for i := range 3 {
			dies(fmt.Sprint(4+i), false)
		}
		if r := f.role("a"); !r.GivenUp || r.Requested != nil {
			t.Errorf("%+v", r)
		}
		f.is(id, "pending 3")
		if got := f.task(id); got.Reason != "its worker has ended: signal: killed" {
			t.Errorf("%+v", got)
		}
	})
}

// TestWorkerThatIsStableHasAllRestartsAgain has a worker that stays for a while before it ends.
func TestWorkerThatIsStableHasAllRestartsAgain(t *testing.T) {
	inPool(t, nil, func(ctx context.Context, f *fixture) {
		call(f, declare, DeclareRequest{"a", true})
		f.post("a", "x")
		for _, stays := range []time.Duration{4 * time.Minute, 5 * time.Minute} {
			f.sleep(maxDelay)
			f.take("a")
			f.join("a", "1")
			for range stays / (30 * time.Second) {
				f.sleep(30 * time.Second)
				call(f, (*Pool).Heartbeat, HeartbeatRequest{"a", "1"})
			}
			call(f, leave, LeaveRequest{"a", "1"})
			if r := f.role("a"); (r.Restarts == 1) != (stays == 5*time.Minute) {
				t.Errorf("after %v: %+v", stays, r)
			}
		}
	})
}

// TestRoleThatIsAttachedIsReportedAndNeverRestarted has a task for a worker that a person starts.
func TestRoleThatIsAttachedIsReportedAndNeverRestarted(t *testing.T) {
	inPool(t, &Options{Keep: 4 * time.Hour}, func(ctx context.Context, f *fixture) {
		f.join("a", "1")
		call(f, leave, LeaveRequest{"a", "1"})
		id := f.post("a", "x")
		f.sleep(5 * time.Minute)
		equal(t, "reports before", f.took())
		f.sleep(2 * time.Minute)
		equal(t, "reports", f.took(), "unattended a")
		f.sleep(6 * time.Hour)
		equal(t, "later reports", f.took())
		if r := f.role("a"); r.Requested != nil || r.Restarts != 0 || !r.Waiting {
			t.Errorf("%+v", r)
		}
		f.is(id, "pending 0")
		f.join("a", "2")
		call(f, (*Pool).Handoff, HandoffRequest{ClaimRef: f.claim("a", "2", true)})
		f.sleep(9 * time.Hour)
		if r := f.role("a"); r.Name != "" {
			t.Errorf("an unused role remains: %+v", r)
		}
		refused(f, ErrNotFound, (*Pool).Task, TaskQuery{id})
		if _, ok, _ := f.alarm(ctx); ok {
			t.Error("an unused pool has an alarm")
		}
	})
}

// alarm returns the alarm of the pool.
func (f *fixture) alarm(ctx context.Context) (at time.Time, ok bool, err error) {
	info, err := f.host.Inspect(ctx, f.pool().ID())
	return info.Alarm, !info.Alarm.IsZero(), err
}

// TestTaskOfAReachableWorkerIsNotTouched acknowledges a task and starts it after two hours, and then works on it for six.
func TestTaskOfAReachableWorkerIsNotTouched(t *testing.T) {
	inPool(t, &Options{Progress: -1}, func(ctx context.Context, f *fixture) {
		f.join("a", "1")
		id := f.post("a", "x")
		h := f.claim("a", "1", false)
		for range 2 * 60 * 2 {
			f.sleep(30 * time.Second)
			call(f, (*Pool).Heartbeat, HeartbeatRequest{"a", "1"})
		}
		call(f, (*Pool).Start, h)
		for range 6 * 60 * 2 {
			f.sleep(30 * time.Second)
			call(f, (*Pool).Renew, RenewRequest{ClaimRef: h})
		}
		f.is(id, "running 1")
		call(f, (*Pool).Handoff, HandoffRequest{ClaimRef: h, Result: json.RawMessage("1")})
	})
}

// TestLeaseOfAReachableWorkerLapses has a worker that sends heartbeats, and does not renew the lease of its task.
func TestLeaseOfAReachableWorkerLapses(t *testing.T) {
	inPool(t, nil, func(ctx context.Context, f *fixture) {
		f.join("a", "1")
		id := f.post("a", "x")
		f.claim("a", "1", true)
		for range 6 {
			f.sleep(30 * time.Second)
			call(f, (*Pool).Heartbeat, HeartbeatRequest{"a", "1"})
		}
		f.is(id, "pending 1")
	})
}

// TestTaskAcknowledgedByAGoneWorkerIsPendingAgain ends a worker between the claim and the start.
func TestTaskAcknowledgedByAGoneWorkerIsPendingAgain(t *testing.T) {
	inPool(t, nil, func(ctx context.Context, f *fixture) {
		f.join("a", "1")
		id := f.post("a", "x")
		f.claim("a", "1", false)
		call(f, leave, LeaveRequest{"a", "1"})
		f.sleep(2*time.Minute - time.Second)
		f.is(id, "acknowledged 1")
		f.sleep(2*time.Minute + time.Second)
		f.is(id, "pending 1")
	})
}

// TestTaskWithoutProgressIsPendingAgain has a worker that renews its lease, and reports the same progress for ever.
func TestTaskWithoutProgressIsPendingAgain(t *testing.T) {
	inPool(t, &Options{Progress: 10 * time.Minute}, func(ctx context.Context, f *fixture) {
		f.join("a", "1")
		id := f.post("a", "x")
		h := f.claim("a", "1", true)
		work := func(d time.Duration, progress func(i int) string) (n int) {
			for i := range int(d / (20 * time.Second)) {
				f.sleep(20 * time.Second)
				if _, err := dohost.Call(ctx, f.pool(), (*Pool).Renew, RenewRequest{ClaimRef: h, Progress: progress(i)}); err == nil {
					n++
				}
			}
			return n
		}
		if n := work(time.Hour, func(i int) string { return fmt.Sprint(i, " files") }); n != 180 {
			t.Errorf("%d renewals with progress", n)
		}
		if n := work(time.Hour, func(int) string { return "the same" }); n < 27 || n > 40 {
			t.Errorf("%d renewals without progress", n)
		}
		f.is(id, "pending 1")
		if got := f.task(id); got.Reason != "its worker has made no progress" {
			t.Errorf("%+v", got)
		}
	})
}

// TestTaskThatEndsItsWorkersFails has a task whose workers end.
func TestTaskThatEndsItsWorkersFails(t *testing.T) {
	inPool(t, &Options{MaxAttempts: 3}, func(ctx context.Context, f *fixture) {
		f.join("a", "1")
		id := f.post("a", "x")
		call(f, (*Pool).Release, f.claim("a", "1", true)) // is not counted
		for i := range 3 {
			f.is(id, fmt.Sprint("pending ", i))
			f.claim("a", "1", true)
			f.sleep(5 * time.Minute)
			f.join("a", "1")
		}
		f.is(id, "failed 3")
		if c := call(f, (*Pool).Claim, ClaimRequest{Role: "a", Conn: "1"}); c.Task != nil {
			t.Errorf("%+v", c.Task)
		}
	})
}
