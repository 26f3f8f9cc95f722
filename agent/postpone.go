package agent

import (
	"context"
	"fmt"
	"time"

	"github.com/dohost/dohost/internal/work"
)

// PostponeError is the error of a method of [OnRows], [OnRowBatch] or [OnRowGroups] that leaves its rows for a later call. It is for work
// that cannot be done at this time although nothing is wrong, such as while a budget is exhausted: unlike another error, it counts as no
// attempt, is not reported, and does not park the rows. The writes of the call remain, as after any error. A write of such a row by
// other code makes the row due immediately.
type PostponeError struct {
	// After is the time until the next call. Less than a second means a second.
	After time.Duration
	// Err is the reason. Operators see its text.
	Err error
}

// Error has the time and the reason.
func (e *PostponeError) Error() string { return fmt.Sprintf("postponed for %v: %v", e.delay(), e.Err) }

// Unwrap returns Err.
func (e *PostponeError) Unwrap() error { return e.Err }

// delay is After within its bound: a shorter one would repeat the call without a pause.
func (e *PostponeError) delay() time.Duration { return max(e.After, time.Second) }

// postpone records a call that has postponed its rows.
func (rw *rowWork) postpone(ctx context.Context, x *indexWork, t rowTask, left []string, p *PostponeError) (err error) {
	ev := work.Event{Kind: work.Returned, Run: t.Run, Delay: p.delay()}
	if t.Item, _, err = rw.step(t.ID, t.Item, ev, x.policy(), time.Now()); err != nil {
		return err
	}
	t.Keys, t.Error = left, short(p.Error())
	return put(ctx, rw.rows, &rowTasks, &t)
}
