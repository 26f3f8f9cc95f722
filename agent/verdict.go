package agent

import "time"

// How often, and for how long, the hook of an interrupted fiber is tried.
const (
	maxHooks    = 5
	maxLost     = 24 * time.Hour
	mostBackoff = 5 * time.Minute
)

// verdict is what is to be done about an interrupted fiber.
type verdict int

const (
	resume   verdict = iota // call its method again
	giveUp                  // it has failed or was interrupted too often
	strand                  // there is no method to go on with
	ask                     // call the hook
	forget                  // nobody wants to know of it
	bury                    // its hook has failed too often, or for too long
	postpone                // it is not its time
)

// String is how a verdict is reported.
func (v verdict) String() string {
	return [...]string{"resumed", "max retries exceeded", "no method", "hook", "dropped", "dead", "later"}[v]
}

// judge decides about an interrupted fiber. known says that there is a method, or a hook, for
// it.
func judge(r *fiberRow, known bool, now time.Time) verdict {
	switch {
	case r.Started && !known:
		return strand
	case r.Started && r.Attempt+1 > r.Retries:
		return giveUp
	case r.Started:
		return resume
	case !known:
		return forget
	case r.Hooks >= maxHooks, r.Lost > 0 && now.Sub(time.UnixMilli(r.Lost)) >= maxLost:
		return bury
	case now.UnixMilli() < r.Again:
		return postpone
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
