package agent

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/internal/invariants"
	"github.com/dohost/dohost/internal/work"
)

// rows is the only writer of the rows of durable work (fibers, schedules, the queue, dead letters, payloads, and the tasks of OnRows), and of
// the object's alarm. Each write sets the alarm in the same batch, so its callers cannot forget the alarm. The exceptions are the
// writes with keepAlarm and pause.armLater.
type rows struct {
	*incarnation
	// wakeup returns when the current rows need the alarm. The comment of arm explains the parameter sure.
	wakeup func(ctx context.Context, now time.Time, sure bool) (wakeup, error)
	// Owned by the holder of the turn.
	plan    plan // change changes it
	unarmed bool // a batch has written rows without the alarm
	open    int  // calls of batches in progress
}

// plan is the part of the wakeup that is not in rows.
type plan struct {
	destroying bool      // the destruction of the agent has begun
	keepAlives int       // KeepAlive calls that are not released
	continueAt time.Time // when recovery continues with deferred rows
}

// change changes the plan, and sets the alarm in the same batch. After an error the plan remains changed.
func (rs *rows) change(ctx context.Context, f func(*plan)) error {
	return rs.batch(ctx, false, func(context.Context) error {
		f(&rs.plan)
		return nil
	})
}

// continueDestroying is for a destruction that an earlier incarnation has begun. That incarnation has set the alarm.
func (rs *rows) continueDestroying() { rs.plan.destroying = true }

// batchKey is the context key of the rows whose batch is running. Its value is a *rows, or a kept.
type batchKey struct{}

// kept is the value of batchKey for writes that leave the alarm as it is.
type kept struct{ rows *rows }

// batch runs change, and then sets the alarm once for all rows that change has written. After an error of change the
// rows that it has written stay, and the alarm stays as it is: the caller fails its event, or is a Transaction. change must
// not give up the turn. For sure see arm.
func (rs *rows) batch(ctx context.Context, sure bool, change func(context.Context) error) error {
	switch ctx.Value(batchKey{}) {
	case rs:
		err := change(ctx)
		rs.unarmed = rs.unarmed || err == nil
		return err
	case kept{rs}:
		return change(ctx)
	}
	rs.checkArmed(ctx)
	if err := change(context.WithValue(ctx, batchKey{}, rs)); err != nil {
		return rs.failed(err)
	}
	return rs.arm(ctx, sure)
}

// pause ends a batch of rows.batches, and begins the next one.
type pause struct {
	ctx  context.Context // of the caller of rows.batches
	rows *rows
}

// between calls f between two batches. If rows have been written, it sets the alarm first.
func (p pause) between(f func(context.Context) error) error {
	if p.rows.unarmed {
		if err := p.rows.arm(p.ctx, false); err != nil {
			return err
		}
	}
	return f(p.ctx)
}

// armLater returns a context for writes in a function that was passed to between: the next pause, or the end of the batches, sets the alarm.
// Until then the function neither commits nor gives up the turn.
func (p pause) armLater(ctx context.Context) context.Context {
	return context.WithValue(ctx, batchKey{}, p.rows)
}

// batches is batch for a change that commits or gives up the turn in between. The change does that in a function that it
// passes to pause.between, with the context of that function. The alarm stays as it is if change reports that it has changed nothing.
func (rs *rows) batches(ctx context.Context, sure bool, change func(ctx context.Context, p pause) (changed bool, err error)) error {
	rs.checkArmed(ctx)
	rs.open++
	changed, err := change(context.WithValue(ctx, batchKey{}, rs), pause{ctx, rs})
	rs.open--
	switch {
	case err != nil:
		return rs.failed(err)
	case !changed:
		rs.checkArmed(ctx)
		return nil
	case sure:
		return dohost.Transaction(ctx, func(ctx context.Context) error { return rs.arm(ctx, true) })
	}
	return rs.arm(ctx, false)
}

// failed returns the error of a batch. The alarm stays as it is: see batch.
func (rs *rows) failed(err error) error {
	if rs.open == 0 {
		rs.unarmed = false
	}
	return err
}

// checkArmed panics, in builds that make the checks, if an earlier batch has written rows without the alarm. The code of a batch in
// progress may have done so.
func (rs *rows) checkArmed(ctx context.Context) {
	if invariants.Enabled && rs.unarmed && rs.open == 0 && ctx.Value(batchKey{}) != rs {
		panic("agent: a batch has written rows, and has not set the alarm")
	}
}

// keepAlarm returns a context for writes that leave the alarm as it is: afterwards the rows need no earlier alarm than before.
func (rs *rows) keepAlarm(ctx context.Context) context.Context {
	return context.WithValue(ctx, batchKey{}, kept{rs})
}

