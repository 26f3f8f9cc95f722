package simtest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/dohosttest"
)

// order is an object that is paid by an outside service, with its name as the idempotency
// key. Placing it sets the alarm, and the alarm retries until it succeeds.
type order struct {
	st   *dohost.State
	bank *dohosttest.FakeService
}

var orders dohost.Namespace[order] = "order"

func (o *order) place(ctx context.Context, amount int) (none, error) {
	_, placed, err := dohost.Get[int](ctx, o.st.Storage(), "amount")
	if err != nil || placed {
		return none{}, err
	}
	return none{}, errors.Join(dohost.Put(ctx, o.st.Storage(), "amount", amount), o.st.SetAlarm(ctx, time.Now()))
}

func (o *order) charge(ctx context.Context, _ dohost.AlarmInfo) error {
	amount, _, err := dohost.Get[int](ctx, o.st.Storage(), "amount")
	if err != nil {
		return err
	}
	err = dohost.Await(ctx, func(ctx context.Context) error {
		return o.bank.Call(ctx, o.st.ID().Name, fmt.Sprint(amount))
	})
	if err != nil {
		return err
	}
	return dohost.Add(ctx, o.st.Storage(), "charged", amount)
}

func (o *order) charged(ctx context.Context, _ none) (int, error) {
	n, _, err := dohost.Get[int](ctx, o.st.Storage(), "charged")
	return n, err
}

// failOrder2 refuses the first request of order 2, and loses the answer to its second.
func failOrder2(key string, request int, m dohosttest.FailurePoint) error {
	if key == "2" && (request == 1 && m == dohosttest.FailureBeforeEffect || request == 2 && m == dohosttest.FailureAfterEffect) {
		return dohosttest.ErrRefused
	}
	return nil
}

// newPayment has an outside effect that must happen, exactly once for each order.
func newPayment() dohosttest.Scenario {
	bank := &dohosttest.FakeService{Idempotent: true, Latency: 100 * time.Millisecond, Fail: failOrder2}
	amounts := []int{5, 7}
	return dohosttest.Scenario{
		Classes: []dohost.Class{dohost.Bind(orders, func(_ context.Context, st *dohost.State) (*order, error) {
			return &order{st, bank}, nil
		}, &dohost.Handlers[order]{OnAlarm: (*order).charge})},
		Services: []*dohosttest.FakeService{bank},
		Places:   objectPlaces,
		Run: func(ctx context.Context, h *dohosttest.Host) error {
			for i, amount := range amounts {
				if _, err := retryCall(ctx, orders.Get(h, fmt.Sprint(i+1)), (*order).place, amount); err != nil {
					return err
				}
			}
			return nil
		},
		Check: func(ctx context.Context, h *dohosttest.Host) (err error) {
			for i, amount := range amounts {
				name := fmt.Sprint(i + 1)
				charged, err2 := dohost.Call(ctx, orders.Get(h, name), (*order).charged, none{})
				// The handler's last batch is written once, however often it ran.
				err = errors.Join(err, err2, bank.RanOnce(name), differ("charged to order "+name, charged, amount))
			}
			return errors.Join(err, differ("orders that were paid", len(bank.Keys()), len(amounts)))
		},
	}
}
