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

// lostSteps bounds the doubling of lostDelay, at 17 min.
const lostSteps = 9

// lostDelay returns the delay of an alarm after n processes have ended during its runs, from the second one on: 2 s,
// doubling. It grows further than Backoff, since each run may end the whole host.
func lostDelay(n int) time.Duration { return backoffFirst << min(n-2, lostSteps) }

// Delays of a delivery that was cut off by no fault of its own.
const (
	againFirst = time.Millisecond
	againMost  = time.Second
)

// againAfter returns the delay of a delivery that was cut off tries times in a row: none at first.
func againAfter(tries int) time.Duration {
	if tries <= 1 {
		return 0
	}
	return min(againFirst<<min(tries-2, 10), againMost)
}
