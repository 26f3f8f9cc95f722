package inbox_test

import (
	"context"
	"fmt"
	"iter"
	"log"
	"os"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/agent"
	"github.com/dohost/dohost/chat"
	"github.com/dohost/dohost/inbox"
)

type group struct{ *agent.Agent[struct{}] }

// planningModel replaces a provider's model: it calls the tool, and repeats the answer.
type planningModel struct{}

func (planningModel) Stream(_ context.Context, p *chat.Prompt) iter.Seq2[chat.Chunk, error] {
	c := chat.ToolInput("call-1", "researcher", `{"message":"How large is Bern?"}`)
	if len(p.Partial.Parts) > 0 {
		c = chat.TextDelta("t", fmt.Sprintf("It answered %s", p.Partial.Parts[1].Member("output")))
	}
	return func(yield func(chat.Chunk, error) bool) { yield(c, nil) }
}

// researchModel replaces another one.
type researchModel struct{}

func (researchModel) Stream(context.Context, *chat.Prompt) iter.Seq2[chat.Chunk, error] {
	return func(yield func(chat.Chunk, error) bool) { yield(chat.TextDelta("t", "134,000"), nil) }
}

// The model of a planner has a researcher as a tool. Both are agents of one object, with one collection of messages.
func ExampleAgentTool() {
	const teams dohost.Namespace[group] = "team"
	inquiries := inbox.Messages("inquiries", nil)
	researcher := &inbox.Agent{Name: "researcher", Description: "Knows the sizes of towns.", Model: researchModel{}}
	planner := &inbox.Agent{
		Name: "planner", Model: planningModel{},
		Agents: []inbox.AgentTool{researcher.Tool(&inquiries)},
	}
	class := agent.Bind(teams,
		func(_ context.Context, a *agent.Agent[struct{}]) (*group, error) { return &group{a}, nil }, nil,
		inbox.On(inbox.ForMessages[group](&inquiries, planner)),
		inbox.On(inbox.ForMessages[group](&inquiries, researcher)))
	dir, _ := os.MkdirTemp("", "dohost")
	defer os.RemoveAll(dir)
	h, err := dohost.Open(dir, nil, class)
	if err != nil {
		log.Fatal(err)
	}
	defer h.Close()
	err = teams.Get(h, "ada").Do(context.Background(), func(ctx context.Context, t *group) error {
		asked, err := inbox.Send(ctx, t.Storage(), &inquiries, inbox.Message{From: "ada", To: "planner", Content: "Bern?", Request: "1"})
		if err != nil {
			return err
		}
		answer, err := inbox.WaitReply(ctx, t, &inquiries, asked)
		fmt.Println(answer.Content)
		return err
	})
	fmt.Println(err)
	// Output:
	// It answered {"response":"134,000"}
	// <nil>
}
