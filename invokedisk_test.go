package dohost_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/internal/kernel"
	"github.com/dohost/dohost/objectstore"
)

// TestInvokeWithCallIDOnFullDisk has a disk without space for the result of a method. The writes of the method are stored.
func TestInvokeWithCallIDOnFullDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs := objectstore.NewMemFS()
		fs.SetFree(1 << 40)
		var h *dohost.Host
		setFree := func(bytes uint64) {
			fs.SetFree(bytes)
			kernel.OfHost(h).RecheckSpace()
		}
		class := dohost.Bind(accounts, func(_ context.Context, st *dohost.State) (*account, error) { return &account{st}, nil }, nil,
			dohost.Expose("deposit", func(a *account, ctx context.Context, n int) (int, error) {
				n, err := a.deposit(ctx, n)
				setFree(0)
				return n, err
			}))
		h, err := dohost.Open("data", kernel.OnFS(&dohost.Options{}, fs), class)
		if err != nil {
			t.Fatal(err)
		}
		defer h.Close()
		invoke := func() (dohost.Outcome, string) {
			_, err := dohost.Invoke[int](t.Context(), accounts.Get(h, "a"), "deposit", 5, &dohost.InvokeOptions{CallID: "x"})
			e, _ := errors.AsType[*dohost.Error](err)
			return e.Outcome, codeOf(err)
		}
		if outcome, code := invoke(); outcome != dohost.OutcomeRan || code != "no_space" {
			t.Errorf("the first call: %v, %s", outcome, code)
		}
		setFree(1 << 40)
		time.Sleep(time.Minute)
		for range 2 {
			if outcome, code := invoke(); outcome != dohost.OutcomeUnknown || code != "call_interrupted" {
				t.Errorf("a repetition: %v, %s", outcome, code)
			}
		}
		err = accounts.Get(h, "a").Do(t.Context(), func(ctx context.Context, a *account) error {
			n, err := a.balance(ctx)
			if n != 5 {
				err = errors.Join(err, errors.New("the writes of the method are lost, or repeated"))
			}
			return err
		})
		if err != nil {
			t.Error(err)
		}
	})
}
