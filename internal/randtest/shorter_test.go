package randtest_test

import (
	"iter"
	"slices"
	"testing"

	"github.com/dohost/dohost/internal/randtest"
)

// TestShorterListsTheShortestFirst lists each shorter form of a list, and never the list itself.
func TestShorterListsTheShortestFirst(t *testing.T) {
	half := func(n int) iter.Seq[int] {
		return func(yield func(int) bool) {
			if n > 1 {
				yield(n / 2)
			}
		}
	}
	var got [][]int
	for list := range randtest.Shorter([]int{1, 4, 9}, half) {
		got = append(got, list)
	}
	want := [][]int{{4, 9}, {1, 9}, {1, 4}, {1, 2, 9}, {1, 4, 4}}
	if !slices.EqualFunc(got, want, slices.Equal[[]int]) {
		t.Errorf("got %v, want %v", got, want)
	}
	for list := range randtest.Shorter([]int{1, 2, 3, 4, 5}, nil) {
		if len(list) != 3 {
			t.Errorf("the first of five is %v", list)
		}
		break
	}
	for list := range randtest.Shorter([]int{}, half) {
		t.Errorf("the empty list has the shorter form %v", list)
	}
}
