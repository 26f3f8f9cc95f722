package randtest_test

import (
	"flag"
	"math/rand/v2"
	"testing"

	"github.com/dohost/dohost/internal/randchat"
	"github.com/dohost/dohost/internal/randtest"
)

var (
	chatTests    = randtest.NewTests(flags, randchat.Programs, 16, 1)
	instructions = flag.Int("instructions", 1, "instructions of each caller in a program of chat that ends at every point")
)

func TestChatProgramsSimulated(t *testing.T) {
	var f randchat.Features
	counted := chatTests
	counted.Scenario = f.Scenario
	counted.Simulate(t, 5)
	t.Log("\n" + f.String())
	if names := f.Missing(); len(names) > 0 && !t.Failed() {
		t.Errorf("no program has %q", names)
	}
}

func TestChatProgramsAtEveryPoint(t *testing.T) {
	few := chatTests
	few.DrawFew = func(r *rand.Rand) randchat.Workload { return randchat.DrawFew(r, *instructions) }
	few.EveryPoint(t)
}

func TestChatProgramsAreRepeatable(t *testing.T) { chatTests.Repeat(t) }

// TestChatSimulationThatFailsShrinksToAnInstruction has a fault of the model that needs one instruction, in the first incarnation, or
// in a later one.
func TestChatSimulationThatFailsShrinksToAnInstruction(t *testing.T) {
	for name, incarnation := range map[string]int{"first": 0, "recovered": 2} {
		t.Run(name, func(t *testing.T) {
			p := faulty(randchat.Programs, randchat.NewObserver, func(w *randchat.Observer) {
				w.Fault = func(n int, in randchat.Instr) bool { return in.Op == randchat.Ask && n >= incarnation }
			})
			p.Chance = 0.02
			randtest.CheckSimulationShrinks(t, p, 0, "chat/"+name)
		})
	}
}
