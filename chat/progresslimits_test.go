package chat_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/chat"
	"github.com/dohost/dohost/dohosttest"
)

// TestProgressEndsInLargeMessage has an answer that does not fit into the message of the caller, and one where not even the error fits.
func TestProgressEndsInLargeMessage(t *testing.T) {
	size := 1000
	for _, stored := range []int{0, 1_799_910, 1_799_980} { // bytes of the message before the answer; the first round finds the size
		tm := &team{think: func(ctx context.Context, m *member, r *chat.Reply) error {
			switch {
			case m.Name() == "b":
				return errors.Join(dohost.Sleep(ctx, 5*time.Second), r.Say(ctx, strings.Repeat("x", 2000)))
			case len(r.Partial().Parts) == 0:
				return r.Send(ctx, chat.ReasoningDelta("r", strings.Repeat("x", size), nil))
			}
			return nil
		}}
		runTeam(t, tm, func(t *testing.T, h *dohosttest.Host) {
			r := connectMember(t, h, "a", "r")
			defer r.close()
			if err := askMember(t.Context(), h, "a", "b: hello"); err != nil {
				t.Fatal(err)
			}
			r.waitRun(t, func(*runView) bool { return true })
			h.Advance(time.Second)
			now := 0
			inMember(t, h, "a", func(ctx context.Context, m *member) error {
				list, err := chat.Messages(ctx, m, 0)
				for _, m := range list {
					raw, _ := json.Marshal(m)
					now = max(now, len(raw))
				}
				return err
			})
			if stored == 0 {
				size += 1_799_910 - now
				return
			}
			if now != stored {
				t.Fatalf("the message has %d bytes, want %d", now, stored)
			}
			size += 1_799_980 - now
			ctx, stop := context.WithTimeout(t.Context(), time.Minute)
			defer stop()
			for connected := true; connected && !runEnded(r.only(t)); {
				_, connected, _ = r.receive(ctx)
			}
			late := connectMember(t, h, "a", "late")
			defer late.close()
			for _, r := range []*reader{r, late} {
				if v := r.only(t); v.status != "error" || !strings.Contains(v.why, "does not fit") {
					t.Errorf("after a message of %d bytes %s has seen %s %q", now, r.name, v.status, v.why)
				}
			}
		})
	}
}

// TestProgressOfSeveralMessages has two runs, each in a message of its own: a new client gets the answer of each.
func TestProgressOfSeveralMessages(t *testing.T) {
	runTeam(t, &team{}, func(t *testing.T, h *dohosttest.Host) {
		for i := range 2 {
			inMember(t, h, "a", func(ctx context.Context, m *member) error {
				_, err := chat.Ask(ctx, m, []chat.Message{chat.Text(fmt.Sprint("u", i), chat.RoleUser, fmt.Sprint("b: ", i))}, nil)
				return err
			})
			h.Advance(5 * time.Second)
		}
		late := connectMember(t, h, "a", "late")
		defer late.close()
		var got []string
		for _, id := range late.runs.order {
			got = append(got, late.runs.runs[id].summary)
		}
		if fmt.Sprint(got) != "[b says 0 b says 1]" {
			t.Errorf("the summaries are %q", got)
		}
	})
}
