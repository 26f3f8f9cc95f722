package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/internal/work"
)

// errStillListed is the error of a call that has succeeded, but has left its rows in the index.
var errStillListed = errors.New("agent: the method has returned nil, but the row is still in the index")

// start begins calls: first those that were interrupted, then retries, then the rows without a task in the order of the
// index, and last a suspect. The caller must have the turn to itself: see rowWork.
func (rw *rowWork) start(ctx context.Context, now time.Time) error {
	if rw.rows.plan.destroying || rw.earliestStart(now).After(now) {
		return nil
	}
	for _, x := range rw.indexes {
		if err := rw.startIndex(ctx, x, now); err != nil {
			return err
		}
	}
	return nil
}

func (rw *rowWork) startIndex(ctx context.Context, x *indexWork, now time.Time) error {
	interrupted, err := rw.interrupted(ctx, x, maxStarted)
	if err != nil {
		return err
	}
	x.noneInterrupted = len(interrupted) == 0
	var suspects []rowTask
	for _, t := range interrupted {
		if x.calls >= x.Parallel {
			return nil
		}
		eff, err := rw.begin(ctx, x, t, work.Event{Kind: work.Due}, now)
		if err != nil {
			return err
		}
		if eff == work.Wait {
			suspects = append(suspects, t)
		}
	}
	if err := rw.startRetries(ctx, x, now); err != nil {
		return err
	}
	if err := rw.startRows(ctx, x, now); err != nil {
		return err
	}
	if len(suspects) == 0 || x.calls >= x.Parallel || rw.suspectCalls > 0 {
		return nil
	}
	t := nextSuspect(suspects, func(t rowTask) int { return t.Stalls })
	_, err = rw.begin(ctx, x, t, work.Event{Kind: work.Due, Alone: true}, now)
	return err
}

// startRetries begins calls whose delay has passed.
func (rw *rowWork) startRetries(ctx context.Context, x *indexWork, now time.Time) error {
	if x.calls >= x.Parallel {
		return nil
	}
	of := dohost.KeyOf(x.name)
	rows, err := rowTasks.List(ctx, rw.store(), &dohost.Query[rowTask]{
		Index: byRetry, Prefix: of, End: (of + dohost.KeyOf(now.UnixMilli())).PrefixEnd(), Limit: min(maxStarted, x.Parallel-x.calls),
	})
	for _, row := range rows {
		if err == nil {
			_, err = rw.begin(ctx, x, row.Value, work.Event{Kind: work.Due}, now)
		}
	}
	return err
}

// groupWindow is the number of rows that are divided into groups: a call gets the rows of its group among them.
const groupWindow = 100

// startRows begins calls for rows without a task.
func (rw *rowWork) startRows(ctx context.Context, x *indexWork, now time.Time) error {
	if x.calls >= x.Parallel {
		return nil
	}
	calls := min(x.Parallel-x.calls, maxStarted)
	limit := calls * x.Batch
	if x.group != nil {
		limit = max(limit, groupWindow)
	}
	keys, after, atEnd, err := rw.due(ctx, x, limit)
	if err != nil {
		return err
	}
	x.after, x.atEnd = after, atEnd
	batches, err := rw.batches(ctx, x, keys)
	if err != nil {
		return err
	}
	for _, batch := range batches[:min(calls, len(batches))] {
		id := rw.newID()
		t := rowTask{ID: id, Index: x.name, Keys: batch, Origin: id, Since: now.UnixMilli()}
		eff, err := rw.begin(ctx, x, t, work.Event{Kind: work.Due}, now)
		if err != nil || eff != work.Run {
			return err
		}
	}
	return nil
}

// batches returns the rows of calls: those of each group, in the order of their first rows. A row that does not decode has a call
// of its own.
func (rw *rowWork) batches(ctx context.Context, x *indexWork, keys []string) (batches [][]string, err error) {
	if x.group == nil {
		return slices.Collect(slices.Chunk(keys, x.Batch)), nil
	}
	known := x.groups
	if x.groups = nil; len(keys) == 0 {
		return nil, nil
	}
	x.groups = map[string]string{} // of these keys alone
	last := map[string]int{}       // the last batch of a group
	for _, key := range keys {
		name, ok := known[key]
		if !ok {
			row, _, err := x.read(ctx, rw.store(), key)
			switch {
			case errors.Is(err, dohost.ErrFenced), errors.Is(err, dohost.ErrMisuse):
				return nil, err
			case err != nil || row == nil:
				batches = append(batches, []string{key})
				continue
			}
			name = x.group(row)
		}
		x.groups[key] = name
		at, ok := last[name]
		if !ok || len(batches[at]) == x.Batch {
			at = len(batches)
			batches, last[name] = append(batches, nil), at
		}
		batches[at] = append(batches[at], key)
	}
	return batches, nil
}

