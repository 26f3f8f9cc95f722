package dohosttest

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/dohost/dohost"
)

// Failure is a failed run of a scenario.
type Failure struct {
	plan    []interruption
	endings []interruption // made, with their sites
	order   order
	err     error
	cause   error // the error of the run, which err may explain
	log     string
	test    string // the name of the test that can replay the run
}

// Error returns the text of the failure, and the line that replays only its run.
func (f *Failure) Error() string {
	text := f.Text()
	if at := f.Replay(); at != "" {
		if !strings.HasSuffix(text, "\n") {
			text += "\n"
		}
		text += fmt.Sprintf("replay: go test -run '%s' . -dohosttest.replay='%s'", pattern(f.test), at)
	}
	return text
}

// Unwrap returns the error of the run.
func (f *Failure) Unwrap() error { return f.err }

// Replay returns a value for Scenario.Replay. It is empty if the run is the first one that EveryPoint does.
func (f *Failure) Replay() string { return formatPlan(f.order, f.plan) }

// Text returns the endings of the run, its error and its log.
func (f *Failure) Text() string {
	var b strings.Builder
	for i, s := range f.plan {
		if i < len(f.endings) {
			s = f.endings[i]
		}
		then := "after a"
		if i > 0 {
			then = "and another, in the recovery from that: a"
		}
		fmt.Fprintf(&b, "%s %s at the place %q of class %s, event %s", then, modeName(s.Ending), s.Point.Place, s.Point.Object.Class, s.Point.Op)
		if s.Point.Site != "" {
			fmt.Fprintf(&b, ", %s", s.Point.Site)
		}
		fmt.Fprintf(&b, " (%v)\n", s.Point)
	}
	fmt.Fprint(&b, f.err)
	if f.log != "" {
		fmt.Fprintf(&b, "\nlog:\n%s", f.log)
	}
	return b.String()
}

// reported returns the failures of a report for a person: the failures of the first points, and a line with the number
// of the others.
func (r *report) reported(test string) (all []*Failure) {
	seen := map[string]bool{}
	more, places := 0, map[dohost.Place]int{}
	for _, f := range r.Failures {
		f.test = test
		at := ""
		if len(f.plan) > 0 {
			at = fmt.Sprint(f.order.last, f.plan[len(f.plan)-1].Point)
		}
		if at == "" || len(all) < maxReported && !seen[at] {
			seen[at] = true
			all = append(all, f)
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
		all = append(all, &Failure{err: errors.New(text)})
	}
	return all
}
