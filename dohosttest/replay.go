package dohosttest

import (
	"fmt"
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
// after "batched," if the disk is slow, or "drawn:N," if the seed N draws the order.
func formatPlan(o order, plan []interruption) string {
	var parts []string
	switch {
	case o.drawn:
		parts = append(parts, fmt.Sprint("drawn:", o.seed))
	case o.last:
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
func parsePlan(text string) (o order, plan []interruption, err error) {
	for i, part := range strings.Split(text, ",") {
		if i == 0 && part == "batched" {
			o = diskLast
			continue
		}
		if seed, drawn := strings.CutPrefix(part, "drawn:"); i == 0 && drawn {
			n, err := strconv.ParseUint(seed, 10, 64)
			if err != nil {
				return o, nil, fmt.Errorf("%q: %w", part, err)
			}
			o = drawnOrder(n)
			continue
		}
		ending, at := strings.LastIndex(part, ":"), 0
		if ending > 0 {
			at = strings.LastIndex(part[:ending], ":")
		}
		if at <= 0 {
			return o, nil, fmt.Errorf("%q: want class/name:point:ending@place", part)
		}
		var s interruption
		object, err := url.PathUnescape(part[:at])
		if err != nil {
			return o, nil, fmt.Errorf("%q: %w", part, err)
		}
		if s.Point.Object, err = dohost.ParseID(object); err != nil {
			return o, nil, err
		}
		if s.Point.Index, err = strconv.Atoi(part[at+1 : ending]); err != nil {
			return o, nil, fmt.Errorf("%q: %w", part, err)
		}
		name, place, named := strings.Cut(part[ending+1:], "@")
		if s.Ending, err = parseEnding(name); err != nil {
			return o, nil, err
		}
		if s.Point.Place = anyPlace; named {
			if s.Point.Place, err = dohost.ParsePlace(place); err != nil {
				return o, nil, fmt.Errorf("%q: %w", part, err)
			}
		}
		plan = append(plan, s)
	}
	return o, plan, nil
}

// replay runs a scenario once, with the plan of a failure's replay line, and returns its failure.
func replay(t *testing.T, s *Scenario, text string) []*Failure {
	refuse := func(format string, args ...any) []*Failure {
		return []*Failure{{err: fmt.Errorf("-dohosttest.replay: "+format, args...)}}
	}
	o, plan, err := parsePlan(text)
	if err == nil {
		err = s.check()
	}
	if err != nil {
		return refuse("%v", err)
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
	return []*Failure{{plan: plan, endings: tr.run.endings, order: o, err: tr.err, cause: tr.err, log: tr.run.log.about(len(plan) > 0), test: t.Name()}}
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
func (j *eventLog) about(ended bool) string {
	if ended {
		return j.around(8, 16)
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	return textOf(j.lines[max(0, len(j.lines)-20):])
}
