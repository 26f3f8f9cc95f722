package randtest

import (
	"context"
	"errors"
	"math/rand/v2"

	"github.com/dohost/dohost/dohosttest"
)

// Pick draws an element by its weight.
func Pick[E any](r *rand.Rand, from []E, weight func(E) int) E {
	sum := 0
	for _, e := range from {
		sum += weight(e)
	}
	n := r.IntN(sum)
	for _, e := range from {
		if n -= weight(e); n < 0 {
			return e
		}
	}
	panic("unreachable")
}

// TwoClients returns the Run of a scenario with two clients, which act so many times each. The numbers of their acts
// differ, and their draws depend on the seed.
func TwoClients(seed uint64, times int, act func(ctx context.Context, h *dohosttest.Host, r *rand.Rand, number int) error) func(context.Context, *dohosttest.Host) error {
	return func(ctx context.Context, h *dohosttest.Host) error {
		client := func(k int) func(context.Context) error {
			r := rand.New(rand.NewPCG(seed, uint64(k)))
			return func(ctx context.Context) error {
				for i := range times {
					if err := act(ctx, h, r, (i+1)*10+k); err != nil {
						return err
					}
				}
				return nil
			}
		}
		other := h.Client(client(1))
		return errors.Join(client(0)(ctx), other.Wait())
	}
}
