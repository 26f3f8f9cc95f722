package chat_test

import (
	"context"
	"fmt"
	"iter"
	"log"
	"os"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/agent"
	"github.com/dohost/dohost/chat"
	"github.com/dohost/dohost/ledger"
)

// Complaint is the input of a worker, and Settlement its answer.
type (
	Complaint struct {
		Order, Text string
	}
	Settlement struct {
		Cents  int    `json:"cents" jsonschema:"the amount of the refund"`
		Reason string `json:"reason"`
	}
)

const Complaints dohost.Namespace[ComplaintDesk] = "complaints"

// ComplaintDesk is an agent that lets a worker settle complaints.
type ComplaintDesk struct{ *agent.Agent[struct{}] }

// settle is the fiber of a complaint. After an interruption it runs again.
const settle agent.FiberKind[Complaint] = "settle"

func complaintClass(m chat.Model, refund chat.Tool) dohost.Class {
	w := &chat.Worker[Complaint, Settlement]{
		Name: "settler", Instructions: "Settle the complaint. Refund at most 50 euros.",
		Model: m, Tools: []chat.Tool{refund}, Durable: true,
	}
	return agent.Bind(Complaints, func(_ context.Context, a *agent.Agent[struct{}]) (*ComplaintDesk, error) {
		return &ComplaintDesk{a}, nil
	}, &agent.Handlers[ComplaintDesk, struct{}]{Extensions: []dohost.ClassExtension{ledger.Declare(w.Kinds()...)}},
		agent.OnFiber(settle, func(d *ComplaintDesk, ctx context.Context, f *agent.Fiber[Complaint]) error {
			s, err := w.Run(ctx, d, f.Checkpoint())
			if err != nil {
				return err
			}
			fmt.Printf("%d cents: %s\n", s.Cents, s.Reason)
			return dohost.Put(ctx, d.Storage(), f.Checkpoint().Order, s)
		}, nil))
}

// A worker settles a complaint in a fiber of an agent. The model refunds an order with a tool, and ends with a Settlement.
func ExampleWorker() {
	dir, err := os.MkdirTemp("", "dohost")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	h, err := dohost.Open(dir, nil, complaintClass(settlingModel{}, refundTool()))
	if err != nil {
		log.Fatal(err)
	}
	defer h.Close()
	err = Complaints.Get(h, "eu").Do(context.Background(), func(ctx context.Context, d *ComplaintDesk) error {
		started, err := agent.StartFiber(ctx, d, settle, Complaint{"7", "The cup is broken."}, nil)
		if err != nil {
			return err
		}
		_, _, err = d.Fibers().Wait(ctx, started.ID)
		return err
	})
	if err != nil {
		log.Fatal(err)
	}
	// Output:
	// refund of order 7
	// 1200 cents: a broken cup
}

// settlingModel replaces a provider's model. It refunds the order, and answers.
type settlingModel struct{}

func (settlingModel) Stream(_ context.Context, p *chat.Prompt) iter.Seq2[chat.Chunk, error] {
	return func(yield func(chat.Chunk, error) bool) {
		if len(p.Partial.Parts) == 0 {
			yield(chat.ToolInput("call-1", "refund", `{"Order":"7"}`), nil)
			return
		}
		yield(chat.TextDelta("t", `{"cents":1200,"reason":"a broken cup"}`), nil)
	}
}

func refundTool() chat.Tool {
	type refund struct{ Order string }
	return chat.NewTool("refund", "Refunds an order.", func(_ context.Context, r refund) (string, error) {
		fmt.Println("refund of order", r.Order)
		return "refunded", nil
	}, &chat.ToolOptions[refund, string]{Policy: ledger.PolicyIdempotent})
}
