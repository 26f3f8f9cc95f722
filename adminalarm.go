package dohost

import (
	"context"
	"fmt"
	"iter"
	"time"

	"github.com/dohost/dohost/internal/seal"
	"github.com/dohost/dohost/runtime"
)

// SetAlarm sets an object's alarm from outside. This is an event of the object, and wakes it.
// SetAlarm returns when the alarm is durable.
//
// Errors: an [*Error] with [ErrMisuse] for a class without OnAlarm, or an [*ArgumentError] for a time
// outside the years 1970 to 9999.
func (h *Host) SetAlarm(ctx context.Context, id ID, at time.Time) error {
	const op = "set alarm"
	c, bound := h.classes[id.Class]
	switch {
	case !bound:
	case c.rt.Alarm == nil:
		return &Error{Op: op, ID: id, Err: fmt.Errorf("%w: %q", runtime.ErrNoAlarmHandler, id.Class), Outcome: OutcomeNotRun}
	case at.UnixMilli() <= 0:
		return &Error{Op: op, ID: id, Err: &ArgumentError{op, fmt.Errorf("%v is not after 1970", at)}, Outcome: OutcomeNotRun}
	case at.UTC().Year() > 9999:
		return &Error{Op: op, ID: id, Err: &ArgumentError{op, fmt.Errorf("%v is after the year 9999", at)}, Outcome: OutcomeNotRun}
	}
	return h.rt.Do(ctx, id, runtime.Call{Op: op, Handler: runtime.Func(func(ctx context.Context, _ any) error {
		return runtime.StateOf(ctx, seal.New()).SetAlarm(ctx, at)
	})})
}

// DeleteAlarm removes an object's alarm from outside. This is an event of the object, and wakes it.
func (h *Host) DeleteAlarm(ctx context.Context, id ID) error {
	return h.rt.Do(ctx, id, runtime.Call{Op: "delete alarm", Handler: runtime.Func(func(ctx context.Context, _ any) error {
		return runtime.StateOf(ctx, seal.New()).DeleteAlarm(ctx)
	})})
}

// ParkedAlarms yields the parked alarms of a class, or of all classes if class is empty, in order
// of class and name. It starts with the first object after the ID after; the zero ID precedes every
// object. It reads no other alarms, and wakes no object. After [ErrDamaged] the iteration may
// continue with the alarms outside the damaged block.
func (h *Host) ParkedAlarms(ctx context.Context, class string, after ID) iter.Seq2[ParkedAlarm, error] {
	return h.rt.ParkedAlarms(ctx, class, after)
}

// ReviveAlarm makes the object's parked alarm due now, clears its counts of failures, and
// reports whether the alarm was parked. It does not wake the object, and returns when the
// change is durable.
//
// Errors: the cause of ctx; an [*Error] with [ErrNotFound] or [ErrClosed], or if the object is
// in use and did not run the event that revives the alarm.
func (h *Host) ReviveAlarm(ctx context.Context, id ID) (revived bool, err error) {
	return h.rt.ReviveAlarm(ctx, id)
}
