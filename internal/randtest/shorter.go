package randtest

import (
	"iter"
	"slices"
)

// Shorter returns the lists to try in place of a failed list: without one half, one quarter and so on, down to without one
// element, and then with a shorter element. shorter returns the shorter forms of an element; it may be nil.
func Shorter[E any](list []E, shorter func(E) iter.Seq[E]) iter.Seq[[]E] {
	return func(yield func([]E) bool) {
		for size := max(1, len(list)/2); len(list) > 0; size /= 2 {
			for at := 0; at < len(list); at += size {
				if !yield(slices.Concat(list[:at], list[min(at+size, len(list)):])) {
					return
				}
			}
			if size == 1 {
				break
			}
		}
		for i := 0; i < len(list) && shorter != nil; i++ {
			for e := range shorter(list[i]) {
				with := slices.Clone(list)
				with[i] = e
				if !yield(with) {
					return
				}
			}
		}
	}
}

// ShorterNested returns the lists to try in place of a failed list of elements that contain lists themselves: those of Shorter, and
// those with the list of an element in place of the element. body points to the list of an element.
func ShorterNested[E any](list []E, body func(*E) *[]E) iter.Seq[[]E] {
	shorter := func(e E) iter.Seq[E] {
		return Map(ShorterNested(*body(&e), body), func(list []E) E {
			with := e
			*body(&with) = list
			return with
		})
	}
	return Join(Shorter(list, shorter), func(yield func([]E) bool) {
		for i := range list {
			if inner := *body(&list[i]); len(inner) > 0 && !yield(slices.Concat(list[:i], inner, list[i+1:])) {
				return
			}
		}
	})
}

// Map returns the results of f for the values of a sequence.
func Map[A, B any](values iter.Seq[A], f func(A) B) iter.Seq[B] {
	return func(yield func(B) bool) {
		for v := range values {
			if !yield(f(v)) {
				return
			}
		}
	}
}

// Join returns the values of sequences, one after the other.
func Join[E any](sequences ...iter.Seq[E]) iter.Seq[E] {
	return func(yield func(E) bool) {
		for _, s := range sequences {
			for e := range s {
				if !yield(e) {
					return
				}
			}
		}
	}
}
