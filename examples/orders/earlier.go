package orders

import (
	"context"
	"errors"

	"github.com/dohost/dohost"
)

var errEarlier = errors.New("a version without the ledger may have charged the order, and the bank cannot be asked")

// request returns the function that requests a charge. The ledger does not know the requests
// of the earlier version of this class (package before). That version stored the number of
// its tries before each request. If the number exists, the function asks the bank first.
func (o *Order) request(ctx context.Context) (func(ctx context.Context, key string, c Charge) (string, error), error) {
	_, sent, err := dohost.Get[int](ctx, o.st.Storage(), "try")
	if err != nil || !sent {
		return o.shop.Charge, err
	}
	return func(ctx context.Context, key string, c Charge) (string, error) {
		bank, ok := o.shop.(Finder)
		if !ok {
			return "", errEarlier
		}
		if receipt, found, err := bank.Find(ctx, c.Order); err != nil || found {
			return receipt, err
		}
		return o.shop.Charge(ctx, key, c)
	}, nil
}
