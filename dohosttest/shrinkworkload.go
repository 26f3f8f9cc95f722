package dohosttest

import (
	"errors"
	"iter"
	"slices"
	"sync/atomic"
	"testing"
	"time"
)

// The bounds of shortening a workload. Tests compare the shortest workloads, so a slow machine must reach the first bound first.
const (
	maxShrinkRuns   = 2000
	maxShrinkingFor = 3 * time.Minute // by the real clock
)

// Shrink shortens the workload of a failure, and returns the shortest workload that it finds, with its failure. workload is a
// value, such as a list of operations that a seed has drawn; scenario makes the failed scenario of it, and shorter the
// workloads to try in its place, the shortest first. A shorter workload replaces its origin if it fails like f in the same
// kind of run: with the same order of steps and in the same modes of endings at the same places of the same objects, or with
// fewer endings. Its error is like the error of f if [errors.Is] says so, or if their texts differ in numbers only.
//
// The search does at most 2,000 runs, and takes at most three minutes by the real clock. If it finds nothing, Shrink returns
// workload and f.
func Shrink[W any](t *testing.T, f *Failure, workload W, scenario func(W) Scenario, shorter func(W) iter.Seq[W]) (W, *Failure) {
	t.Helper()
	x := &shrinker{t: t, until: time.Now().Add(maxShrinkingFor)}
	// A sweep continues where the last workload was replaced; the last sweep tries all.
	for skip := 0; ; {
		at, replaced := 0, false
		for w := range shorter(workload) {
			if at++; at <= skip {
				continue
			}
			s := scenario(w)
			if g := x.fails(&s, f); g != nil {
				workload, f, skip, replaced = w, g, at-1, true
				break
			}
			if x.over() {
				return workload, f
			}
		}
		if !replaced && skip == 0 {
			return workload, f
		}
		if !replaced {
			skip = 0
		}
	}
}

// shrinker counts the runs of a Shrink.
type shrinker struct {
	t     *testing.T
	runs  int
	stuck bool
	until time.Time
}

func (x *shrinker) over() bool {
	return x.stuck || x.runs >= maxShrinkRuns || time.Now().After(x.until)
}

// run runs a scenario with a plan. The failure is nil unless the run fails like f.
func (x *shrinker) run(s *Scenario, f *Failure, plan []interruption) (*trial, *Failure) {
	x.runs++
	tr := s.try(x.t, new(atomic.Int64), f.order, plan)
	x.stuck = errors.Is(tr.err, errStuck)
	if tr.err == nil || f.cause == nil || !sameKind(tr.err, f.cause) {
		return tr, nil
	}
	return tr, &Failure{
		plan: plan, endings: tr.run.endings, order: f.order, err: tr.err, cause: tr.err, log: tr.run.log.about(len(plan) > 0), test: f.test,
	}
}

// fails runs a scenario without endings, and then with the endings of f, until it fails like f.
func (x *shrinker) fails(s *Scenario, f *Failure) *Failure {
	if err := s.check(); err != nil {
		return nil
	}
	var plan []interruption
	for i := range f.plan {
		tr, g := x.run(s, f, plan)
		if g != nil {
			return g
		}
		points := tr.points
		if len(plan) > 0 {
			points = tr.since
		}
		like := alike(s, points, f.plan[i])
		if i < len(f.plan)-1 {
			if len(like) == 0 {
				return nil
			}
			plan = append(plan, slices.MinFunc(like, f.plan[i].nearer))
			continue
		}
		for _, last := range like {
			if x.over() {
				return nil
			}
			if _, g := x.run(s, f, append(slices.Clip(plan), last)); g != nil {
				return g
			}
		}
		return nil
	}
	_, g := x.run(s, f, nil)
	return g
}

// nearer compares two endings by their distance to another one.
func (one interruption) nearer(a, b interruption) int {
	distance := func(p Point) int { return max(p.Index-one.Point.Index, one.Point.Index-p.Index) }
	return distance(a.Point) - distance(b.Point)
}

// alike returns the endings of points that are like another one: in the same mode, at the same place of the same object.
func alike(s *Scenario, points []Point, one interruption) (all []interruption) {
	for _, p := range points {
		if p.Object == one.Point.Object && p.Place == one.Point.Place && s.endsAt(one.Ending, p) {
			all = append(all, interruption{p, one.Ending})
		}
	}
	return all
}
