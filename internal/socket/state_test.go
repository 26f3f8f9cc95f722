package socket

import "testing"

func TestStatesHaveNames(t *testing.T) {
	for s, want := range map[State]string{StateOpening: "opening", StateClosing: "closing", 3: "state 3", 9: "state 9"} {
		if got := s.String(); got != want {
			t.Errorf("String of %d is %q, want %q", uint8(s), got, want)
		}
	}
}
