package pool

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/dohost/dohost"
)

var (
	leave  = dohost.NoResult((*Pool).Leave)
	exited = dohost.NoResult((*Pool).Exited)
)

// TestConnectionsThatAreStaleAreRefused has workers that have left, or were removed, or never joined.
func TestConnectionsThatAreStaleAreRefused(t *testing.T) {
	inPool(t, nil, func(ctx context.Context, f *fixture) {
		f.join("a", "old")
		f.join("a", "new")
		call(f, leave, LeaveRequest{"a", "old"})
		for _, conn := range []string{"old", "never"} {
			refused(f, ErrStale, (*Pool).Heartbeat, HeartbeatRequest{"a", conn})
			refused(f, ErrStale, leave, LeaveRequest{"a", conn})
			refused(f, ErrStale, (*Pool).Claim, ClaimRequest{Role: "a", Conn: conn})
		}
		refused(f, ErrStale, (*Pool).Heartbeat, HeartbeatRequest{"other", "new"})
		if r := f.role("a"); !r.Reachable {
			t.Errorf("the newer worker is gone: %+v", r)
		}
		f.sleep(5 * time.Minute) // the sweep removes it
		refused(f, ErrStale, (*Pool).Heartbeat, HeartbeatRequest{"a", "new"})
		refused(f, ErrStale, (*Pool).Claim, ClaimRequest{Role: "a", Conn: "new"})
		f.join("a", "new")
	})
}

// TestClaimsThatAreFencedAreRefused has a worker whose task another worker has.
func TestClaimsThatAreFencedAreRefused(t *testing.T) {
	inPool(t, nil, func(ctx context.Context, f *fixture) {
		f.join("a", "1")
		id := f.post("a", "x")
		old := f.claim("a", "1", true)
		f.sleep(5 * time.Minute) // no renewal
		f.is(id, "pending 1")
		check := func() {
			t.Helper()
			for name, h := range map[string]ClaimRef{"the old claim": old, "another connection": {id, "2", old.Fence}, "a future fence": {id, "1", 7}, "no fence": {Task: id, Conn: "1"}} {
				t.Log(name)
				refused(f, ErrClaimLost, (*Pool).Start, h)
				refused(f, ErrClaimLost, (*Pool).Renew, RenewRequest{ClaimRef: h})
				refused(f, ErrClaimLost, (*Pool).Fail, FailRequest{ClaimRef: h})
				refused(f, ErrClaimLost, (*Pool).Fail, FailRequest{ClaimRef: h, Retry: true})
				refused(f, ErrClaimLost, (*Pool).Release, h)
			}
			refused(f, ErrClaimLost, (*Pool).Handoff, HandoffRequest{ClaimRef: ClaimRef{Task: id, Conn: "1"}})
			refused(f, ErrClaimLost, (*Pool).Handoff, HandoffRequest{ClaimRef: ClaimRef{id, "1", 7}})
		}
		check()
		f.join("a", "2")
		h := f.claim("a", "2", true)
		if h.Fence != old.Fence+1 {
			t.Errorf("fence %d follows %d", h.Fence, old.Fence)
		}
		refused(f, ErrClaimLost, (*Pool).Handoff, HandoffRequest{ClaimRef: ClaimRef{id, "1", h.Fence}})
		for range 2 {
			if _, err := dohost.Call(ctx, f.pool(), (*Pool).Handoff, HandoffRequest{ClaimRef: old, Result: json.RawMessage(`"late"`)}); !errors.Is(err, ErrClaimLost) {
				t.Error(err)
			}
		}
		f.is(id, "running 2")
		call(f, (*Pool).Handoff, HandoffRequest{ClaimRef: h, Result: json.RawMessage(`"new"`)})
		got := f.task(id)
		if got.Status != StatusDone || string(got.Result) != `"new"` || len(got.Late) != 1 || string(got.Late[0].Result) != `"late"` || got.Late[0].Fence != old.Fence {
			t.Errorf("%+v", got)
		}
	})
}

