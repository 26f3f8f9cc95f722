package randtest

import (
	"flag"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/dohost/dohost/dohosttest"
	"github.com/dohost/dohost/internal/invariants"
)

// Tests are the tests of a package with random programs. Its flags change their extent; builds with the race detector
// bound it.
type Tests struct {
	runs       *int
	first      *uint64
	everywhere *int
}

// NewTests registers the flags: by default there are so many simulations, and so many programs that end at every point.
func NewTests(runs, everywhere int) Tests {
	return Tests{
		runs:       flag.Int("programs", runs, "simulations of random programs"),
		first:      flag.Uint64("programs-first", 1, "the seed of the first of them"),
		everywhere: flag.Int("programs-everywhere", everywhere, "random programs that end at every point"),
	}
}

// Simulate runs random programs under random endings, at most raceRuns simulations with the race detector. simulation
// counts the compared instructions.
func (o Tests) Simulate(t *testing.T, raceRuns int, simulation func(steps *atomic.Int64) dohosttest.Simulation) {
	var steps atomic.Int64
	s := simulation(&steps)
	if s.Runs, s.Seed = *o.runs, *o.first; invariants.Enabled {
		s.Runs = min(s.Runs, raceRuns)
	}
	dohosttest.Simulate(t, s)
	t.Logf("%d simulations from seed %d, %d instructions compared", s.Runs, s.Seed, steps.Load())
	if !t.Failed() && steps.Load() < 20*int64(s.Runs) {
		t.Error("hardly any instruction was compared")
	}
}

// EveryPoint ends random programs at every point, half of them with a slow disk, too.
func (o Tests) EveryPoint(t *testing.T, scenario func(seed uint64) dohosttest.Scenario) {
	seeds := *o.everywhere
	if invariants.Enabled {
		seeds = 1
	}
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			s := scenario(uint64(seed))
			s.Batched = seed%2 == 0
			dohosttest.EveryPoint(t, s)
		})
	}
}

// Repeat runs simulations with many faults, each seed twice, and compares the runs: they are the same, also if the
// scheduler of Go orders goroutines differently. There is one for each five runs of Simulate, and at most 20.
func (o Tests) Repeat(t *testing.T, simulation func(steps *atomic.Int64) dohosttest.Simulation) {
	var steps atomic.Int64
	s := simulation(&steps)
	s.Faults = 0.5
	seeds := uint64(min(20, max(5, *o.runs/5)))
	if invariants.Enabled {
		seeds = 5
	}
	for seed := *o.first; seed < *o.first+seeds; seed++ {
		first, err := s.Try(t, seed)
		if err != nil {
			t.Fatal(err)
		}
		second, err := s.Try(t, seed)
		if err != nil {
			t.Fatal(err)
		}
		if first != second {
			t.Errorf("seed %d: the first run has %+v, the second %+v", seed, first, second)
		}
	}
	t.Logf("%d simulations from seed %d, each twice", seeds, *o.first)
}
