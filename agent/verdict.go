package agent

import "time"

// How often, and for how long, the hook of a fiber is tried.
const (
	maxHooks    = 5
	maxLost     = 24 * time.Hour
	mostBackoff = 5 * time.Minute
)

// verdict is what is to be done about a fiber that nobody works on.
type verdict int

const (
	resume   verdict = iota // call its method again
	giveUp                  // it has failed or was interrupted too often
	strand                  // there is no method to go on with
	hand                    // OnRecovery decides
	ask                     // call OnInterrupted
	forget                  // nobody wants to know of it
	bury                    // its hook has failed too often, or for too long
	tell                    // call OnFiberEnded
	untold                  // there is none, or it has failed too often, or for too long
	postpone                // it is not its time
	pause                   // its hook has resumed it more than once without progress
)

// String is how a verdict is reported.
func (v verdict) String() string {
	return [...]string{"resumed", "max retries exceeded", "no method", "hook", "hook", "dropped", "dead", "tell", "not told", "later", "paused"}[v]
}

// judge decides about a fiber. known says that there is a method, or a hook, for it, and
// handed that OnRecovery decides about those that were started.
func judge(r *fiberRow, known, handed bool, now time.Time) verdict {
	tried := r.Hooks >= maxHooks || r.Lost > 0 && now.Sub(time.UnixMilli(r.Lost)) >= maxLost
	early := now.UnixMilli() < r.Again
	if r.Tell {
		switch {
		case !known || tried:
			return untold
		case early:
			return postpone
		}
		return tell
	}
	switch {
	case r.Started && !known:
		return strand
	case r.Started && r.exhausted(1):
		return giveUp
	case r.Started && !handed:
		return resume
	case !known:
		return forget
	case tried:
		return bury
	case early:
		return postpone
	case !r.Started && r.Hooks > 1 && r.Again == 0:
		return pause
	case r.Started:
		return hand
	}
	return ask
}

// hookDelay is how long a hook that has failed n times waits before the next time.
func hookDelay(n int, first time.Duration) time.Duration {
	d := first
	for range n - 1 {
		if d >= mostBackoff {
			break
		}
		d *= 2
	}
	return min(d, mostBackoff)
}
