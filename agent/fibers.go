package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/internal/backoff"
	"github.com/dohost/dohost/internal/work"
)

// fiberRow is the stored form of a fiber. The row of a fiber of StartFiber outlives the fiber's end, the row of
// one of RunFiber does not. Recovery reads and writes rows between the end of an incarnation and the next step of its
// fiber, so fields that are mostly zero are left out.
type fiberRow struct {
	work.Item
	ID         string
	Name       string // or its kind
	Started    bool   `msgpack:",omitempty"` // by StartFiber
	Key        string `msgpack:",omitempty"`
	Checkpoint []byte `msgpack:",omitempty"` // JSON; nil before the first one is saved
	Saved      uint64 `msgpack:",omitempty"` // the number of checkpoints that were saved
	// Work is the name of the work, if it is not that of the ID: see fiberRow.work.
	Work    string `msgpack:",omitempty"`
	Result  []byte `msgpack:",omitempty"` // JSON
	Error   string `msgpack:",omitempty"`
	Retries int    // see KindOptions.MaxRetries
	Number  uint64 // in the order of creation within the agent
	Created int64
	Began   int64 `msgpack:",omitempty"`
	Updated int64
	Ended   int64 `msgpack:",omitempty"`
}

// status returns the public state of the fiber.
func (r *fiberRow) status() FiberStatus {
	switch r.State {
	case work.Ended, work.Notifying:
		return finalStatuses[r.Outcome]
	case work.Orphaned:
		return FiberInterrupted
	case work.Dead:
		return FiberDead
	}
	if r.Began == 0 {
		return FiberPending
	}
	return FiberRunning
}

// finalStatuses are the statuses of fibers that have ended.
var finalStatuses = [...]FiberStatus{work.Completed: FiberCompleted, work.Failed: FiberFailed, work.Cancelled: FiberCancelled}

var fiberRows = dohost.Collection[fiberRow]{
	Name: "dohost.fibers",
	Key:  func(r fiberRow) string { return r.ID },
	Indexes: []dohost.Index[fiberRow]{
		{Name: "open", Of: func(r fiberRow) dohost.Key { return r.due() }},
		{Name: "started", Of: func(r fiberRow) dohost.Key { return partialIndexKey(r.Started, dohost.KeyOf(r.Number)) }},
		{Name: "key", Of: func(r fiberRow) dohost.Key { return partialIndexKey(r.Key != "", dohost.KeyOf(r.Key)) }},
		{Name: "expires", Of: func(r fiberRow) dohost.Key {
			return partialIndexKey(r.Expires != 0, dohost.KeyOf(r.Expires)+dohost.KeyOf(r.ID))
		}},
		{Name: "dead", Of: func(r fiberRow) dohost.Key { return partialIndexKey(r.State == work.Dead, dohost.KeyOf(r.Number)) }},
	},
}

// pending reports whether the row needs the alarm.
func (r *fiberRow) pending() bool { return r.Open() || r.State == work.Notifying }

// due returns the row's key in the index of rows that need the alarm, or "".
func (r *fiberRow) due() dohost.Key {
	return partialIndexKey(r.pending(), dohost.KeyOf(r.NotBefore)+dohost.KeyOf(r.Number))
}

// fibers starts, runs and ends the fibers of an incarnation, and knows when they need the alarm. The row of a fiber is
// durable before its first step, and names the incarnation that works on it. A call of a fiber's function or method
// changes the row only while the row has the number of its run.
type fibers struct {
	*incarnation
	rows  *rows
	ended func(context.Context, *fiberRow) error // called when the method of a fiber has ended it

	calls   map[string]*fiberCall    // calls in progress
	waiters map[string]chan struct{} // closed when the fiber has ended

	times fiberTimes
}

// put writes a fiber's row.
func (fs *fibers) put(ctx context.Context, row *fiberRow) error {
	fs.times.written()
	return put(ctx, fs.rows, &fiberRows, row)
}

// insert writes the row of a new fiber.
func (fs *fibers) insert(ctx context.Context, row *fiberRow) error {
	fs.times.written()
	return insert(ctx, fs.rows, &fiberRows, row)
}

