package chat_test

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"testing"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/agent"
	"github.com/dohost/dohost/chat"
	"github.com/dohost/dohost/dohosttest"
	"github.com/dohost/dohost/internal/pointtest"
	"github.com/dohost/dohost/ledger"
)

// charge is the argument of the operations of a shop.
type charge struct {
	Order string
	Cents int
}

// shop makes charges at a bank.
type shop struct {
	kind ledger.Kind[charge, string]
	bank dohosttest.FakeService
}

func newShop(p ledger.Policy) *shop {
	s := &shop{bank: dohosttest.FakeService{Idempotent: p == ledger.PolicyIdempotent}}
	s.kind = ledger.Kind[charge, string]{
		Name: "charge", Same: ledger.Whole[charge], Policy: p, Unknown: func(ledger.ID, charge) string { return "it may have been charged" },
	}
	return s
}

// request requests a charge from the bank.
func (s *shop) request(ctx context.Context, id ledger.ID) (string, error) {
	return "receipt " + string(id), s.bank.Call(ctx, string(id), "charge")
}

// chatCashier is a chat with a model that calls a tool that makes a charge, until two calls have a result.
type chatCashier struct {
	*chat.Agent[struct{}]
	s *shop
}

const chatCashiers dohost.Namespace[chatCashier] = "teller"

// Stream asks for two equal calls in one answer first, and then for one.
func (s *shop) Stream(_ context.Context, p *chat.Prompt) iter.Seq2[chat.Chunk, error] {
	return func(yield func(chat.Chunk, error) bool) {
		calls, done := 0, 0
		for _, part := range p.Partial.Parts {
			if part.Text("toolCallId") != "" {
				calls++
			}
			if part.Text("state") == "output-available" {
				done++
			}
		}
		if done >= 2 {
			if p.Partial.PlainText() == "" {
				yield(chat.TextDelta("t", "paid"), nil)
			}
			return
		}
		for n := range 2 - done {
			id := fmt.Sprint("call ", calls+n)
			if !yield(chat.ToolInputStart(id, "pay"), nil) || !yield(chat.ToolInput(id, "pay", `{"Order":"7","Cents":4200}`), nil) {
				return
			}
		}
	}
}

func (s *shop) chatCashierClass() dohost.Class {
	return chat.Bind(chatCashiers,
		func(_ context.Context, a *chat.Agent[struct{}]) (*chatCashier, error) { return &chatCashier{a, s}, nil },
		&chat.Handlers[chatCashier, struct{}]{
			Options: chat.Options{Recovery: chat.Recovery{MaxAttempts: 100}},
			Agent:   agent.Handlers[chatCashier, struct{}]{Extensions: []dohost.ClassExtension{ledger.Declare(&s.kind)}},
			Reply: func(o *chatCashier, ctx context.Context, r *chat.Reply) error {
				for range 2 { // before the tools: equal operations of the message
					if _, err := ledger.Do(ctx, o.Object(), &s.kind, charge{"fee", 1}, s.request); err != nil {
						return err
					}
				}
				return chat.Answer(ctx, r, s, &chat.AnswerOptions{Tools: []chat.Tool{{
					ToolSpec: chat.ToolSpec{Name: "pay"},
					Run: func(ctx context.Context, input json.RawMessage) (any, error) {
						var c charge
						if err := json.Unmarshal(input, &c); err != nil {
							return nil, err
						}
						return ledger.Do(ctx, o.Object(), &s.kind, c, s.request)
					},
				}}})
			},
		})
}

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

// TestMessageIDThatIsDeletedBeginsOtherOperations continues a message with an id of the program, or of a client: an operation of the
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

// TestToolCallsAtEveryPoint lets a model repeat calls that were interrupted, as other calls. An intended second call is another
// operation.
func TestToolCallsAtEveryPoint(t *testing.T) {
	s := newShop(ledger.PolicyIdempotent)
	dohosttest.EveryPoint(t, pointtest.Scenario(dohosttest.Scenario{
		Classes:  []dohost.Class{s.chatCashierClass()},
		Services: []*dohosttest.FakeService{&s.bank},
		Run: func(ctx context.Context, h *dohosttest.Host) error {
			return dohost.Retry(ctx, &dohost.RetryPolicy{ShouldRetry: dohost.RetryIdempotent}, func(ctx context.Context) error {
				return chatCashiers.Get(h, "7").Do(ctx, func(ctx context.Context, o *chatCashier) error {
					_, err := chat.Ask(ctx, o, nil, &chat.AskOptions{ID: "one"})
					if err != nil {
						return err
					}
					r, _, err := chat.Wait(ctx, o, "one")
					if err == nil && (r.Status != chat.StatusCompleted || r.Message.PlainText() != "paid") {
						err = fmt.Errorf("the reply is %+v", r)
					}
					return err
				})
			})
		},
		Check: func(context.Context, *dohosttest.Host) error {
			if n := s.bank.Total(); n != 3 {
				return fmt.Errorf("%d effects, want 3", n)
			}
			return nil
		},
		SettleTime: time.Second,
	}, 15, 200))
}
