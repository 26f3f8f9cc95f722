package dohosttest

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/eviction"
)

// script has all drawn parts of a run of a simulation.
type script struct {
	seed    uint64 // of the order of steps
	actions []action
	endings map[spot]dohost.EndMode
}

// spot identifies a point by its number.
type spot struct {
	id    dohost.ID
	index int
}

// action is an operation of a client, or a fault of the host. Client 0 makes the faults.
type action struct {
	client   int
	at       time.Duration // after the beginning
	op       int
	name     string
	seed     uint64
	fault    fault
	ending   dohost.EndMode
	downtime time.Duration
}

type fault int

const (
	faultNone     fault = iota
	faultDowntime       // the process ends, and the next begins a while later
	faultSync           // a sync fails, and with it the process
	faultRestart        // the process closes in good order, and starts again
)

// String formats the action as a line of a script.
func (a action) String() string {
	switch a.fault {
	case faultDowntime:
		return fmt.Sprintf("%v: %v, then down for %v", a.at, a.ending, a.downtime)
	case faultSync:
		return fmt.Sprintf("%v: the next sync fails", a.at)
	case faultRestart:
		return fmt.Sprintf("%v: restart", a.at)
	}
	return fmt.Sprintf("%v: client %d: %s (seed %d)", a.at, a.client, a.name, a.seed)
}

// gaps are the times between two operations: zero, so that they overlap, or enough for
// timers, alarms and idle eviction.
var gaps = []time.Duration{0, 0, 0, time.Millisecond, time.Second, 30 * time.Second, 3 * time.Minute}

// maxDowntime is the longest time between a process and the next one.
const maxDowntime = 2 * time.Hour

// draw makes the script of a seed.
func (s *Simulation) draw(seed uint64) *script {
	r := rand.New(rand.NewPCG(seed, 2))
	sc := &script{seed: seed, endings: map[spot]dohost.EndMode{}}
	if len(s.Ops) == 0 {
		return sc
	}
	weights := 0
	for _, op := range s.Ops {
		weights += cmp.Or(op.Weight, 1)
	}
	faults, at := cmp.Or(s.Faults, 0.05), time.Duration(0)
	for range cmp.Or(s.Steps, 30) {
		at += gaps[r.IntN(len(gaps))]
		if r.Float64() < faults {
			sc.actions = append(sc.actions, drawFault(r, at))
		}
		op, left := 0, r.IntN(weights)
		for ; left >= cmp.Or(s.Ops[op].Weight, 1); op++ {
			left -= cmp.Or(s.Ops[op].Weight, 1)
		}
		client := 1 + r.IntN(cmp.Or(s.Clients, 3))
		sc.actions = append(sc.actions, action{client: client, at: at, op: op, name: s.Ops[op].Name, seed: r.Uint64() >> 40})
	}
	return sc
}

func drawFault(r *rand.Rand, at time.Duration) action {
	pauses := []time.Duration{0, time.Second, time.Minute, maxDowntime}
	return action{
		at: at, fault: faultDowntime + fault(r.IntN(int(faultRestart))),
		ending: []dohost.EndMode{eviction.EndPowerCut, eviction.EndKill}[r.IntN(2)], downtime: pauses[r.IntN(len(pauses))],
	}
}

// String formats the script for a person.
func (sc *script) String() string {
	var b strings.Builder
	for _, a := range sc.actions {
		fmt.Fprintf(&b, "  %v\n", a)
	}
	for _, at := range sc.spots() {
		fmt.Fprintf(&b, "  %v at point %d of %v\n", sc.endings[at], at.index, at.id)
	}
	return b.String()
}

func (sc *script) spots() []spot {
	return slices.SortedFunc(maps.Keys(sc.endings), func(a, b spot) int {
		if c := compareIDs(a.id, b.id); c != 0 {
			return c
		}
		return a.index - b.index
	})
}
