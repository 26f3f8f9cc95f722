package orders_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"example.com/orders"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/dohosttest"
	"github.com/dohost/dohost/examples/counter"
)

// customers are the orders of a drawn workload.
const customers = 3

func TestOrderSimulation(t *testing.T) {
	shop := newShop()
	shop.bank.Latency = 20 * time.Millisecond
	placed := map[string]bool{}
	dohosttest.Simulate(t, dohosttest.Simulation{
		Scenario: dohosttest.Scenario{
			Classes:  []dohost.Class{orders.Class(shop)},
			Services: []*dohosttest.FakeService{&shop.bank, &shop.carrier},
			Reset:    func() { clear(placed) },
			Check: func(context.Context, *dohosttest.Host) error {
				for order := range placed {
					if err := shop.once(order); err != nil {
						return fmt.Errorf("order %s: %w", order, err)
					}
				}
				return nil
			},
		},
		Ops: []dohosttest.Op{{Name: "place", Do: func(ctx context.Context, h *dohosttest.Host, r *rand.Rand) error {
			order := fmt.Sprint(r.IntN(customers))
			err := place(ctx, h, order)
			if err == nil {
				placed[order] = true
			}
			return err
		}}},
		Clients: 1,
		Steps:   5,
		Runs:    50,
	})
}

func TestCounterIsLinearizable(t *testing.T) {
	dohosttest.Linearizable(t, dohosttest.Workload[int, int, int]{
		Classes: []dohost.Class{counter.Class()},
		Model: dohosttest.Model[int, int, int]{
			Init: func() int { return 0 },
			Step: func(n, delta int) (next, total int) { return n + delta, n + delta },
		},
		Draw: func(r *rand.Rand) int { return r.IntN(3) },
		Do: func(ctx context.Context, h *dohosttest.Host, delta int) (int, error) {
			return dohost.Call(ctx, counter.Counters.Get(h, "a"), (*counter.Counter).Add, delta)
		},
		Runs: 50,
	})
}
