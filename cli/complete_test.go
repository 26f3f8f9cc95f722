package cli

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/dohost/dohost/chat"
)

// TestCompleteCommand completes calls that another party runs.
func TestCompleteCommand(t *testing.T) {
	h, s := serveAdmin(t, chat.Bind(bookings, func(_ context.Context, a *chat.Agent[struct{}]) (*booking, error) {
		return &booking{a}, nil
	}, &chat.Handlers[booking, struct{}]{Reply: func(_ *booking, ctx context.Context, r *chat.Reply) error {
		return chat.Answer(ctx, r, bookModel{}, &chat.AnswerOptions{Tools: []chat.Tool{{
			ToolSpec: chat.ToolSpec{Name: "book"}, External: &chat.External{},
			Run: func(context.Context, json.RawMessage) (any, error) { return nil, nil },
		}}})
	}}))
	expect := func(status int, want string, args ...string) {
		t.Helper()
		var stdout, stderr strings.Builder
		args = append(args, "--admin", strings.TrimPrefix(s.URL, "http://"))
		if got := (App{}).run(t.Context(), args, stdio{strings.NewReader(""), &stdout, &stderr}); got != status ||
			!strings.Contains(stdout.String()+stderr.String(), want) {
			t.Errorf("%q: status %d, %s%swant %d, %s", args, got, stdout.String(), stderr.String(), status, want)
		}
	}
	ask := func(id string) {
		t.Helper()
		err := bookings.Get(h, "ada").Do(t.Context(), func(ctx context.Context, b *booking) error {
			request, err := chat.Ask(ctx, b, []chat.Message{chat.Text(id, chat.RoleUser, "book room 7")}, nil)
			if err == nil {
				_, _, err = chat.Wait(ctx, b, request)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	ask("one")
	ask("two")
	expect(0, "call_one, external, ", "show", "booking/ada")
	expect(2, "missing flags: --result=JSON or --failed=TEXT", "complete", "booking/ada", "call_one")
	expect(2, "--result and --failed can't be used together", "complete", "booking/ada", "call_one", "--result", "1", "--failed", "x")
	expect(1, `--result r_1: want JSON, such as '"printed"' or null`, "complete", "booking/ada", "call_one", "--result", "r_1")
	expect(1, "--failed is empty", "complete", "booking/ada", "call_one", "--failed", "")
	expect(1, "booking/ada has no call none", "complete", "booking/ada", "none", "--result", "1")
	expect(0, "call call_one of booking/ada is recorded as completed\n", "complete", "booking/ada", "call_one", "--result", `"r_1"`, "--actor", "mia", "--reason", "saw it")
	expect(1, "the call has ended: it is completed", "complete", "booking/ada", "call_one", "--failed", "no")
	expect(0, "call call_two of booking/ada is recorded as failed\n", "complete", "booking/ada", "call_two", "--failed", "no room", "--actor", "ben")
	expect(0, `completed  call call_one of "book", `, "approvals", "booking/ada", "--log")
	expect(0, `by "mia", because "saw it"`, "approvals", "booking/ada", "--log")
	expect(0, `failed     call call_two of "book", `, "approvals", "booking/ada", "--log")
}
