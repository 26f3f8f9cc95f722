package dohosttest_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/dohosttest"
)

// Accounts is the namespace of Account objects.
const Accounts dohost.Namespace[Account] = "account"

// Account pays its customer by a service outside.
type Account struct {
	st   *dohost.State
	bank *dohosttest.FakeService
}

// Pay pays an invoice once, however often it is called: the invoice is the idempotency key of the bank.
func (a *Account) Pay(ctx context.Context, invoice string) (string, error) {
	paid, _, err := dohost.Get[bool](ctx, a.st.Storage(), "paid/"+invoice)
	if err != nil || paid {
		return invoice, err
	}
	err = dohost.Await(ctx, func(ctx context.Context) error { return a.bank.Call(ctx, invoice, "100 EUR") })
	if err != nil {
		return "", err
	}
	return invoice, dohost.Put(ctx, a.st.Storage(), "paid/"+invoice, true)
}

// payOnce is the body of a test: func TestAccountPaysOnce(t *testing.T).
func payOnce(t *testing.T) {
	bank := &dohosttest.FakeService{Idempotent: true}
	dohosttest.EveryPoint(t, dohosttest.Scenario{
		Classes: []dohost.Class{dohost.Bind(Accounts, func(_ context.Context, st *dohost.State) (*Account, error) {
			return &Account{st, bank}, nil
		}, nil)},
		Services: []*dohosttest.FakeService{bank},
		Run: func(ctx context.Context, h *dohosttest.Host) error {
			return dohost.Retry(ctx, &dohost.RetryPolicy{ShouldRetry: dohost.RetryIdempotent}, func(ctx context.Context) error {
				_, err := dohost.Call(ctx, Accounts.Get(h, "ada"), (*Account).Pay, "invoice-7")
				return err
			})
		},
		Check: func(context.Context, *dohosttest.Host) error {
			if n := bank.Effects("invoice-7"); n != 1 {
				return fmt.Errorf("the invoice was paid %d times", n)
			}
			return nil
		},
	})
}

// The test runs the payment once, and then again for each point where an eviction, a crash or a power cut can
// interrupt it. In a program's tests payOnce is TestAccountPaysOnce; passes runs it as go test does.
func Example() {
	fmt.Println(passes("TestAccountPaysOnce", payOnce))
	// Output: true
}
