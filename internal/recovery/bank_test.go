package recovery

import (
	"context"
	"errors"
	"path/filepath"
	"testing"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/ledger"
)

// TestPaymentThatIsInterruptedIsAccounted ends an incarnation before the effect of a payment and after it, with each policy, and
// compares the account. The second attempt takes the step.
func TestPaymentThatIsInterruptedIsAccounted(t *testing.T) {
	runs := 0
	for _, c := range []struct {
		policy ledger.Policy
		at     int // the number of the wait that ends the incarnation: 1 is before the effect, 2 after it
		want   Cost
	}{
		{ledger.PolicyAtMostOnce, 1, Cost{Steps: 1, Unknown: 1, FalseUnknown: 1}},
		{ledger.PolicyAtMostOnce, 2, Cost{Steps: 1, Unknown: 1}},
		{ledger.PolicyIdempotent, 1, Cost{Steps: 1}},
		{ledger.PolicyIdempotent, 2, Cost{Steps: 1, Repeated: 1}},
		{ledger.PolicyReconcile, 1, Cost{Steps: 1}},
		{ledger.PolicyReconcile, 2, Cost{Steps: 1}},
	} {
		runs++
		got, err := interruptPayment(t, c.policy, c.at)
		if err != nil || got != c.want {
			t.Errorf("%v, ended in wait %d: %+v, %v; want %+v", c.policy, c.at, got, err, c.want)
		}
	}
	if t.Logf("%d runs", runs); runs == 0 {
		t.Error("nothing was tried")
	}
}

// interruptPayment ends an incarnation in a wait of the bank, and returns the account after the second attempt.
func interruptPayment(t *testing.T, p ledger.Policy, at int) (Cost, error) {
	dir := t.TempDir()
	out, err := openBook(dir)
	if err != nil {
		return Cost{}, err
	}
	defer out.f.Close()
	out.bank = newBank(out, p)
	h, err := dohost.Open(filepath.Join(dir, storeFolder), &dohost.Options{IdleAfter: -1}, class(out))
	if err != nil {
		return Cost{}, err
	}
	defer h.Close()
	w := workers.Get(h, "a")
	waits := 0
	out.bank.spend = func(ctx context.Context, _ time.Duration) error {
		if waits++; waits == at {
			h.Evict(w.ID(), dohost.EndFence)
		}
		return context.Cause(ctx)
	}
	pay := func() error {
		return w.Do(t.Context(), func(ctx context.Context, w *worker) error { return w.pay(ctx, 1) })
	}
	if err := pay(); !errors.Is(err, dohost.ErrFenced) {
		return Cost{}, errors.Join(errors.New("the first attempt was not interrupted"), err)
	}
	if err := pay(); err != nil {
		return Cost{}, err
	}
	return account(dir, map[string]int{"a": 1})
}
