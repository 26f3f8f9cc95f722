package randagent_test

import (
	"flag"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/dohost/dohost/dohosttest"
	"github.com/dohost/dohost/internal/invariants"
	"github.com/dohost/dohost/internal/randagent"
)

var (
	runs       = flag.Int("programs", 25, "simulations of random programs")
	first      = flag.Uint64("programs-first", 1, "the seed of the first of them")
	everywhere = flag.Int("programs-everywhere", 1, "random programs that end at every point")
)

// TestProgramsSimulated runs random programs under random endings.
func TestProgramsSimulated(t *testing.T) {
	var steps atomic.Int64
	s := randagent.Simulation(&steps)
	if s.Runs, s.Seed = *runs, *first; invariants.Enabled {
		s.Runs = min(s.Runs, 5)
	}
	dohosttest.Simulate(t, s)
	t.Logf("%d simulations from seed %d, %d instructions compared", s.Runs, s.Seed, steps.Load())
	if !t.Failed() && steps.Load() < 20*int64(s.Runs) {
		t.Error("hardly any instruction was compared")
	}
}

// TestProgramsAtEveryPoint ends random programs at every point.
func TestProgramsAtEveryPoint(t *testing.T) {
	seeds := *everywhere
	if invariants.Enabled {
		seeds = 1
	}
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			s := randagent.Programs(uint64(seed), 1)
			s.Batched = seed%2 == 0
			dohosttest.EveryPoint(t, s)
		})
	}
}
