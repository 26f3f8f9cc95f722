package dohost

import (
	"context"
	"time"

	"github.com/dohost/dohost/internal/socket"
	"github.com/dohost/dohost/runtime"
)

// State is what an incarnation's code is handed: identity, storage, alarm and
// background tasks. It ends with the incarnation. Methods that take a context want
// one that holds the object's turn, unless they say otherwise, and return
// [ErrNoTurn], [ErrTurnBusy] or [ErrFenced]. It must not be copied.
type State runtime.State

func (s *State) rt() *runtime.State { return (*runtime.State)(s) }

// Runtime returns the host underneath, for services and tools. Any goroutine.
func (s *State) Runtime() *runtime.Host { return s.rt().Host() }

func (s *State) host() *Host { return s.Runtime().Owner().(*Host) }

func (s *State) sockets() *socket.Table { return s.host().sockets }

// ID returns the object's class and name. Any goroutine.
func (s *State) ID() ID { return s.rt().ID() }

// Storage returns the object's storage. Any goroutine; its methods want the turn.
func (s *State) Storage() *Storage { return (*Storage)(s) }

// SetAlarm sets the object's one alarm in place of the one that was set or is parked. A
// time in the past means now: AlarmInfo.Scheduled is then the time of this call, not at.
// The alarm is one of the event's writes. It survives restarts, fires without a request,
// never early, and at least once: see [OnAlarm].
//
// The time is a wall-clock time, and so is the time of a retry. If the clock is set back,
// the alarm fires when the clock shows its time again, however long that takes.
//
// Errors: [ErrNoAlarmHandler], and one for a time outside the years 1970 to 9999.
func (s *State) SetAlarm(ctx context.Context, at time.Time) error { return s.rt().SetAlarm(ctx, at) }

// SetBootAlarm is SetAlarm, of an alarm that is delivered when the host starts as well, so that
// what the end of a process has interrupted goes on at once.
//
// Errors: SetAlarm's.
func (s *State) SetBootAlarm(ctx context.Context, at time.Time) error {
	return s.rt().SetBootAlarm(ctx, at)
}

// GetAlarm returns when the alarm is due. While its handler runs there is none,
// unless one was set since the handler began; between a failure and its retry there is.
// A parked alarm is not set: see [State.ParkedAlarm].
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

// Go runs fn as an event of its own, once what this event writes is durable, and
// not at all if that is rolled back or lost. It keeps the object in memory and ends
// with the incarnation. name stands in errors and logs. Durable Objects call it
// waitUntil.
//
// Errors: [ErrOverloaded] when the object has Options.MaxEvents background tasks.
func (s *State) Go(ctx context.Context, name string, fn func(context.Context) error) error {
	return s.rt().Go(ctx, name, fn)
}

// GoAtOnce is [State.Go], but fn does not wait for the disk: it begins when the turn is free,
// whatever becomes of a [Transaction] that this is part of. What it does leaves the object after
// what this event writes. The end of the process may take all of that back: a count of how often
// fn was begun, which must outlive even what fn does to the process, wants Go.
func (s *State) GoAtOnce(ctx context.Context, name string, fn func(context.Context) error) error {
	return s.rt().GoAtOnce(ctx, name, fn)
}

// Emit lets f leave the object: it is called with nil once everything handed over
// before is durable, in order with the object's other outputs, or with an error if
// it must not leave. It runs on a goroutine of its own, and the object's later outputs
// wait for it: it should be quick, and must not call the object. If it panics, calls
// runtime.Goexit or takes longer than 30 s, the incarnation ends. A context of this
// incarnation without the turn will do.
func (s *State) Emit(ctx context.Context, f func(error)) error { return s.rt().Emit(ctx, f) }

// Pin keeps the object in memory, idle as it may be, until release is called or the
// incarnation ends. why shows in Pins. Any goroutine; release any number of times.
func (s *State) Pin(why string) (release func()) { return s.rt().Pin(why) }

// AbortOptions says what else Abort does.
type AbortOptions struct {
	// DropAlarm drops the alarm whose handler aborts, instead of trying it again. An
	// alarm that was set meanwhile stays. In any other event it means nothing.
	DropAlarm bool
}

// Abort ends this incarnation: what the event that holds the turn did since its last
// Await never happened, callers get [ErrFenced] with cause, and the next event begins
// a new incarnation. It returns the error that the handler should return.
//
// It takes any context of an event of this incarnation, with the turn or without: an
// Await's fn may abort, and so may a goroutine that outlives its event. With another
// context it does nothing.
//
// Errors: the [*Fenced] that says why the incarnation has ended, by this Abort or
// before it; [ErrNoTurn].
func (s *State) Abort(ctx context.Context, cause error, o *AbortOptions) error {
	return s.rt().Abort(ctx, cause, o != nil && o.DropAlarm)
}
