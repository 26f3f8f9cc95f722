package randtest_test

import (
	"testing"

	"github.com/dohost/dohost/internal/randask"
	"github.com/dohost/dohost/internal/randtest"
)

var askTests = randtest.NewTests(flags, randask.Programs, 3, 1)

func TestAskProgramsSimulated(t *testing.T) { askTests.Simulate(t, 3) }

func TestAskProgramsAtEveryPoint(t *testing.T) { sampled(askTests, 12).EveryPoint(t) }

func TestAskProgramsAreRepeatable(t *testing.T) { askTests.Repeat(t) }

// TestAskSimulationThatFailsShrinksToAQuestion has a fault of the model that needs a message with a question, and an earlier incarnation of
// its object.
func TestAskSimulationThatFailsShrinksToAQuestion(t *testing.T) {
	p := faulty(randask.Programs, randask.NewObserver, func(w *randask.Observer) {
		w.Fault = func(n int, in randask.Instr) bool { return in.Op == randask.Send && len(in.Body) > 0 && n >= 2 }
	})
	p.Chance = 0.02
	randtest.CheckSimulationShrinks(t, p, 0, "ask/question")
}