// update changes a fiber's row.
func (fs *fibers) update(ctx context.Context, id string, change func(*fiberRow) error) (row fiberRow, err error) {
	return update(ctx, fs.rows, &fiberRows, id, change)
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
	fs.times.delay(r)
	fs.times.expire(r)
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

// stepRow reads the row of a fiber and applies an event to it. The effect is Refused if the fiber does not exist.
func (fs *fibers) stepRow(ctx context.Context, id string, ev work.Event) (row fiberRow, eff work.Effect, err error) {
	row, ok, err := get(ctx, fs.rows, &fiberRows, id)
	if err != nil || !ok {
		return row, work.Refused, err
	}
	eff, err = fs.step(&row, ev, time.Now())
	return row, eff, err
}

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

// launch starts a task that works on a row of this incarnation: when the row is durable or, with immediately, as
// soon as the turn is free.
func (fs *fibers) launch(ctx context.Context, row *fiberRow, immediately bool) error {
	id, run, begin := row.ID, row.Run, fs.obj.Go
	if immediately {
		begin = fs.obj.GoImmediately
	}
	return begin(ctx, "fiber "+row.Name, func(ctx context.Context) error { return fs.runMethod(ctx, id, run) })
}

// runMethod calls a fiber's method until the method returns without an error or has failed too often.
func (fs *fibers) runMethod(ctx context.Context, id string, run uint64) error {
	if err := fs.waitForCall(ctx, id); err != nil {
		return err
	}
	for {
		row, ok, err := get(ctx, fs.rows, &fiberRows, id)
		if err != nil || !ok || !row.Open() || row.Owner != fs.owner || row.Run != run {
			return err // cancelled, deleted or restarted concurrently
		}
		again, err := fs.callMethod(ctx, &row)
		if errors.Is(err, dohost.ErrNoSpace) { // not a failure of the fiber
			fs.report(ctx, "fiber:waiting", err, slog.String("fiber", id))
			again, err = true, dohost.Sleep(ctx, time.Second)
		}
		if err != nil || !again {
			return err
		}
	}
}

// waitForCall returns when no call of a fiber's method is running. After a restart, a cancelled one may be.
func (fs *fibers) waitForCall(ctx context.Context, id string) error {
	for fs.calls[id] != nil {
		f := fs.calls[id]
		if f.done == nil {
			f.done = make(chan struct{})
		}
		if _, _, err := dohost.Recv(ctx, f.done); err != nil {
			return err
		}
	}
	return nil
}

// callMethod calls a fiber's method once, and reports whether to call it again.
func (fs *fibers) callMethod(ctx context.Context, row *fiberRow) (again bool, err error) {
	if row.State == work.Waiting {
		err := fs.updateRunning(ctx, row.ID, func(r *fiberRow) error {
			now := time.Now()
			_, err := fs.step(r, work.Event{Kind: work.Begun}, now)
			r.Began = now.UnixMilli()
			*row = *r
			return err
		})
		if err != nil {
			return false, err
		}
	}
	f, inner, end := fs.startCall(ctx, row)
	e := callOutcome{run: row.Run}
	e.result, e.failed = fs.class.kinds[row.Name].run(fs.self, inner, f, row)
	f.returned = true
	end()
	if ctx.Err() != nil {
		return false, context.Cause(ctx) // the incarnation has ended: the row stays
	}
	if errors.Is(e.failed, dohost.ErrNoSpace) {
		return false, e.failed
	}
	err = fs.recordOutcome(ctx, row, &e)
	if errors.Is(err, dohost.ErrNoSpace) {
		err = fs.recordOutcomeLater(ctx, row, &e)
	}
	switch {
	case errors.Is(err, errCancelled), noRow(err):
		return false, nil
	case err != nil:
		return false, err
	}
	if row.Open() {
		fs.report(ctx, "fiber:retry", e.failed, slog.String("fiber", row.ID), slog.Int("attempt", row.Attempt))
		return true, nil
	}
	fs.wakeWaiters(row.ID)
	fs.report(ctx, "fiber:ended", e.failed, slog.String("fiber", row.ID), slog.String("kind", row.Name),
		slog.String("status", string(row.status())), slog.Int("attempt", row.Attempt))
	return false, fs.ended(ctx, row)
}

// recordOutcome writes the outcome of a call of a fiber's method.
func (fs *fibers) recordOutcome(ctx context.Context, row *fiberRow, e *callOutcome) error {
	return e.write(func() error {
		return retryInNewBatch(ctx, func() error {
			written, err := fs.update(ctx, row.ID, func(r *fiberRow) error {
				return fs.applyOutcome(r, e, time.Now())
			})
			if err == nil {
				*row = written
			}
			return err
		})
	})
}

// fiberCall is a call of a fiber's function or method in this incarnation.
type fiberCall struct {
	fibers *fibers
	id     string
	run    uint64 // the number of its run
	cancel context.CancelCauseFunc

	// Owned by the holder of the turn.
	saved    uint64        // the number of checkpoints, when it was last read
	returned bool          // a started fiber's method has returned
	done     chan struct{} // closed when the call has returned; nil without a waiter
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

// wakeWaiters wakes the callers that wait for a fiber, so that they check its status.
func (fs *fibers) wakeWaiters(id string) {
	if ch, ok := fs.waiters[id]; ok {
		close(ch)
		delete(fs.waiters, id)
	}
}
