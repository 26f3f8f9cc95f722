// Package orders is an object that charges a customer once and ships once, even if any step is interrupted.
package orders

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/ledger"
)

// Orders is the namespace of Order objects.
const Orders dohost.Namespace[Order] = "order"

// ErrDeclined is the error of a charge that the bank refused without charging anything.
var ErrDeclined = errors.New("declined")

// Charge is the charge of an order.
type Charge struct {
	Order string
	Cents int
}

// Shop is the outside world of an order.
type Shop interface {
	// Charge asks the bank to charge a customer, and returns the receipt. The bank declines a
	// key for ever.
	Charge(ctx context.Context, key string, c Charge) (receipt string, err error)
	// Ship asks the carrier to ship an order. The carrier ships an order once.
	Ship(ctx context.Context, order string) error
}

// Finder is a Shop with a bank that can be asked.
type Finder interface {
	// Find returns the receipt of the charge of an order. found is false if the order was not
	// charged, and no request that was sent until now will charge it.
	Find(ctx context.Context, order string) (receipt string, found bool, err error)
}

// shipped is the kind of operations that ship an order. A repetition is harmless.
var shipped = ledger.Kind[string, struct{}]{
	Name: "ship", Same: ledger.Whole[string], Policy: ledger.PolicyIdempotent,
	MaxAttempts: 1000, // for almost three hours
	Unknown:     func(_ ledger.ID, order string) string { return fmt.Sprintf("order %s may have shipped", order) },
}

// charged returns the kind of operations that charge a customer. After an interruption the
// ledger asks the bank. If the bank cannot be asked, an operator decides.
func charged(shop Shop) *ledger.Kind[Charge, string] {
	k := &ledger.Kind[Charge, string]{
		Name: "charge", Policy: ledger.PolicyAtMostOnce,
		Same:     func(c Charge) any { return c.Order }, // not the amount: an order is paid once
		NoEffect: func(err error) bool { return errors.Is(err, ErrDeclined) },
		Unknown: func(_ ledger.ID, c Charge) string {
			return fmt.Sprintf("order %s may have been charged: look into the bank's book", c.Order)
		},
	}
	if bank, ok := shop.(Finder); ok {
		k.Policy = ledger.PolicyReconcile
		k.Find = func(ctx context.Context, _ ledger.ID, c Charge) (string, ledger.Answer, error) {
			receipt, found, err := bank.Find(ctx, c.Order)
			if err != nil || !found {
				return "", ledger.AnswerNotDone, err
			}
			return receipt, ledger.AnswerDone, nil
		}
	}
	return k
}

// Order is a purchase.
type Order struct {
	st     *dohost.State
	shop   Shop
	charge *ledger.Kind[Charge, string]
}

// Place charges the customer, schedules the shipment an hour later, and returns the bank's
// receipt. It may be called again with the same amount: after a decline, that is another try.
func (o *Order) Place(ctx context.Context, cents int) (string, error) {
	declined, _, err := dohost.Get[int](ctx, o.st.Storage(), "declined")
	if err != nil {
		return "", err
	}
	request, err := o.request(ctx)
	if err != nil {
		return "", err
	}
	c := Charge{Order: o.st.ID().Name, Cents: cents}
	receipt, err := ledger.Do(ctx, o.st, o.charge, c, func(ctx context.Context, id ledger.ID) (string, error) {
		// The operation stays the same. Only a try after a decline has another key.
		return request(ctx, fmt.Sprintf("%s/%d", id, declined+1), c)
	})
	if errors.Is(err, ErrDeclined) {
		return "", errors.Join(err, dohost.Put(ctx, o.st.Storage(), "declined", declined+1))
	}
	if err != nil {
		return "", err
	}
	return receipt, o.pay(ctx, cents)
}

// pay schedules the shipment, unless an earlier call has done so.
func (o *Order) pay(ctx context.Context, cents int) error {
	_, paid, err := dohost.Get[int](ctx, o.st.Storage(), "paid")
	if err != nil || paid {
		return err
	}
	if err := dohost.Put(ctx, o.st.Storage(), "paid", cents); err != nil {
		return err
	}
	return o.st.SetAlarm(ctx, time.Now().Add(time.Hour))
}

func (o *Order) ship(ctx context.Context, _ dohost.AlarmInfo) error {
	order := o.st.ID().Name
	return ledger.DoNoResult(ctx, o.st, &shipped, order, func(ctx context.Context, _ ledger.ID) error {
		return o.shop.Ship(ctx, order)
	})
}

// Class returns the class of orders at a shop.
func Class(shop Shop) dohost.Class {
	charge := charged(shop)
	return dohost.Bind(Orders, func(_ context.Context, st *dohost.State) (*Order, error) {
		return &Order{st, shop, charge}, nil
	}, &dohost.Handlers[Order]{
		OnAlarm:    (*Order).ship,
		Extensions: []dohost.ClassExtension{ledger.Declare(charge, &shipped)},
	}, dohost.Expose("place", (*Order).Place))
}
