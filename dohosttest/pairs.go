package dohosttest

import (
	"math/rand/v2"
)

// addPairs records the points after the first ending of a run.
func (x *explorer) addPairs(first interruption, tr *trial) {
	for _, p := range tr.since {
		x.after = append(x.after, endingPair{first, p})
	}
}

// sinceEnding lists the points that the run has passed since its first ending, in order.
func (w *scenarioRun) sinceEnding() (ps []Point) {
	if len(w.endings) == 0 {
		return nil
	}
	struck := false
	for _, l := range w.log.lines {
		switch {
		case l.point == nil:
		case struck:
			ps = append(ps, *l.point)
		case l.point.Object == w.endings[0].Point.Object && l.point.Index == w.endings[0].Point.Index:
			struck = true
		}
	}
	return ps
}

// pairs runs the scenario with two endings. The first is an ending that did no harm alone.
func (x *explorer) pairs() {
	var all [][]interruption
	for _, s := range x.after {
		for _, ending := range x.s.endingsAt(s.then) {
			all = append(all, []interruption{s.first, {s.then, ending}})
		}
	}
	x.r.AllPairs += len(all)
	draw := rand.New(rand.NewPCG(x.s.Seed, 1))
	draw.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	for _, plan := range all[:min(x.s.Pairs, len(all))] {
		if x.over() {
			return
		}
		tr := x.s.try(x.t, x.moved, x.order, plan)
		x.r.Pairs++
		x.record(tr, plan)
	}
}
