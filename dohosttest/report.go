package dohosttest

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/dohost/dohost"
)

// report is the result of an EveryPoint.
type report struct {
	Points   int
	Objects  int
	Runs     map[dohost.EndMode]int
	Pairs    int // tried
	AllPairs int // available
	Skipped  int // points at places that were not selected, or after the last one tried
	Took     time.Duration
	Cost     RecoveryCost
	Worst    RecoveryCost
	Failures []*Failure
}

// vacuous returns the reason why a report without failures proves nothing, or nil.
func (r *report) vacuous(s *Scenario) error {
	switch {
	case r.Points == r.Skipped:
		err := fmt.Errorf("no run was interrupted: none of %s is at one of the places %v", count(r.Points, "point"), s.Places)
		if s.Endings != nil {
			err = fmt.Errorf("%w and allows one of the Endings %v", err, s.Endings)
		}
		return err
	case s.Pairs > 0 && r.AllPairs == 0:
		return errors.New("no pair was tried: no run has points after its interruption")
	}
	return nil
}

// summary formats a report in a few lines.
func (r *report) summary() string {
	var b strings.Builder
	runs := 0
	var by []string
	for _, ending := range interruptions {
		if n := r.Runs[ending]; n > 0 {
			runs += n
			by = append(by, fmt.Sprintf("%d %s", n, modeName(ending)))
		}
	}
	covered := 100
	if r.Points > 0 {
		covered = 100 * (r.Points - r.Skipped) / r.Points
	}
	fmt.Fprintf(&b, "%s of %s, %d%% of them tried; %s (%s)",
		count(r.Points, "point"), count(r.Objects, "object"), covered, count(runs, "run"), strings.Join(by, ", "))
	if r.AllPairs > 0 {
		fmt.Fprintf(&b, "; %d of %d pairs", r.Pairs, r.AllPairs)
	}
	fmt.Fprintf(&b, "; %v", r.Took.Round(time.Millisecond))
	if runs > 0 {
		fmt.Fprintf(&b, "\nrecovery cost of the runs that passed: %v; the longest: %v", r.Cost, r.Worst)
	}
	return b.String()
}
