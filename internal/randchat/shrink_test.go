package randchat_test

import (
	"testing"

	"github.com/dohost/dohost/internal/randchat"
	"github.com/dohost/dohost/internal/randtest"
)

// TestSimulationThatFailsShrinksToAnInstruction has a fault of the model that needs one instruction, in the first incarnation, or
// in a later one.
func TestSimulationThatFailsShrinksToAnInstruction(t *testing.T) {
	for name, incarnation := range map[string]int{"first": 0, "recovered": 2} {
		t.Run(name, func(t *testing.T) {
			p := randchat.Faulty(func(n int, in randchat.Instr) bool { return in.Op == randchat.Ask && n >= incarnation })
			p.Chance = 0.02
			randtest.CheckSimulationShrinks(t, p, 0, name, "randchat_test.go")
		})
	}
}
