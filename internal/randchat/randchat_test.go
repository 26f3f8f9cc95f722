package randchat_test

import (
	"flag"
	"testing"

	"github.com/dohost/dohost/dohosttest"
	"github.com/dohost/dohost/internal/randchat"
	"github.com/dohost/dohost/internal/randtest"
)

var (
	tests        = randtest.NewTests(25, 1)
	instructions = flag.Int("instructions", 1, "instructions of each caller in a program that ends at every point")
)

func TestProgramsSimulated(t *testing.T) {
	var f randchat.Features
	tests.Simulate(t, 5, f.Simulation)
	t.Log("\n" + f.String())
	if names := f.Missing(); len(names) > 0 && !t.Failed() {
		t.Errorf("no program has %q", names)
	}
}

func TestProgramsAtEveryPoint(t *testing.T) {
	tests.EveryPoint(t, func(seed uint64) dohosttest.Scenario { return randchat.Programs(seed, *instructions) })
}

func TestProgramsAreRepeatable(t *testing.T) { tests.Repeat(t, randchat.Simulation) }
