package randwatch

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
	ActWatch ActKind = "ActWatch" // a watch begins, or continues
	ActEvict ActKind = "ActEvict" // the incarnation ends
	ActWait  ActKind = "ActWait"  // time passes
)

// GoString returns the name of the constant.
func (k ActKind) GoString() string { return "randwatch." + string(k) }

// Programs are the random programs of this package, for its tests.
var Programs = randtest.Programs[Workload]{Name: "watch", Draw: drawWorkload, DrawFew: drawFew, FirstFew: firstFew, Scenario: Scenario, Shorter: Shorter, Chance: 0.02}

// firstFew is a seed whose program changes notes that are watched, and whose points take less than a second.
const firstFew = 7

// actKinds has each kind as often as its weight.
var actKinds = slices.Concat(
	slices.Repeat([]ActKind{ActCall}, 9), slices.Repeat([]ActKind{ActWatch}, 12), []ActKind{ActEvict, ActWait},
)

// drawWorkload draws the work of a simulation.
func drawWorkload(r *rand.Rand, faults float64) Workload {
	return randtest.DrawWorkload(r, 32, faults, actKinds, func(a *Act, number int) {
		switch a.Kind {
		case ActWait, ActWatch:
			a.For = r.IntN(60)
		case ActCall:
			a.Program = Draw(r, number)
		}
	})
}

// drawFew draws a call, and a watch of another caller.
func drawFew(r *rand.Rand) Workload {
	return Workload{Callers: [][]Act{{{Kind: ActCall, Program: Draw(r, 10)}}, {{Kind: ActWatch, Seed: r.IntN(1000), For: 5}}}}
}

// act does an act.
func (w *Observer) act(_ context.Context, h *dohosttest.Host, a Act) error {
	switch a.Kind {
	case ActCall:
		// A program may wait, and its caller may continue until then.
		c := h.Client(func(ctx context.Context) error { return w.Send(ctx, h, a.Program) })
		if a.Seed%2 > 0 {
			return c.Wait()
		}
	case ActWatch:
		h.Client(func(ctx context.Context) error { return w.watch(ctx, h, a.Seed, time.Duration(a.For)*time.Second) })
	case ActEvict:
		h.Evict(boards.Get(h, "a").ID(), dohost.EndCrash)
	case ActWait:
		h.Advance(time.Duration(a.For) * time.Second)
	}
	return w.Err()
}

// Shorter returns the forms of the work with less to do.
func Shorter(work Workload) iter.Seq[Workload] {
	return work.Shorter(func(in *Instr) *[]Instr { return &in.Body })
}
