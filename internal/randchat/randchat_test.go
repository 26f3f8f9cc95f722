package randchat_test

import (
	"testing"

	"github.com/dohost/dohost/dohosttest"
	"github.com/dohost/dohost/internal/randchat"
	"github.com/dohost/dohost/internal/randtest"
)

var tests = randtest.NewTests(25, 1)

func TestProgramsSimulated(t *testing.T) { tests.Simulate(t, 5, randchat.Simulation) }

func TestProgramsAtEveryPoint(t *testing.T) {
	tests.EveryPoint(t, func(seed uint64) dohosttest.Scenario { return randchat.Programs(seed, 3) })
}

func TestProgramsAreRepeatable(t *testing.T) { tests.Repeat(t, randchat.Simulation) }
