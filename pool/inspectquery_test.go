package pool

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/internal/kernel"
	"github.com/dohost/dohost/objectstore"
	"github.com/dohost/dohost/runtime"
)

// found returns the items that a query selects, up to limit, and the cursor of the last one.
func found(t *testing.T, h *dohost.Host, limit int, q dohost.DetailQuery) (items []dohost.Resource, next string) {
	t.Helper()
	for r, err := range h.FindDetails(t.Context(), dohost.ID{Class: string(Pools), Name: "p"}, &q) {
		if err != nil {
			t.Fatalf("%+v: %v", q, err)
		}
		if items, next = append(items, r), r.Cursor; len(items) == limit {
			break
		}
	}
	return items, next
}

// TestInspectionDescribesARole follows a managed role from a request for a restart to the end of all restarts.
func TestInspectionDescribesARole(t *testing.T) {
	inPool(t, &Options{MaxRestarts: 2, Starting: time.Minute}, func(_ context.Context, f *fixture) {
		is := func(state, text string) {
			t.Helper()
			r, _ := found(f.t, f.host, 9, dohost.DetailQuery{Kind: roleItem})
			if len(r) != 1 || r[0].State != state || r[0].Text != text {
				t.Errorf("got %+v\nwant %s %s", r, state, text)
			}
		}
		call(f, declare, DeclareRequest{"m", true})
		is("offline", "managed, 0 of 2 restarts in succession")
		f.post("m", "x")
		const pending = "a task is pending since 2000-01-01T00:00:00Z, "
		is("requested", "managed, "+pending+`1 of 2 restarts in succession, restart 1, requested at 2000-01-01T00:00:00Z, reason "a task was posted", not before 2000-01-01T00:00:00Z`)
		f.take("m")
		is("starting", `managed, starting until 2000-01-01T00:01:00Z, by the daemon "d", `+pending+`1 of 2 restarts in succession, restart 1, requested at 2000-01-01T00:00:00Z, reason "a task was posted"`)
		call(f, exited, ProcessExit{Role: "m", Number: 1, Reason: "exit status 1"})
		is("requested", "managed, "+pending+`2 of 2 restarts in succession, restart 2, requested at 2000-01-01T00:00:00Z, reason "a process of the role has ended: exit status 1", not before 2000-01-01T00:00:10Z`)
		f.sleep(10 * time.Second)
		f.take("m")
		call(f, exited, ProcessExit{Role: "m", Number: 2, Reason: "exit status 2"})
		is("given-up", "managed, "+pending+`2 of 2 restarts in succession, restart 2, requested at 2000-01-01T00:00:00Z, reason "a process of the role has ended: exit status 2"`)
		f.join("m", "1")
		is("reachable", "managed, reachable until 2000-01-01T00:01:10Z, "+pending+`2 of 2 restarts in succession, restart 2, requested at 2000-01-01T00:00:00Z, reason "a process of the role has ended: exit status 2"`)
		f.claim("m", "1", true)
		is("busy", "managed, reachable until 2000-01-01T00:01:10Z, busy until 2000-01-01T00:01:10Z, 2 of 2 restarts in succession, restart 2, "+
			`requested at 2000-01-01T00:00:00Z, reason "a process of the role has ended: exit status 2"`)
		w, _ := found(f.t, f.host, 9, dohost.DetailQuery{Kind: workerItem, Fields: map[string]string{"role": "m"}})
		if len(w) != 1 || w[0].Fields["task"] != "1" || w[0].Fields["conn"] != "1" || w[0].State != "reachable" {
			t.Errorf("the workers are %+v", w)
		}
	})
}

// TestInspectionDescribesATask has a task with an owner, a late result, and its content in a query by its id alone.
func TestInspectionDescribesATask(t *testing.T) {
	inPool(t, nil, func(_ context.Context, f *fixture) {
		f.join("a", "1")
		id := f.post("a", strings.Repeat("é", maxSeen))
		old := f.claim("a", "1", true)
		call(f, (*Pool).Fail, FailRequest{ClaimRef: old, Error: "no\nluck", Retry: true})
		before := f.task(id)
		for range 2 { // a repeated handoff counts once
			if _, err := dohost.Call(f.t.Context(), f.pool(), (*Pool).Handoff, HandoffRequest{ClaimRef: old, Result: json.RawMessage(`"late"`)}); err == nil {
				t.Fatal("the handoff of an old claim is accepted")
			}
		}
		if after := f.task(id); after.Status != before.Status || len(after.Late) != 1 {
			t.Errorf("the late result has made %+v of %+v", after, before)
		}
		h := f.claim("a", "1", true)
		call(f, (*Pool).Renew, RenewRequest{ClaimRef: h, Progress: "half"})
		list, _ := found(f.t, f.host, 9, dohost.DetailQuery{Kind: taskItem})
		const want = `role a, posted 2000-01-01T00:00:00Z, running since 2000-01-01T00:00:00Z, 2 of 5 attempts, fence 2, worker "1", ` +
			`lease until 2000-01-01T00:01:00Z, progress due by 2000-01-01T01:00:00Z, progress "half", 1 late results`
		if len(list) != 1 || list[0].Text != want || list[0].Fields["text"]+list[0].Fields["late1"] != "" {
			t.Errorf("the tasks are %+v, want %s", list, want)
		}
		whole, _ := found(f.t, f.host, 9, dohost.DetailQuery{Kind: taskItem, ID: id})
		if len(whole) != 1 || whole[0].Fields["text"] != strings.Repeat("é", maxSeen/2) || whole[0].Fields["late1"] != `fence 1, 2000-01-01T00:00:00Z: "late"` {
			t.Errorf("the task is %+v", whole)
		}
		for _, none := range []string{"2", "x", "-1"} {
			if list, _ := found(f.t, f.host, 9, dohost.DetailQuery{Kind: taskItem, ID: none}); len(list) > 0 {
				t.Errorf("the task %s is %+v", none, list)
			}
		}
	})
}

