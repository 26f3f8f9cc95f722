package chat_test

import (
	"context"
	"fmt"
	"iter"
	"log"
	"os"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/chat"
)

type helper struct{ *chat.Agent[struct{}] }

const planners, researchers dohost.Namespace[helper] = "planner", "researcher"

// planningModel replaces a provider's model: it calls the tool, and repeats the answer.
type planningModel struct{}

func (planningModel) Stream(_ context.Context, p *chat.Prompt) iter.Seq2[chat.Chunk, error] {
	c := chat.ToolInput("call-1", "research", `{"message":"How large is Bern?"}`)
	if len(p.Partial.Parts) > 0 {
		c = chat.TextDelta("t", fmt.Sprintf("It answered %s", p.Partial.Parts[1].Member("output")))
	}
	return func(yield func(chat.Chunk, error) bool) { yield(c, nil) }
}

// A planner asks a researcher. The planner waits for the answer without an event: its reply ends, and continues.
func ExampleAgentTool() {
	research := chat.AgentTool(researchers, "research", "Asks the researcher.", nil)
	answers := make(chan string, 2) // the first reply ends without a text, since it waits for the researcher
	construct := func(_ context.Context, a *chat.Agent[struct{}]) (*helper, error) { return &helper{a}, nil }
	planner := chat.Bind(planners, construct, &chat.Handlers[helper, struct{}]{
		Reply: func(_ *helper, ctx context.Context, r *chat.Reply) error {
			return chat.Answer(ctx, r, planningModel{}, &chat.AnswerOptions{Tools: []chat.Tool{research}})
		},
		OnResponse: func(_ *helper, _ context.Context, r chat.Response) error {
			answers <- r.Message.PlainText()
			return nil
		}})
	researcher := chat.Bind(researchers, construct, &chat.Handlers[helper, struct{}]{Reply: func(_ *helper, ctx context.Context, r *chat.Reply) error {
		asked, _ := r.Asked()
		return r.Say(ctx, fmt.Sprintf("Bern has 134,000 inhabitants, dear %v.", asked.From))
	}})
	dir, _ := os.MkdirTemp("", "dohost")
	defer os.RemoveAll(dir)
	h, err := dohost.Open(dir, nil, planner, researcher)
	if err != nil {
		log.Fatal(err)
	}
	defer h.Close()
	err = planners.Get(h, "ada").Do(context.Background(), func(ctx context.Context, p *helper) error {
		_, err := chat.Ask(ctx, p, []chat.Message{chat.Text("m1", chat.RoleUser, "Ask for the size of Bern.")}, nil)
		return err
	})
	fmt.Println(<-answers, <-answers, err)
	// Output: It answered {"response":"Bern has 134,000 inhabitants, dear planner/ada."} <nil>
}
