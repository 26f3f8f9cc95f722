package chat_test

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/chat"
	"github.com/dohost/dohost/dohosttest"
)

// TestCallReports reads the reports about two calls: one that is approved, runs longer than its time and returns later, and
// one that is denied.
func TestCallReports(t *testing.T) {
	var reports []string
	slow := sleeper("slow", 5*time.Second, true)
	slow.Timeout, slow.Approve = time.Second, &chat.Approval{}
	m := &stepsModel{steps: [][]string{{"slow"}, {"slow"}}}
	o := &dohosttest.Options{
		Classes: []dohost.Class{toolClass(m, chat.Options{}, func(*countingAgent) []chat.Tool { return []chat.Tool{slow} })},
		Options: dohost.Options{Listener: dohost.Listener{Service: func(_ dohost.ID, event string, attrs ...slog.Attr) {
			if !slices.Contains([]string{"chat:approval", "chat:unknown", "chat:late"}, event) {
				return
			}
			for _, a := range attrs {
				event += " " + a.Value.String()
			}
			reports = append(reports, event)
		}}},
	}
	dohosttest.Run(t, o, func(t *testing.T, h *dohosttest.Host) {
		do := func(f func(context.Context, *countingAgent) error) {
			t.Helper()
			if err := countingAgents.Get(h, testID.Name).Do(t.Context(), func(ctx context.Context, p *countingAgent) error { return f(ctx, p) }); err != nil {
				t.Error(err)
			}
			h.Advance(10 * time.Second)
		}
		decide := func(call string, approve bool) {
			t.Helper()
			do(func(ctx context.Context, p *countingAgent) error {
				return chat.Decide(ctx, p, &chat.Decision{Call: call, Approve: approve, Actor: "mia"})
			})
		}
		do(func(ctx context.Context, p *countingAgent) error {
			_, err := chat.Ask(ctx, p, []chat.Message{chat.Text("u", chat.RoleUser, "go")}, nil)
			return err
		})
		decide("slow-1-0", true)
		decide("slow-2-0", false)
		want := []string{
			"chat:approval slow-1-0 slow requested ", "chat:approval slow-1-0 slow approved mia", "chat:unknown slow-1-0 slow",
			"chat:approval slow-2-0 slow requested ", "chat:late slow-1-0 slow", "chat:approval slow-2-0 slow denied mia",
		}
		if !slices.Equal(reports, want) {
			t.Errorf("reports\n%s\nwant\n%s", strings.Join(reports, "\n"), strings.Join(want, "\n"))
		}
	})
}
