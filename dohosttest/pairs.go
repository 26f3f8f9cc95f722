package dohosttest

import (
	"math/rand/v2"
)

// recovery notes the points that came after the first ending of a run.
func (x *explorer) recovery(first strike, tr *trial) {
	for _, p := range tr.since {
		x.after = append(x.after, second{first, p})
	}
}

// sinceStrike lists the points that the run has passed since its first strike, in the
// order in which it did.
func (w *world) sinceStrike() (ps []Point) {
	if len(w.struck) == 0 {
		return nil
	}
	struck := false
	for _, l := range w.log.lines {
		switch {
		case l.point == nil:
		case struck:
			ps = append(ps, *l.point)
		case l.point.Object == w.struck[0].Point.Object && l.point.Index == w.struck[0].Point.Index:
			struck = true
		}
	}
	return ps
}

// pairs ends runs twice. The first ending is one of those that did no harm alone.
func (x *explorer) pairs() {
	all := x.after
	x.r.AllPairs += 2 * len(all)
	draw := rand.New(rand.NewPCG(x.s.Seed, 1))
	for range min(x.s.Pairs, 2*len(all)) {
		at := draw.IntN(len(all))
		ways := waysAt(all[at].then)
		plan := []strike{all[at].first, {all[at].then, ways[draw.IntN(len(ways))]}}
		tr := x.s.try(x.t, x.moved, x.order, plan)
		x.r.Pairs++
		x.note(tr, plan)
	}
}
