// Package orders is an object that charges a customer once and ships once, whatever ends
// in between.
package orders

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dohost/dohost"
)

// Orders is the class's name.
const Orders dohost.Namespace[Order] = "order"

// ErrDeclined says that the bank has refused to charge, and charged nothing.
var ErrDeclined = errors.New("declined")

// Shop is what an order has an effect on. It serves a key once: asked again, it does
// nothing and gives the same answer, a decline included.
type Shop interface {
	Charge(ctx context.Context, key string, cents int) error
	Ship(ctx context.Context, key string) error
}

// Order is what a customer buys.
type Order struct {
	st   *dohost.State
	shop Shop
}

// Place charges the customer, and has the order shipped an hour later. It may be called
// again, with the same amount: after a decline, that is another try.
func (o *Order) Place(ctx context.Context, cents int) (int, error) {
	paid, ok, err := dohost.Get[int](ctx, o.st.Storage(), "paid")
	if err != nil || ok {
		return paid, err
	}
	// The tries that are known to have failed number the one that is under way. A try
	// whose end is unknown is the same one still, and asks with the same key.
	declined, _, err := dohost.Get[int](ctx, o.st.Storage(), "declined")
	if err != nil {
		return 0, err
	}
	key := fmt.Sprintf("%s/%d", o.st.ID().Name, declined+1)
	_, err = dohost.Await(ctx, func(ctx context.Context) (int, error) {
		return cents, o.shop.Charge(ctx, key, cents)
	})
	if errors.Is(err, ErrDeclined) {
		return 0, errors.Join(err, dohost.Put(ctx, o.st.Storage(), "declined", declined+1))
	}
	if err != nil {
		return 0, err
	}
	if err := dohost.Put(ctx, o.st.Storage(), "paid", cents); err != nil {
		return 0, err
	}
	return cents, o.st.SetAlarm(ctx, time.Now().Add(time.Hour))
}

func (o *Order) ship(ctx context.Context, _ dohost.AlarmInfo) error {
	_, err := dohost.Await(ctx, func(ctx context.Context) (int, error) {
		return 0, o.shop.Ship(ctx, o.st.ID().Name)
	})
	return err
}

// Class is the code of orders at a shop.
func Class(shop Shop) dohost.Class {
	return dohost.Bind(Orders, func(_ context.Context, st *dohost.State) (*Order, error) {
		return &Order{st, shop}, nil
	}, dohost.Expose("place", (*Order).Place), dohost.OnAlarm((*Order).ship))
}
