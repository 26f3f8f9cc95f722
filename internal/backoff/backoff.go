// Package backoff has the arithmetic of exponential back-off, for every package that retries. Its functions are pure, and
// it imports no package of the module.
package backoff

import (
	"hash/fnv"
	"math/rand/v2"
	"strings"
	"time"
)

// Delay returns the delay after n earlier delays: first, doubled n times, but at most limit. n may be any number; below
// zero it counts as zero. first and limit must not be negative.
func Delay(n int, first, limit time.Duration) time.Duration {
	n = min(max(n, 0), 63)
	if first > limit>>n { // also where the shift below would overflow
		return limit
	}
	return first << n
}

// Share returns a share of a delay, from 0 to below 0.25, for Jitter. It is derived from parts, which identify the
// delay: objects that fail together retry at different times, and a test gets the same share in each run.
func Share(parts ...string) float64 {
	h := fnv.New64a()
	h.Write([]byte(strings.Join(parts, "\x00")))
	return rand.New(rand.NewPCG(h.Sum64(), 0)).Float64() / 4
}

// Jitter returns d, longer by a share of it; shorter if the share is negative.
func Jitter(d time.Duration, share float64) time.Duration {
	return d + time.Duration(float64(d)*share)
}