// TestFenceOfAnEarlierClaimIsRefused has one connection that claims a task twice: requests of its first claim arrive late.
func TestFenceOfAnEarlierClaimIsRefused(t *testing.T) {
	inPool(t, nil, func(ctx context.Context, f *fixture) {
		f.join("a", "1")
		id := f.post("a", "x")
		old := f.claim("a", "1", true)
		call(f, (*Pool).Release, old)
		h := f.claim("a", "1", true)
		refused(f, ErrClaimLost, (*Pool).Start, old)
		refused(f, ErrClaimLost, (*Pool).Renew, RenewRequest{ClaimRef: old})
		refused(f, ErrClaimLost, (*Pool).Release, old)
		refused(f, ErrClaimLost, (*Pool).Fail, FailRequest{ClaimRef: old})
		if _, err := dohost.Call(ctx, f.pool(), (*Pool).Handoff, HandoffRequest{ClaimRef: old}); !errors.Is(err, ErrClaimLost) {
			t.Error(err)
		}
		f.is(id, "running 1")
		call(f, (*Pool).Renew, RenewRequest{ClaimRef: h})
	})
}

// TestResultsThatAreLateAreBounded hands a task off by claims that have lapsed. Its text and all results have the greatest length.
func TestResultsThatAreLateAreBounded(t *testing.T) {
	inPool(t, &Options{MaxAttempts: 100, MaxText: mostText}, func(ctx context.Context, f *fixture) {
		f.join("a", "1")
		id := f.post("a", strings.Repeat("x", mostText))
		result := json.RawMessage(`"` + strings.Repeat("x", mostResult-2) + `"`)
		for range maxLate + 2 {
			h := f.claim("a", "1", true)
			call(f, (*Pool).Release, h)
			_, err := dohost.Call(ctx, f.pool(), (*Pool).Handoff, HandoffRequest{ClaimRef: h, Result: result})
			if !errors.Is(err, ErrClaimLost) {
				t.Error(err)
			}
		}
		if got := f.task(id); len(got.Late) != maxLate || got.Status != StatusPending {
			t.Errorf("%d late results of a task that is %s", len(got.Late), got.Status)
		}
		call(f, (*Pool).Handoff, HandoffRequest{ClaimRef: f.claim("a", "1", true), Result: result})
	})
}

// TestTransitionsOutsideOfTheTableAreRefused tries each method in each state with the current claim.
func TestTransitionsOutsideOfTheTableAreRefused(t *testing.T) {
	inPool(t, nil, func(ctx context.Context, f *fixture) {
		f.join("a", "1")
		for range 4 {
			f.post("a", "x")
		}
		acknowledged := func() ClaimRef { return f.claim("a", "1", false) }
		h := acknowledged()
		refused(f, ErrTransition, (*Pool).Renew, RenewRequest{ClaimRef: h})
		refused(f, ErrTransition, (*Pool).Handoff, HandoffRequest{ClaimRef: h})
		call(f, (*Pool).Start, h)
		call(f, (*Pool).Start, h)
		call(f, (*Pool).Handoff, HandoffRequest{ClaimRef: h, Result: json.RawMessage("1")})
		failed := acknowledged()
		call(f, (*Pool).Fail, FailRequest{ClaimRef: failed, Error: "it broke"})
		for _, ended := range []ClaimRef{h, failed} {
			refused(f, ErrTransition, (*Pool).Start, ended)
			refused(f, ErrTransition, (*Pool).Renew, RenewRequest{ClaimRef: ended})
			refused(f, ErrTransition, (*Pool).Fail, FailRequest{ClaimRef: ended})
			refused(f, ErrTransition, (*Pool).Fail, FailRequest{ClaimRef: ended, Retry: true})
			refused(f, ErrTransition, (*Pool).Release, ended)
		}
		refused(f, ErrTransition, (*Pool).Handoff, HandoffRequest{ClaimRef: failed})
		before := f.dump()
		call(f, (*Pool).Handoff, HandoffRequest{ClaimRef: h, Result: json.RawMessage("2")}) // repeated
		if f.dump() != before {
			t.Error("a repeated handoff has changed a row")
		}
		if got := f.task(failed.Task); got.Reason != "it broke" || got.Status != StatusFailed {
			t.Errorf("%+v", got)
		}
	})
}

