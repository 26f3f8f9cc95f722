package orders_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"

	"example.com/orders"
	"example.com/orders/before"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/dohosttest"
	"github.com/dohost/dohost/ledger"
)

// withoutLookup is a shop whose bank cannot be asked.
func withoutLookup(s *shop) orders.Shop { return struct{ orders.Shop }{s} }

// placeOnce calls Place like a client that gives up.
func placeOnce(ctx context.Context, h *dohosttest.Host, order string) error {
	_, err := dohost.Call(ctx, orders.Orders.Get(h, order), (*orders.Order).Place, 4200)
	return err
}

// resolve resolves an unknown charge like an operator, by the bank's book.
func (s *shop) resolve(ctx context.Context, h *dohosttest.Host, order string, unknown error) error {
	e, ok := errors.AsType[*ledger.UnknownError](unknown)
	if !ok {
		return unknown
	}
	r := &dohost.AdminRequest{Action: dohost.ActionNotDone, Kind: ledger.ResourceKind, ID: string(e.ID)}
	if s.charges(order) > 0 {
		r.Action, r.Result = dohost.ActionDone, json.RawMessage(fmt.Sprintf("%q", receipt(order)))
	}
	return dohost.Retry(ctx, &dohost.RetryPolicy{ShouldRetry: dohost.RetryIdempotent}, func(ctx context.Context) error {
		_, err := h.Host().Operate(ctx, orders.Orders.Get(h, order).ID(), r)
		if errors.Is(err, ledger.ErrEnded) { // by a call that was cut off
			return nil
		}
		return err
	})
}

// TestOrderWithoutLookup interrupts an order at every point, at a bank that neither recognises keys nor can be asked. The
// order reports the unknown outcome, and makes no second charge before an operator has decided.
func TestOrderWithoutLookup(t *testing.T) {
	shop, unknown := newShop(), 0
	dohosttest.EveryPoint(t, dohosttest.Scenario{
		Classes:  []dohost.Class{orders.Class(withoutLookup(shop))},
		Services: []*dohosttest.FakeService{&shop.bank, &shop.carrier},
		Run: func(ctx context.Context, h *dohosttest.Host) error {
			for {
				err := place(ctx, h, "7")
				if !errors.Is(err, ledger.ErrUnknown) {
					return err
				}
				unknown++
				if err := shop.resolve(ctx, h, "7", err); err != nil {
					return err
				}
			}
		},
		Check: func(context.Context, *dohosttest.Host) error { return shop.once("7") },
		Pairs: 100,
	})
	if unknown == 0 {
		t.Error("no outcome was unknown")
	}
}

// TestOrderStaysUnknown places an order again and again after the answer of the bank was lost.
func TestOrderStaysUnknown(t *testing.T) {
	shop := newShop()
	shop.bank.Fail = loseFirstAnswer
	dohosttest.Run(t, &dohosttest.Options{
		Classes:  []dohost.Class{orders.Class(withoutLookup(shop))},
		Services: []*dohosttest.FakeService{&shop.bank, &shop.carrier},
	}, func(t *testing.T, h *dohosttest.Host) {
		var unknown error
		for range 3 {
			if unknown = placeOnce(t.Context(), h, "7"); !errors.Is(unknown, ledger.ErrUnknown) {
				t.Errorf("Place without the bank's answer: %v", unknown)
			}
			h.Crash()
		}
		if n := shop.sum("7", shop.bank.Requests); n != 1 {
			t.Errorf("the bank got %d requests", n)
		}
		if err := errors.Join(shop.resolve(t.Context(), h, "7", unknown), place(t.Context(), h, "7"), h.WaitIdle(0), shop.once("7")); err != nil {
			t.Error(err)
		}
	})
}

// TestOrderOfEarlierVersionWithoutLookup continues an order of the version without the ledger at a bank that cannot be asked.
func TestOrderOfEarlierVersionWithoutLookup(t *testing.T) {
	shop := newShop()
	shop.bank.Fail = loseFirstAnswer
	dohosttest.Run(t, &dohosttest.Options{
		Classes:  []dohost.Class{before.Class(earlierShop{shop})},
		Services: []*dohosttest.FakeService{&shop.bank, &shop.carrier},
	}, func(t *testing.T, h *dohosttest.Host) {
		if _, err := dohost.Call(t.Context(), before.Orders.Get(h, "7"), (*before.Order).Place, 4200); err == nil {
			t.Fatal("the version without the ledger has the bank's answer")
		}
		if err := h.Restart(orders.Class(withoutLookup(shop))); err != nil {
			t.Fatal(err)
		}
		unknown := placeOnce(t.Context(), h, "7")
		if err := errors.Join(shop.resolve(t.Context(), h, "7", unknown), place(t.Context(), h, "7"), h.WaitIdle(0), shop.once("7")); err != nil {
			t.Error(err)
		}
	})
}
