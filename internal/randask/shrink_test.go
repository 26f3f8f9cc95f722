package randask_test

import (
	"testing"

	"github.com/dohost/dohost/internal/randask"
	"github.com/dohost/dohost/internal/randtest"
)

// TestSimulationThatFailsShrinksToAQuestion has a fault of the model that needs a message with a question, and an earlier incarnation of
// its object.
func TestSimulationThatFailsShrinksToAQuestion(t *testing.T) {
	p := randask.Faulty(func(n int, in randask.Instr) bool { return in.Op == randask.Send && len(in.Body) > 0 && n >= 2 })
	p.Chance = 0.02
	randtest.CheckSimulationShrinks(t, p, 0, "question", "randask_test.go")
}
