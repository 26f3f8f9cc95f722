// Package before is orders with a subtle bug: see docs/testing.md.
package before

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dohost/dohost"
)

// Orders is the namespace of Order objects.
const Orders dohost.Namespace[Order] = "order"

// ErrDeclined is the error of a charge that the bank refused without charging anything.
var ErrDeclined = errors.New("declined")

// Shop is the outside world of an order. It serves a key once: a repeated key has no
// effect and gets the same answer, a decline included.
type Shop interface {
	Charge(ctx context.Context, key string, cents int) error
	Ship(ctx context.Context, key string) error
}

// Order is a purchase.
type Order struct {
	st   *dohost.State
	shop Shop
}

// Place charges the customer and schedules the shipment an hour later. It may be called again with the same
// amount: after a decline, that is another try.
func (o *Order) Place(ctx context.Context, cents int) (int, error) {
	paid, ok, err := dohost.Get[int](ctx, o.st.Storage(), "paid")
	if err != nil || ok {
		return paid, err
	}
	// A declined key stays declined, so each try has a number, and a key, of its own. It is
	// on the disk before the bank is asked.
	try, _, err := dohost.Get[int](ctx, o.st.Storage(), "try")
	if err != nil {
		return 0, err
	}
	try++
	if err := dohost.Put(ctx, o.st.Storage(), "try", try); err != nil {
		return 0, err
	}
	key := fmt.Sprintf("%s/%d", o.st.ID().Name, try)
	err = dohost.Await(ctx, func(ctx context.Context) error {
		return o.shop.Charge(ctx, key, cents)
	})
	if err != nil {
		return 0, err
	}
	if err := dohost.Put(ctx, o.st.Storage(), "paid", cents); err != nil {
		return 0, err
	}
	return cents, o.st.SetAlarm(ctx, time.Now().Add(time.Hour))
}

func (o *Order) ship(ctx context.Context, _ dohost.AlarmInfo) error {
	return dohost.Await(ctx, func(ctx context.Context) error {
		return o.shop.Ship(ctx, o.st.ID().Name)
	})
}

// Class returns the class of orders at a shop.
func Class(shop Shop) dohost.Class {
	return dohost.Bind(Orders, func(_ context.Context, st *dohost.State) (*Order, error) {
		return &Order{st, shop}, nil
	}, &dohost.Handlers[Order]{OnAlarm: (*Order).ship}, dohost.Expose("place", (*Order).Place))
}
