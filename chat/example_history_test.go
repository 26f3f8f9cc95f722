package chat_test

import (
	"context"
	"fmt"
	"iter"
	"log"
	"os"
	"strings"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/chat"
)

const Travels dohost.Namespace[TravelDesk] = "travel"

// TravelDesk is a conversation that may become long.
type TravelDesk struct{ *chat.Agent[struct{}] }

// travelClass returns a class with a model for the replies, and a cheaper one for the summaries.
func travelClass(model, cheaper chat.Model) dohost.Class {
	return chat.Bind(Travels,
		func(_ context.Context, a *chat.Agent[struct{}]) (*TravelDesk, error) { return &TravelDesk{a}, nil },
		&chat.Handlers[TravelDesk, struct{}]{
			Reply: func(d *TravelDesk, ctx context.Context, r *chat.Reply) error {
				return chat.Answer(ctx, r, model, &chat.AnswerOptions{System: "You book journeys."})
			},
			Options: chat.Options{History: &chat.History{Model: cheaper, Threshold: 100, Window: 50}},
		})
}

// A program summarises a conversation before the end of a reply does. The next reply has the summary in its context.
func ExampleSummarize() {
	dir, err := os.MkdirTemp("", "dohost")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	h, err := dohost.Open(dir, nil, travelClass(countingContext{}, shortModel{}))
	if err != nil {
		log.Fatal(err)
	}
	defer h.Close()
	err = Travels.Get(h, "ada").Do(context.Background(), func(ctx context.Context, d *TravelDesk) error {
		var list []chat.Message
		for i := range 60 {
			list = append(list, chat.Text(fmt.Sprint("m", i), chat.RoleUser, "I like trains."))
		}
		if err := chat.SetMessages(ctx, d, list); err != nil {
			return err
		}
		s, err := chat.Summarize(ctx, d, nil)
		if err != nil {
			return err
		}
		fmt.Printf("%d messages, to %s: %s\n", s.Messages, s.Last, s.Content)
		id, err := chat.Ask(ctx, d, []chat.Message{chat.Text("q", chat.RoleUser, "Where to?")}, nil)
		if err != nil {
			return err
		}
		r, _, err := chat.Wait(ctx, d, id)
		fmt.Println(r.Message.PlainText())
		return err
	})
	if err != nil {
		log.Fatal(err)
	}
	// Output:
	// 40 messages, to m39: The user likes trains.
	// 22 messages, the first is "[Summary] The user likes trains."
}

// shortModel replaces a provider's model. It summarises any conversation.
type shortModel struct{}

func (shortModel) Stream(context.Context, *chat.Prompt) iter.Seq2[chat.Chunk, error] {
	return func(yield func(chat.Chunk, error) bool) { yield(chat.TextDelta("t", "The user likes trains."), nil) }
}

// countingContext describes its context.
type countingContext struct{}

func (countingContext) Stream(_ context.Context, p *chat.Prompt) iter.Seq2[chat.Chunk, error] {
	return func(yield func(chat.Chunk, error) bool) {
		first := strings.TrimSpace(p.Messages[0].PlainText())
		yield(chat.TextDelta("t", fmt.Sprintf("%d messages, the first is %q", len(p.Messages), first)), nil)
	}
}
