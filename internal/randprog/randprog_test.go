package randprog_test

import (
	"testing"

	"github.com/dohost/dohost/dohosttest"
	"github.com/dohost/dohost/internal/randprog"
	"github.com/dohost/dohost/internal/randtest"
)

var tests = randtest.NewTests(50, 2)

func TestProgramsSimulated(t *testing.T) { tests.Simulate(t, 20, randprog.Simulation) }

func TestProgramsAreRepeatable(t *testing.T) { tests.Repeat(t, randprog.Simulation) }

func TestProgramsAtEveryPoint(t *testing.T) {
	tests.EveryPoint(t, func(seed uint64) dohosttest.Scenario { return randprog.Programs(seed, 3) })
}
