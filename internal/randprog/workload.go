package randprog

import (
	"context"
	"iter"
	"math/rand/v2"

	"github.com/dohost/dohost/dohosttest"
	"github.com/dohost/dohost/internal/randtest"
)

// Workload is the work of a run.
type Workload = randtest.Workload[ActKind, Instr]

// Act is an act of a caller.
type Act = randtest.Act[ActKind, Instr]

// ActKind is the kind of an act.
type ActKind string

// The acts. The first four send a program to an object.
const (
	ActCall    ActKind = "ActCall"    // to a copy, if Object is not below Objects and there are enough
	ActHTTP    ActKind = "ActHTTP"    // in a request
	ActConnect ActKind = "ActConnect" // in a request for a socket, which the program accepts
	ActMessage ActKind = "ActMessage" // in a message of a socket
	ActLeave   ActKind = "ActLeave"   // the client of a socket ends the connection
	ActFill    ActKind = "ActFill"    // the disk becomes full
	ActFree    ActKind = "ActFree"    // the disk is freed
	ActBackup  ActKind = "ActBackup"  // of the store
)

// GoString returns the name of the constant.
func (k ActKind) GoString() string { return "randprog." + string(k) }

// Programs are the random programs of this package, for its tests.
var Programs = randtest.Programs[Workload]{Name: "prog", Draw: drawWorkload, DrawFew: drawFew, Scenario: Scenario, Shorter: Shorter}

var actKinds = []ActKind{ActCall, ActHTTP, ActConnect, ActMessage, ActMessage, ActLeave, ActFill, ActBackup}

// drawWorkload draws the work of a simulation.
func drawWorkload(r *rand.Rand, faults float64) (work Workload) {
	work.Callers, work.Faults = randtest.Draw(r, 3, 30, faults, func(number, at int) Act {
		a := Act{Kind: actKinds[r.IntN(len(actKinds))], At: at, Object: r.IntN(Objects), Seed: r.IntN(1000)}
		switch a.Kind {
		case ActCall:
			a.Object, a.Program = r.IntN(4*Objects), Draw(r, number)
		case ActHTTP:
			a.Program = Draw(r, number)
		case ActConnect, ActMessage:
			a.Program = drawWithSockets(r, number)
		case ActFill:
			if r.IntN(3) > 0 {
				a.Kind = ActFree
			}
		}
		return a
	})
	return work
}

// drawFew draws three acts for each of two callers: sockets get most of them.
func drawFew(r *rand.Rand) (work Workload) {
	for caller := range 2 {
		var acts []Act
		for i := range 3 {
			a := Act{Kind: ActMessage, Object: r.IntN(Objects), Seed: r.IntN(1000)}
			id := (i+1)*10 + caller
			switch r.IntN(6) {
			case 0:
				a.Kind, a.Program = ActCall, Draw(r, id)
			case 1:
				a.Kind, a.Program = ActHTTP, Draw(r, id)
			case 2:
				a.Kind = ActLeave
			default:
				a.Program = drawWithSockets(r, id)
			}
			acts = append(acts, a)
		}
		work.Callers = append(work.Callers, acts)
	}
	return work
}

// act does an act.
func (w *Observer) act(ctx context.Context, h *dohosttest.Host, a Act) error {
	r := rand.New(rand.NewPCG(uint64(a.Seed), 0))
	switch k := a.Object % Objects; a.Kind {
	case ActCall:
		return w.Send(ctx, h, w.objectOrCopy(a.Object), a.Program)
	case ActHTTP:
		return w.SendHTTP(ctx, h, k, a.Program)
	case ActConnect:
		if !w.full(objectName(k)) {
			return w.Connect(ctx, h, r, k, a.Program)
		}
		return w.Message(ctx, h, r, k, a.Program)
	case ActMessage:
		return w.Message(ctx, h, r, k, a.Program)
	case ActLeave:
		return w.Leave(r, k)
	case ActBackup:
		return w.Backup(ctx, h.Host())
	}
	return w.FillDisk(a.Kind == ActFill)
}

// Shorter returns the forms of the work with less to do, also with calls in place of other acts.
func Shorter(work Workload) iter.Seq[Workload] {
	return work.Shorter(func(in *Instr) *[]Instr { return &in.Body }, randtest.AsCall[ActKind, Instr](ActCall))
}
