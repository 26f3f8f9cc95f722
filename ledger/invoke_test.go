package ledger_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/dohosttest"
	"github.com/dohost/dohost/internal/pointtest"
	"github.com/dohost/dohost/ledger"
)

// payer pays into a receiver, which is another object.
type payer struct{ st *dohost.State }

type receiver struct{ st *dohost.State }

const (
	payers    dohost.Namespace[payer]    = "payer"
	receivers dohost.Namespace[receiver] = "receiver"
)

// payment is a call of another object. The receiver runs it once per id, so the call may be repeated.
var payment = ledger.Kind[int, int]{
	Name: "payment", Same: ledger.Whole[int], Policy: ledger.PolicyIdempotent, MaxAttempts: 20,
	Unknown: func(ledger.ID, int) string { return "the payment may have been made" },
	NoEffect: func(err error) bool {
		e, ok := errors.AsType[*dohost.Error](err)
		return ok && e.Outcome == dohost.OutcomeNotRun
	},
}

func (p *payer) pay(ctx context.Context, n int) (int, error) {
	return ledger.Do(ctx, p.st, &payment, n, func(ctx context.Context, id ledger.ID) (int, error) {
		return dohost.Invoke[int](ctx, receivers.Get(p.st, "x"), "take", n, &dohost.InvokeOptions{CallID: string(id)})
	})
}

// take returns the sum of all payments.
func (t *receiver) take(ctx context.Context, n int) (int, error) {
	if err := dohost.Add(ctx, t.st.Storage(), "sum", n); err != nil {
		return 0, err
	}
	sum, _, err := dohost.Get[int](ctx, t.st.Storage(), "sum")
	return sum, err
}

// TestCallOfAnotherObjectAtEveryPoint has an operation that calls another object under its ID. The ends of incarnations and processes of
// both objects do not repeat the effect.
func TestCallOfAnotherObjectAtEveryPoint(t *testing.T) {
	run := func(ctx context.Context, h *dohosttest.Host) error {
		for _, n := range []int{1, 10, 10} { // the last payment is a repetition of the one before it
			var sum int
			err := retry(ctx, func(ctx context.Context) (err error) {
				sum, err = dohost.Call(ctx, payers.Get(h, "p"), (*payer).pay, n)
				return err
			})
			if want := map[int]int{1: 1, 10: 11}[n]; err != nil || sum != want {
				return fmt.Errorf("after the payment of %d the sum is %d, want %d: %w", n, sum, want, err)
			}
		}
		return nil
	}
	dohosttest.EveryPoint(t, pointtest.Scenario(dohosttest.Scenario{ // without FullDisk: an error of the receiver is the answer to each repetition
		Classes: []dohost.Class{
			dohost.Bind(payers, func(_ context.Context, st *dohost.State) (*payer, error) { return &payer{st}, nil },
				&dohost.Handlers[payer]{Extensions: []dohost.ClassExtension{ledger.Declare(&payment)}}),
			dohost.Bind(receivers, func(_ context.Context, st *dohost.State) (*receiver, error) { return &receiver{st}, nil }, nil, dohost.Expose("take", (*receiver).take)),
		},
		Run:       run,
		Check:     run,
		SharedLog: true,
	}, 24, 20))
}
