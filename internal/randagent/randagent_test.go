package randagent_test

import (
	"testing"

	"github.com/dohost/dohost/dohosttest"
	"github.com/dohost/dohost/internal/randagent"
	"github.com/dohost/dohost/internal/randtest"
)

var tests = randtest.NewTests(15, 1)

func TestProgramsSimulated(t *testing.T) { tests.Simulate(t, 5, randagent.Simulation) }

func TestProgramsAtEveryPoint(t *testing.T) {
	tests.EveryPoint(t, func(seed uint64) dohosttest.Scenario { return randagent.Programs(seed, 1) })
}

func TestProgramsAreRepeatable(t *testing.T) { tests.Repeat(t, randagent.Simulation) }
