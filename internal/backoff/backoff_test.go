package backoff

import (
	"fmt"
	"math"
	"testing"
	"time"
)

func TestDelay(t *testing.T) {
	const longest = time.Duration(math.MaxInt64)
	for _, tt := range []struct {
		n                 int
		first, most, want time.Duration
	}{
		{math.MinInt, time.Second, time.Minute, time.Second},
		{-1, time.Second, time.Minute, time.Second},
		{0, time.Second, time.Minute, time.Second},
		{1, time.Second, time.Minute, 2 * time.Second},
		{5, time.Second, time.Minute, 32 * time.Second},
		{6, time.Second, time.Minute, time.Minute},
		{6, time.Second, 64 * time.Second, 64 * time.Second},
		{7, time.Second, 64 * time.Second, 64 * time.Second},
		{math.MaxInt, time.Second, time.Minute, time.Minute},

		{0, time.Hour, time.Minute, time.Minute},
		{0, time.Minute, time.Minute, time.Minute},
		{1, 3, 7, 6},
		{1, 4, 7, 7},

		{62, 1, longest, 1 << 62},
		{63, 1, longest, longest},
		{64, 1, longest, longest},
		{1, longest/2 + 1, longest, longest},
		{1, longest / 2, longest, longest - 1},

		{0, 0, time.Minute, 0},
		{math.MaxInt, 0, time.Minute, 0},
		{3, time.Second, 0, 0},
	} {
		if got := Delay(tt.n, tt.first, tt.most); got != tt.want {
			t.Errorf("Delay(%d, %v, %v) is %v, want %v", tt.n, tt.first, tt.most, got, tt.want)
		}
	}
}

func TestJitter(t *testing.T) {
	for share, want := range map[float64]time.Duration{0: 8 * time.Second, 0.125: 9 * time.Second, 0.25: 10 * time.Second} {
		if got := Jitter(8*time.Second, share); got != want {
			t.Errorf("8 s with the share %v are %v, want %v", share, got, want)
		}
	}
}

// TestShareIsFixedAndSpread requires the same share for the same parts, and that shares of other parts cover the range.
func TestShareIsFixedAndSpread(t *testing.T) {
	const names = 1000
	var shares [10]int // in each tenth of the range
	for i := range names {
		name := fmt.Sprint("object ", i)
		share := Share("class", name, "0")
		if share < 0 || share >= 0.25 {
			t.Fatalf("the share of %s is %v", name, share)
		}
		if again := Share("class", name, "0"); again != share {
			t.Fatalf("the shares of %s are %v and %v", name, share, again)
		}
		shares[int(share*40)]++
	}
	for i, n := range shares {
		if n < names/20 {
			t.Errorf("of %d shares, %d are in tenth %d of the range", names, n, i)
		}
	}
	if Share("a", "bc") == Share("ab", "c") {
		t.Error("the limits of the parts make no difference")
	}
}
