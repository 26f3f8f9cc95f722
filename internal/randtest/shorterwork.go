package randtest

import "iter"

// ShorterWork returns the forms with less to do of a work that has acts of callers, and faults. with returns the work with other
// ones, and shorter the shorter forms of an act.
func ShorterWork[W, A any](callers [][]A, faults []Fault, with func([][]A, []Fault) W, shorter func(A) iter.Seq[A]) iter.Seq[W] {
	withCallers := func(callers [][]A) W { return with(callers, faults) }
	return Join(
		Map(Shorter(callers, nil), withCallers),
		Map(Shorter(faults, nil), func(faults []Fault) W { return with(callers, faults) }),
		Map(Shorter(callers, func(acts []A) iter.Seq[[]A] { return Shorter(acts, shorter) }), withCallers),
	)
}
