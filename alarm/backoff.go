package alarm

import "time"

const (
	backoffFirst = 2 * time.Second
	backoffSteps = 5
)

// Backoff is how long to wait after the failure of run number attempt, counted from
// zero: 2 s, doubling up to 64 s, longer by the share jitter.
func Backoff(attempt int, jitter float64) time.Duration {
	d := backoffFirst << min(max(attempt, 0), backoffSteps)
	return d + time.Duration(float64(d)*jitter)
}

// lostSteps bounds the doubling of lostDelay, at 17 min.
const lostSteps = 9

// lostDelay is how long an alarm waits after n processes have ended during its runs, from
// the second one on: 2 s, doubling. It goes further than Backoff, since each run may end
// all of the host.
func lostDelay(n int) time.Duration { return backoffFirst << min(n-2, lostSteps) }

// Delays of a delivery that was cut off by no fault of its own.
const (
	againFirst = time.Millisecond
	againMost  = time.Second
)

// againAfter is how long a delivery waits that has been cut off tries times in a
// row: at first not at all.
func againAfter(tries int) time.Duration {
	if tries <= 1 {
		return 0
	}
	return min(againFirst<<min(tries-2, 10), againMost)
}
