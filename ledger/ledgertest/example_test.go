package ledgertest_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/dohost/dohost/dohosttest"
	"github.com/dohost/dohost/ledger"
	"github.com/dohost/dohost/ledger/ledgertest"
)

// Refund is the argument of an operation.
type Refund struct {
	Order string
	Cents int
}

// refunds is the kind of operations that refund an order. The bank treats requests with the same key as one.
var refunds = ledger.Kind[Refund, string]{
	Name: "refund", Same: ledger.Whole[Refund], Policy: ledger.PolicyIdempotent,
	Unknown: func(_ ledger.ID, r Refund) string { return "order " + r.Order + " may have been refunded" },
}

// refundOnce is the body of a test: func TestRefundIsMadeOnce(t *testing.T).
func refundOnce(t *testing.T) {
	bank := &dohosttest.FakeService{Idempotent: true}
	ledgertest.Kind(t, &refunds, Refund{"7", 4200}, func(ctx context.Context, id ledger.ID) (string, error) {
		return "refunded", bank.Call(ctx, string(id), "4200") // the ID is the same in each run of the operation
	}, bank)
}

// The test refunds an order, and then again for each point where the end of an incarnation can interrupt the refund. In
// a program's tests refundOnce is TestRefundIsMadeOnce; passes runs it as go test does.
func Example() {
	fmt.Println(passes("TestRefundIsMadeOnce", refundOnce))
	// Output: true
}
