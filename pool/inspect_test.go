package pool

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/dohost/dohost"
)

// items returns the items of the pool as "kind id state actions".
func (f *fixture) items(ctx context.Context) (list []string) {
	f.t.Helper()
	for r, err := range f.host.Details(ctx, f.pool().ID()) {
		if err != nil {
			f.t.Fatal(err)
		}
		if r.Kind == "schedule" { // the sweep
			continue
		}
		list = append(list, fmt.Sprint(r.Kind, " ", r.ID, " ", r.State, " ", r.Can))
	}
	return list
}

// operate applies an action, and compares whether it was applied.
func (f *fixture) operate(ctx context.Context, want bool, a dohost.Action, kind, id string) {
	f.t.Helper()
	done, err := f.host.Operate(ctx, f.pool().ID(), &dohost.AdminRequest{Action: a, Kind: kind, ID: id})
	if err != nil || done != want {
		f.t.Errorf("%s %s %s: %t, %v", a, kind, id, done, err)
	}
}

// TestRoleStateIsTheFirstOfTheConstants sets one more field in each step. Each state comes before the earlier ones.
func TestRoleStateIsTheFirstOfTheConstants(t *testing.T) {
	var r Role
	for _, step := range []struct {
		set  func()
		want RoleState
	}{
		{func() { r.Managed, r.Waiting = true, true }, RoleOffline},
		{func() { r.Starting = new(time.Now()) }, RoleStarting},
		{func() { r.Requested = &Command{} }, RoleRequested},
		{func() { r.Reachable = true }, RoleReachable},
		{func() { r.Busy = true }, RoleBusy},
		{func() { r.GivenUp = true }, RoleGivenUp},
	} {
		if step.set(); r.State() != step.want {
			t.Errorf("%+v is %s, want %s", r, r.State(), step.want)
		}
	}
}

// TestOperatorsSeeAndChangeThePool has a role that is given up, and tasks in each state.
func TestOperatorsSeeAndChangeThePool(t *testing.T) {
	inPool(t, &Options{MaxRestarts: 1, Progress: -1}, func(ctx context.Context, f *fixture) {
		call(f, declare, DeclareRequest{"m", true})
		f.post("m", "x")
		f.take("m")
		f.sleep(5 * time.Minute)
		f.join("a", "1")
		failed, done, running := f.post("a", "fails"), f.post("a", "is done"), f.post("a", "runs")
		call(f, (*Pool).Fail, FailRequest{ClaimRef: f.claim("a", "1", false), Error: "it broke"})
		call(f, (*Pool).Handoff, HandoffRequest{ClaimRef: f.claim("a", "1", true)})
		f.claim("a", "1", true)
		equal(t, "items", f.items(ctx), "pool-role a busy [post]", "pool-role m given-up [post retry]", "pool-worker a/1 reachable []",
			"pool-task "+running+" running []", "pool-task "+failed+" failed [delete retry]", "pool-task 1 pending [delete]")
		f.operate(ctx, true, dohost.ActionRetry, roleItem, "m")
		f.operate(ctx, false, dohost.ActionRetry, roleItem, "m")
		f.operate(ctx, false, dohost.ActionRetry, roleItem, "none")
		f.operate(ctx, true, dohost.ActionDelete, taskItem, "1")
		f.operate(ctx, false, dohost.ActionDelete, taskItem, "1")
		f.operate(ctx, true, dohost.ActionRetry, taskItem, failed)
		f.operate(ctx, false, dohost.ActionRetry, taskItem, failed)
		f.operate(ctx, false, dohost.ActionRetry, taskItem, done)
		f.operate(ctx, true, dohost.ActionDelete, taskItem, done)
		f.operate(ctx, false, dohost.ActionDelete, taskItem, running)
		f.operate(ctx, false, dohost.ActionCancel, taskItem, running)
		f.operate(ctx, false, dohost.ActionDelete, workerItem, "a/1")
		f.is(failed, "pending 0")
		equal(t, "items", f.items(ctx), "pool-role a busy [post]", "pool-role m requested [post]", "pool-worker a/1 reachable []",
			"pool-task "+running+" running []", "pool-task "+failed+" pending [delete]")
		f.sleep(5 * time.Minute)
		call(f, dohost.NoArg((*Pool).Roles), struct{}{})
	})
}

// TestOperatorPostsATask posts a task twice with one key, and tasks that are refused.
func TestOperatorPostsATask(t *testing.T) {
	inPool(t, &Options{MaxText: 10}, func(ctx context.Context, f *fixture) {
		call(f, declare, DeclareRequest{"a", true})
		post := func(id, result string) string {
			done, err := f.host.Operate(ctx, f.pool().ID(), &dohost.AdminRequest{
				Action: dohost.ActionPost, Kind: roleItem, ID: id, Result: json.RawMessage(result),
			})
			if err == nil {
				return fmt.Sprint(done)
			}
			body, status := dohost.DescribeError(err)
			return fmt.Sprint(status, " ", body.Code)
		}
		equal(t, "answers", []string{
			post("a", `{"text":"paint it","key":"k"}`), post("a", `{"text":"paint it","key":"k"}`), post("a", `{"text":"another","key":"k"}`),
			post("a", `{"text":"a long text"}`), post("a", `"paint it"`), post("a", ""), post("none", `{"text":"x"}`), post("a", `{"text":"x"}`),
			post("a", "null"), post("a", "{}"), post("a", `{"Text":"x"}`), post("a", `{"text":"x","role":"b"}`), post("a", `{"text":"x"} 1`),
		}, "true", "true", "409 key_used", "400 invalid", "400 invalid", "400 invalid", "false", "true",
			"400 invalid", "400 invalid", "400 invalid", "400 invalid", "400 invalid")
		f.operate(ctx, false, dohost.ActionPost, taskItem, "1")
		f.operate(ctx, false, dohost.ActionDelete, roleItem, "a")
		if f.is("1", "pending 0"); f.task("1").Text != "paint it" || f.task("2").Text != "x" || !f.requested("a") {
			t.Errorf("%+v, %+v, %+v", f.task("1"), f.task("2"), f.role("a"))
		}
	})
}
