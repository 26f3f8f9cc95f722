package orders_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"example.com/orders"
	"example.com/orders/before"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/dohosttest"
)

// earlierShop is a shop for the version without the ledger.
type earlierShop struct{ *shop }

func (s earlierShop) Charge(ctx context.Context, key string, cents int) error {
	return s.bank.Call(ctx, key, fmt.Sprint(cents))
}

// The version without the ledger has charged with a key that the ledger does not know. The bank has the charge among
// those of the order.
func TestOrderOfPreviousVersionContinues(t *testing.T) {
	shop := newShop()
	shop.bank.Latency = time.Second // to the charge, and again to the answer
	dohosttest.Run(t, &dohosttest.Options{
		Classes:  []dohost.Class{before.Class(earlierShop{shop})},
		Services: []*dohosttest.FakeService{&shop.bank, &shop.carrier},
	}, func(t *testing.T, h *dohosttest.Host) {
		customer := h.Client(func(ctx context.Context) error {
			_, err := dohost.Call(ctx, before.Orders.Get(h, "7"), (*before.Order).Place, 4200)
			return err
		})
		h.Advance(1500 * time.Millisecond)
		h.Kill()
		if err := customer.Wait(); !errors.Is(err, dohost.ErrFenced) {
			t.Errorf("Place, killed on the way: %v", err)
		}
		if err := h.Restart(orders.Class(shop)); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(place(t.Context(), h, "7"), h.WaitIdle(0), shop.once("7")); err != nil {
			t.Error(err)
		}
	})
}

// The customer has paid at the version without the ledger. The new version returns the receipt, and ships once.
func TestOrderPaidAtPreviousVersion(t *testing.T) {
	for _, shipped := range []bool{false, true} {
		shop := newShop()
		dohosttest.Run(t, &dohosttest.Options{
			Classes:  []dohost.Class{before.Class(earlierShop{shop})},
			Services: []*dohosttest.FakeService{&shop.bank, &shop.carrier},
		}, func(t *testing.T, h *dohosttest.Host) {
			if _, err := dohost.Call(t.Context(), before.Orders.Get(h, "7"), (*before.Order).Place, 4200); err != nil {
				t.Fatal(err)
			}
			if shipped {
				h.Advance(time.Hour)
			}
			if err := h.Restart(orders.Class(shop)); err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(place(t.Context(), h, "7"), h.WaitIdle(0), shop.once("7")); err != nil {
				t.Errorf("shipped: %v: %v", shipped, err)
			}
			if n := shop.carrier.Requests("7"); n != 1 {
				t.Errorf("shipped: %v: the carrier was asked %d times", shipped, n)
			}
		})
	}
}

// The previous version could not ask the bank, and the next one can.
func TestOrderContinuesWithLookup(t *testing.T) {
	shop := newShop()
	shop.bank.Latency = time.Second
	dohosttest.Run(t, &dohosttest.Options{
		Classes:  []dohost.Class{orders.Class(withoutLookup(shop))},
		Services: []*dohosttest.FakeService{&shop.bank, &shop.carrier},
	}, func(t *testing.T, h *dohosttest.Host) {
		customer := h.Client(func(ctx context.Context) error { return placeOnce(ctx, h, "7") })
		h.Advance(1500 * time.Millisecond)
		h.Kill()
		if err := customer.Wait(); !errors.Is(err, dohost.ErrFenced) {
			t.Errorf("Place, killed on the way: %v", err)
		}
		if err := h.Restart(orders.Class(shop)); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(place(t.Context(), h, "7"), h.WaitIdle(0), shop.once("7")); err != nil {
			t.Error(err)
		}
	})
}
