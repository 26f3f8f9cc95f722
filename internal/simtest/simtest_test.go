package simtest_test

import (
	"errors"
	"testing"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/dohosttest"
	"github.com/dohost/dohost/internal/invariants"
	"github.com/dohost/dohost/internal/pointtest"
	"github.com/dohost/dohost/internal/simtest"
)

// thorough adjusts a scenario to the time that the test has. With -full it also runs with many segments in a record.
func thorough(s dohosttest.Scenario) dohosttest.Scenario {
	s.Batched = s.Batched && !invariants.Enabled || pointtest.Full()
	return pointtest.Scenario(s, 20, 25)
}

func TestScenarios(t *testing.T) {
	for _, n := range simtest.Scenarios() {
		t.Run(n.Name, func(t *testing.T) {
			t.Parallel()
			dohosttest.EveryPoint(t, thorough(n.New()))
		})
	}
}

// TestScenariosWithSharedLog ends the scenarios by take-overs, and by ends of processes whose records are in a shared log.
func TestScenariosWithSharedLog(t *testing.T) {
	for _, n := range simtest.Scenarios() {
		t.Run(n.Name, func(t *testing.T) {
			t.Parallel()
			s := n.New()
			s.SharedLog, s.Batched = true, s.Batched && pointtest.Full()
			s.Endings = []dohost.EndMode{dohost.EndTakeOver, dohost.EndPowerCut, dohost.EndKill}
			dohosttest.EveryPoint(t, pointtest.Scenario(s, 12, 100))
		})
	}
}

// TestScenarioChecksDetectLoss runs each scenario on one host, and checks it on another, which is
// empty: a check that passes there would pass after any loss.
func TestScenarioChecksDetectLoss(t *testing.T) {
	for _, n := range simtest.Scenarios() {
		t.Run(n.Name, func(t *testing.T) {
			s := n.New()
			if s.Reset != nil {
				s.Reset()
			}
			o := &dohosttest.Options{Classes: s.Classes, Services: s.Services, Options: s.Options}
			dohosttest.Run(t, o, func(t *testing.T, h *dohosttest.Host) {
				if err := errors.Join(s.Run(t.Context(), h), h.WaitIdle(0), s.Check(t.Context(), h)); err != nil {
					t.Fatal(err)
				}
			})
			o.Services = nil // their recorded requests stay
			dohosttest.Run(t, o, func(t *testing.T, h *dohosttest.Host) {
				if err := s.Check(t.Context(), h); err == nil {
					t.Error("the check passes, although the objects have lost everything")
				}
			})
		})
	}
}

// TestScenarioSeedIsReproducible runs each workload twice with the same seeds, which must give the same run.
func TestScenarioSeedIsReproducible(t *testing.T) {
	seeds, runs := uint64(3), 0
	if invariants.Enabled {
		seeds = 1
	}
	for _, n := range simtest.Scenarios() {
		s := dohosttest.Simulation{Scenario: n.New()}
		for seed := uint64(7); seed < 7+seeds; seed++ {
			first, err := s.Try(t, seed)
			again, err2 := s.Try(t, seed)
			if err := errors.Join(err, err2); err != nil {
				t.Fatalf("%s: %v", n.Name, err)
			}
			if first != again {
				t.Errorf("%s: seed %d is %+v, and then %+v", n.Name, seed, first, again)
			}
			runs++
		}
	}
	t.Logf("%d runs, each twice", runs)
}
