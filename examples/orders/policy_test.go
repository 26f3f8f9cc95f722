package orders_test

import (
	"context"
	"testing"

	"example.com/orders"

	"github.com/dohost/dohost/ledger"
	"github.com/dohost/dohost/ledger/ledgertest"
)

// The bank takes each request as a new one, so only its answers to Find prevent a second charge.
func TestChargePolicy(t *testing.T) {
	shop := newShop()
	c := orders.Charge{Order: "7", Cents: 4200}
	ledgertest.Kind(t, orders.Charged(shop), c, func(ctx context.Context, id ledger.ID) (string, error) {
		return shop.Charge(ctx, string(id), c)
	}, &shop.bank)
}

// A bank that cannot be asked charges at most once.
func TestChargePolicyWithoutLookup(t *testing.T) {
	shop := newShop()
	c := orders.Charge{Order: "7", Cents: 4200}
	ledgertest.Kind(t, orders.Charged(withoutLookup(shop)), c, func(ctx context.Context, id ledger.ID) (string, error) {
		return shop.Charge(ctx, string(id), c)
	}, &shop.bank)
}