// TestInspectionReadsAPage reads pages of a pool with 600 workers, 1,200 pending tasks, 15 running and 5 done ones: each page costs a few
// rows for each of its items, and all pages have each item once.
func TestInspectionReadsAPage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var reads objectstore.Reads
		o := kernel.OnFS(&dohost.Options{IdleAfter: -1}, objectstore.NewMemFS())
		kernel.Tune(o, func(ro *runtime.Options) { ro.Store.Reads = &reads })
		h, err := dohost.Open("data", o, Class(&Options{Lease: time.Hour}))
		if err != nil {
			t.Fatal(err)
		}
		defer h.Close()
		for i := range 4 {
			err := Pools.Get(h, "p").Do(t.Context(), func(ctx context.Context, p *Pool) error {
				role := fmt.Sprint("r", i%2)
				for j := range 145 {
					if _, err := p.Join(ctx, JoinRequest{Role: role, Conn: fmt.Sprint("idle", i, "-", j)}); err != nil {
						return err
					}
				}
				return fill(ctx, p, role, 100*i, 5, 300)
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		err = Pools.Get(h, "p").Do(t.Context(), func(ctx context.Context, p *Pool) error { return finish(ctx, p, "r1", 5) })
		if err != nil {
			t.Fatal(err)
		}
		h.Evict(Pools.Get(h, "p").ID(), dohost.EndFence)
		of := map[string]string{"role": "r1"}
		for _, c := range []struct {
			q    dohost.DetailQuery
			want int
		}{
			{dohost.DetailQuery{Kind: workerItem, Fields: of}, 300}, {dohost.DetailQuery{Kind: taskItem, Fields: of}, 605},
			{dohost.DetailQuery{Kind: taskItem, Fields: of, State: "pending"}, 600}, {dohost.DetailQuery{Kind: taskItem, Fields: of, State: "done"}, 5},
			{dohost.DetailQuery{Kind: roleItem}, 2},
		} {
			ids, most := map[string]bool{}, int64(0)
			for n := 50; n == 50; {
				before := reads.Gets.Load() + reads.Steps.Load()
				page, next := found(t, h, 50, c.q)
				most = max(most, reads.Gets.Load()+reads.Steps.Load()-before)
				for _, r := range page {
					ids[r.ID] = true
				}
				n, c.q.After = len(page), next
			}
			if len(ids) != c.want || most > 300 {
				t.Errorf("%+v: %d items, a page reads %d rows and entries", c.q, len(ids), most)
			}
		}
		if h.IsLive(Pools.Get(h, "p").ID()) {
			t.Error("the inspection has woken the pool")
		}
		for _, after := range []string{"no.YQ", "running.?", "x"} {
			for _, err := range h.FindDetails(t.Context(), Pools.Get(h, "p").ID(), &dohost.DetailQuery{Kind: taskItem, Fields: of, After: after}) {
				if err == nil || !strings.Contains(err.Error(), "want the next of a list") {
					t.Errorf("after %s: %v", after, err)
				}
			}
		}
	})
}

// finish hands off the tasks of workers.
func finish(ctx context.Context, p *Pool, role string, n int) error {
	list, err := p.Tasks(ctx, ListQuery{Role: role, Status: StatusRunning, Limit: n})
	for _, t := range list.Tasks {
		if _, err := p.Handoff(ctx, HandoffRequest{ClaimRef: ClaimRef{t.ID, t.Conn, t.Fence}}); err != nil {
			return err
		}
	}
	return err
}

// TestInspectionListsTheDoneTasksLast lists the newest of them first, and only in a query for them.
func TestInspectionListsTheDoneTasksLast(t *testing.T) {
	inPool(t, nil, func(_ context.Context, f *fixture) {
		f.join("a", "1")
		for range 3 {
			f.post("a", "x")
			call(f, (*Pool).Handoff, HandoffRequest{ClaimRef: f.claim("a", "1", true)})
		}
		f.post("a", "x")
		for state, want := range map[string][]string{"": {"4"}, "done": {"3", "2", "1"}, "running": nil} {
			list, _ := found(f.t, f.host, 9, dohost.DetailQuery{Kind: taskItem, State: state})
			var ids []string
			for _, r := range list {
				ids = append(ids, r.ID)
			}
			if !slices.Equal(ids, want) {
				t.Errorf("%q: %q, want %q", state, ids, want)
			}
		}
	})
}
