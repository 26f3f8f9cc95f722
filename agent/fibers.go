package agent

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/internal/work"
)

// fibers starts, runs and ends the fibers of an incarnation, and knows when they need the alarm. The row of a fiber is
// durable before its first step, and names the incarnation that works on it. A call of a fiber's function or method
// changes the row only while the row has the number of its run.
type fibers struct {
	*incarnation
	rows  *rows
	ended func(context.Context, *fiberRow) error // called when the method of a fiber has ended it

	calls   map[string]*fiberCall    // calls in progress
	waiters map[string]chan struct{} // closed when the fiber has ended

	// For the alarm.
	none        bool      // no row needs work: see rows.arm
	resumed     bool      // a row was resumed since the alarm was set, so there is an open one
	hookDelayed bool      // a row may wait for the next call of its hook
	fullUntil   time.Time // the disk or the task limit was full: no alarm before this
	expiryRead  bool
	expiry      int64 // of the first ended fiber; zero if there is none
}

// put writes a fiber's row.
func (fs *fibers) put(ctx context.Context, row *fiberRow) error {
	fs.none = false
	return put(ctx, fs.rows, &fiberRows, row)
}

// insert writes the row of a new fiber.
func (fs *fibers) insert(ctx context.Context, row *fiberRow) error {
	fs.none = false
	return insert(ctx, fs.rows, &fiberRows, row)
}

// add writes the row of a new fiber, with the next number. Times and random ids would not order rows that are created
// in the same millisecond.
func (fs *fibers) add(ctx context.Context, row *fiberRow) error {
	last, _, err := numbers.Get(ctx, fs.store(), "fiber")
	if err != nil {
		return err
	}
	row.Number = last.Value.Last + 1
	if err := numbers.Put(ctx, fs.store(), number{"fiber", row.Number}); err != nil {
		return err
	}
	return fs.insert(ctx, row)
}

// update changes a fiber's row.
func (fs *fibers) update(ctx context.Context, id string, change func(*fiberRow) error) (row fiberRow, err error) {
	return update(ctx, fs.rows, &fiberRows, id, change)
}

// errMoved is the error of a change that needs the alarm.
var errMoved = errors.New("agent: the fiber's time has changed without its alarm")

// updateRunning is update for a change after which the fiber needs the same alarm, such as a new checkpoint.
func (fs *fibers) updateRunning(ctx context.Context, id string, change func(*fiberRow) error) error {
	return updateUnarmed(ctx, fs.rows, &fiberRows, id, func(r *fiberRow) error {
		pending, at := r.pending(), r.NotBefore
		if err := change(r); err != nil {
			return err
		}
		if r.pending() != pending || r.NotBefore != at {
			return errMoved
		}
		return nil
	})
}

// delete deletes a fiber's row.
func (fs *fibers) delete(ctx context.Context, id string) (existed bool, err error) {
	return remove(ctx, fs.rows, &fiberRows, id)
}

// step changes a fiber's row as an event requires, and returns the effect. Nothing is written yet.
func (fs *fibers) step(r *fiberRow, ev work.Event, now time.Time) (work.Effect, error) {
	p := fs.policy(r)
	if ev.Kind == work.HookCalled || ev.Kind == work.Due && (p.RecoveryHook || p.EndHook) {
		ev.Jitter = fs.hookJitter(r)
	}
	next, eff, err := fs.incarnation.step(r.ID, r.Item, ev, &p, now)
	switch {
	case err != nil:
		return eff, err
	case eff != work.None && eff != work.Run:
		return eff, nil
	}
	if !concernsHook(r.State, next.State, ev.Kind) {
		r.Updated = now.UnixMilli()
	}
	if r.Item = next; r.Ended == 0 && (r.State == work.Ended || r.State == work.Notifying) {
		r.Ended = r.Updated
	}
	if r.NotBefore > 0 {
		fs.hookDelayed = true
	}
	if r.Expires > 0 && (fs.expiry == 0 || r.Expires < fs.expiry) {
		fs.expiry = r.Expires
	}
	return eff, nil
}

// concernsHook reports whether a step changes only the calls of a hook, which are not part of FiberInfo.
func concernsHook(before, after work.State, k work.EventKind) bool {
	switch k {
	case work.HookCalled, work.HookRunning, work.Retry:
		return true
	case work.Due:
		return before == work.Notifying || after == work.Recovering
	case work.HookReturned:
		return before == work.Notifying
	}
	return false
}

