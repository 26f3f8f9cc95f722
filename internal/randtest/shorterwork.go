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

// ShorterAct returns the forms of an act with a shorter program, and those that a function of simpler makes. code points to the instructions
// of an act, and body to those of an instruction. A function of simpler returns false if it has not changed the act.
func ShorterAct[A, I any](a A, code func(*A) *[]I, body func(*I) *[]I, simpler ...func(*A) bool) iter.Seq[A] {
	shorter := Map(ShorterNested(*code(&a), body), func(list []I) A {
		with := a
		*code(&with) = list
		return with
	})
	return Join(shorter, func(yield func(A) bool) {
		for _, f := range simpler {
			if with := a; f(&with) && !yield(with) {
				return
			}
		}
	})
}

// Zero is for ShorterAct: it sets a field to its zero value, and returns false if the field has it already.
func Zero[T comparable](field *T) bool {
	var zero T
	changed := *field != zero
	*field = zero
	return changed
}
