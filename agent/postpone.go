package agent

import (
	"context"
	"fmt"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/internal/work"
)

// PostponeError is the error of a method of [OnRows], [OnRowBatch] or [OnRowGroups] that leaves its rows for a later call. It is meant
// for work that cannot be done now although nothing is wrong, for example while a budget is exhausted: unlike other errors, it does not
// count as an attempt, is not reported, and does not park the rows. The writes of the call remain, as after any error. A write of such a
// row by other code makes the row due immediately, and so does [Rows.Wake].
type PostponeError struct {
	// After is the time until the next call. Less than a second means a second.
	After time.Duration
	// Err is the reason. Operators see its text.
	Err error
}

// Error states the time and the reason.
func (e *PostponeError) Error() string {
	return fmt.Sprintf("agent: postponed for %v: %v", e.delay(), e.Err)
}

// Unwrap returns Err.
func (e *PostponeError) Unwrap() error { return e.Err }

// delay is After within its bound: a shorter one would repeat the call without a pause.
func (e *PostponeError) delay() time.Duration { return max(e.After, time.Second) }

// postpone records a call that has postponed its rows.
func (rw *rowWork) postpone(ctx context.Context, x *indexWork, call *rowCall, t rowTask, left []string, p *PostponeError) (err error) {
	delay := p.delay()
	if call.woken {
		delay = time.Millisecond // the least of work.Event
	}
	ev := work.Event{Kind: work.Returned, Run: t.Run, Delay: delay}
	if t.Item, _, err = rw.step(t.ID, t.Item, ev, x.policy(), time.Now()); err != nil {
		return err
	}
	t.Keys, t.Error, t.Postponed = left, short(p.Error()), true
	return put(ctx, rw.rows, &rowTasks, &t)
}

// CallID returns the id of the call of a method of [OnRows], [OnRowBatch] or [OnRowGroups] that ctx belongs to, for [Rows.Wake]. All calls for the
// same rows share the id, even after an interruption: it is in their [RowsInfo]. It is empty in any other context, including contexts of other
// objects.
func (r Rows) CallID(ctx context.Context) string {
	call, ok := ctx.Value(rowCallKey{}).(*rowCall)
	if !ok || call.of != r.work {
		return ""
	}
	return call.ID
}

// Wake makes rows due that a [PostponeError] has postponed. It is meant for code that stores the results that their calls need. ids are the
// [Rows.CallID] of those calls. If a call still runs and then returns a PostponeError, the next call follows without a delay. So a call misses
// no result if it checks for the result and arranges for a Wake in one turn, and then returns a PostponeError. Earlier failures of the rows still
// count. Wake has no effect on rows that wait for another reason, nor on parked rows.
//
// Errors: [dohost.ErrMisuse] without the turn; [dohost.ErrFenced]; the errors of the storage.
func (r Rows) Wake(ctx context.Context, ids ...string) error {
	return dohost.Transaction(ctx, func(ctx context.Context) error {
		return r.work.rows.batches(ctx, false, func(ctx context.Context, _ pause) (changed bool, err error) {
			for _, id := range ids {
				written, err := r.work.wakeCall(ctx, id)
				if changed = changed || written; err != nil {
					return changed, err
				}
			}
			return changed, nil
		})
	})
}

// wakeCall makes the rows of a call due, and reports whether it has written their task. The caller sets the alarm.
func (rw *rowWork) wakeCall(ctx context.Context, id string) (written bool, err error) {
	t, ok, err := get(ctx, rw.rows, &rowTasks, id)
	if err != nil || !ok {
		return false, err
	}
	for _, x := range rw.indexes {
		for _, key := range t.Keys {
			if call := x.running[key]; call != nil && call.ID == id {
				call.woken = true
				return false, nil
			}
		}
	}
	if !t.Postponed {
		return false, nil
	}
	t.NotBefore = time.Now().UnixMilli()
	return true, put(ctx, rw.rows, &rowTasks, &t)
}
