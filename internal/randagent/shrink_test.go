package randagent_test

import (
	"math/rand/v2"
	"testing"

	"github.com/dohost/dohost/dohosttest"
	"github.com/dohost/dohost/internal/randagent"
	"github.com/dohost/dohost/internal/randtest"
)

// TestSimulationThatFailsShrinksToAnInstruction has a fault of the model that needs one instruction, in the first incarnation, or
// in a later one.
func TestSimulationThatFailsShrinksToAnInstruction(t *testing.T) {
	for name, incarnation := range map[string]int{"first": 1, "recovered": 2} {
		t.Run(name, func(t *testing.T) {
			p := randagent.Faulty(func(n int, in randagent.Instr) bool { return in.Op == randagent.Enqueue && n >= incarnation })
			for seed := range uint64(20) {
				w := p.Draw(rand.New(rand.NewPCG(seed, 2)), 0)
				s, _ := p.Scenario(w)
				_, err := (&dohosttest.Simulation{Scenario: s, Chance: 0.02}).Try(t, seed)
				if f, ok := err.(*dohosttest.Failure); ok {
					randtest.CheckShrunk(t, p, p.Shrink(t, f, w), name, "randagent_test.go")
					return
				}
			}
			t.Error("no simulation has failed")
		})
	}
}
