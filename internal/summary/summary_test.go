package summary

import (
	"fmt"
	"testing"
	"time"
)

func TestLimits(t *testing.T) {
	for _, c := range []struct {
		threshold, window int
		want              string
	}{
		{0, 0, "100 50"},
		{0, 99, "100 99"},
		{2, 0, "2 1"},
		{3, 1, "3 1"},
		{1, 0, "History.Threshold is 1"},
		{-5, 0, "History.Threshold is -5"},
		{4, 4, "History.Window is 4"},
		{4, -1, "History.Window is -1"},
	} {
		threshold, window, err := Limits(c.threshold, c.window)
		got := fmt.Sprint(threshold, window)
		if err != nil {
			got = err.Error()[:len(c.want)]
		}
		if got != c.want {
			t.Errorf("Limits(%d, %d): %s, want %s", c.threshold, c.window, got, c.want)
		}
	}
}

// A summary has 9 calls that fail, or 3 with invalid answers, with delays between them.
func TestFailures(t *testing.T) {
	for _, c := range []struct {
		invalid bool
		calls   int
		delay   time.Duration // of all
	}{
		{false, 9, (1+4+16+64+256)*time.Second + 3*5*time.Minute},
		{true, 3, 16*time.Second + 5*time.Minute},
	} {
		failures, calls, delay := uint64(0), 0, time.Duration(0)
		for {
			var spent bool
			failures, spent = Charge(failures, c.invalid)
			if calls++; spent {
				break
			}
			delay += Delay(failures)
		}
		if calls != c.calls || delay != c.delay {
			t.Errorf("invalid %t: %d calls in %v, want %d in %v", c.invalid, calls, delay, c.calls, c.delay)
		}
	}
}

func TestShorten(t *testing.T) {
	for in, want := range map[string]string{"": "", "abcd": "abcd", "abcde": "abcd [1 bytes left out]", "abc\u00e4x": "abc [3 bytes left out]"} {
		if got := Shorten(in, 4); got != want {
			t.Errorf("%q becomes %q, want %q", in, got, want)
		}
	}
}
