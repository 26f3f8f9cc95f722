package randtest

import (
	"math/rand/v2"

	"github.com/dohost/dohost"
)

// Pick draws an element by its weight.
func Pick[E any](r *rand.Rand, from []E, weight func(E) int) E {
	sum := 0
	for _, e := range from {
		sum += weight(e)
	}
	n := r.IntN(sum)
	for _, e := range from {
		if n -= weight(e); n < 0 {
			return e
		}
	}
	panic("unreachable")
}

// gaps are the times between two acts, in milliseconds: zero, so that they overlap, or enough for timers, alarms and idle
// eviction.
var gaps = []int{0, 0, 0, 1, 1000, 30_000, 180_000}

// downtimes are the times between two processes, in milliseconds.
var downtimes = []int{0, 1000, 60_000, 7_200_000}

// Draw draws the work of a run: a number of acts, which it divides among callers, and with a probability a fault of the host
// before each. act draws an act, given its number and the time between the beginning of the run and the act, in milliseconds.
func Draw[A any](r *rand.Rand, callers, acts int, faults float64, act func(number, at int) A) (work [][]A, list []Fault) {
	work = make([][]A, callers)
	at := 0
	for n := range acts {
		at += gaps[r.IntN(len(gaps))]
		if r.Float64() < faults {
			f := Fault{Kind: faultKinds[r.IntN(len(faultKinds))], At: at, For: downtimes[r.IntN(len(downtimes))]}
			if f.Kind == Restart {
				f.For = 0
			}
			list = append(list, f)
		}
		c := r.IntN(callers)
		work[c] = append(work[c], act(n+1, at))
	}
	return work, list
}

// modes are the modes of the ends of processes.
var modes = map[FaultKind]dohost.EndMode{PowerCut: dohost.EndPowerCut, Kill: dohost.EndKill}
