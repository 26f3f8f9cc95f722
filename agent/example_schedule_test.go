package agent_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/agent"
)

// Kitchen is an agent that sends reminders, and sends orders out one after the other.
type Kitchen struct {
	*agent.Agent[struct{}]
	heard chan string
}

// Kitchens is the namespace of Kitchen objects.
const Kitchens dohost.Namespace[Kitchen] = "kitchen"

// Note is the payload of a reminder.
type Note struct{ Text string }

const (
	remind agent.Callback[Note] = "remind"
	send   agent.Callback[Note] = "send"
)

// Remind is a schedule's callback.
func (k *Kitchen) Remind(_ context.Context, n Note) error {
	k.heard <- "reminder: " + n.Text
	return nil
}

// Send is the queue's callback. It fails.
func (k *Kitchen) Send(_ context.Context, n Note) error {
	k.heard <- "sending: " + n.Text
	return errors.New("nobody is there")
}

func withKitchen(
	f func(ctx context.Context, k *Kitchen) error,
	after func(do func(func(context.Context, *Kitchen) error), heard chan string),
) {
	dir, err := os.MkdirTemp("", "dohost")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	heard := make(chan string)
	h, err := dohost.Open(dir, nil, agent.Bind(Kitchens,
		func(_ context.Context, a *agent.Agent[struct{}]) (*Kitchen, error) { return &Kitchen{a, heard}, nil }, nil,
		agent.OnSchedule(remind, (*Kitchen).Remind),
		agent.OnSchedule(send, (*Kitchen).Send)))
	if err != nil {
		log.Fatal(err)
	}
	defer h.Close()
	do := func(f func(context.Context, *Kitchen) error) {
		if err := Kitchens.Get(h, "home").Do(context.Background(), f); err != nil {
			log.Fatal(err)
		}
	}
	do(f)
	after(do, heard)
}

// A schedule survives the agent's incarnation, and runs without a request.
func ExampleSchedule() {
	withKitchen(func(ctx context.Context, k *Kitchen) error {
		_, err := agent.Schedule(ctx, k, agent.After(10*time.Millisecond), remind, Note{"tea"}, nil)
		if err != nil {
			return err
		}
		for range 2 { // the second call returns the first schedule
			id, err := agent.Schedule(ctx, k, agent.Cron("30 2 * * *", "Europe/Berlin"), remind, Note{"sleep"}, nil)
			if err != nil || id == "" {
				return err
			}
		}
		_, err = agent.Schedule(ctx, k, agent.Cron("0 0 30 2 *", ""), remind, Note{"never"}, nil)
		fmt.Println(err)
		return nil
	}, func(do func(func(context.Context, *Kitchen) error), heard chan string) {
		fmt.Println(<-heard)
		do(func(ctx context.Context, k *Kitchen) error {
			all, err := k.Schedules().List(ctx, nil)
			for _, s := range all {
				fmt.Println(s.Kind, s.Cron, s.Zone, string(s.Payload))
			}
			return err
		})
	})
	// Output:
	// agent: cron "0 0 30 2 *" never fires
	// reminder: tea
	// cron 30 2 * * * Europe/Berlin {"Text":"sleep"}
}

// A failed item is kept, and does not block the others.
func ExampleEnqueue() {
	withKitchen(func(ctx context.Context, k *Kitchen) error {
		for _, dish := range []string{"soup", "fish"} {
			o := &agent.QueueOptions{ID: dish, Retry: dohost.RetryPolicy{MaxAttempts: 1}}
			if _, err := agent.Enqueue(ctx, k, send, Note{dish}, o); err != nil {
				return err
			}
		}
		_, err := agent.Enqueue(ctx, k, remind, Note{"tea"}, nil)
		return err
	}, func(do func(func(context.Context, *Kitchen) error), heard chan string) {
		for range 3 {
			fmt.Println(<-heard)
		}
		do(func(ctx context.Context, k *Kitchen) error {
			dead, err := k.DeadLetters().List(ctx, 0)
			for _, d := range dead {
				fmt.Println(d.ID, "failed:", d.Error)
			}
			return err
		})
	})
	// Output:
	// sending: soup
	// sending: fish
	// reminder: tea
	// soup failed: nobody is there
	// fish failed: nobody is there
}
