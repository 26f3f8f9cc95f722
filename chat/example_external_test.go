package chat_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"log"
	"os"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/agent"
	"github.com/dohost/dohost/chat"
	"github.com/dohost/dohost/ledger"
)

// The desk is an assistant; the press is another agent, which prints the documents of desks.
const (
	Desks   dohost.Namespace[Desk]  = "desk"
	Presses dohost.Namespace[Press] = "press"

	toPress agent.Callback[Job] = "to press" // in the queue of a desk
	doPrint agent.Callback[Job] = "print"    // in the queue of a press
	toDesk  agent.Callback[Job] = "to desk"  // in the queue of a press
)

// Job is a call of the tool. The queues use its key as the id of their items, so no call is printed twice.
type Job struct{ Desk, Key, Text string }

func (j Job) options() *agent.QueueOptions {
	return &agent.QueueOptions{ID: j.Key, Retry: dohost.RetryPolicy{MaxAttempts: 1000, MaxDelay: time.Minute}}
}

type (
	Desk  struct{ *chat.Agent[struct{}] }
	Press struct{ *agent.Agent[struct{}] }
	Print struct {
		Text string `json:"text"`
	}
)

// printTool hands a call over to the press, by the durable queue of the desk.
func (d *Desk) printTool() chat.Tool {
	return chat.NewTool("print", "Prints a document.", func(ctx context.Context, p Print) (any, error) {
		call, _ := chat.CallFrom(ctx)
		job := Job{d.Object().ID().Name, call.Key, p.Text}
		_, err := agent.Enqueue(ctx, d, toPress, job, job.options())
		return nil, err // the result comes by chat.Complete
	}, &chat.ToolOptions[Print, any]{Policy: ledger.PolicyIdempotent, External: &chat.External{Within: 24 * time.Hour}})
}

// toPress gives the press a job. The queue repeats it after an error.
func (d *Desk) toPress(ctx context.Context, j Job) error {
	return Presses.Get(d.Object(), "main").Do(ctx, func(ctx context.Context, p *Press) error {
		_, err := agent.Enqueue(ctx, p, doPrint, j, j.options())
		return err
	})
}

// print prints a document, and queues the news.
func (p *Press) print(ctx context.Context, j Job) error {
	fmt.Println("printing:", j.Text)
	_, err := agent.Enqueue(ctx, p, toDesk, j, j.options())
	return err
}

// toDesk completes the call of the desk. A repetition has no effect.
func (p *Press) toDesk(ctx context.Context, j Job) error {
	return Desks.Get(p.Object(), j.Desk).Do(ctx, func(ctx context.Context, d *Desk) error {
		_, err := chat.Complete(ctx, d, &chat.Completion{Key: j.Key, Output: json.RawMessage(`"printed"`)})
		if errors.Is(err, chat.ErrNoCall) {
			return nil // its message was deleted
		}
		return err
	})
}

// countCall counts the calls of each tool by their states.
func (d *Desk) countCall(ctx context.Context, c chat.Call) error {
	return dohost.Add(ctx, d.Storage(), "calls/"+c.Tool+"/"+string(c.State), 1)
}

func deskClass() dohost.Class {
	return chat.Bind(Desks, func(_ context.Context, a *chat.Agent[struct{}]) (*Desk, error) { return &Desk{a}, nil },
		&chat.Handlers[Desk, struct{}]{Reply: func(d *Desk, ctx context.Context, r *chat.Reply) error {
			return chat.Answer(ctx, r, printingModel{}, &chat.AnswerOptions{Tools: []chat.Tool{d.printTool()}})
		}, OnCall: (*Desk).countCall},
		agent.OnSchedule(toPress, (*Desk).toPress))
}

func pressClass() dohost.Class {
	return agent.Bind(Presses, func(_ context.Context, a *agent.Agent[struct{}]) (*Press, error) { return &Press{a}, nil }, nil,
		agent.OnSchedule(doPrint, (*Press).print), agent.OnSchedule(toDesk, (*Press).toDesk))
}

// printingModel replaces a provider's model: it calls the tool, and answers with the tool's result.
type printingModel struct{}

// Stream implements [chat.Model].
func (printingModel) Stream(_ context.Context, p *chat.Prompt) iter.Seq2[chat.Chunk, error] {
	return func(yield func(chat.Chunk, error) bool) {
		for _, part := range p.Partial.Parts {
			if part.Member("output") != nil {
				yield(chat.TextDelta("t", "Your letter is "+part.Text("output")+"."), nil)
				return
			}
		}
		yield(chat.ToolInput("call-1", "print", `{"text":"Dear Ada"}`), nil)
	}
}

// An assistant hands calls of a tool over to another agent, whose result continues the reply.
func ExampleComplete() {
	dir, err := os.MkdirTemp("", "dohost")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	h, err := dohost.Open(dir, nil, deskClass(), pressClass())
	if err != nil {
		log.Fatal(err)
	}
	defer h.Close()
	err = Desks.Get(h, "front").Do(context.Background(), func(ctx context.Context, d *Desk) error {
		_, err := chat.Ask(ctx, d, []chat.Message{chat.Text("m1", chat.RoleUser, "Print my letter.")}, nil)
		answer := ""
		for ; err == nil && answer == ""; err = dohost.Sleep(ctx, 10*time.Millisecond) {
			list, err := chat.Messages(ctx, d, 1)
			if err != nil {
				return err
			}
			if list[0].Role == chat.RoleAssistant {
				answer = list[0].PlainText()
			}
		}
		fmt.Println(answer)
		completed, _, failed := dohost.Get[int](ctx, d.Storage(), "calls/print/completed")
		fmt.Println("completed calls:", completed)
		return errors.Join(err, failed)
	})
	if err != nil {
		log.Fatal(err)
	}
	// Output:
	// printing: Dear Ada
	// Your letter is printed.
	// completed calls: 1
}
