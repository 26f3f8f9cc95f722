package chat

import "testing"

func TestCallInputCountsBytesOnce(t *testing.T) {
	in := &callInput{counted: 2}
	for i, c := range []struct{ now, more int }{{1, 0}, {2, 0}, {5, 3}, {5, 0}, {3, 0}, {7, 2}} {
		if got := in.to(c.now); got != c.more {
			t.Errorf("step %d: %d more bytes, want %d", i, got, c.more)
		}
	}
}
