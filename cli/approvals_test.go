package cli

import (
	"context"
	"encoding/json"
	"iter"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/chat"
)

// bookings are chat agents whose model makes one call of the tool book for each request.
const bookings dohost.Namespace[booking] = "booking"

type booking struct {
	*chat.Agent[struct{}]
}

// bookModel calls the tool once in each message, and answers with its result.
type bookModel struct{}

// Stream implements [chat.Model].
func (bookModel) Stream(_ context.Context, p *chat.Prompt) iter.Seq2[chat.Chunk, error] {
	return func(yield func(chat.Chunk, error) bool) {
		for _, part := range p.Partial.Parts {
			if part.Text("toolCallId") != "" {
				yield(chat.TextDelta("1", "The call is "+part.Text("state")+"."), nil)
				return
			}
		}
		yield(chat.ToolInput("call_"+p.Messages[len(p.Messages)-1].ID, "book", `{"room": 7}`), nil)
	}
}

// TestApprovalCommands runs the commands of an operator.
func TestApprovalCommands(t *testing.T) {
	var booked atomic.Int64
	h, s := serveAdmin(t, chat.Bind(bookings, func(_ context.Context, a *chat.Agent[struct{}]) (*booking, error) {
		return &booking{a}, nil
	}, &chat.Handlers[booking, struct{}]{Reply: func(_ *booking, ctx context.Context, r *chat.Reply) error {
		return chat.Answer(ctx, r, bookModel{}, &chat.AnswerOptions{Tools: []chat.Tool{{
			ToolSpec: chat.ToolSpec{Name: "book"}, Approve: &chat.Approval{},
			Run: func(context.Context, json.RawMessage) (any, error) { return booked.Add(1), nil },
		}}})
	}}))
	// answered waits until the conversation has the wanted last text.
	answered := func(text string) {
		t.Helper()
		for got := ""; got != text; {
			err := bookings.Get(h, "ada").Do(t.Context(), func(ctx context.Context, b *booking) error {
				list, err := chat.Messages(ctx, b, 1)
				if err == nil && len(list) > 0 {
					got = list[0].PlainText()
				}
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
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
	expect := func(status int, want string, args ...string) (out string) {
		t.Helper()
		var stdout, stderr strings.Builder
		args = append(args, "--admin", strings.TrimPrefix(s.URL, "http://"))
		if got := (App{}).run(t.Context(), args, stdio{strings.NewReader(""), &stdout, &stderr}); got != status ||
			!strings.Contains(stdout.String()+stderr.String(), want) {
			t.Errorf("%q: status %d, %s%swant %d, %s", args, got, stdout.String(), stderr.String(), status, want)
		}
		return stdout.String()
	}
	expect(0, "booking/ada has no call and no budget that waits for an approval\n", "approvals", "booking/ada")
	expect(0, "booking/ada has no entry in its audit log\n", "approvals", "booking/ada", "--log")
	ask("one")
	expect(0, `call_one  approval  "book" {"room": 7}, since 20`, "approvals", "booking/ada")
	var call dohost.Resource
	if err := json.Unmarshal([]byte(expect(0, `"id":"call_one"`, "approvals", "booking/ada", "--json")), &call); err != nil || len(call.Digest) != 64 {
		t.Errorf("%+v, %v", call, err)
	}
	expect(1, "booking/ada has no call and no budget none", "approve", "booking/ada", "none")
	expect(1, "the decision is about another input", "approve", "booking/ada", "call_one", "--digest", strings.Repeat("0", 64))
	expect(1, "no such class", "deny", "egg/ada", "call_one")
	if n := booked.Load(); n != 0 {
		t.Errorf("%d rooms are booked before the approval", n)
	}
	expect(0, `approved call call_one of booking/ada: "book" {"room": 7}`, "approve", "booking/ada", "call_one", "--actor", "mia", "--reason", "it is free")
	answered("The call is output-available.")
	expect(1, "the call does not wait for an approval any more", "deny", "booking/ada", "call_one", "--actor", "ben")
	ask("two")
	expect(0, "denied call call_two of booking/ada", "deny", "booking/ada", "call_two", "--actor", "ben")
	answered("The call is output-denied.")
	log := strings.Fields(expect(0, `by "mia", because "it is free"`, "approvals", "booking/ada", "--log"))
	if want := "5 denied call call_two of \"book\","; strings.Join(log[:6], " ") != want {
		t.Errorf("the log begins with %q, want %q", log[:6], want)
	}
	if n := booked.Load(); n != 1 {
		t.Errorf("%d rooms are booked, want 1", n)
	}
}
