package alarm

import (
	"time"

	"github.com/dohost/dohost/internal/backoff"
)

const (
	backoffFirst = 2 * time.Second
	backoffMax   = 64 * time.Second
)

// Backoff returns the delay after the failure of run number attempt, counted from zero: 2 s, doubling up to 64 s,
// longer by the share jitter.
func Backoff(attempt int, jitter float64) time.Duration {
	return backoff.Jitter(backoff.Delay(attempt, backoffFirst, backoffMax), jitter)
}

// Delays of a delivery that was cut off by no fault of its own.
const (
	cutOffFirst = time.Millisecond
	cutOffMax   = time.Second
)

// cutOffDelay returns the delay of a delivery that was cut off tries times in a row: none at first.
func cutOffDelay(tries int) time.Duration {
	if tries <= 1 {
		return 0
	}
	return backoff.Delay(tries-2, cutOffFirst, cutOffMax)
}
