package orders_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"example.com/orders"
	"example.com/orders/before"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/dohosttest"
)

// shop is a Shop with a bank and a carrier that record their requests.
type shop struct{ bank, carrier dohosttest.FakeService }

func newShop() *shop {
	s := &shop{}
	s.bank.Idempotent, s.carrier.Idempotent = true, true
	return s
}

func (s *shop) Charge(ctx context.Context, key string, cents int) error {
	return s.bank.Call(ctx, key, fmt.Sprint(cents))
}

func (s *shop) Ship(ctx context.Context, key string) error { return s.carrier.Call(ctx, key, "") }

// once returns an error unless the customer was charged once, by any key, and the order shipped once.
func (s *shop) once(order string) error {
	charges := 0
	for _, key := range s.bank.Keys() {
		if strings.HasPrefix(key, order+"/") {
			charges += s.bank.Effects(key)
		}
	}
	if charges != 1 {
		return fmt.Errorf("the customer was charged %d times", charges)
	}
	return s.carrier.RanOnce(order)
}

// place calls Place like a client that does not give up.
func place(ctx context.Context, h *dohosttest.Host, order string) error {
	return dohost.Retry(ctx, &dohost.RetryPolicy{ShouldRetry: dohost.RetryIdempotent}, func(ctx context.Context) error {
		_, err := dohost.Call(ctx, orders.Orders.Get(h, order), (*orders.Order).Place, 4200)
		return err
	})
}

func TestOrderIsChargedAndShippedOnce(t *testing.T) {
	shop := newShop()
	dohosttest.EveryPoint(t, dohosttest.Scenario{
		Classes:  []dohost.Class{orders.Class(shop)},
		Services: []*dohosttest.FakeService{&shop.bank, &shop.carrier},
		Run:      func(ctx context.Context, h *dohosttest.Host) error { return place(ctx, h, "7") },
		Check:    func(context.Context, *dohosttest.Host) error { return shop.once("7") },
		Pairs:    100,
	})
}

// declineFirst is a bank that declines every charge with the first key.
func declineFirst(key string, _ int, m dohosttest.FailurePoint) error {
	if key == "7/1" && m == dohosttest.FailureBeforeEffect {
		return orders.ErrDeclined
	}
	return nil
}

func TestOrderSucceedsOnRetryAfterDecline(t *testing.T) {
	shop := newShop()
	shop.bank.Fail = declineFirst
	dohosttest.EveryPoint(t, dohosttest.Scenario{
		Classes:  []dohost.Class{orders.Class(shop)},
		Services: []*dohosttest.FakeService{&shop.bank, &shop.carrier},
		Run: func(ctx context.Context, h *dohosttest.Host) error {
			err := place(ctx, h, "7")
			if errors.Is(err, orders.ErrDeclined) { // not if the end took the answer with it
				err = place(ctx, h, "7")
			}
			return err
		},
		Check: func(context.Context, *dohosttest.Host) error { return shop.once("7") },
	})
}

func TestOrderPlacedByTwoClients(t *testing.T) {
	shop := newShop()
	shop.bank.Latency = time.Second
	dohosttest.EveryPoint(t, dohosttest.Scenario{
		Classes:  []dohost.Class{orders.Class(shop)},
		Services: []*dohosttest.FakeService{&shop.bank, &shop.carrier},
		Run: func(ctx context.Context, h *dohosttest.Host) error {
			other := h.Client(func(ctx context.Context) error { return place(ctx, h, "7") })
			return errors.Join(place(ctx, h, "7"), other.Wait())
		},
		Check: func(context.Context, *dohosttest.Host) error { return shop.once("7") },
	})
}

func TestOrdersShareOneRecord(t *testing.T) {
	shop := newShop()
	dohosttest.EveryPoint(t, dohosttest.Scenario{
		Classes:  []dohost.Class{orders.Class(shop)},
		Services: []*dohosttest.FakeService{&shop.bank, &shop.carrier},
		Run: func(ctx context.Context, h *dohosttest.Host) error {
			other := h.Client(func(ctx context.Context) error { return place(ctx, h, "8") })
			return errors.Join(place(ctx, h, "7"), other.Wait())
		},
		Check: func(context.Context, *dohosttest.Host) error {
			return errors.Join(shop.once("7"), shop.once("8"))
		},
		Batched: true,
	})
}

