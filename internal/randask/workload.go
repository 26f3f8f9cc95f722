package randask

import (
	"context"
	"iter"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/dohost/dohost"
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
	ActCall  ActKind = "ActCall"  // of the object, with the program
	ActEvict ActKind = "ActEvict" // the incarnation of the object ends
	ActWait  ActKind = "ActWait"  // time passes
)

// GoString returns the name of the constant.
func (k ActKind) GoString() string { return "randask." + string(k) }

// Programs are the random programs of this package, for its tests.
var Programs = randtest.Programs[Workload]{
	Name: "ask", Draw: drawWorkload, DrawFew: drawFew, FirstFew: firstFew, Scenario: Scenario, Shorter: Shorter, Chance: 0.004,
}

// firstFew is a seed whose agents ask each other, and whose points take less than a second.
const firstFew = 1

// actKinds has each kind as often as its weight.
var actKinds = slices.Concat(slices.Repeat([]ActKind{ActCall}, 12), []ActKind{ActEvict, ActEvict, ActWait})

// drawWorkload draws the work of a simulation.
func drawWorkload(r *rand.Rand, faults float64) Workload {
	return randtest.DrawWorkload(r, 14, faults, actKinds, func(a *Act, number int) {
		a.Object = r.IntN(len(objects))
		switch a.Kind {
		case ActWait:
			a.For = r.IntN(60)
		case ActCall:
			a.Program = Draw(r, number)
		}
	})
}

// drawFew draws a message with a question for each of two callers, and a change while the agents wait.
func drawFew(r *rand.Rand) (work Workload) {
	for caller := range 2 {
		p := Program{ID: 10 + caller, Code: []Instr{drawSend(r, true)}}
		if caller > 0 {
			p.Code = append(p.Code, Instr{Op: Sleep, N: 10 * r.IntN(300)}, drawInstr(r, randtest.Pick(r, rowOps, weightOf).op))
		}
		work.Callers = append(work.Callers, []Act{{Kind: ActCall, Object: caller, Program: p}})
	}
	return work
}

// act does an act.
func (w *Observer) act(_ context.Context, h *dohosttest.Host, a Act) error {
	object := objects[a.Object%len(objects)]
	switch a.Kind {
	case ActCall:
		// A program may run for minutes, and its caller continues after some of them.
		c := h.Client(func(ctx context.Context) error { return w.Send(ctx, h, object, a.Program) })
		if a.Seed%3 > 0 {
			return c.Wait()
		}
	case ActEvict:
		h.Evict(askObjects.Get(h, object).ID(), dohost.EndCrash)
	case ActWait:
		h.Advance(time.Duration(a.For) * time.Second)
	}
	return w.Err()
}

// Shorter returns the forms of the work with less to do, also with all programs in the first object.
func Shorter(work Workload) iter.Seq[Workload] {
	return work.Shorter(func(in *Instr) *[]Instr { return &in.Body }, func(a *Act) bool { return randtest.Zero(&a.Object) })
}
