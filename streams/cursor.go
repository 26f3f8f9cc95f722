package streams

import (
	"math/rand/v2"
	"time"
)

// A cursor makes the URLs of successive requests of a live reader differ, so that a shared cache does not answer all of them with one
// response. It is the number of an interval of time since the epoch of the protocol.
const (
	cursorInterval = 20 * time.Second
	cursorEpoch    = 1728432000 // 2024-10-09 00:00:00 UTC
	maxJitter      = 3600       // s
	maxCursor      = 1 << 40
)

// cursorAfter returns the cursor of a response: of now, or a later one than the cursor of the request.
func cursorAfter(last int64, now time.Time) int64 {
	n := max(0, (now.Unix()-cursorEpoch)/int64(cursorInterval/time.Second))
	if last >= n {
		n = last + max(1, (1+rand.Int64N(maxJitter))/int64(cursorInterval/time.Second))
	}
	return n
}
