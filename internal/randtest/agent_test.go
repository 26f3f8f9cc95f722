package randtest_test

import (
	"testing"

	"github.com/dohost/dohost/internal/randagent"
	"github.com/dohost/dohost/internal/randtest"
)

var agentTests = randtest.NewTests(flags, randagent.Programs, 13, 1)

func TestAgentProgramsSimulated(t *testing.T) { agentTests.Simulate(t, 5) }

func TestAgentProgramsAtEveryPoint(t *testing.T) { agentTests.EveryPoint(t) }

func TestAgentProgramsAreRepeatable(t *testing.T) { agentTests.Repeat(t) }

// TestAgentSimulationThatFailsShrinksToAnInstruction has a fault of the model that needs one instruction, in the first incarnation, or
// in a later one.
func TestAgentSimulationThatFailsShrinksToAnInstruction(t *testing.T) {
	for name, incarnation := range map[string]int{"first": 1, "recovered": 2} {
		t.Run(name, func(t *testing.T) {
			p := faulty(randagent.Programs, randagent.NewObserver, func(w *randagent.Observer) {
				w.Fault = func(n int, in randagent.Instr) bool { return in.Op == randagent.Enqueue && n >= incarnation }
			})
			p.Chance = 0.02
			randtest.CheckSimulationShrinks(t, p, 0, "agent/"+name)
		})
	}
}
