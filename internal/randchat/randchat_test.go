package randchat_test

import (
	"flag"
	"math/rand/v2"
	"testing"

	"github.com/dohost/dohost/internal/randchat"
	"github.com/dohost/dohost/internal/randtest"
)

var (
	tests        = randtest.NewTests(randchat.Programs, 16, 1)
	instructions = flag.Int("instructions", 1, "instructions of each caller in a program that ends at every point")
)

func TestProgramsSimulated(t *testing.T) {
	var f randchat.Features
	counted := tests
	counted.Scenario = f.Scenario
	counted.Simulate(t, 5)
	t.Log("\n" + f.String())
	if names := f.Missing(); len(names) > 0 && !t.Failed() {
		t.Errorf("no program has %q", names)
	}
}

func TestProgramsAtEveryPoint(t *testing.T) {
	few := tests
	few.DrawFew = func(r *rand.Rand) randchat.Workload { return randchat.DrawFew(r, *instructions) }
	few.EveryPoint(t)
}

func TestProgramsAreRepeatable(t *testing.T) { tests.Repeat(t) }
