package counter_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/dohosttest"
	"github.com/dohost/dohost/examples/counter"
)

// TestCounterLosesNothingAcknowledged adds a few times. A call with an unknown outcome may have counted or not; every
// other has counted once.
func TestCounterLosesNothingAcknowledged(t *testing.T) {
	acknowledged, unknown := 0, 0
	dohosttest.EveryPoint(t, dohosttest.Scenario{
		Classes: []dohost.Class{counter.Class()},
		Reset:   func() { acknowledged, unknown = 0, 0 },
		Run: func(ctx context.Context, h *dohosttest.Host) error {
			for range 3 {
				n, err := dohost.Call(ctx, counter.Counters.Get(h, "a"), (*counter.Counter).Add, 1)
				switch {
				case err != nil:
					unknown++
				case n <= acknowledged:
					return fmt.Errorf("%d acknowledged after %d", n, acknowledged)
				default:
					acknowledged++
				}
			}
			return nil
		},
		Check: func(ctx context.Context, h *dohosttest.Host) error {
			n, err := dohost.Call(ctx, counter.Counters.Get(h, "a"), (*counter.Counter).Add, 0)
			if err == nil && (n < acknowledged || n > acknowledged+unknown) {
				err = fmt.Errorf("the counter is at %d, with %d acknowledged and %d unknown", n, acknowledged, unknown)
			}
			return err
		},
		Pairs: 100, Batched: true,
	})
}
