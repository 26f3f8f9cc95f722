package dohosttest_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/dohosttest"
)

type order struct {
	st   *dohost.State
	bank *dohosttest.FakeService
}

var orders dohost.Namespace[order] = "order"

func orderClass(bank *dohosttest.FakeService) dohost.Class {
	return dohost.Bind(orders, func(_ context.Context, st *dohost.State) (*order, error) {
		return &order{st, bank}, nil
	}, nil)
}

func (o *order) Place(ctx context.Context, amount int) (int, error) {
	charged, _, err := dohost.Get[bool](ctx, o.st.Storage(), "charged")
	if err != nil || charged {
		return amount, err
	}
	err = dohost.Await(ctx, func(ctx context.Context) error {
		return o.bank.Call(ctx, o.st.ID().Name, fmt.Sprint(amount))
	})
	if err != nil {
		return 0, err
	}
	return amount, dohost.Put(ctx, o.st.Storage(), "charged", true)
}

func TestOrderIsChargedOnce(t *testing.T) {
	bank := &dohosttest.FakeService{Idempotent: true}
	dohosttest.EveryPoint(t, dohosttest.Scenario{
		Classes:  []dohost.Class{orderClass(bank)},
		Services: []*dohosttest.FakeService{bank},
		Run: func(ctx context.Context, h *dohosttest.Host) error {
			return dohost.Retry(ctx, &dohost.RetryPolicy{ShouldRetry: dohost.RetryIdempotent}, func(ctx context.Context) error {
				_, err := dohost.Call(ctx, orders.Get(h, "1"), (*order).Place, 5)
				return err
			})
		},
		Check: func(ctx context.Context, h *dohosttest.Host) error {
			var charged bool
			err := orders.Get(h, "1").Do(ctx, func(ctx context.Context, o *order) (err error) {
				charged, _, err = dohost.Get[bool](ctx, o.st.Storage(), "charged")
				return err
			})
			if !charged {
				err = errors.Join(err, errors.New("not charged"))
			}
			return errors.Join(err, bank.RanOnce("1"))
		},
		Pairs: 100,
	})
}