func TestOrderShipsAnHourLaterAfterPowerCut(t *testing.T) {
	shop := newShop()
	dohosttest.Run(t, &dohosttest.Options{
		Classes:  []dohost.Class{orders.Class(shop)},
		Services: []*dohosttest.FakeService{&shop.bank, &shop.carrier},
	}, func(t *testing.T, h *dohosttest.Host) {
		if err := place(t.Context(), h, "7"); err != nil {
			t.Fatal(err)
		}
		h.Crash()
		h.Advance(59 * time.Minute)
		if n := shop.carrier.Requests("7"); n != 0 {
			t.Errorf("the carrier was asked %d times within 59 minutes", n)
		}
		if err := h.WaitIdle(0); err != nil {
			t.Error(err)
		}
		if err := shop.once("7"); err != nil {
			t.Error(err)
		}
	})
}

func TestOrderPaidMakesNoMoreRequests(t *testing.T) {
	shop := newShop()
	dohosttest.Run(t, &dohosttest.Options{
		Classes:  []dohost.Class{orders.Class(shop)},
		Services: []*dohosttest.FakeService{&shop.bank, &shop.carrier},
	}, func(t *testing.T, h *dohosttest.Host) {
		for range 2 {
			if err := errors.Join(place(t.Context(), h, "7"), h.WaitIdle(0)); err != nil {
				t.Fatal(err)
			}
		}
		if bank, carrier := shop.bank.Requests("7/1"), shop.carrier.Requests("7"); bank != 1 || carrier != 1 {
			t.Errorf("the bank was asked %d times, and the carrier %d times", bank, carrier)
		}
	})
}

func TestOrderWhenBankAnswerIsLost(t *testing.T) {
	shop := newShop()
	shop.bank.Fail = func(_ string, request int, m dohosttest.FailurePoint) error {
		if request == 1 && m == dohosttest.FailureAfterEffect {
			return errors.New("connection reset")
		}
		return nil
	}
	dohosttest.Run(t, &dohosttest.Options{
		Classes:  []dohost.Class{orders.Class(shop)},
		Services: []*dohosttest.FakeService{&shop.bank, &shop.carrier},
	}, func(t *testing.T, h *dohosttest.Host) {
		if err := place(t.Context(), h, "7"); err == nil {
			t.Error("Place succeeds without the bank's answer")
		}
		h.Evict(orders.Orders.Get(h, "7").ID(), dohost.EndFence)
		if err := errors.Join(place(t.Context(), h, "7"), h.WaitIdle(0), shop.once("7")); err != nil {
			t.Error(err)
		}
	})
}

func TestOrderWhenDiskFails(t *testing.T) {
	shop := newShop()
	dohosttest.Run(t, &dohosttest.Options{
		Classes:  []dohost.Class{orders.Class(shop)},
		Services: []*dohosttest.FakeService{&shop.bank, &shop.carrier},
	}, func(t *testing.T, h *dohosttest.Host) {
		h.FailSync(errors.New("input/output error"))
		_, err := dohost.Call(t.Context(), orders.Orders.Get(h, "7"), (*orders.Order).Place, 4200)
		if !errors.Is(err, dohost.ErrFenced) {
			t.Errorf("Place with a disk that fails: %v", err)
		}
		_ = h.Restart() // returns the error of the disk
		if err := errors.Join(place(t.Context(), h, "7"), h.WaitIdle(0), shop.once("7")); err != nil {
			t.Error(err)
		}
	})
}

func TestOrderOfPreviousVersionContinues(t *testing.T) {
	shop := newShop()
	shop.bank.Latency = time.Second // to the charge, and again to the answer
	dohosttest.Run(t, &dohosttest.Options{
		Classes:  []dohost.Class{before.Class(shop)},
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
