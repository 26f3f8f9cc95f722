package randtest

import (
	"cmp"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/dohost/dohost/dohosttest"
	"github.com/dohost/dohost/internal/invariants"
)

// faults is the usual probability of a fault of the host.
const faults = 0.05

// Flags are the flags of all tests with random programs. They change the extent of the tests.
type Flags struct {
	runs       *int
	first      *uint64
	everywhere *int
	replay     *string
}

// NewFlags registers the flags.
func NewFlags() Flags {
	return Flags{
		runs:       flag.Int("programs", 0, "simulations of random programs; 0: the generator's own number"),
		first:      flag.Uint64("programs-first", 1, "the seed of the first of them"),
		everywhere: flag.Int("programs-everywhere", 0, "random programs that end at every point; 0: the generator's own number"),
		replay:     flag.String("programs-replay", "", "the work of one run, for the test that -run names: both are in the replay line of a failure"),
	}
}

// Tests are the tests of a generator of random programs. Builds with the race detector bound their extent.
//
// If a run fails, Shrink shortens its work. The test prints a line that replays the shortest work, and a test that
// does so, for the test file of the generator.
type Tests[W any] struct {
	Programs[W]
	flags            Flags
	runs, everywhere int
}

// NewTests returns the tests of a generator: runs is the number of simulations, and everywhere the number of programs that end at every
// point. A flag that is set replaces its number. The flags must have been registered before, and are read by the tests.
func NewTests[W any](flags Flags, p Programs[W], runs, everywhere int) Tests[W] {
	return Tests[W]{p, flags, runs, everywhere}
}

// Simulate runs random programs under random endings, at most raceRuns simulations with the race detector.
func (o Tests[W]) Simulate(t *testing.T, raceRuns int) {
	if o.replayed(t) {
		return
	}
	runs, begun := cmp.Or(*o.flags.runs, o.runs), time.Now()
	if invariants.Enabled {
		runs = min(runs, raceRuns)
	}
	steps, endings := 0, 0
	for seed := *o.flags.first; seed < *o.flags.first+uint64(runs); seed++ {
		w, s, report := o.simulation(seed, faults)
		done, err := s.Try(t, seed)
		if f, ok := errors.AsType[*dohosttest.Failure](err); ok {
			t.Fatalf("seed %d: %s\n%v", seed, f.Text(), o.Shrink(t, f, w))
		}
		if err != nil {
			t.Fatal(err)
		}
		steps, endings = steps+report.Steps(), endings+done.Endings
	}
	t.Logf("%d simulations from seed %d, %d instructions compared, %d interruptions; %v", runs, *o.flags.first, steps, endings, time.Since(begun).Round(time.Millisecond))
	if steps < 20*runs {
		t.Error("hardly any instruction was compared")
	}
	if endings == 0 && runs > 1 {
		t.Error("none of the runs was interrupted")
	}
}

// simulation returns the simulation of a seed, its work and its report.
func (o Tests[W]) simulation(seed uint64, faults float64) (W, dohosttest.Simulation, *Report) {
	w := o.Draw(rand.New(rand.NewPCG(seed, 2)), faults)
	s, report := o.Scenario(w)
	return w, dohosttest.Simulation{Scenario: s, Chance: o.Chance}, report
}

// EveryPoint ends random programs at every point, half of them with a slow disk, too.
func (o Tests[W]) EveryPoint(t *testing.T) {
	if o.replayed(t) {
		return
	}
	seeds := cmp.Or(*o.flags.everywhere, o.everywhere)
	if invariants.Enabled {
		seeds = 1
	}
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			w := o.DrawFew(rand.New(rand.NewPCG(o.FirstFew+uint64(seed), 0)))
			s, _ := o.Scenario(w)
			s.Batched = seed%2 == 0
			failures, summary := dohosttest.Explore(t, s)
			for _, f := range failures {
				t.Error(f)
			}
			if len(failures) > 0 {
				t.Error(o.Shrink(t, failures[0], w))
			}
			t.Log(summary)
		})
	}
}

// replayed does the run of the flag, if there is one.
func (o Tests[W]) replayed(t *testing.T) bool {
	if *o.flags.replay == "" {
		return false
	}
	// JSON decodes the work of one generator as the work of another.
	if run, want := flag.Lookup("test.run").Value.String(), "^"+t.Name()+"$"; run != want {
		t.Fatalf("-programs-replay needs the -run of its replay line: have %q, this test is %q", run, want)
	}
	var w W
	if err := json.Unmarshal([]byte(*o.flags.replay), &w); err != nil {
		t.Fatalf("-programs-replay: %v", err)
	}
	s, _ := o.Scenario(w)
	failures, _ := dohosttest.Explore(t, s)
	for _, f := range failures {
		t.Error(f.Text()) // its own replay line lacks the work
	}
	return true
}

// Replay does one run: with the endings of [dohosttest.Failure.Replay], or ended at every point if replay is empty.
func (o Tests[W]) Replay(t *testing.T, replay string, w W) {
	s, _ := o.Scenario(w)
	s.Replay = replay
	dohosttest.EveryPoint(t, s)
}

// Repeat runs simulations with many faults, each seed twice, and compares the runs: they are the same, also if the
// scheduler of Go orders goroutines differently. Repeat does one simulation for each five runs of Simulate, at least
// 3 and at most 20.
func (o Tests[W]) Repeat(t *testing.T) {
	seeds := uint64(min(20, max(3, cmp.Or(*o.flags.runs, o.runs)/5)))
	if invariants.Enabled {
		seeds = 3
	}
	for seed := *o.flags.first; seed < *o.flags.first+seeds; seed++ {
		var stats [2]dohosttest.RunStats
		for i := range stats {
			_, s, _ := o.simulation(seed, 0.5)
			var err error
			if stats[i], err = s.Try(t, seed); err != nil {
				t.Fatal(err)
			}
		}
		if stats[0] != stats[1] {
			t.Errorf("seed %d: the first run has %+v, the second %+v", seed, stats[0], stats[1])
		}
	}
	t.Logf("%d simulations from seed %d, each twice", seeds, *o.flags.first)
}
