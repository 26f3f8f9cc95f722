package alarm

import "time"

const (
	backoffFirst = 2 * time.Second
	backoffSteps = 5
)

// Backoff returns the delay after the failure of run number attempt, counted from zero: 2 s, doubling up to 64 s,
// longer by the share jitter.
func Backoff(attempt int, jitter float64) time.Duration {
	d := backoffFirst << min(max(attempt, 0), backoffSteps)
	return d + time.Duration(float64(d)*jitter)
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
	return min(cutOffFirst<<min(tries-2, 10), cutOffMax)
}
