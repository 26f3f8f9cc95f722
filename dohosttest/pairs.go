package dohosttest

// A scenario of several objects has millions of pairs. So the explorer keeps only the pairs that it will try: a sample that
// each further pair enters with the probability that makes all pairs equally likely.

// addPairs adds the pairs of an ending that did no harm alone, and each ending at a point after it, to the population of
// the sample.
func (x *explorer) addPairs(first interruption, tr *trial) {
	for _, p := range tr.since {
		for _, ending := range allEndings {
			if !x.s.endsAt(ending, p) {
				continue
			}
			x.pairCount++
			at := len(x.sampled)
			if at < x.s.Pairs {
				x.sampled = append(x.sampled, nil)
			} else {
				at = x.draw.IntN(x.pairCount)
			}
			if at < x.s.Pairs {
				x.sampled[at] = []interruption{first, {p, ending}}
			}
		}
	}
}

// sinceEnding lists the points that the run has passed since its first ending, in order.
func (w *scenarioRun) sinceEnding() (ps []Point) {
	if len(w.endings) == 0 {
		return nil
	}
	ended := false
	for _, l := range w.log.lines {
		switch {
		case l.point == nil:
		case ended:
			ps = append(ps, *l.point)
		case l.point.Object == w.endings[0].Point.Object && l.point.Index == w.endings[0].Point.Index:
			ended = true
		}
	}
	return ps
}

// pairs runs the scenario with the sampled pairs of endings.
func (x *explorer) pairs() {
	x.r.AllPairs += x.pairCount
	for _, plan := range x.sampled {
		if x.over() {
			return
		}
		tr := x.s.try(x.t, x.moved, x.order, plan)
		x.r.Pairs++
		x.record(tr, plan)
	}
}
