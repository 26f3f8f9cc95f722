package ledger_test

import (
	"context"
	"encoding/json"
	"iter"
	"testing"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/agent"
	"github.com/dohost/dohost/chat"
	"github.com/dohost/dohost/dohosttest"
	"github.com/dohost/dohost/ledger"
)

// payOnceModel makes one call of the tool pay in a message.
type payOnceModel struct{}

// Stream implements [chat.Model].
func (payOnceModel) Stream(_ context.Context, p *chat.Prompt) iter.Seq2[chat.Chunk, error] {
	return func(yield func(chat.Chunk, error) bool) {
		for _, part := range p.Partial.Parts {
			if part.Text("toolCallId") != "" {
				return
			}
		}
		yield(chat.ToolInput("call", "pay", `{"Order":"tool","Cents":1}`), nil)
	}
}

// TestMessageIDThatIsDeletedBeginsOtherOperations continues a message whose id the program, or a client, has chosen: an operation of the
// handler, and one of a tool. After its deletion, a message with the same id has other operations.
func TestMessageIDThatIsDeletedBeginsOtherOperations(t *testing.T) {
	s := newShop(ledger.PolicyAtMostOnce)
	class := chat.Bind(chatCashiers, func(_ context.Context, a *chat.Agent[struct{}]) (*chatCashier, error) { return &chatCashier{a, s}, nil },
		&chat.Handlers[chatCashier, struct{}]{Agent: agent.Handlers[chatCashier, struct{}]{Extensions: []dohost.ClassExtension{ledger.Declare(&s.kind)}}, Reply: func(o *chatCashier, ctx context.Context, r *chat.Reply) error {
			if _, err := ledger.Do(ctx, o.Object(), &s.kind, charge{"handler", 1}, s.request); err != nil {
				return err
			}
			return chat.Answer(ctx, r, payOnceModel{}, &chat.AnswerOptions{Tools: []chat.Tool{{
				ToolSpec: chat.ToolSpec{Name: "pay"},
				Run: func(ctx context.Context, input json.RawMessage) (any, error) {
					return ledger.Do(ctx, o.Object(), &s.kind, charge{"tool", 1}, s.request)
				},
			}}})
		}})
	dohosttest.Run(t, &dohosttest.Options{Classes: []dohost.Class{class}, Services: []*dohosttest.FakeService{&s.bank}}, func(t *testing.T, h *dohosttest.Host) {
		do := func(want int, when string, f func(context.Context, *chatCashier) error) {
			t.Helper()
			err := chatCashiers.Get(h, "7").Do(t.Context(), func(ctx context.Context, o *chatCashier) error { return f(ctx, o) })
			h.Advance(5 * time.Second)
			if n := s.bank.Total(); err != nil || n != want {
				t.Errorf("%s: %d effects, %v; want %d", when, n, err, want)
			}
		}
		store := func(ctx context.Context, o *chatCashier) error {
			answer := chat.Text("m", chat.RoleAssistant, "wait")
			return chat.SetMessages(ctx, o, []chat.Message{chat.Text("u", chat.RoleUser, "go"), answer})
		}
		resume := func(ctx context.Context, o *chatCashier) error {
			_, err := chat.Continue(ctx, o, nil)
			return err
		}
		clear := func(ctx context.Context, o *chatCashier) error { return chat.Clear(ctx, o) }
		do(0, "stored", store)
		do(2, "continued", resume)
		do(2, "continued again", resume)
		h.Evict(chatCashiers.Get(h, "7").ID(), dohost.EndFence)
		do(2, "continued after an eviction", resume)
		do(2, "cleared", clear)
		do(2, "stored again", store)
		do(4, "a message with the id of a deleted one", resume)
		do(6, "a new message of a reply", func(ctx context.Context, o *chatCashier) error {
			_, err := chat.Ask(ctx, o, []chat.Message{chat.Text("v", chat.RoleUser, "go")}, nil)
			return err
		})
		do(6, "the new message continued", resume)
	})
}
