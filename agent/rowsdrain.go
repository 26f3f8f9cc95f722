package agent

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dohost/dohost"
)

// Pending reports whether a call of a method of OnRows is running or will begin, possibly after a delay. Parked rows are not pending.
//
// Errors: [dohost.ErrMisuse] without the turn; [dohost.ErrFenced]; those of the storage.
func (r Rows) Pending(ctx context.Context) (bool, error) {
	if err := r.work.checkTurn(ctx); err != nil {
		return false, err
	}
	next, err := r.work.wakeup(ctx, time.Now())
	return err == nil && !next.at.IsZero(), err
}

// Drain waits until no row is pending: see [Rows.Pending]. The agent calls the methods in any case, so Drain runs none. A cycle is a call that
// has ended, and the wait itself ends at MaxTime. The defaults are those of [Drain]: 50 calls, and 25 s. For a wake of another system, call it
// in the function of [RunWake], and pass the Work of the result to Complete.
//
// Errors: [dohost.ErrMisuse] in a method of OnRows, which would wait for itself; those of [Rows.Wait].
func (r Rows) Drain(ctx context.Context, o *DrainOptions) (d Drained, err error) {
	if ctx.Value(rowCallKey{}) != nil {
		return d, fmt.Errorf("agent: Rows.Drain in a method of OnRows: %w", dohost.ErrMisuse)
	}
	limits, wait := o.withDefaults(), ctx
	if limits.MaxTime > 0 {
		var cancel context.CancelFunc
		wait, cancel = context.WithTimeoutCause(ctx, limits.MaxTime, errDrainTime)
		defer cancel()
	}
	if err := r.work.checkTurn(ctx); err != nil {
		return d, err
	}
	for before := r.work.ended; ; {
		d.Cycles = r.work.ended - before
		pending, err := r.Pending(ctx)
		switch {
		case err != nil:
			return d, err
		case !pending:
			d.Work = WorkDone
			return d, nil
		case limits.MaxCycles > 0 && d.Cycles >= limits.MaxCycles:
			return d, nil
		}
		if err := r.Wait(wait); errors.Is(err, errDrainTime) {
			return d, nil
		} else if err != nil {
			return d, err
		}
	}
}

var errDrainTime = errors.New("agent: the time of the drain is over")

// Wait gives up the turn until a call of a method of OnRows has ended, code has written a row of a collection that has an OnRows, or 30 s have
// passed. It is meant for loops that wait for a result. The loop must keep the turn between its read and Wait, so that it misses no result.
//
// Errors: [dohost.ErrMisuse] in a [dohost.Transaction] and without the turn; [dohost.ErrFenced]; the context's cause.
func (r Rows) Wait(ctx context.Context) error {
	if err := r.work.checkTurn(ctx); err != nil {
		return err
	}
	if r.work.changed == nil {
		r.work.changed = make(chan struct{})
	}
	changed := r.work.changed
	call, inCall := ctx.Value(rowCallKey{}).(*rowCall)
	if inCall {
		if err := r.work.beginWait(ctx, call); err != nil {
			return err
		}
	}
	wait, cancel := context.WithTimeoutCause(ctx, recheck, errRecheck)
	defer cancel()
	_, _, err := dohost.Recv(wait, changed)
	if inCall && r.work.checkTurn(ctx) == nil { // err does not decide it: the cause of ctx may be an ErrFenced of another object
		r.work.endWait(call)
	}
	if errors.Is(err, errRecheck) {
		return nil
	}
	return err
}

// WaitElsewhere calls fn and returns its error. It is for a method of OnRows that waits for another object: fn calls that object, and gives up the
// turn while it waits. Rows with calls that may have ended their process are handled one at a time. A call that is inside fn does not count, so
// the next of these rows may begin. Without WaitElsewhere, a method would wait for itself if its callee needs one of these rows, as when an agent
// asks another agent, which asks back. Calls of one method may be nested and concurrent. Outside of such a method WaitElsewhere only calls fn.
//
// Errors: that of fn; in a method also [dohost.ErrMisuse] without the turn, [dohost.ErrFenced], and those of the storage.
func (r Rows) WaitElsewhere(ctx context.Context, fn func(context.Context) error) error {
	call, inCall := ctx.Value(rowCallKey{}).(*rowCall)
	if !inCall {
		return fn(ctx)
	}
	if err := r.work.checkTurn(ctx); err != nil {
		return err
	}
	if err := r.work.beginWait(ctx, call); err != nil {
		return err
	}
	defer func() { // also after a panic, which the method may recover
		if r.work.checkTurn(ctx) == nil { // as in Wait
			r.work.endWait(call)
		}
	}()
	return fn(ctx)
}

// errRecheck ends a wait that has missed a change, such as the deletion of all rows.
var errRecheck = errors.New("agent: the rows must be read again")

// checkTurn returns an error for a context that does not hold the turn, which protects the fields of rowWork.
func (rw *rowWork) checkTurn(ctx context.Context) error {
	_, _, err := rw.obj.GetAlarm(ctx)
	return err
}

// beginWait counts a wait of a call. While a suspect waits, another one may run: the first runs no code, and it may wait for the rows of
// the other. Each beginWait that succeeds has an endWait.
func (rw *rowWork) beginWait(ctx context.Context, call *rowCall) error {
	before := call.runsAlone()
	call.waits++
	if !before {
		return nil
	}
	rw.suspectCalls--
	err := rw.rows.refresh(ctx, rw.alarmIsLate)
	if err != nil {
		rw.endWait(call)
	}
	return err
}

// endWait ends a wait of a call, which holds the turn again.
func (rw *rowWork) endWait(call *rowCall) {
	if call.waits--; call.runsAlone() {
		rw.suspectCalls++
	}
}

// runsAlone reports whether no other suspect may begin. No code of a call runs that waits.
func (c *rowCall) runsAlone() bool { return c.begun && c.suspect && c.waits == 0 }

// wakeWaiters ends the calls of Wait. They continue when they get the turn.
func (rw *rowWork) wakeWaiters() {
	if rw.changed != nil {
		close(rw.changed)
		rw.changed = nil
	}
}
