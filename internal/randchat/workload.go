package randchat

import (
	"iter"
	"math/rand/v2"

	"github.com/dohost/dohost/chat"
	"github.com/dohost/dohost/internal/randtest"
)

// Workload is the work of a run: the instructions of each caller, and the faults of the host.
type Workload struct {
	Policy  chat.Policy `json:",omitempty"`
	Budget  Budget      `json:",omitzero"`
	Guarded bool        `json:",omitempty"` // the class refuses all requests: see viewers.go
	NoEnds  bool        `json:",omitempty"` // no instruction ends the incarnation, and no code panics: the test ends it at each point
	Callers [][]Instr
	Faults  []randtest.Fault `json:",omitempty"`
}

// Programs are the random programs of this package, for its tests.
var Programs = randtest.Programs[Workload]{
	Name: "chat", Draw: drawWorkload, DrawFew: func(r *rand.Rand) Workload { return DrawFew(r, 1) }, Scenario: Scenario, Shorter: Shorter, Chance: 0.006,
}

// drawWorkload draws the work of a simulation.
func drawWorkload(r *rand.Rand, faults float64) Workload {
	work := Workload{Policy: policies[r.IntN(len(policies))]}
	clients, tools := 1+r.IntN(maxClients), r.IntN(2) == 0
	work.Callers, work.Faults = randtest.Draw(r, 3, 30, faults, func(_, at int) Instr {
		in := Instr{Op: Pass, N: r.IntN(20)}
		if r.IntN(13) > 0 {
			in = drawInstr(r, clients, tools)
		}
		in.At = at
		return in
	})
	drawBudget(r, &work)
	work.Guarded = r.IntN(4) == 0
	return work
}

// DrawFew draws a number of instructions for each of two callers.
func DrawFew(r *rand.Rand, each int) Workload {
	work := Workload{NoEnds: true, Policy: policies[r.IntN(len(policies))]}
	clients, tools := 1+r.IntN(maxClients), r.IntN(2) == 0
	for range 2 {
		var list []Instr
		for range each {
			list = append(list, drawInstr(r, clients, tools))
		}
		work.Callers = append(work.Callers, list)
	}
	drawBudget(r, &work)
	return work
}

// Shorter returns the forms of the work with less to do.
func Shorter(work Workload) iter.Seq[Workload] {
	return randtest.Join(randtest.ShorterWork(work.Callers, work.Faults, func(callers [][]Instr, faults []randtest.Fault) Workload {
		return Workload{work.Policy, work.Budget, work.Guarded, work.NoEnds, callers, faults}
	}, shorterInstr), func(yield func(Workload) bool) {
		with, guarded := work, work
		_ = randtest.Zero(&with.Budget) && !yield(with) || randtest.Zero(&guarded.Guarded) && yield(guarded)
	})
}

// shorterInstr returns the forms of an instruction with a shorter plan, and that without a time.
func shorterInstr(in Instr) iter.Seq[Instr] {
	shorter := randtest.Map(shorterPlan(in.Plan), func(p Plan) Instr {
		with := in
		with.Plan = p
		return with
	})
	return randtest.Join(shorter, func(yield func(Instr) bool) {
		if with := in; in.At != 0 {
			with.At = 0
			yield(with)
		}
	})
}

func shorterPlan(p Plan) iter.Seq[Plan] {
	return randtest.Join(
		randtest.Map(randtest.Shorter(p.Words, shorterWord), func(words []Word) Plan { return Plan{p.Model, words, p.Recovery} }),
		randtest.Map(randtest.Shorter(p.Recovery, nil), func(list []Recovery) Plan { return Plan{p.Model, p.Words, list} }),
	)
}

func shorterWord(word Word) iter.Seq[Word] {
	return randtest.Map(randtest.Shorter(word.Calls, nil), func(calls []Use) Word { return Word{word.Before, word.N, calls} })
}
