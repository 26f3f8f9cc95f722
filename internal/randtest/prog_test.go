package randtest_test

import (
	"math/rand/v2"
	"testing"

	"github.com/dohost/dohost/dohosttest"
	"github.com/dohost/dohost/internal/randprog"
	"github.com/dohost/dohost/internal/randtest"
)

var progTests = randtest.NewTests(flags, randprog.Programs, 30, 1)

func TestProgProgramsSimulated(t *testing.T) { progTests.Simulate(t, 20) }

func TestProgProgramsAreRepeatable(t *testing.T) { progTests.Repeat(t) }

func TestProgProgramsAtEveryPoint(t *testing.T) { progTests.EveryPoint(t) }

// wrongAnswer is a fault of the model, which expects another result of an instruction.
func wrongAnswer(op randprog.Op, incarnation int) randtest.Programs[randprog.Workload] {
	return faulty(randprog.Programs, randprog.NewObserver, func(w *randprog.Observer) {
		w.Expect = func(n int, in randprog.Instr, want string) string {
			if in.Op == op && n >= incarnation {
				return "another result"
			}
			return want
		}
	})
}

// TestProgFailureShrinksToAnInstruction has a fault that needs one instruction, in the first incarnation, or in the second one.
func TestProgFailureShrinksToAnInstruction(t *testing.T) {
	for name, incarnation := range map[string]int{"put": 1, "recovered": 2} {
		t.Run(name, func(t *testing.T) {
			p := wrongAnswer(randprog.Put, incarnation)
			w := p.DrawFew(rand.New(rand.NewPCG(2, 0)))
			s, _ := p.Scenario(w)
			failures, _ := dohosttest.Explore(t, s)
			if len(failures) == 0 {
				t.Fatalf("%v does not fail", randtest.Literal(w))
			}
			randtest.CheckShrunk(t, p, p.Shrink(t, failures[0], w), "prog/"+name)
		})
	}
}

func TestProgSimulationThatFailsShrinksToAnInstruction(t *testing.T) {
	randtest.CheckSimulationShrinks(t, wrongAnswer(randprog.Add, 2), 0.05, "prog/simulation")
}