// TestNamesThatAreUnknownAreRefused has roles, tasks and commands that do not exist.
func TestNamesThatAreUnknownAreRefused(t *testing.T) {
	inPool(t, nil, func(ctx context.Context, f *fixture) {
		refused(f, ErrNotFound, (*Pool).Post, NewTask{Role: "a"})
		refused(f, ErrNotFound, exited, ProcessExit{Role: "a"})
		refused(f, ErrNotFound, (*Pool).Take, TakeRequest{"d", "a", 1})
		f.join("a", "1")
		for _, id := range []string{"", "1", "01", "+1", "x", "-1", "99999999999999999999"} {
			refused(f, ErrNotFound, (*Pool).Task, TaskQuery{id})
			refused(f, ErrNotFound, (*Pool).Start, ClaimRef{id, "1", 1})
		}
		refused(f, ErrNotFound, (*Pool).Take, TakeRequest{"d", "a", 0})
		if ok, err := f.host.Exists(ctx, dohost.ID{Class: "pool", Name: "q"}); ok || err != nil {
			t.Errorf("%t, %v", ok, err)
		}
		if _, err := dohost.CallNoArg(ctx, Pools.Get(f.host, "q"), (*Pool).Roles); err != nil {
			t.Error(err)
		}
		if ok, err := f.host.Exists(ctx, dohost.ID{Class: "pool", Name: "q"}); ok || err != nil {
			t.Errorf("a list has created the pool: %t, %v", ok, err)
		}
	})
}

// TestPostToAnUnknownRoleNamesOthers posts to a role of a pool with no role, with some and with many.
func TestPostToAnUnknownRoleNamesOthers(t *testing.T) {
	inPool(t, nil, func(ctx context.Context, f *fixture) {
		post := func() string {
			_, err := dohost.Call(ctx, f.pool(), (*Pool).Post, NewTask{Role: "bilder"})
			_, text, _ := strings.Cut(err.Error(), "no daemon has declared it")
			return text
		}
		got := []string{post()}
		for i := range maxNamed + 2 {
			f.join(fmt.Sprint("r", i), "1")
			got = append(got, post())
		}
		equal(t, "errors", got, "", "; its roles are r0", "; its roles are r0, r1", "; its roles are r0, r1, r2", "; its roles are r0, r1, r2, r3",
			"; its roles are r0, r1, r2, r3, r4", "; its roles are r0, r1, r2, r3, r4, and others", "; its roles are r0, r1, r2, r3, r4, and others")
	})
}

// TestArgumentsAreBounded has arguments beyond each limit, and those at the limit.
func TestArgumentsAreBounded(t *testing.T) {
	inPool(t, nil, func(ctx context.Context, f *fixture) {
		f.join("a", "1")
		long := strings.Repeat("n", maxName+1)
		for _, name := range []string{"", long, "a b", "a\n", "\x00", "é", "\xff"} {
			refused(f, ErrInvalid, (*Pool).Join, JoinRequest{Role: name, Conn: "1"})
			refused(f, ErrInvalid, (*Pool).Join, JoinRequest{Role: "a", Conn: name})
			refused(f, ErrInvalid, (*Pool).Heartbeat, HeartbeatRequest{name, "1"})
			refused(f, ErrInvalid, leave, LeaveRequest{"a", name})
			refused(f, ErrInvalid, (*Pool).Claim, ClaimRequest{Role: "a", Conn: name})
			refused(f, ErrInvalid, (*Pool).Post, NewTask{Role: name})
			refused(f, ErrInvalid, (*Pool).Commands, PollRequest{Daemon: name})
			refused(f, ErrInvalid, (*Pool).Take, TakeRequest{Daemon: name, Role: "a"})
			refused(f, ErrInvalid, dohost.NoResult((*Pool).Declare), DeclareRequest{Role: name})
			refused(f, ErrInvalid, exited, ProcessExit{Role: name})
			refused(f, ErrInvalid, (*Pool).Start, ClaimRef{Conn: name})
			refused(f, ErrInvalid, (*Pool).Tasks, ListQuery{Role: name})
			refused(f, ErrInvalid, (*Pool).Workers, ListQuery{Role: name})
		}
		refused(f, ErrInvalid, exited, ProcessExit{Role: "a", Conn: long})
		refused(f, ErrInvalid, (*Pool).Join, JoinRequest{Role: "a", Conn: "1", Name: long})
		refused(f, ErrInvalid, (*Pool).Join, JoinRequest{Role: "a", Conn: "1", Name: "\xff"})
		refused(f, ErrInvalid, (*Pool).Post, NewTask{Role: "a", Text: strings.Repeat("x", 64<<10+1)})
		refused(f, ErrInvalid, (*Pool).Post, NewTask{Role: "a", Key: strings.Repeat("x", maxKey+1)})
		call(f, (*Pool).Post, NewTask{Role: "a", Text: strings.Repeat("x", 64<<10), Key: strings.Repeat("k", maxKey)})
		for _, wait := range []int64{-1, maxWait.Milliseconds() + 1, 1 << 62} {
			refused(f, ErrInvalid, (*Pool).Claim, ClaimRequest{Role: "a", Conn: "1", WaitMS: wait})
			refused(f, ErrInvalid, (*Pool).Commands, PollRequest{Daemon: "d", WaitMS: wait})
		}
		h := f.claim("a", "1", true)
		refused(f, ErrInvalid, (*Pool).Renew, RenewRequest{ClaimRef: h, Progress: strings.Repeat("x", maxProgress+1)})
		refused(f, ErrInvalid, (*Pool).Fail, FailRequest{ClaimRef: h, Error: strings.Repeat("x", maxError+1)})
		refused(f, ErrInvalid, exited, ProcessExit{Role: "a", Reason: strings.Repeat("x", maxError+1)})
		refused(f, ErrInvalid, (*Pool).Handoff, HandoffRequest{ClaimRef: h, Result: json.RawMessage(`"` + strings.Repeat("x", 256<<10-1) + `"`)})
		refused(f, ErrInvalid, (*Pool).Handoff, HandoffRequest{ClaimRef: h, Result: json.RawMessage("{")})
		refused(f, ErrInvalid, (*Pool).Handoff, HandoffRequest{ClaimRef: h, Result: json.RawMessage("\"\xff\"")})
		refused(f, ErrInvalid, (*Pool).Post, NewTask{Role: "a", Key: "a\x00b"})
		refused(f, ErrInvalid, (*Pool).Tasks, ListQuery{Role: "a", Status: "waiting"})
		refused(f, ErrInvalid, (*Pool).Commands, PollRequest{Daemon: "d", Role: "a b"})
		for _, limit := range []int{-1, maxListed + 1} {
			refused(f, ErrInvalid, (*Pool).Tasks, ListQuery{Role: "a", Limit: limit})
			refused(f, ErrInvalid, (*Pool).Workers, ListQuery{Role: "a", Limit: limit})
		}
		call(f, (*Pool).Renew, RenewRequest{ClaimRef: h, Progress: strings.Repeat("x", maxProgress)})
		call(f, (*Pool).Handoff, HandoffRequest{ClaimRef: h, Result: json.RawMessage(`"` + strings.Repeat("x", 256<<10-2) + `"`)})
	})
}

