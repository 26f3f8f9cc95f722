package dohosttest

import (
	"fmt"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/eviction"
)

// texts formats the failures of a report: those of the first points in full, and the number
// of the others.
func (r *report) texts(test string) (all []string) {
	reported := map[string]bool{}
	more, places := 0, map[dohost.Place]int{}
	for _, f := range r.Failures {
		at := ""
		if len(f.plan) > 0 {
			at = fmt.Sprint(f.batch, f.plan[len(f.plan)-1].Point)
		}
		if at == "" || len(all) < maxReported && !reported[at] {
			reported[at] = true
			all = append(all, f.text(test))
			continue
		}
		more++
		if n := len(f.plan); n > 0 {
			places[f.plan[n-1].Point.Place]++
		}
	}
	if more > 0 {
		var by []string
		for _, place := range slices.Sorted(maps.Keys(places)) {
			by = append(by, fmt.Sprintf("%d at %s", places[place], place))
		}
		text := fmt.Sprintf("%s: %s", count(more, "more failure"), strings.Join(by, ", "))
		if len(r.Failures) >= maxFailures {
			text += "; the points after them were not tried"
		}
		all = append(all, text)
	}
	return all
}

// text formats a failure for a person.
func (f *failure) text(test string) string {
	var b strings.Builder
	if len(f.plan) == 0 {
		fmt.Fprintf(&b, "%v", f.err)
	}
	for i, s := range f.plan {
		if i < len(f.endings) {
			s = f.endings[i]
		}
		then := "after a"
		if i > 0 {
			then = "and another, in the recovery from that: a"
		}
		fmt.Fprintf(&b, "%s %v at the place %q of class %s, event %s", then, s.Ending, s.Point.Place, s.Point.Object.Class, s.Point.Op)
		if s.Point.Site != "" {
			fmt.Fprintf(&b, ", %s", s.Point.Site)
		}
		fmt.Fprintf(&b, " (%v)\n", s.Point)
	}
	if len(f.plan) > 0 {
		fmt.Fprintf(&b, "%v", f.err)
	}
	if f.log != "" {
		fmt.Fprintf(&b, "\nlog:\n%s", f.log)
	}
	if len(f.plan) > 0 {
		fmt.Fprintf(&b, "replay: %s", f.replayLine(test))
	}
	return b.String()
}

// replayLine returns the command that repeats the failure.
func (f *failure) replayLine(test string) string {
	return fmt.Sprintf("go test -run '%s' . -dohosttest.replay='%s'", pattern(test), formatPlan(f.batch, f.plan))
}

// pattern returns a regular expression that matches only this test.
func pattern(test string) string {
	names := strings.Split(test, "/")
	for i := range names {
		names[i] = "^" + regexp.QuoteMeta(names[i]) + "$"
	}
	return strings.Join(names, "/")
}

// escaped keeps an object's name from looking like the rest of a plan, or of a shell's line.
var escaped = strings.NewReplacer("%", "%25", ",", "%2C", ":", "%3A", "'", "%27", "@", "%40")

// formatPlan formats a plan for the flag: object:index:ending@place, one for each ending,
// after "batched," if the disk is slow.
func formatPlan(batch bool, plan []interruption) string {
	var parts []string
	if batch {
		parts = append(parts, "batched")
	}
	for _, s := range plan {
		parts = append(parts, fmt.Sprintf("%s:%d:%s@%s", escaped.Replace(s.Point.Object.String()), s.Point.Index, endingFlag(s.Ending), s.Point.Place))
	}
	return strings.Join(parts, ",")
}

// anyPlace is the place of a point in a plan that does not name it: a search for mutations replays a plan where the same
// number may be another place.
const anyPlace = dohost.Place(eviction.NumPlaces)

// parsePlan parses the result of formatPlan. The places may be missing.
func parsePlan(text string) (batch bool, plan []interruption, err error) {
	for i, part := range strings.Split(text, ",") {
		if i == 0 && part == "batched" {
			batch = true
			continue
		}
		ending, at := strings.LastIndex(part, ":"), 0
		if ending > 0 {
			at = strings.LastIndex(part[:ending], ":")
		}
		if at <= 0 {
			return false, nil, fmt.Errorf("%q: want class/name:point:ending@place", part)
		}
		var s interruption
		object, err := url.PathUnescape(part[:at])
		if err != nil {
			return false, nil, fmt.Errorf("%q: %w", part, err)
		}
		if s.Point.Object, err = dohost.ParseID(object); err != nil {
			return false, nil, err
		}
		if s.Point.Index, err = strconv.Atoi(part[at+1 : ending]); err != nil {
			return false, nil, fmt.Errorf("%q: %w", part, err)
		}
		name, place, named := strings.Cut(part[ending+1:], "@")
		if s.Ending, err = parseEnding(name); err != nil {
			return false, nil, err
		}
		if s.Point.Place = anyPlace; named {
			if s.Point.Place, err = dohost.ParsePlace(place); err != nil {
				return false, nil, fmt.Errorf("%q: %w", part, err)
			}
		}
		plan = append(plan, s)
	}
	return batch, plan, nil
}

// replay runs a scenario once, with the plan of a failure's replay line, and returns the texts of its failures.
func replay(t *testing.T, s *Scenario, text string) []string {
	refuse := func(format string, args ...any) []string {
		return []string{"-dohosttest.replay: " + fmt.Sprintf(format, args...)}
	}
	batch, plan, err := parsePlan(text)
	if err == nil {
		err = s.check()
	}
	if err != nil {
		return refuse("%v", err)
	}
	o := diskFirst
	if batch {
		o = diskLast
	}
	for i := range plan {
		// Compare the run by the names of the points: each name comes from a run with the
		// endings before that point.
		tr := s.try(t, new(atomic.Int64), o, plan[:i])
		at := slices.IndexFunc(tr.points, func(p Point) bool { return p.Object == plan[i].Point.Object && p.Index == plan[i].Point.Index })
		if at < 0 && tr.err != nil {
			return refuse("the run fails before point %d of %v: %v", plan[i].Point.Index, plan[i].Point.Object, tr.err)
		}
		if at < 0 {
			return refuse("there is no point %d of %v in this scenario", plan[i].Point.Index, plan[i].Point.Object)
		}
		if was := plan[i].Point.Place; was != anyPlace && was != tr.points[at].Place {
			return refuse("%v is no longer at the place %q", tr.points[at], was)
		}
		plan[i].Point = tr.points[at]
	}
	tr := s.try(t, new(atomic.Int64), o, plan)
	if tr.err == nil {
		return nil
	}
	f := failure{plan, tr.run.endings, batch, tr.err, tr.run.log.about(true)}
	return []string{f.text(t.Name())}
}

func checkPlaces(places []dohost.Place) error {
	for _, p := range places {
		if !p.Ends() {
			return fmt.Errorf("place %q: want some of %v", p, dohost.Places())
		}
	}
	return nil
}

// about returns the part of a log for a failure.
func (j *eventLog) about(struck bool) string {
	if struck {
		return j.around(8, 16)
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	return textOf(j.lines[max(0, len(j.lines)-20):])
}