// transaction is batch in a Transaction, for changes that belong together.
func (rs *rows) transaction(ctx context.Context, change func(context.Context) error) error {
	return dohost.Transaction(ctx, func(ctx context.Context) error { return rs.batch(ctx, false, change) })
}

// arm sets the alarm for the current rows. With sure, wakeup may record that there is no open fiber, and the
// incarnation reads none until it writes one. Then no open Transaction may have deleted rows that a rollback restores:
// the caller needs a Transaction of its own, which is refused while another is open, or a turn that no other code has
// held.
func (rs *rows) arm(ctx context.Context, sure bool) error {
	rs.unarmed = false
	next, err := rs.wakeup(ctx, time.Now(), sure)
	switch {
	case err != nil:
		return err
	case next.at.IsZero():
		return rs.obj.DeleteAlarm(ctx)
	case next.atStart:
		return rs.obj.SetStartAlarm(ctx, next.at)
	}
	return rs.obj.SetAlarm(ctx, next.at)
}

// nextWakeup returns the time of the agent's next work, for the current rows and the heartbeat.
func (c *core) nextWakeup(ctx context.Context, now time.Time, sure bool) (wakeup, error) {
	if c.rows.plan.destroying { // no other work begins
		return wakeup{at: now.Add(c.class.options.KeepAlive), atStart: true}, nil
	}
	jobs, err := c.jobs.wakeup(ctx, now)
	if err != nil {
		return wakeup{}, err
	}
	fibers, err := c.fibers.wakeup(ctx, now, sure)
	if err != nil {
		return wakeup{}, err
	}
	rows, err := c.rowWork.wakeup(ctx, now)
	if err != nil {
		return wakeup{}, err
	}
	next := earliest(jobs, fibers, rows, c.heartbeat(now))
	return c.fibers.times.postpone(next), nil
}

