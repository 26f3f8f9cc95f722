package agent_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"sync"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/agent"
)

// Mail is a row of an outbox.
type Mail struct {
	ID, To string
	Sent   bool
}

// outbox has the mails that are not sent in its index "unsent".
var outbox = dohost.Collection[Mail]{
	Name: "outbox",
	Key:  func(m Mail) string { return m.ID },
	Indexes: []dohost.Index[Mail]{{Name: "unsent", Of: func(m Mail) dohost.Key {
		if m.Sent {
			return "" // not in the index
		}
		return dohost.KeyOf(m.ID)
	}}},
}

// Shop inserts mails, and does not send them itself.
type Shop struct{ *agent.Agent[struct{}] }

const shops dohost.Namespace[Shop] = "shop"

func (s *Shop) Order(ctx context.Context, customer string) error {
	return outbox.Insert(ctx, s.Storage(), Mail{ID: "order 7", To: customer})
}

// The agent calls the method for each row of the index, until the row has left it.
func ExampleOnRows() {
	var sent sync.WaitGroup
	sent.Add(1)
	send := func(s *Shop, ctx context.Context, row dohost.Row[Mail]) error {
		err := dohost.Await(ctx, func(context.Context) error {
			fmt.Println("to", row.Value.To) // the request to the mail service
			return nil
		})
		if err != nil {
			return err // the agent calls the method again later
		}
		_, err = outbox.Update(ctx, s.Storage(), row.Key, func(m *Mail) error {
			m.Sent = true
			return nil
		})
		sent.Done()
		return err
	}
	class := agent.Bind(shops, func(_ context.Context, a *agent.Agent[struct{}]) (*Shop, error) { return &Shop{a}, nil }, nil,
		agent.OnRows(&outbox, "unsent", send, nil))

	dir, err := os.MkdirTemp("", "shop")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	host, err := dohost.Open(dir, nil, class)
	if err != nil {
		log.Fatal(err)
	}
	defer host.Close()
	err = shops.Get(host, "berlin").Do(context.Background(), func(ctx context.Context, s *Shop) error { return s.Order(ctx, "ada") })
	if err != nil {
		log.Fatal(err)
	}
	sent.Wait()
	// Output: to ada
}
