// Package pointtest decides how much the tests at every point of all packages do: a sample in a plain go test, and all points with
// the flag -full, as .ci/run sets it.
package pointtest

import (
	"flag"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/dohosttest"
	"github.com/dohost/dohost/internal/invariants"
)

var full = flag.Bool("full", false, "end incarnations at every point, instead of a sample of the points, and at more pairs of points")

// Full reports whether the flag -full is set.
func Full() bool { return *full }

// Places are the places that leave different states on the disk. Agents pass hundreds of points between them, where the state is
// that of the last of these places.
func Places() []dohost.Place {
	return []dohost.Place{dohost.PlaceCommit, dohost.PlaceCommitted, dohost.PlaceSync, dohost.PlaceDurable, dohost.PlaceRelease, dohost.PlaceAwaited}
}

// Scenario returns a scenario for this test. With -full it has all runs with one ending, and pairs with two. Otherwise it has a
// sample with so many runs, and three pairs; with the race detector, which makes a run ten times slower, a fifth of the sample and
// no pairs.
func Scenario(s dohosttest.Scenario, sample, pairs int) dohosttest.Scenario {
	switch {
	case *full:
		s.Pairs = pairs
	case invariants.Enabled:
		s.Sample = max(1, sample/5)
	default:
		s.Sample, s.Pairs = sample, min(3, pairs)
	}
	return s
}
