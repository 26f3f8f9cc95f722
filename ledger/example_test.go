package ledger_test

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/ledger"
)

// Invoice is the argument of an operation.
type Invoice struct {
	Number string
	Cents  int
}

// sent is the kind of operations that send an invoice by mail. Customers would notice a second mail, so the ledger
// sends none before an operator has resolved the first.
var sent = ledger.Kind[Invoice, string]{
	Name: "send", Same: ledger.Whole[Invoice], Policy: ledger.PolicyAtMostOnce,
	Unknown: func(_ ledger.ID, i Invoice) string {
		return fmt.Sprintf("invoice %s may have been sent: check the outbox", i.Number)
	},
}

// Customer is an object that sends invoices.
type Customer struct {
	st   *dohost.State
	mail func(ctx context.Context, key string, i Invoice) (string, error)
}

// Send sends an invoice at most once, however often clients call it.
func (c *Customer) Send(ctx context.Context, i Invoice) (string, error) {
	return ledger.Do(ctx, c.st, &sent, i, func(ctx context.Context, id ledger.ID) (string, error) {
		return c.mail(ctx, string(id), i)
	})
}

// Sent records that an invoice was sent, after a person has checked the outbox.
func (c *Customer) Sent(ctx context.Context, id ledger.ID) error {
	return ledger.ResolveDone(ctx, c.st, &sent, id, "found in the outbox")
}

func Example() {
	const customers = dohost.Namespace[Customer]("customer")
	mails := 0
	class := dohost.Bind(customers, func(_ context.Context, st *dohost.State) (*Customer, error) {
		return &Customer{st, func(context.Context, string, Invoice) (string, error) {
			mails++
			if mails == 2 {
				return "", errors.New("connection reset") // after the server has accepted the mail
			}
			return "accepted", nil
		}}, nil
	}, &dohost.Handlers[Customer]{Extensions: []dohost.ClassExtension{ledger.Declare(&sent)}})

	dir, err := os.MkdirTemp("", "ledger")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	host, err := dohost.Open(dir, nil, class)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer host.Close()

	ctx, ada := context.Background(), customers.Get(host, "ada")
	send := func(number string) (string, error) {
		return dohost.Call(ctx, ada, (*Customer).Send, Invoice{number, 4200})
	}
	for range 2 {
		result, err := send("1")
		fmt.Println(result, err, mails)
	}
	for range 2 {
		_, err = send("2")
		fmt.Println(errors.Is(err, ledger.ErrUnknown), mails)
	}
	unknown, _ := errors.AsType[*ledger.UnknownError](err)
	fmt.Println(unknown.Text)
	if err := dohost.CallNoResult(ctx, ada, (*Customer).Sent, unknown.ID); err != nil {
		fmt.Println(err)
	}
	result, err := send("2")
	fmt.Println(result, err, mails)
	// Output:
	// accepted <nil> 1
	// accepted <nil> 1
	// true 2
	// true 2
	// invoice 2 may have been sent: check the outbox
	// found in the outbox <nil> 2
}
