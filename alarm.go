package dohost

import (
	"context"
	"fmt"
	"iter"
	"time"

	"github.com/dohost/dohost/alarm"
	"github.com/dohost/dohost/internal/seal"
	"github.com/dohost/dohost/objectstore"
	"github.com/dohost/dohost/runtime"
)

// AlarmInfo is the due time of an alarm and the number of its failed runs, for an alarm handler.
type AlarmInfo = alarm.Info

// AlarmRuns is the number of times that the handler of a failing alarm runs before the
// alarm is parked.
const AlarmRuns = alarm.MaxRuns

// SetAlarm sets the object's one alarm, and replaces an alarm that is set or parked. A time that is not in the future
// means now: the alarm is due when it is durable, and AlarmInfo.Scheduled is the time of this call, rounded down to a
// millisecond. A later time is rounded up to a millisecond. The alarm is one of the event's writes. It survives
// restarts, and fires without a request, never early, and at least once: see [Handlers].OnAlarm.
//
// The time is a wall-clock time, and so is the time of a retry. If the clock is set back, the alarm fires when the
// clock reaches its time again, however long that takes.
//
// Errors: [ErrMisuse] for a class without OnAlarm, and one for a time outside the years 1970 to 9999.
func (s *State) SetAlarm(ctx context.Context, at time.Time) error { return s.rt().SetAlarm(ctx, at) }

// SetStartAlarm is SetAlarm for an alarm that is also delivered when the host starts, so that work interrupted by
// the end of a process resumes without waiting for the due time.
//
// Errors: SetAlarm's.
func (s *State) SetStartAlarm(ctx context.Context, at time.Time) error {
	return s.rt().SetStartAlarm(ctx, at)
}

// GetAlarm returns when the alarm is due. While the alarm's handler runs, no alarm is set unless
// one was set since the handler began; between a failure and its retry, the alarm is set. A parked
// alarm is not set: see [State.ParkedAlarm].
func (s *State) GetAlarm(ctx context.Context) (at time.Time, ok bool, err error) {
	return s.rt().GetAlarm(ctx)
}

// ParkedAlarm returns the alarm if it is parked: nothing delivers it until the object sets
// an alarm or an operator revives the parked one ([Host.ReviveAlarm]).
func (s *State) ParkedAlarm(ctx context.Context) (p ParkedAlarm, ok bool, err error) {
	return s.rt().ParkedAlarm(ctx)
}

// DeleteAlarm removes the alarm, set or parked. A running handler continues, and is not
// retried.
func (s *State) DeleteAlarm(ctx context.Context) error { return s.rt().DeleteAlarm(ctx) }

// ParkedAlarm is an alarm that the host no longer delivers, until its object sets an alarm
// or an operator revives the parked one.
type ParkedAlarm = runtime.ParkedAlarm

// ParkReason is the reason for parking an alarm.
type ParkReason = objectstore.ParkReason

// The reasons for parking an alarm.
const (
	ParkedFailed      = objectstore.ParkedFailed      // seven runs in a row failed
	ParkedConstructor = objectstore.ParkedConstructor // seven runs in a row failed, the last one in the constructor
	ParkedDeaths      = objectstore.ParkedDeaths      // six processes ended while the handler ran alone
	ParkedNoHandler   = objectstore.ParkedNoHandler   // the class has no OnAlarm any more
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
