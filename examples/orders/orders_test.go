package orders_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"example.com/orders"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/dohosttest"
)

// shop is a Finder with a bank and a carrier that record their requests. The bank takes every request as a new one,
// and can be asked for the charges of an order.
type shop struct{ bank, carrier dohosttest.FakeService }

func newShop() *shop {
	s := &shop{}
	s.carrier.Idempotent = true
	return s
}

func (s *shop) Charge(ctx context.Context, key string, c orders.Charge) (string, error) {
	return receipt(c.Order), s.bank.Call(ctx, c.Order+"/"+key, fmt.Sprint(c.Cents))
}

func (s *shop) Find(_ context.Context, order string) (string, bool, error) {
	return receipt(order), s.charges(order) > 0, nil
}

func (s *shop) Ship(ctx context.Context, order string) error { return s.carrier.Call(ctx, order, "") }

func receipt(order string) string { return "receipt of " + order }

// sum adds up a count of the bank for all keys of an order.
func (s *shop) sum(order string, count func(key string) int) (n int) {
	for _, key := range s.bank.Keys() {
		if strings.HasPrefix(key, order+"/") {
			n += count(key)
		}
	}
	return n
}

func (s *shop) charges(order string) int { return s.sum(order, s.bank.Effects) }

// once returns an error unless the customer was charged once, by any key, and the order shipped once.
func (s *shop) once(order string) error {
	if n := s.charges(order); n != 1 {
		return fmt.Errorf("the customer was charged %d times", n)
	}
	return s.carrier.RanOnce(order)
}

// place calls Place like a client that does not give up.
func place(ctx context.Context, h *dohosttest.Host, order string) error {
	return dohost.Retry(ctx, &dohost.RetryPolicy{ShouldRetry: dohost.RetryIdempotent}, func(ctx context.Context) error {
		got, err := dohost.Call(ctx, orders.Orders.Get(h, order), (*orders.Order).Place, 4200)
		if err == nil && got != receipt(order) {
			err = fmt.Errorf("the receipt is %q", got)
		}
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

// TestOrderOnASharedLog adds take-overs: another host has the order while the former owner's code runs on.
func TestOrderOnASharedLog(t *testing.T) {
	shop := newShop()
	dohosttest.EveryPoint(t, dohosttest.Scenario{
		Classes:   []dohost.Class{orders.Class(shop)},
		Services:  []*dohosttest.FakeService{&shop.bank, &shop.carrier},
		Run:       func(ctx context.Context, h *dohosttest.Host) error { return place(ctx, h, "7") },
		Check:     func(context.Context, *dohosttest.Host) error { return shop.once("7") },
		SharedLog: true,
		Pairs:     100,
	})
}

// declineFirst is a bank that declines every charge with the first key of an order.
func declineFirst(key string, _ int, m dohosttest.FailurePoint) error {
	if strings.HasSuffix(key, "/1") && m == dohosttest.FailureBeforeEffect {
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

// The client repeats its call when the shipment is due in a minute. That does not delay the shipment.
func TestOrderPlacedAgainShipsInTime(t *testing.T) {
	shop := newShop()
	dohosttest.Run(t, &dohosttest.Options{
		Classes:  []dohost.Class{orders.Class(shop)},
		Services: []*dohosttest.FakeService{&shop.bank, &shop.carrier},
	}, func(t *testing.T, h *dohosttest.Host) {
		for range 2 {
			if err := place(t.Context(), h, "7"); err != nil {
				t.Fatal(err)
			}
			h.Advance(59 * time.Minute)
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
		if bank, carrier := shop.sum("7", shop.bank.Requests), shop.carrier.Requests("7"); bank != 1 || carrier != 1 {
			t.Errorf("the bank was asked %d times, and the carrier %d times", bank, carrier)
		}
	})
}

// loseFirstAnswer is a bank that makes the first charge, and loses its answer.
func loseFirstAnswer(_ string, request int, m dohosttest.FailurePoint) error {
	if request == 1 && m == dohosttest.FailureAfterEffect {
		return errors.New("connection reset")
	}
	return nil
}

func TestOrderWhenBankAnswerIsLost(t *testing.T) {
	shop := newShop()
	shop.bank.Fail = loseFirstAnswer
	dohosttest.Run(t, &dohosttest.Options{
		Classes:  []dohost.Class{orders.Class(shop)},
		Services: []*dohosttest.FakeService{&shop.bank, &shop.carrier},
	}, func(t *testing.T, h *dohosttest.Host) {
		if err := place(t.Context(), h, "7"); err != nil {
			t.Errorf("Place does not ask the bank: %v", err)
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
