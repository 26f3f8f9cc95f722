package randchat_test

import (
	"math/rand/v2"
	"testing"

	"github.com/dohost/dohost/dohosttest"
	"github.com/dohost/dohost/internal/randchat"
	"github.com/dohost/dohost/internal/randtest"
)

// TestSimulationThatFailsShrinksToAnInstruction has a fault of the model that needs one instruction, in the first incarnation, or
// in a later one.
func TestSimulationThatFailsShrinksToAnInstruction(t *testing.T) {
	for name, incarnation := range map[string]int{"first": 0, "recovered": 2} {
		t.Run(name, func(t *testing.T) {
			p := randchat.Faulty(func(n int, in randchat.Instr) bool { return in.Op == randchat.Ask && n >= incarnation })
			for seed := range uint64(20) {
				w := p.Draw(rand.New(rand.NewPCG(seed, 2)), 0)
				s, _ := p.Scenario(w)
				_, err := (&dohosttest.Simulation{Scenario: s, Chance: 0.02}).Try(t, seed)
				if f, ok := err.(*dohosttest.Failure); ok {
					randtest.CheckShrunk(t, p, p.Shrink(t, f, w), name, "randchat_test.go")
					return
				}
			}
			t.Error("no simulation has failed")
		})
	}
}
