package dohosttest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/eviction"
)

// explore is EveryPoint without output and without replays.
func explore(t *testing.T, s *Scenario) *report {
	begun := time.Now()
	r := &report{Runs: map[dohost.EndMode]int{}}
	defer func() { r.Took = time.Since(begun) }()
	if err := s.check(); err != nil {
		r.Failures = append(r.Failures, &Failure{err: err})
		return r
	}
	orders := []order{diskFirst}
	if s.Batched {
		orders = append(orders, diskLast)
	}
	for _, o := range orders {
		x := &explorer{t: t, s: s, r: r, order: o, moved: new(atomic.Int64), draw: rand.New(rand.NewPCG(s.Seed, 1))}
		if !x.untouched() {
			return r
		}
		x.singles()
		x.pairs()
		if x.over() {
			break
		}
	}
	if len(r.Failures) == 0 {
		if err := r.vacuous(s); err != nil {
			r.Failures = append(r.Failures, &Failure{err: err})
		}
	}
	return r
}

// explorer tries the points of a scenario in one order of the disk.
type explorer struct {
	t     *testing.T
	s     *Scenario
	r     *report
	order order
	moved *atomic.Int64
	base  *trial
	draw  *rand.Rand // of the pairs
	stuck bool       // a bubble is stuck; it may disturb later ones

	pairCount int
	sampled   [][]interruption // pairs, at most Scenario.Pairs
}

func (x *explorer) fail(tr *trial, plan []interruption, err error) {
	x.r.Failures = append(x.r.Failures, &Failure{plan: plan, endings: tr.run.endings, order: x.order, err: err, cause: tr.err, log: tr.run.log.about(len(plan) > 0)})
}

// untouched runs the scenario twice, without endings.
func (x *explorer) untouched() bool {
	x.base = x.s.try(x.t, x.moved, x.order, nil)
	if x.base.err != nil {
		x.fail(x.base, nil, fmt.Errorf("the undisturbed run fails: %w", x.base.err))
		return false
	}
	if len(x.base.points) == 0 {
		x.fail(x.base, nil, errors.New("no points: Run does not reach any object of the host that it is given"))
		return false
	}
	again := x.s.try(x.t, x.moved, x.order, nil)
	if again.err != nil {
		x.fail(again, nil, fmt.Errorf("a second undisturbed run fails, because the first left state "+
			"(a FakeService that is not in Services, or state that Reset must recreate): %w", again.err))
		return false
	}
	if err := differ(x.base.points, again.points); err != nil {
		x.fail(again, nil, err)
		return false
	}
	x.r.Points += len(x.base.points)
	objects := map[dohost.ID]bool{}
	for _, p := range x.base.points {
		objects[p.Object] = true
	}
	x.r.Objects = len(objects)
	return true
}

// differ returns an error with the first difference of two runs.
func differ(a, b []Point) error {
	for i := range max(len(a), len(b)) {
		was, is := "the end", "the end"
		if i < len(a) {
			was = a[i].String()
		}
		if i < len(b) {
			is = b[i].String()
		}
		if was != is {
			return fmt.Errorf("%w: of two undisturbed runs, the first has %s where the second has %s", errNotDeterministic, was, is)
		}
	}
	return nil
}

// endsAt reports whether a run may end in this way at a point. Where writes are not synced yet, an ending process may keep or
// lose them.
func (s *Scenario) endsAt(e dohost.EndMode, p Point) bool {
	if e == eviction.EndKill && p.Place != eviction.PlaceSync || !canEnd(e, p) {
		return false
	}
	return e == fullDisk && s.FullDisk || slices.Contains(s.endings(), e)
}

// endingsAt returns the endings of runs at a point.
func (s *Scenario) endingsAt(p Point) (es []dohost.EndMode) {
	for _, e := range interruptions {
		if s.endsAt(e, p) {
			es = append(es, e)
		}
	}
	return es
}

// singles ends a run at every point with every ending, or does a sample of these runs.
func (x *explorer) singles() {
	tried := map[spot]bool{}
	for _, one := range x.sample(x.s.interruptions(x.base.points)) {
		if x.over() {
			break
		}
		plan := []interruption{one}
		tr := x.s.try(x.t, x.moved, x.order, plan)
		tried[spot{one.Point.Object, one.Point.Index}] = true
		x.r.Runs[one.Ending]++
		x.record(tr, plan)
		if tr.err == nil && x.s.Pairs > 0 && one.Ending != fullDisk {
			x.addPairs(one, tr)
		}
	}
	x.r.Skipped += len(x.base.points) - len(tried)
}

// interruptions returns every ending of every point, in the order of the points.
func (s *Scenario) interruptions(points []Point) (all []interruption) {
	for _, p := range points {
		selected := s.Places == nil || slices.Contains(s.Places, p.Place)
		for _, ending := range s.endingsAt(p) {
			if selected || ending == fullDisk {
				all = append(all, interruption{p, ending})
			}
		}
	}
	return all
}

// sample draws Scenario.Sample endings and a third as many full disks, and keeps their order.
func (x *explorer) sample(all []interruption) []interruption {
	if x.s.Sample == 0 {
		return all
	}
	var endings, full []int
	for i, one := range all {
		if one.Ending == fullDisk {
			full = append(full, i)
		} else {
			endings = append(endings, i)
		}
	}
	drawn := append(x.draws(endings, x.s.Sample, 2), x.draws(full, (x.s.Sample+2)/3, 3)...)
	slices.Sort(drawn)
	some := make([]interruption, 0, len(drawn))
	for _, i := range drawn {
		some = append(some, all[i])
	}
	return some
}

// draws returns n of some numbers, drawn by Scenario.Seed.
func (x *explorer) draws(of []int, n int, stream uint64) []int {
	if n >= len(of) {
		return of
	}
	some := make([]int, 0, n)
	for _, i := range rand.New(rand.NewPCG(x.s.Seed, stream)).Perm(len(of))[:n] {
		some = append(some, of[i])
	}
	return some
}

// over reports whether to stop.
func (x *explorer) over() bool { return x.stuck || len(x.r.Failures) >= maxFailures }

func (x *explorer) record(tr *trial, plan []interruption) {
	if tr.err == nil && x.base.run.panics.Load() == 0 && tr.run.panics.Load() > 0 {
		tr.err = errors.New("an object's code panicked, but does not in an undisturbed run")
	}
	if tr.err != nil {
		x.stuck = x.stuck || errors.Is(tr.err, errStuck)
		x.fail(tr, plan, tr.err)
		return
	}
	b := tr.recoveryCost(x.base)
	x.r.Cost.add(b)
	if b.Time > x.r.Worst.Time {
		x.r.Worst = b
	}
}

// recoveryCost compares a run with the untouched run.
func (tr *trial) recoveryCost(base *trial) RecoveryCost {
	b := RecoveryCost{Events: tr.run.events - base.run.events, Incarnations: tr.run.incarnations - base.run.incarnations, Time: tr.took - base.took}
	b.Unknown = int(tr.run.unknown.Load() - base.run.unknown.Load())
	b.FalseUnknown = int(tr.run.falseUnknown.Load() - base.run.falseUnknown.Load())
	b.judged = tr.run.hadEffect != nil
	for _, s := range tr.run.services {
		b.Effects += s.repeats
		b.Bytes += s.bytes
	}
	return b
}
