package agent

import "time"

// The bounds of the calls of a fiber's hook.
const (
	maxHooks    = 5
	maxLost     = 24 * time.Hour
	mostBackoff = 5 * time.Minute
)

// verdict is the decision about a fiber of another incarnation, or one with a pending hook.
type verdict int

const (
	resume   verdict = iota // call its method again
	giveUp                  // it has failed or was interrupted too often
	strand                  // its kind is not registered any more
	hand                    // OnRecovery decides
	ask                     // call OnInterrupted
	forget                  // its class has no hook for it
	bury                    // its hook has failed too often, or for too long
	tell                    // call OnFiberEnded
	untold                  // there is no such hook, or it has failed too often, or for too long
	postpone                // it is not due
	pause                   // its hook has resumed it more than once without progress
)

// String returns the outcome that reports contain.
func (v verdict) String() string {
	return [...]string{"resumed", "max retries exceeded", "no method", "hook", "hook", "dropped", "dead", "tell", "not told", "later", "paused"}[v]
}

// judge decides about a fiber. known is set if the class has its method or hook; handed, if OnRecovery decides
// about started fibers.
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

// hookDelay returns the delay before the next call of a hook that has failed n times.
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
