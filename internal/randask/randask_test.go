package randask_test

import (
	"flag"
	"testing"

	"github.com/dohost/dohost/dohosttest"
	"github.com/dohost/dohost/internal/randask"
	"github.com/dohost/dohost/internal/randtest"
)

var (
	tests  = randtest.NewTests(randask.Programs, 3, 1)
	sample = flag.Int("sample", 12, "runs of a program that ends at every point: 0: at all of them")
)

func TestProgramsSimulated(t *testing.T) { tests.Simulate(t, 3) }

func TestProgramsAtEveryPoint(t *testing.T) {
	few := tests
	few.Scenario = func(work randask.Workload) (dohosttest.Scenario, *randtest.Report) {
		s, report := randask.Scenario(work)
		s.Sample = *sample
		return s, report
	}
	few.EveryPoint(t)
}

func TestProgramsAreRepeatable(t *testing.T) { tests.Repeat(t) }