// TestPoolsAreBounded fills a pool with workers, roles and tasks.
func TestPoolsAreBounded(t *testing.T) {
	inPool(t, &Options{MaxWorkers: maxRoles + 1, MaxTasks: 3}, func(ctx context.Context, f *fixture) {
		for i := range maxRoles {
			f.join("r"+string(rune('A'+i/26))+string(rune('A'+i%26)), "1")
		}
		refused(f, ErrFull, (*Pool).Join, JoinRequest{Role: "more", Conn: "1"})
		refused(f, ErrFull, dohost.NoResult((*Pool).Declare), DeclareRequest{Role: "more"})
		f.join("rAA", "2")
		refused(f, ErrFull, (*Pool).Join, JoinRequest{Role: "rAA", Conn: "3"})
		f.join("rAA", "2") // again
		call(f, leave, LeaveRequest{"rAA", "2"})
		f.join("rAA", "3")
		first := f.post("rAA", "0")
		f.post("rAA", "1")
		f.post("rAA", "2")
		refused(f, ErrFull, (*Pool).Post, NewTask{Role: "rAA"})
		h := f.claim("rAA", "1", true)
		call(f, (*Pool).Handoff, HandoffRequest{ClaimRef: h})
		f.is(first, "done 1")
		f.post("rAA", "3")
		refused(f, ErrNotFound, (*Pool).Task, TaskQuery{first})
		refused(f, ErrFull, (*Pool).Post, NewTask{Role: "rAA"})
	})
}

// TestPostsWithAKeyAreIdempotent repeats a post.
func TestPostsWithAKeyAreIdempotent(t *testing.T) {
	inPool(t, nil, func(ctx context.Context, f *fixture) {
		f.join("a", "1")
		f.join("b", "1")
		n := NewTask{Role: "a", Text: "x", Key: "k"}
		id := call(f, (*Pool).Post, n).ID
		before := f.dump()
		if again := call(f, (*Pool).Post, n); again.ID != id || again.Text != "x" || f.dump() != before {
			t.Errorf("%+v", again)
		}
		refused(f, ErrKeyUsed, (*Pool).Post, NewTask{Role: "a", Text: "y", Key: "k"})
		refused(f, ErrKeyUsed, (*Pool).Post, NewTask{Role: "b", Text: "x", Key: "k"})
		call(f, (*Pool).Handoff, HandoffRequest{ClaimRef: f.claim("a", "1", true)})
		if again := call(f, (*Pool).Post, n); again.ID != id || again.Status != StatusDone {
			t.Errorf("%+v", again)
		}
	})
}

