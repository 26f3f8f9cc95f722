package dohosttest

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/runtime"
)

// text is a failure as a person reads it.
func (f *failure) text(test string) string {
	var b strings.Builder
	if len(f.plan) == 0 {
		fmt.Fprintf(&b, "%v", f.err)
	}
	for i, s := range f.plan {
		if i < len(f.struck) {
			s = f.struck[i]
		}
		then := "after a"
		if i > 0 {
			then = "and another, in the recovery from that: a"
		}
		fmt.Fprintf(&b, "%s %v at the place %q of class %s, event %s", then, s.Way, s.Point.Place, s.Point.Object.Class, s.Point.Op)
		if s.Point.Site != "" {
			fmt.Fprintf(&b, ", %s", s.Point.Site)
		}
		fmt.Fprintf(&b, " (%v)\n", s.Point)
	}
	if len(f.plan) > 0 {
		fmt.Fprintf(&b, "%v", f.err)
	}
	if f.log != "" {
		fmt.Fprintf(&b, "\nwhat happened:\n%s", f.log)
	}
	if len(f.plan) > 0 {
		fmt.Fprintf(&b, "replay: %s", f.replayLine(test))
	}
	return b.String()
}

// replayLine is the command that meets the failure again.
func (f *failure) replayLine(test string) string {
	return fmt.Sprintf("go test -run '%s' . -dohosttest.replay='%s'", pattern(test), formatPlan(f.batch, f.plan))
}

// pattern is a regular expression that finds just this test.
func pattern(test string) string {
	names := strings.Split(test, "/")
	for i := range names {
		names[i] = "^" + regexp.QuoteMeta(names[i]) + "$"
	}
	return strings.Join(names, "/")
}

// formatPlan writes a plan as the flag reads it: object:index:way, one for each ending,
// after "batched," if the disk is slow.
func formatPlan(batch bool, plan []strike) string {
	var parts []string
	if batch {
		parts = append(parts, "batched")
	}
	for _, s := range plan {
		parts = append(parts, fmt.Sprintf("%v:%d:%s", s.Point.Object, s.Point.Index, s.Way.flag()))
	}
	return strings.Join(parts, ",")
}

// parsePlan reads what formatPlan writes.
func parsePlan(text string) (batch bool, plan []strike, err error) {
	for i, part := range strings.Split(text, ",") {
		if i == 0 && part == "batched" {
			batch = true
			continue
		}
		way, at := strings.LastIndex(part, ":"), 0
		if way > 0 {
			at = strings.LastIndex(part[:way], ":")
		}
		if at <= 0 {
			return false, nil, fmt.Errorf("%q: want class/name:point:way", part)
		}
		var s strike
		if s.Point.Object, err = dohost.ParseID(part[:at]); err != nil {
			return false, nil, err
		}
		if s.Point.Index, err = strconv.Atoi(part[at+1 : way]); err != nil {
			return false, nil, fmt.Errorf("%q: %w", part, err)
		}
		if s.Way, err = parseWay(part[way+1:]); err != nil {
			return false, nil, err
		}
		plan = append(plan, s)
	}
	return batch, plan, nil
}

// replay runs a scenario once, as a line of a failure says.
func replay(t *testing.T, s *Scenario, text string) {
	t.Helper()
	batch, plan, err := parsePlan(text)
	if err == nil {
		err = s.check()
	}
	if err != nil {
		t.Fatalf("-dohosttest.replay: %v", err)
	}
	o := diskFirst
	if batch {
		o = diskLast
	}
	for i := range plan {
		// The names of the points, by which the run is compared with this one: each of the
		// run that is ended at those before.
		tr := s.try(t, new(atomic.Int64), o, plan[:i])
		at := slices.IndexFunc(tr.points, func(p Point) bool { return p.Object == plan[i].Point.Object && p.Index == plan[i].Point.Index })
		if at < 0 {
			t.Fatalf("-dohosttest.replay: there is no point %d of %v in this scenario", plan[i].Point.Index, plan[i].Point.Object)
		}
		plan[i].Point = tr.points[at]
	}
	tr := s.try(t, new(atomic.Int64), o, plan)
	if tr.err != nil {
		f := failure{plan, tr.w.struck, batch, tr.err, tr.w.log.about(true)}
		t.Error(f.text(t.Name()))
	}
}

func checkPlaces(places []string) error {
	var known []string
	for p := range runtime.PlaceEnd + 1 {
		known = append(known, p.String())
	}
	for _, p := range places {
		if !slices.Contains(known, p) {
			return fmt.Errorf("place %q: want some of %v", p, known)
		}
	}
	return nil
}

// about is the part of a log that a failure shows.
func (j *journal) about(struck bool) string {
	if struck {
		return j.around(8, 16)
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	return textOf(j.lines[max(0, len(j.lines)-20):])
}
