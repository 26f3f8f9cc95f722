// Package pointtest decides how much the tests at every point of all packages do: a small sample in a plain go test, all points with
// the flag -full, and with -points as well a large sample that another seed draws, as .ci/run does for each commit.
package pointtest

import (
	"errors"
	"flag"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/dohosttest"
	"github.com/dohost/dohost/internal/invariants"
)

var (
	full   = flag.Bool("full", false, "end incarnations at every point, instead of a sample of the points, and at more pairs of points")
	points = flag.Int("points", 0, "with -full: the runs with one ending that a scenario has at most, and the pairs; 0: no limit")
	seed   = flag.Uint64("points-seed", 0, "the seed that draws those runs, and the pairs")
	shared = flag.Bool("take-over", false, "keep the history in a shared log, and end runs by take-overs, power cuts and kills")
)

// Full reports whether the flag -full is set.
func Full() bool { return *full }

// Drawn reports whether -points-seed draws the runs: then a test cannot require that one of them has met a rare case.
func Drawn() bool { return *full && *points > 0 }

// Case reports whether a test at every point runs one of its cases: always if it is daily, with -full, and in a replay, whose line may
// name any case.
func Case(daily bool) bool {
	return daily || *full || flag.Lookup("dohosttest.replay").Value.String() != ""
}

// Places are the places that leave different states on the disk. Agents pass hundreds of points between them, where the state is
// that of the last of these places.
func Places() []dohost.Place {
	return []dohost.Place{dohost.PlaceCommit, dohost.PlaceCommitted, dohost.PlaceSync, dohost.PlaceDurable, dohost.PlaceRelease, dohost.PlaceAwaited}
}

// RetryIdempotent is dohost.RetryIdempotent for a call that also found the disk full, and repeats the writes that it made before.
func RetryIdempotent(err error, attempt int) bool {
	return dohost.RetryIdempotent(err, attempt) || errors.Is(err, dohost.ErrNoSpace)
}

// Scenario returns a scenario for this test. With -full it has all runs with one ending, or those of -points, and pairs with two.
// Otherwise sample is the number of its runs with one ending, and it has at most two pairs. With the race detector, which makes a run
// ten times slower, it has a third of the sample and no pairs.
func Scenario(s dohosttest.Scenario, sample, pairs int) dohosttest.Scenario {
	if *shared {
		s.SharedLog, s.Endings = true, []dohost.EndMode{dohost.EndTakeOver, dohost.EndPowerCut, dohost.EndKill}
	}
	switch {
	case *full:
		s.Pairs, s.Sample, s.Seed = pairs, *points, *seed
		if *points > 0 {
			s.Pairs = min(pairs, *points)
		}
	case invariants.Enabled:
		s.Sample = max(1, sample/3)
	default:
		s.Sample, s.Pairs = sample, min(2, pairs)
	}
	return s
}