// newID returns the ID of a new task.
func (rw *rowWork) newID() string { return fmt.Sprintf("%s.%d", rw.owner, rw.nextRun()) }

// begin begins a call of a task, if its policy allows it, and parks it if it is out of attempts. If the task limit is
// reached, the effect is Wait.
func (rw *rowWork) begin(ctx context.Context, x *indexWork, t rowTask, ev work.Event, now time.Time) (work.Effect, error) {
	next, eff, err := rw.step(t.ID, t.Item, ev, x.policy(), now)
	if err != nil || eff == work.Wait {
		return eff, err
	}
	t.Item = next
	t.Postponed = false
	if eff != work.Run {
		t.Error = errInterrupted.Error()
		return eff, rw.park(ctx, x, &t)
	}
	call := &rowCall{rowTask: t, of: rw, suspect: t.Isolated(rw.owner, x.policy()), changed: map[string]bool{}, renewed: map[string]bool{}}
	begun, err := rw.startTask(ctx, "rows "+x.name, now, func(ctx context.Context) error { return rw.run(ctx, x, call) })
	if err != nil || !begun {
		return work.Wait, err
	}
	if err := put(ctx, rw.rows, &rowTasks, &t); err != nil {
		return work.Wait, err // the task does nothing
	}
	call.begun = true
	x.calls++
	if call.runsAlone() {
		rw.suspectCalls++
	}
	for _, key := range t.Keys {
		x.beginRunning(key, call)
	}
	return eff, nil
}

// run runs a call, and then begins others.
func (rw *rowWork) run(ctx context.Context, x *indexWork, call *rowCall) error {
	if !call.begun {
		return nil
	}
	if err := rw.callMethod(ctx, x, call); err != nil || ctx.Err() != nil {
		return err
	}
	return rw.rows.batch(ctx, false, func(ctx context.Context) error { return rw.start(ctx, time.Now()) })
}

// taskOf returns the task of a running call: its rows that have not left the index. There is none after the last one has left
// it, and after DeleteAll.
func (rw *rowWork) taskOf(ctx context.Context, call *rowCall) (t rowTask, ok bool, err error) {
	t, ok, err = get(ctx, rw.rows, &rowTasks, call.ID)
	return t, ok && t.Owner == call.Owner && t.Run == call.Run, err
}

// takeOut handles a row that leaves the index during its call, in the same batch. The task needs the same alarm afterwards. If
// the call itself takes the row out, it has made progress: it is not one of the calls that have failed for the other rows.
// A task has a bounded number of rows, so a bounded number of its calls make progress.
func (rw *rowWork) takeOut(ctx context.Context, x *indexWork, call *rowCall, key string) error {
	t, ok, err := rw.taskOf(ctx, call)
	at := slices.Index(t.Keys, key)
	switch {
	case err != nil || !ok || at < 0:
		return err
	case len(t.Keys) == 1:
		_, err := remove(rw.rows.keepAlarm(ctx), rw.rows, &rowTasks, t.ID) // an early alarm is harmless
		return err
	}
	t.Keys = slices.Delete(t.Keys, at, at+1)
	if ctx.Value(rowCallKey{}) == call {
		if t.Item, _, err = rw.step(t.ID, t.Item, work.Event{Kind: work.Progressed, Run: t.Run}, x.policy(), time.Now()); err != nil {
			return err
		}
		t.Attempt, t.Failures = 0, 0
	}
	return put(rw.rows.keepAlarm(ctx), rw.rows, &rowTasks, &t)
}

// putBack handles a row that a call puts into the index after it has taken it out: the row remains in the task, whose failed
// calls count as before. Otherwise a call that fails so would be repeated forever, without a delay. A renewed row is new work.
func (rw *rowWork) putBack(ctx context.Context, call *rowCall, key string) error {
	if ctx.Value(rowCallKey{}) != call || call.renewed[key] {
		return nil
	}
	t, ok, err := rw.taskOf(ctx, call)
	if err != nil || slices.Contains(t.Keys, key) {
		return err
	}
	before := t.Keys
	t = call.rowTask
	t.Keys = slices.DeleteFunc(slices.Clone(t.Keys), func(k string) bool { return k != key && !(ok && slices.Contains(before, k)) })
	return put(ctx, rw.rows, &rowTasks, &t)
}

