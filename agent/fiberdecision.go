package agent

import "time"

// The bounds of the calls of a fiber's hook.
const (
	maxHooks     = 5
	maxHookTime  = 24 * time.Hour
	maxHookDelay = 5 * time.Minute
)

// decision is the decision about a fiber of another incarnation, or one with a pending hook.
type decision int

const (
	decisionResume         decision = iota // call its method again
	decisionFail                           // it has failed or was interrupted too often
	decisionOrphan                         // its kind is not registered any more
	decisionAskRecovery                    // OnRecovery decides
	decisionAskInterrupted                 // call OnInterrupted
	decisionDelete                         // its class has no hook for it
	decisionMarkDead                       // its hook has failed too often, or for too long
	decisionNotify                         // call OnFiberEnded
	decisionSkipNotify                     // there is no such hook, or it has failed too often, or for too long
	decisionPostpone                       // it is not due
	decisionPause                          // its hook has resumed it more than once without progress
)

// String returns the outcome that reports contain.
func (v decision) String() string {
	return [...]string{"resumed", "max retries exceeded", "no method", "hook", "hook", "dropped", "dead", "notify", "not notified", "later", "paused"}[v]
}

// decide decides about a fiber. known is set if the class has its method or hook, hasRecovery if OnRecovery decides
// about started fibers.
func decide(r *fiberRow, known, hasRecovery bool, now time.Time) decision {
	tried := r.Hooks >= maxHooks || r.FirstHook > 0 && now.Sub(time.UnixMilli(r.FirstHook)) >= maxHookTime
	early := now.UnixMilli() < r.NextHook
	if r.NotifyPending {
		switch {
		case !known || tried:
			return decisionSkipNotify
		case early:
			return decisionPostpone
		}
		return decisionNotify
	}
	switch {
	case r.Started && !known:
		return decisionOrphan
	case r.Started && r.exhausted(1):
		return decisionFail
	case r.Started && !hasRecovery:
		return decisionResume
	case !known:
		return decisionDelete
	case tried:
		return decisionMarkDead
	case early:
		return decisionPostpone
	case !r.Started && r.Hooks > 1 && r.NextHook == 0:
		return decisionPause
	case r.Started:
		return decisionAskRecovery
	}
	return decisionAskInterrupted
}

// hookDelay returns the delay before the next call of a hook that has failed n times.
func hookDelay(n int, first time.Duration) time.Duration {
	d := first
	for range n - 1 {
		if d >= maxHookDelay {
			break
		}
		d *= 2
	}
	return min(d, maxHookDelay)
}
