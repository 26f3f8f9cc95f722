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

// Workload is the work of a run: the acts of each caller, and the faults of the host.
type Workload struct {
	Callers [][]Act
	Faults  []randtest.Fault `json:",omitempty"`
}

// Act is an act of a caller. Seed makes the choices that depend on the state of the run, such as the choice of a connection.
type Act struct {
	Kind    ActKind
	At      int     `json:",omitempty"` // milliseconds after the beginning of the run
	Seed    int     `json:",omitempty"`
	For     int     `json:",omitempty"` // seconds, of ActWait
	Program Program `json:",omitzero"`
}

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
	Draw: drawWorkload, DrawFew: drawFew, FirstFew: firstFew, Scenario: Scenario, Shorter: Shorter, Chance: 0.008,
}

// firstFew is a seed whose programs insert rows that are work, and whose points take a second.
const firstFew = 29

// actKinds has each kind as often as its weight.
var actKinds = slices.Concat(
	slices.Repeat([]ActKind{ActCall}, 8), slices.Repeat([]ActKind{ActConnect}, 3), slices.Repeat([]ActKind{ActClient}, 2), []ActKind{ActWait},
)

// drawWorkload draws the work of a simulation.
func drawWorkload(r *rand.Rand, faults float64) (work Workload) {
	work.Callers, work.Faults = randtest.Draw(r, 3, 30, faults, func(number, at int) Act {
		a := Act{Kind: actKinds[r.IntN(len(actKinds))], At: at, Seed: r.IntN(1000)}
		if a.Kind == ActWait {
			a.For = r.IntN(60)
			return a
		}
		a.Program = Draw(r, number)
		if a.Kind != ActCall && r.IntN(2) == 0 {
			a.Program.Code = append(a.Program.Code, Instr{Op: SetState, N: r.IntN(100)})
		}
		return a
	})
	return work
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

// Shorter returns the forms of the work with less to do.
func Shorter(work Workload) iter.Seq[Workload] {
	return randtest.ShorterWork(work.Callers, work.Faults, func(callers [][]Act, faults []randtest.Fault) Workload {
		return Workload{callers, faults}
	}, shorterAct)
}

// shorterAct returns the forms of an act with less to do, and those with a call, without a time and without a seed.
func shorterAct(a Act) iter.Seq[Act] {
	return randtest.ShorterAct(a, func(a *Act) *[]Instr { return &a.Program.Code }, func(in *Instr) *[]Instr { return &in.Body },
		func(a *Act) bool {
			changed := a.Kind != ActCall && len(a.Program.Code) > 0
			a.Kind = ActCall
			return changed
		},
		func(a *Act) bool { return randtest.Zero(&a.At) }, func(a *Act) bool { return randtest.Zero(&a.Seed) })
}