// wakeup returns when the fibers need the alarm. While a fiber is open, the alarm is set to the next heartbeat or earlier,
// and is also delivered when the host starts.
func (fs *fibers) wakeup(ctx context.Context, now time.Time, sure bool) (wakeup, error) {
	expires, err := fs.firstExpiry(ctx, sure)
	t := &fs.times
	if err != nil || t.open == openNone {
		return expires, err
	}
	beat, more := wakeup{at: now.Add(fs.class.options.KeepAlive), atStart: true}, wakeup{at: fs.rows.plan.continueAt}
	if t.takeResumed() {
		return earliest(expires, beat, more), nil
	}
	row, ok, err := first(ctx, fs.rows, &fiberRows, dohost.Query[fiberRow]{Index: "open"})
	if sure && err == nil && !ok {
		t.open = openNone
	}
	if err != nil || !ok {
		return expires, err
	}
	if row.NotBefore == 0 && t.delayed {
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

// deferRecovery makes the alarm continue recovery in a second.
func (fs *fibers) deferRecovery(ctx context.Context) error {
	return fs.rows.change(ctx, func(p *plan) {
		if p.continueAt.IsZero() {
			p.continueAt = time.Now().Add(time.Second)
		}
	})
}

// wakeup is the time of an agent's next work without an event. The zero wakeup means never.
type wakeup struct {
	at time.Time
	// atStart requests an alarm when the host starts as well, for work that the host's end interrupts.
	atStart bool
}

// earliest merges wakeups into one alarm.
func earliest(all ...wakeup) (first wakeup) {
	for _, w := range all {
		if w.at.IsZero() {
			continue
		}
		if first.at.IsZero() || w.at.Before(first.at) {
			first.at = w.at
		}
		first.atStart = first.atStart || w.atStart
	}
	return first
}

// refresh sets the alarm if isLate reports that it is too late for the rows as they are: they belong to an earlier incarnation, or
// more of them may begin.
func (rs *rows) refresh(ctx context.Context, isLate func(context.Context) (bool, error)) error {
	late, err := isLate(ctx)
	if err != nil || !late {
		return err
	}
	return rs.arm(ctx, false)
}

// record writes the outcome of a run in the last batch of its method. If the batch or the disk is full, it tries again later;
// the row does not stay running. hook names the run in the report of the error.
func (rs *rows) record(ctx context.Context, hook string, write func(context.Context) error) error {
	for {
		err := rs.transaction(ctx, write)
		if err == nil || ctx.Err() != nil {
			return err
		}
		rs.reportError(ctx, hook, err)
		if err := dohost.Sleep(ctx, overloadPause); err != nil {
			return err
		}
	}
}

// armBy sets the alarm to a time, unless it is earlier already. It is for writes of rows that users have: see rowWork.written.
func (rs *rows) armBy(ctx context.Context, at time.Time) error {
	if ctx.Value(batchKey{}) == rs {
		rs.unarmed = true
		return nil
	}
	set, ok, err := rs.obj.GetAlarm(ctx)
	if err != nil || ok && !set.After(at) {
		return err
	}
	return rs.obj.SetStartAlarm(ctx, at)
}

// put writes a row. Functions pass rows of fibers by pointer: with copies of them in each frame, the stack of a constructor
// that resumes a fiber exceeded 8 KiB, and its growth cost about 7 us.
func put[T any](ctx context.Context, rs *rows, of *dohost.Collection[T], row *T) error {
	return rs.batch(ctx, false, func(ctx context.Context) error { return of.Put(ctx, rs.store(), *row) })
}

// insert writes a new row.
func insert[T any](ctx context.Context, rs *rows, of *dohost.Collection[T], row *T) error {
	return rs.batch(ctx, false, func(ctx context.Context) error { return of.Insert(ctx, rs.store(), *row) })
}

// update changes a row.
func update[T any](ctx context.Context, rs *rows, of *dohost.Collection[T], key string, change func(*T) error) (row T, err error) {
	err = rs.batch(ctx, false, func(ctx context.Context) error {
		written, err := of.Update(ctx, rs.store(), key, change)
		row = written.Value
		return err
	})
	return row, err
}

// remove deletes a row.
func remove[T any](ctx context.Context, rs *rows, of *dohost.Collection[T], key string) (existed bool, err error) {
	err = rs.batch(ctx, false, func(ctx context.Context) error {
		existed, err = of.Delete(ctx, rs.store(), key)
		return err
	})
	return existed && err == nil, err
}

// get reads a row. No row has an empty key.
func get[T any](ctx context.Context, rs *rows, of *dohost.Collection[T], key string) (row T, ok bool, err error) {
	if key == "" {
		return row, false, nil
	}
	found, ok, err := of.Get(ctx, rs.store(), key)
	return found.Value, ok, err
}

// list reads the rows of a query, and describes them.
func list[T, I any](
	ctx context.Context, rs *rows, of *dohost.Collection[T], q *dohost.Query[T], describe func(context.Context, T) (I, error),
) (all []I, err error) {
	found, err := of.List(ctx, rs.store(), q)
	for _, row := range found {
		info, err := describe(ctx, row.Value)
		if err != nil {
			return nil, err
		}
		all = append(all, info)
	}
	return all, err
}

// first reads the first row of a query.
func first[T any](ctx context.Context, rs *rows, of *dohost.Collection[T], q dohost.Query[T]) (row T, ok bool, err error) {
	q.Limit = 1
	found, err := of.List(ctx, rs.store(), &q)
	if err != nil || len(found) == 0 {
		return row, false, err
	}
	return found[0].Value, true, nil
}

// retryInNewBatch calls do, and calls it again in a new batch if the current one, which the user filled, has no room
// for it.
func retryInNewBatch(ctx context.Context, do func() error) error {
	err := do()
	if _, full := errors.AsType[*dohost.LimitError](err); full {
		if err = dohost.Sleep(ctx, 0); err == nil {
			err = do()
		}
	}
	return err
}

// nextRun returns the number of a new run.
func (in *incarnation) nextRun() uint64 {
	in.runs++
	return in.runs
}

// step is [work.Step] for an event of this incarnation. An impossible event is an error.
func (in *incarnation) step(id string, it work.Item, ev work.Event, p *work.Policy, now time.Time) (work.Item, work.Effect, error) {
	ev.Owner = in.owner
	switch ev.Kind {
	case work.Due, work.Stuck, work.Decided, work.Restart:
		ev.Run = in.nextRun()
	}
	next, eff := work.Step(it, ev, p, now)
	if eff == work.Impossible {
		return it, eff, fmt.Errorf("agent: %q is %v, and the event %v is impossible in that state", id, it.State, ev.Kind)
	}
	return next, eff, nil
}

// noRow reports whether err is the error of a write to a row that does not exist.
func noRow(err error) bool {
	e, ok := errors.AsType[*dohost.RowError](err)
	return ok && errors.Is(e, dohost.ErrNotFound)
}

// maxErrorText bounds how much of an error's text a row keeps, in bytes.
const maxErrorText = 4 << 10

// truncatedText returns the part of an error's text that a row keeps.
func truncatedText(err error) string {
	s := err.Error()
	return strings.ToValidUTF8(s[:min(len(s), maxErrorText)], "")
}

// partialIndexKey returns a row's key in a partial index, or "" for a row that is not in that index.
func partialIndexKey(in bool, k dohost.Key) dohost.Key {
	if in {
		return k
	}
	return ""
}
