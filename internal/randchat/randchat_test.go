package randchat_test

import (
	"testing"

	"github.com/dohost/dohost/dohosttest"
	"github.com/dohost/dohost/internal/randchat"
	"github.com/dohost/dohost/internal/randtest"
)

var tests = randtest.NewTests(25, 1)

func TestProgramsSimulated(t *testing.T) {
	var f randchat.Features
	tests.Simulate(t, 5, f.Simulation)
	t.Log("\n" + f.String())
	if names := f.Missing(); len(names) > 0 && !t.Failed() {
		t.Errorf("no program has %q", names)
	}
}

func TestProgramsAtEveryPoint(t *testing.T) {
	tests.EveryPoint(t, func(seed uint64) dohosttest.Scenario { return randchat.Programs(seed, 2) })
}

func TestProgramsAreRepeatable(t *testing.T) { tests.Repeat(t, randchat.Simulation) }