// startCall makes the fiber's context. [Fibers.Cancel] can cancel it.
func (fs *fibers) startCall(ctx context.Context, row *fiberRow) (f *fiberCall, inner context.Context, end func()) {
	id := row.ID
	f = &fiberCall{fibers: fs, id: id, run: row.Run, saved: row.Saved}
	ctx = dohost.NewWorkPosition(row.work(), f.number).Context(ctx)
	inner, f.cancel = context.WithCancelCause(context.WithValue(ctx, fiberKey{}, f))
	if fs.calls == nil {
		fs.calls = map[string]*fiberCall{}
	}
	fs.calls[id] = f
	return f, inner, func() {
		f.cancel(nil)
		delete(fs.calls, id)
		if f.done != nil {
			close(f.done)
		}
	}
}

// end deletes a row, in the batch of the last writes if the row fits into it.
func (fs *fibers) end(ctx context.Context, id string) error {
	return retryInNewBatch(ctx, func() error {
		_, err := fs.delete(ctx, id)
		return err
	})
}

// reportEnded reports the end of a fiber of RunFiber, or of one that was cancelled.
func (fs *fibers) reportEnded(ctx context.Context, id string, status FiberStatus) {
	fs.wakeWaiters(id)
	fs.report(ctx, "fiber:ended", nil, slog.String("fiber", id), slog.String("status", string(status)))
}

// wakeWaiters wakes the callers that wait for a fiber, so that they check its status.
func (fs *fibers) wakeWaiters(id string) {
	if ch, ok := fs.waiters[id]; ok {
		close(ch)
		delete(fs.waiters, id)
	}
}

// wakeup returns when the fibers need the alarm. While a fiber is open, the alarm is set to the next heartbeat or earlier,
// and is also delivered when the host starts.
func (fs *fibers) wakeup(ctx context.Context, now time.Time, sure bool) (wakeup, error) {
	expires, err := fs.firstExpiry(ctx)
	if err != nil || fs.none {
		return expires, err
	}
	beat, more := wakeup{at: now.Add(fs.class.options.KeepAlive), atStart: true}, wakeup{at: fs.rows.plan.continueAt}
	if fs.resumed && !fs.hookDelayed {
		fs.resumed = false
		return earliest(expires, beat, more), nil
	}
	row, ok, err := first(ctx, fs.rows, &fiberRows, dohost.Query[fiberRow]{Index: "open"})
	fs.none = sure && err == nil && !ok
	if err != nil || !ok {
		return expires, err
	}
	if row.NotBefore == 0 && fs.hookDelayed {
		row, _, err = first(ctx, fs.rows, &fiberRows, dohost.Query[fiberRow]{Index: "open", Start: dohost.KeyOf(int64(1))})
		if err != nil {
			return wakeup{}, err
		}
	}
	again := timeOf(row.NotBefore)
	if row.NotBefore > 0 && !again.After(now) { // the disk or the task limit was full, or the call is being started
		again = now.Add(time.Second)
	}
	return earliest(expires, beat, more, wakeup{at: again}), nil
}

// firstExpiry returns when the first ended fiber expires. An incarnation reads it once, and each end of a fiber
// updates it: if it is too early, the alarm reads it again. It must not be too late, so code that deletes or
// restarts such a fiber in a Transaction, which may be rolled back, reads it before.
func (fs *fibers) firstExpiry(ctx context.Context) (wakeup, error) {
	if !fs.expiryRead {
		row, _, err := first(ctx, fs.rows, &fiberRows, dohost.Query[fiberRow]{Index: "expires"})
		if err != nil {
			return wakeup{}, err
		}
		fs.expiryRead, fs.expiry = true, row.Expires
	}
	return wakeup{at: timeOf(fs.expiry)}, nil
}

// expiryBatch bounds the fibers that one batch deletes.
const expiryBatch = 500

func (fs *fibers) expire(ctx context.Context, now time.Time) error {
	if first := fs.expiry; fs.expiryRead && (first == 0 || first > now.UnixMilli()) {
		return nil
	}
	fs.expiryRead = false
	rows, err := fiberRows.List(ctx, fs.store(), &dohost.Query[fiberRow]{
		Index: "expires", End: dohost.KeyOf(now.UnixMilli()).PrefixEnd(), Limit: expiryBatch,
	})
	for _, r := range rows {
		if err == nil {
			_, err = fs.delete(ctx, r.Key)
		}
	}
	return err
}

// deferRecovery makes the alarm continue recovery in a second.
func (fs *fibers) deferRecovery(ctx context.Context) error {
	return fs.rows.change(ctx, func(p *plan) {
		if p.continueAt.IsZero() {
			p.continueAt = time.Now().Add(time.Second)
		}
	})
}
