package chat_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/chat"
	"github.com/dohost/dohost/dohosttest"
)

// inspected returns the details of the test's agent of some kinds that operators see, a line each, without times.
func inspected(t *testing.T, h *dohosttest.Host, kinds ...string) (lines []string) {
	t.Helper()
	for d, err := range h.Host().Details(t.Context(), testID) {
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Contains(kinds, d.Kind) {
			continue
		}
		text := slices.DeleteFunc(strings.Split(d.Text, ", "), func(s string) bool {
			return strings.HasPrefix(s, "since ") || strings.HasPrefix(s, "ended ")
		})
		lines = append(lines, strings.TrimSpace(fmt.Sprintf("%s %s %s: %s %v %s",
			d.Kind, d.ID, d.State, strings.Join(text, ", "), d.Counts, d.Fault)))
	}
	return lines
}

func wantInspected(t *testing.T, h *dohosttest.Host, kind string, want ...string) {
	t.Helper()
	if got := inspected(t, h, kind); !slices.Equal(got, want) {
		t.Errorf("shown:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// Operators see the cost of a running and an ended reply. Looking does not wake the object.
func TestDetailsOfRequests(t *testing.T) {
	c := &countingState{words: 4}
	c.more = func(p *countingAgent, ctx context.Context, r *chat.Reply, i int) error {
		if r.ID == "two" && i == 1 {
			return errors.New("no seeds")
		}
		return nil
	}
	runWithHost(t, countingClass(c, chat.Options{}), func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		r := interrupts(t, h, 1, 2)
		r.ask(ctx, "two", "again", nil)
		r.receiveUntil(t, func(f frame) bool { return f.ID == "one" && !f.Replay && strings.Contains(f.Body, "text-delta") })
		wantInspected(t, h, "request",
			"request one running: 2 runs, 5 chunks map[chunks:5 idle:1 recoveries:1 runs:2]",
			"request two queued:  map[idle:0 recoveries:0 runs:0]")
		h.Evict(testID, dohost.EndFence)
		if got := inspected(t, h, "request"); len(got) != 2 || h.Host().IsLive(testID) {
			t.Errorf("%q; in memory: %t", got, h.Host().IsLive(testID))
		}
		if err := r.until(ctx, func() bool { return r.ended["two"].Done }, nil); err != nil {
			t.Fatal(err)
		}
		r.close()
		h.Advance(time.Second)
		wantInspected(t, h, "request",
			`request two error: 1 runs, "no seeds" map[idle:0 recoveries:0 runs:1]`,
			"request one completed: 3 runs map[idle:1 recoveries:2 runs:3]")
		if got := inspected(t, h, "message"); len(got) != 4 || !strings.Contains(got[3], ": user, 7") {
			t.Errorf("%q", got)
		}
	})
}

// Attempts without a new chunk are listed separately.
func TestDetailsOfRunsWithoutChunks(t *testing.T) {
	c := &countingState{words: 1}
	c.more = func(*countingAgent, context.Context, *chat.Reply, int) error { panic("out of memory") }
	runWithHost(t, countingClass(c, chat.Options{}), func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		r := connectIdle(t, h, "r")
		r.ask(ctx, "one", "count", nil)
		if err := r.until(ctx, func() bool { return r.ended["one"].Done }, nil); err != nil {
			t.Fatal(err)
		}
		r.close()
		wantInspected(t, h, "request", "request one error: 6 runs, the last 5 without a new chunk, "+
			`"The assistant was interrupted and could not recover. Please try again." map[idle:5 recoveries:5 runs:6]`)
	})
}

// Operators see the newest messages, the last one first, and no deleted ones.
func TestDetailsOfNewestMessages(t *testing.T) {
	const stored, most = 2500, 20
	runWithHost(t, countingClass(&countingState{}, chat.Options{}), func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		err := countingAgents.Get(h, testID.Name).Do(ctx, func(ctx context.Context, p *countingAgent) error {
			var list []chat.Message
			for i := range stored {
				list = append(list, chat.Text(fmt.Sprintf("m%04d", i), chat.RoleUser, "hello"))
			}
			return chat.SetMessages(ctx, p, list)
		})
		if err != nil {
			t.Fatal(err)
		}
		var want []string
		for i := range most {
			want = append(want, fmt.Sprintf("message m%04d : user, 69 bytes map[bytes:69]", stored-1-i))
		}
		wantInspected(t, h, "message", want...)
		err = countingAgents.Get(h, testID.Name).Do(ctx, func(ctx context.Context, p *countingAgent) error { return chat.Clear(ctx, p) })
		if err != nil {
			t.Fatal(err)
		}
		wantInspected(t, h, "message")
	})
}
