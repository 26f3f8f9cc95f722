package randagent

import (
	"context"
	"iter"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/dohost/dohost/dohosttest"
	"github.com/dohost/dohost/internal/randtest"
)

// Workload is the work of a run.
type Workload = randtest.Workload[ActKind, Instr]

// Act is an act of a caller.
type Act = randtest.Act[ActKind, Instr]

// ActKind is the kind of an act.
type ActKind string

// The acts.
const (
	ActCall    ActKind = "ActCall"    // of the agent, with the program
	ActConnect ActKind = "ActConnect" // a client connects, or one that is connected sends the program
	ActClient  ActKind = "ActClient"  // a client sends the program, tries to change the state, or leaves
	ActWait    ActKind = "ActWait"    // time passes
)

// GoString returns the name of the constant.
func (k ActKind) GoString() string { return "randagent." + string(k) }

// Programs are the random programs of this package, for its tests.
var Programs = randtest.Programs[Workload]{
	Name: "agent", Draw: drawWorkload, DrawFew: drawFew, FirstFew: firstFew, Scenario: Scenario, Shorter: Shorter, Chance: 0.008,
}

// firstFew is a seed whose programs insert rows that are work, and whose points take a second.
const firstFew = 29

// actKinds has each kind as often as its weight.
var actKinds = slices.Concat(
	slices.Repeat([]ActKind{ActCall}, 8), slices.Repeat([]ActKind{ActConnect}, 3), slices.Repeat([]ActKind{ActClient}, 2), []ActKind{ActWait},
)

// drawWorkload draws the work of a simulation.
func drawWorkload(r *rand.Rand, faults float64) Workload {
	return randtest.DrawWorkload(r, 30, faults, actKinds, func(a *Act, number int) {
		if a.Kind == ActWait {
			a.For = r.IntN(60)
			return
		}
		a.Program = Draw(r, number)
		if a.Kind != ActCall && r.IntN(2) == 0 {
			a.Program.Code = append(a.Program.Code, Instr{Op: SetState, N: r.IntN(100)})
		}
	})
}

// drawFew draws a call for each of two callers.
func drawFew(r *rand.Rand) (work Workload) {
	for caller := range 2 {
		work.Callers = append(work.Callers, []Act{{Kind: ActCall, Program: Draw(r, 10+caller)}})
	}
	return work
}

// act does an act.
func (w *Observer) act(ctx context.Context, h *dohosttest.Host, a Act) error {
	r := rand.New(rand.NewPCG(uint64(a.Seed), 0))
	switch a.Kind {
	case ActCall:
		return w.Send(ctx, h, a.Program)
	case ActConnect:
		return w.Connect(ctx, h, r, a.Program)
	case ActClient:
		return w.Act(ctx, r, a.Program)
	}
	h.Advance(time.Duration(a.For) * time.Second)
	return nil
}

// Shorter returns the forms of the work with less to do, also with calls in place of other acts.
func Shorter(work Workload) iter.Seq[Workload] {
	return work.Shorter(func(in *Instr) *[]Instr { return &in.Body }, randtest.AsCall[ActKind, Instr](ActCall))
}
