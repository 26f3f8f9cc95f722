package agent

import (
	"fmt"
	"math"

	"github.com/dohost/dohost/internal/backoff"
	"github.com/dohost/dohost/internal/work"
)

// policy returns the policy of a fiber. A fiber of RunFiber cannot be called again, so OnInterrupted decides about
// it.
func (fs *fibers) policy(r *fiberRow) work.Policy {
	p := work.Policy{Known: fs.class.interrupted != nil, RecoveryHook: true, HookDelay: fs.class.options.KeepAlive}
	if r.Started {
		k, known := fs.class.kinds[r.Name]
		o := k.options
		if !known {
			o = o.withDefaults()
		}
		p.Known, p.Resumable, p.MaxRetries = known, true, r.Retries
		p.RecoveryHook = fs.class.recovery != nil && !o.Quiet
		p.EndHook = fs.class.ended != nil && (!o.Quiet || r.State == work.Notifying) // a kind that became Quiet keeps the calls that are pending
		p.KeepCompleted, p.KeepFailed = o.KeepCompleted, o.KeepFailed
	}
	return p
}

// hookJitter returns the jitter of the delay before the next call of a fiber's hook. OnRecovery gets the
// fibers of one call together again, so they have the same share.
func (fs *fibers) hookJitter(r *fiberRow) float64 {
	id, number := fs.obj.ID(), r.Number
	if r.Started && r.State != work.Notifying {
		number = 0
	}
	return backoff.Share(id.Class, id.Name, fmt.Sprintf("%d %d", number, r.Calls))
}

// callbackPolicy returns the policy of a run of a callback. Its retries after errors are part of one run, so a run that
// returns an error has failed.
func (js *jobs) callbackPolicy() work.Policy {
	return work.Policy{Known: true, Resumable: true, MaxRetries: js.class.options.MaxInterruptions - 1, Isolate: 1}
}

// schedulePolicy returns the policy of a schedule. A recurring schedule skips a run that was interrupted too often.
func (js *jobs) schedulePolicy(j *scheduleRow) *work.Policy {
	p := js.callbackPolicy()
	p.GiveUp = !j.Kind.recurs()
	return &p
}

// queuePolicy returns the policy of the items of the queue.
func (js *jobs) queuePolicy() *work.Policy {
	p := js.callbackPolicy()
	p.GiveUp, p.KeepPlace = true, true
	return &p
}

// policy returns the policy of the tasks of an index. A task that is out of attempts is parked.
func (x *indexWork) policy() *work.Policy {
	p := &work.Policy{
		Known: true, Resumable: true, MaxRetries: max(x.Retry.MaxAttempts-1, -1), Isolate: 1, GiveUp: true,
		RetryDelay: x.Retry.BaseDelay, MaxRetryDelay: x.Retry.MaxDelay,
	}
	if p.RetryDelay < 0 {
		p.RetryDelay = 1 // the shortest delay: with zero the item would keep its owner
	}
	if p.MaxRetryDelay < 0 {
		p.MaxRetryDelay = math.MaxInt64
	}
	return p
}