// TestReadersChangeNothing calls all methods with read-only rights.
func TestReadersChangeNothing(t *testing.T) {
	inPool(t, nil, func(ctx context.Context, f *fixture) {
		f.join("a", "1")
		id := f.post("a", "x")
		before := f.dump()
		reader := dohost.GrantAccess(ctx, dohost.Access{Identity: "r", Rights: dohost.RightsReadOnly})
		args := map[string]string{
			"join": `{"role":"a","conn":"2"}`, "beat": `{"role":"a","conn":"1"}`, "leave": `{"role":"a","conn":"1"}`,
			"post": `{"role":"a"}`, "claim": `{"role":"a","conn":"1"}`, "start": `{"task":"1","conn":"1","fence":1}`,
			"renew": `{"task":"1","conn":"1","fence":1}`, "handoff": `{"task":"1","conn":"1","fence":1}`, "fail": `{"task":"1","conn":"1","fence":1}`,
			"release": `{"task":"1","conn":"1","fence":1}`, "declare": `{"role":"a"}`, "take": `{"daemon":"d","role":"a"}`, "exited": `{"role":"a"}`,
			"cancel":   `{"task":"1"}`,
			"commands": `{"daemon":"d"}`, "task": `{"task":"` + id + `"}`, "tasks": `{"role":"a"}`, "workers": `{"role":"a"}`, "roles": `{}`,
		}
		reads := map[string]bool{"commands": true, "task": true, "tasks": true, "workers": true, "roles": true}
		methods := Class(nil).Methods()
		if len(methods) != len(args) {
			t.Errorf("methods %q", methods)
		}
		for _, m := range methods {
			_, err := f.host.Invoke(reader, f.pool().ID(), m, []byte(args[m]))
			if reads[m] && err != nil || !reads[m] && !errors.Is(err, dohost.ErrForbidden) {
				t.Errorf("%s: %v", m, err)
			}
		}
		if f.dump() != before {
			t.Error("a reader has changed a row")
		}
	})
}

// TestOptionsAreChecked opens hosts with wrong options.
func TestOptionsAreChecked(t *testing.T) {
	for _, tt := range []struct {
		o    Options
		want string
	}{
		{Options{Heartbeat: -1}, "Options.Heartbeat is -1ns"},
		{Options{Heartbeat: time.Minute, TTL: time.Minute}, "want a TTL that is more than Heartbeat"},
		{Options{Sweep: 365 * 24 * time.Hour}, "Options.Sweep is 8760h0m0s: want at most 720h"},
		{Options{Lease: 1}, "Options.Lease is 1ns: want at least a millisecond"},
		{Options{MaxTasks: -1}, "Options.MaxTasks is -1"},
		{Options{MaxText: 768<<10 + 1}, "Options.MaxText is 786433"},
		{Options{MaxResult: 1 << 20}, "Options.MaxResult is 1048576"},
		{Options{MaxRestarts: 1001, Keep: -1}, "Options.Keep is -1ns"},
	} {
		h, err := dohost.Open(t.TempDir(), nil, Class(&tt.o))
		if err == nil {
			h.Close()
		}
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%+v: %v, want %q", tt.o, err, tt.want)
		}
	}
	o, err := (&Options{Heartbeat: time.Second, Progress: -5}).resolved()
	if err != nil || o.TTL != 2*time.Second || o.Progress != -1 || o.Starting != 90*time.Second || o.Pending != 5*time.Minute {
		t.Errorf("%+v, %v", o, err)
	}
}

// TestPoolsHaveNoSharedState sets the state of the agent.
func TestPoolsHaveNoSharedState(t *testing.T) {
	inPool(t, nil, func(ctx context.Context, f *fixture) {
		err := f.pool().Do(ctx, func(ctx context.Context, p *Pool) error { return p.SetState(ctx, struct{}{}) })
		if !errors.Is(err, errNoState) {
			t.Error(err)
		}
	})
}
