package dohost

import "testing"

// TestCloseCodesOfTheRFC has the first and the last code of each range, and their neighbours.
func TestCloseCodesOfTheRFC(t *testing.T) {
	for _, c := range []struct{ first, last int }{{1000, 1003}, {1007, 1014}, {3000, 4999}} {
		for code, want := range map[int]bool{c.first - 1: false, c.first: true, c.last: true, c.last + 1: false} {
			if got := sendable(code); got != want {
				t.Errorf("%d can be sent: %v, want %v", code, got, want)
			}
		}
	}
}
