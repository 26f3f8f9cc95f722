package dohosttest

import (
	"errors"
	"maps"
	"slices"
	"testing"
)

// maxShrink is how many runs it may take to make a script shorter.
const maxShrink = 400

// shrink takes away from a script what is not needed for its run to fail.
func (s *Simulation) shrink(t *testing.T, sc *script, got *trial) (*script, *trial) {
	runs := 0
	try := func(c *script) bool {
		if runs++; runs > maxShrink {
			return false
		}
		c.strikes = maps.Clone(c.strikes)
		tr := s.play(t, c, false)
		if tr.err == nil {
			return false
		}
		sc, got = c, tr
		return true
	}
	if errors.Is(got.err, errStuck) || !try(sc) {
		return sc, got // a run that takes long to fail is told as it is
	}
	for size := max(len(sc.actions)/2, 1); size >= 1; size /= 2 {
		for i := 0; i+size <= len(sc.actions); {
			less := *sc
			less.actions = slices.Delete(slices.Clone(sc.actions), i, i+size)
			if !try(&less) {
				i += size
			}
		}
	}
	for _, at := range sc.spots() {
		less := *sc
		less.strikes = maps.Clone(sc.strikes)
		delete(less.strikes, at)
		try(&less)
	}
	return sc, got
}
