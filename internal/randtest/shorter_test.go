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

// TestShorterNestedOpensElements lists the forms of a tree with two levels.
func TestShorterNestedOpensElements(t *testing.T) {
	type node struct {
		name byte
		body []node
	}
	var text func(list []node) string
	text = func(list []node) (s string) {
		for _, n := range list {
			s += string(n.name)
			if len(n.body) > 0 {
				s += "(" + text(n.body) + ")"
			}
		}
		return s
	}
	list := []node{{'a', []node{{name: 'b'}, {'c', []node{{name: 'd'}}}}}, {name: 'e'}}
	var got []string
	for shorter := range randtest.ShorterNested(list, func(n *node) *[]node { return &n.body }) {
		got = append(got, text(shorter))
	}
	want := []string{"e", "a(bc(d))", "a(c(d))e", "a(b)e", "a(bc)e", "a(bd)e", "bc(d)e"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if now := text(list); now != "a(bc(d))e" {
		t.Errorf("the list has become %s", now)
	}
}