// forget removes a row from a task without a running call.
func (rw *rowWork) forget(ctx context.Context, t rowTask, key string) error {
	t.Keys = slices.DeleteFunc(t.Keys, func(k string) bool { return k == key })
	if len(t.Keys) > 0 {
		return put(ctx, rw.rows, &rowTasks, &t)
	}
	_, err := remove(ctx, rw.rows, &rowTasks, t.ID)
	return err
}

// release ends a call in memory. A second release has no effect.
func (rw *rowWork) release(x *indexWork, call *rowCall) {
	if !call.begun {
		return
	}
	if call.runsAlone() {
		rw.suspectCalls--
	}
	call.begun = false
	x.calls--
	rw.ended++
	rw.wakeWaiters()
	for _, key := range call.Keys {
		if x.running[key] == call {
			x.endRunning(key)
		}
	}
	if call.place != "" {
		x.reread(call.place)
	}
}

// callMethod calls the method with the rows of its task that are still in the index, and records the outcome in the last batch
// of the method.
func (rw *rowWork) callMethod(ctx context.Context, x *indexWork, call *rowCall) error {
	t, rows, damaged, ok, err := rw.prepare(ctx, x, call)
	if err != nil {
		return err
	}
	if !ok {
		rw.release(x, call)
		return nil
	}
	var failed error
	if len(rows) > 0 {
		failed = x.call(rw.self, t.position().Context(context.WithValue(ctx, rowCallKey{}, call)), rows)
	}
	if ctx.Err() != nil {
		return failed
	}
	// The alarm of a running call stays until its outcome is recorded, so release follows.
	defer rw.release(x, call)
	return rw.rows.record(ctx, "rows", func(ctx context.Context) error { return rw.recordOutcome(ctx, x, call, damaged, failed) })
}

// recordOutcome records the outcome of a call: the task keeps the rows that are still in the index, or is deleted.
func (rw *rowWork) recordOutcome(ctx context.Context, x *indexWork, call *rowCall, damaged map[string]error, failed error) error {
	t, ok, err := rw.taskOf(ctx, call)
	if err != nil {
		return err
	}
	left, err := rw.unfinished(ctx, x, call, &t, damaged, failed)
	if err != nil {
		return err
	}
	for _, key := range t.Keys {
		if cause := damaged[key]; cause != nil {
			if err := rw.parkDamaged(ctx, x, &t, key, cause); err != nil {
				return err
			}
		}
	}
	switch {
	case len(t.Keys) == 1 && damaged[t.Keys[0]] != nil:
		return nil // the task itself is parked
	case len(left) == 0:
		if failed != nil {
			rw.report(ctx, "rows:error", failed, slog.String("index", call.Index), slog.String("id", call.ID))
		}
		if !ok {
			return nil
		}
		_, err := remove(ctx, rw.rows, &rowTasks, t.ID)
		return err
	}
	if failed == nil {
		failed = errStillListed
	}
	if p, ok := errors.AsType[*PostponeError](failed); ok {
		return rw.postpone(ctx, x, call, t, left, p)
	}
	ev := work.Event{Kind: work.Returned, Run: t.Run, Failed: true, Jitter: rw.jitter(&t)}
	if t.Item, _, err = rw.step(t.ID, t.Item, ev, x.policy(), time.Now()); err != nil {
		return err
	}
	t.Keys, t.Error = left, short(failed.Error())
	rw.report(ctx, "rows:error", failed, slog.String("index", t.Index), slog.String("id", t.ID), slog.Int("attempt", t.Attempt))
	if !t.Open() {
		return rw.park(ctx, x, &t)
	}
	return put(ctx, rw.rows, &rowTasks, &t)
}

// unfinished returns the rows of a call that remain in its task. A row that other code has written during a successful call
// is due again.
func (rw *rowWork) unfinished(
	ctx context.Context, x *indexWork, call *rowCall, t *rowTask, damaged map[string]error, failed error,
) (left []string, err error) {
	for _, key := range t.Keys {
		wasDamaged := damaged[key] != nil
		_, listed, err := x.read(ctx, rw.store(), key)
		switch {
		case errors.Is(err, dohost.ErrFenced), errors.Is(err, dohost.ErrMisuse):
			return nil, err
		case err != nil:
			damaged[key] = err
		case listed && wasDamaged, listed && failed == nil && call.changed[key]:
			delete(damaged, key) // other code has repaired it
		case listed:
			left = append(left, key)
		}
	}
	return left, nil
}
