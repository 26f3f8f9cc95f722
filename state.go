package dohost

import (
	"context"
	"log/slog"
	"net/http"
	"time"
	"unsafe"

	"github.com/dohost/dohost/internal/errkind"
	"github.com/dohost/dohost/internal/socket"
	"github.com/dohost/dohost/runtime"
)

// State gives the code of an incarnation the object's identity, storage, alarm and background tasks. It ends with the
// incarnation. Unless they say otherwise, methods that take a context need one that holds the object's turn, and
// return [ErrMisuse] or [ErrFenced]. It must not be copied.
type State struct{ store Storage }

// stateOf returns the State of the runtime's State: the same memory, since State and Storage are structs with it as
// their only field, and must remain so. A State with memory of its own would be one more allocation of each wake-up,
// which stays as long as the object is live.
func stateOf(rt *runtime.State) *State { return (*State)(unsafe.Pointer(rt)) }

// The build fails if State is not exactly the runtime's State: the index is the difference of their sizes.
var _ = [1]struct{}{}[unsafe.Sizeof(State{})-unsafe.Sizeof(runtime.State{})]

func (s *State) rt() *runtime.State { return &s.store.state }

// host makes s a [Locator].
func (s *State) host() *Host { return s.rt().Host().Owner().(*Host) }

func (s *State) sockets() *socket.Table { return s.host().sockets }

// HostClosing is closed when the host's Close begins, even if the host closes itself after a failure of the store.
// Close waits for events, so an event that waits for a client should then end its wait. Any goroutine.
func (s *State) HostClosing() <-chan struct{} { return s.host().Closing() }

// WriteError is [Host.WriteError] of the object's host, for a handler that answers an HTTP request itself. Any goroutine.
func (s *State) WriteError(w http.ResponseWriter, err error) { s.host().WriteError(w, err) }

// Report passes an event of a service built on this package to the host's [Listener]. The report is an output, as with
// [State.Emit]: it leaves when everything committed before is durable, in order with the object's other outputs. It
// does not leave if the writes of the event are rolled back, or are lost with the end of the incarnation. The host
// calls the Listener for the reports in their order. No output waits for that call, so a caller may get its answer
// before the Listener gets the report. A context of this incarnation without the turn is sufficient; with another
// context Report does nothing.
//
// Report truncates strings, and the texts of errors, to 4 KiB. A truncated text ends with "…"; a truncated error has
// only its text.
func (s *State) Report(ctx context.Context, event string, attrs ...slog.Attr) {
	attrs = truncatedAttrs(attrs)
	_ = s.rt().EmitOutput(ctx, 0, func(err error) { // the error is the end of the incarnation, which reports nothing
		if err == nil {
			s.rt().Host().Report(s.ID(), event, attrs...)
		}
	})
}

// ID returns the object's class and name. Any goroutine.
func (s *State) ID() ID { return s.rt().ID() }

// Epoch returns the number of this incarnation. No two incarnations have the same number, in any
// host or restored backup. Any goroutine may call Epoch.
func (s *State) Epoch() Epoch { return s.rt().Epoch() }

// Storage returns the object's storage. Any goroutine; its methods need the turn.
func (s *State) Storage() *Storage { return &s.store }

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

// Go runs fn as an event of its own, once the writes of this event are durable. If they are rolled back or lost, fn
// does not run. The task keeps the object in memory and ends with the incarnation. Errors and logs contain name.
// Durable Objects call it waitUntil.
//
// Errors: [ErrOverloaded] when the object has Options.MaxEvents background tasks, [ErrMisuse], [ErrFenced].
func (s *State) Go(ctx context.Context, name string, fn func(context.Context) error) error {
	if fn == nil {
		return errkind.About("Go", errNilFunc)
	}
	return s.rt().Go(ctx, name, fn)
}

// GoImmediately is [State.Go], but fn does not wait for the disk. It begins when the turn is free, even if a
// [Transaction] around this call is rolled back. Its outputs leave the object after the writes of this event are
// durable. The end of the process may undo all of this: to count starts in a way that survives a crash caused by fn,
// use Go.
func (s *State) GoImmediately(ctx context.Context, name string, fn func(context.Context) error) error {
	if fn == nil {
		return errkind.About("GoImmediately", errNilFunc)
	}
	return s.rt().GoImmediately(ctx, name, fn)
}

// Emit calls f with nil when everything committed before is durable, in order with the object's other outputs, or
// with an error if the output must not leave. f runs on its own goroutine, and the object's later outputs wait for
// it: f should be quick, and must not call the object. If f panics, calls runtime.Goexit or takes longer than 30 s,
// the incarnation ends. A context of this incarnation without the turn is sufficient.
func (s *State) Emit(ctx context.Context, f func(error)) error {
	if f == nil {
		return errkind.About("Emit", errNilFunc)
	}
	return s.rt().Emit(ctx, f)
}

// Pin keeps an idle object in memory until release is called or the incarnation ends. See [Host.Pins]. Any goroutine
// may call Pin and release, and release any number of times.
func (s *State) Pin(why string) (release func()) { return s.rt().Pin(why) }

// AbortOptions are further effects of Abort.
type AbortOptions struct {
	// DropAlarm drops the alarm of the aborting handler instead of retrying it. An alarm set since the handler
	// began stays. In any other event DropAlarm has no effect.
	DropAlarm bool
}

// Abort ends this incarnation. It discards the writes of the event that holds the turn since its last Await, callers
// get [ErrFenced] with cause, and the next event begins a new incarnation. Abort returns the error that the handler
// should return.
//
// It accepts any context of an event of this incarnation, with or without the turn: the fn of an Await may abort,
// and so may a goroutine that outlives its event. With any other context it does nothing.
//
// Errors: the [*Fenced] with the reason for the end of the incarnation, by this Abort or before it; [ErrMisuse].
func (s *State) Abort(ctx context.Context, cause error, o *AbortOptions) error {
	return s.rt().Abort(ctx, cause, o != nil && o.DropAlarm)
}
