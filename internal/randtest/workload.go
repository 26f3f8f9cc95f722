package randtest

import (
	"context"
	"iter"
	"math/rand/v2"

	"github.com/dohost/dohost/dohosttest"
)

// Program is the work of one call: instructions. ID distinguishes the programs of a run.
//
// A package of programs has an alias with the name of each generic type of this package that its work contains, such as Program, so that
// [Source] prints the name of the alias.
type Program[I any] struct {
	ID   int
	Code []I
}

// String returns the program as a Go expression.
func (p Program[I]) String() string { return Literal(p) }

// Act is an act of a caller. Seed makes the choices that depend on the kind, or on the state of the run.
type Act[K ~string, I any] struct {
	Kind    K
	At      int        `json:",omitempty"` // milliseconds after the beginning of the run
	Object  int        `json:",omitempty"`
	Seed    int        `json:",omitempty"`
	For     int        `json:",omitempty"` // seconds
	Program Program[I] `json:",omitzero"`
}

// Workload is the work of a run: the acts of each caller, and the faults of the host.
type Workload[K ~string, I any] struct {
	Callers [][]Act[K, I]
	Faults  []Fault `json:",omitempty"`
}

// DrawWorkload draws a number of acts with [Draw], for three callers. It draws the kind of an act from kinds, and the seed; fill draws
// the rest.
func DrawWorkload[K ~string, I any](r *rand.Rand, acts int, faults float64, kinds []K, fill func(a *Act[K, I], number int)) (work Workload[K, I]) {
	work.Callers, work.Faults = Draw(r, 3, acts, faults, func(number, at int) Act[K, I] {
		a := Act[K, I]{Kind: kinds[r.IntN(len(kinds))], At: at, Seed: r.IntN(1000)}
		fill(&a, number)
		return a
	})
	return work
}

// Run returns the Run of a scenario that does the work: see [Run].
func (work Workload[K, I]) Run(act func(context.Context, *dohosttest.Host, Act[K, I]) error) func(context.Context, *dohosttest.Host) error {
	return Run(work.Callers, work.Faults, func(a Act[K, I]) int { return a.At }, act)
}

// Shorter returns the forms of the work with less to do: with fewer acts, faults and instructions, and with acts without a time, without a
// seed, or changed by a function of simpler. body returns a pointer to the instructions in the body of an instruction. A function of
// simpler returns false if it has not changed the act.
func (work Workload[K, I]) Shorter(body func(*I) *[]I, simpler ...func(*Act[K, I]) bool) iter.Seq[Workload[K, I]] {
	simpler = append(simpler, func(a *Act[K, I]) bool { return Zero(&a.At) }, func(a *Act[K, I]) bool { return Zero(&a.Seed) })
	shorter := func(a Act[K, I]) iter.Seq[Act[K, I]] {
		programs := Map(ShorterNested(a.Program.Code, body), func(list []I) Act[K, I] {
			with := a
			with.Program.Code = list
			return with
		})
		return Join(programs, func(yield func(Act[K, I]) bool) {
			for _, f := range simpler {
				if with := a; f(&with) && !yield(with) {
					return
				}
			}
		})
	}
	return ShorterWork(work.Callers, work.Faults, func(callers [][]Act[K, I], faults []Fault) Workload[K, I] {
		return Workload[K, I]{callers, faults}
	}, shorter)
}

// AsCall is for Workload.Shorter: it makes an act with a program a call, whose kind is given.
func AsCall[K ~string, I any](call K) func(*Act[K, I]) bool {
	return func(a *Act[K, I]) bool {
		changed := a.Kind != call && len(a.Program.Code) > 0
		a.Kind = call
		return changed
	}
}

// Zero is for Workload.Shorter: it sets a field to its zero value, and returns false if the field has it already.
func Zero[T comparable](field *T) bool {
	var zero T
	changed := *field != zero
	*field = zero
	return changed
}
