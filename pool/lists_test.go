package pool

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/dohost/dohost"
)

// TestListsOfLongTextsHaveFewTasks has tasks whose keys and reasons are as long as they may be. A list of short ones has as many as its limit.
func TestListsOfLongTextsHaveFewTasks(t *testing.T) {
	inPool(t, nil, func(ctx context.Context, f *fixture) {
		const n = 120
		for _, role := range []string{"long", "short"} {
			f.join(role, "1")
			for i := range n {
				task := NewTask{Role: role}
				if role == "long" {
					task.Key = fmt.Sprintf("%0*d", maxKey, i)
				}
				id := call(f, (*Pool).Post, task).ID
				if role == "long" {
					call(f, (*Pool).Cancel, CancelRequest{Task: id, Reason: strings.Repeat("\x01", maxError)})
				}
			}
		}
		for role, most := range map[string]int{"long": maxListedText/(maxKey+maxError) + 1, "short": n} {
			var ids []string
			seen := map[string]bool{}
			for q := (ListQuery{Role: role, Limit: maxListed}); ; {
				page := call(f, (*Pool).Tasks, q)
				if len(page.Tasks) > most || len(page.Tasks) < most && page.Next != "" {
					t.Errorf("a list of %d tasks of the role %s, want %d", len(page.Tasks), role, most)
				}
				for _, task := range page.Tasks {
					ids, seen[task.ID] = append(ids, task.ID), true
				}
				if q.After = page.Next; q.After == "" {
					break
				}
			}
			if len(ids) != n || len(seen) != n {
				t.Errorf("the lists of the role %s have %d tasks, %d different ones, want %d", role, len(ids), len(seen), n)
			}
		}
	})
}

// TestReasonsOfRestartsAreShort has a process that ends with a long reason, before the last restart and after it.
func TestReasonsOfRestartsAreShort(t *testing.T) {
	inPool(t, &Options{MaxRestarts: 2}, func(ctx context.Context, f *fixture) {
		call(f, declare, DeclareRequest{"a", true})
		f.post("a", "x")
		long := strings.Repeat("ü", maxError/2)
		check := func(item, reason string) {
			t.Helper()
			if !strings.HasPrefix(reason, "a process of the role has ended: üüü") || len(reason) > maxReason {
				t.Errorf("%s has the reason %q of %d bytes", item, reason, len(reason))
			}
		}
		call(f, exited, ProcessExit{Role: "a", Number: f.take("a"), Reason: long})
		check("the restart", f.role("a").Requested.Reason)
		f.sleep(maxDelay)
		call(f, exited, ProcessExit{Role: "a", Number: f.take("a"), Reason: long})
		for d, err := range f.host.FindDetails(ctx, f.pool().ID(), &dohost.DetailQuery{Kind: roleItem}) {
			if err != nil {
				t.Fatal(err)
			}
			if d.State != "given-up" {
				t.Errorf("%+v", d)
			}
			check("the role that is given up", d.Fields["reason"])
		}
	})
}
