package dohost

import (
	"context"
	"net/http"
	"unsafe"

	"github.com/dohost/dohost/internal/errkind"
	"github.com/dohost/dohost/internal/socket"
	"github.com/dohost/dohost/objectstore"
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

// ID returns the object's class and name. Any goroutine.
func (s *State) ID() ID { return s.rt().ID() }

// Epoch numbers an incarnation.
type Epoch = objectstore.Epoch

// Epoch returns the number of this incarnation. No two incarnations have the same number, in any
// host or restored backup. Any goroutine may call Epoch.
func (s *State) Epoch() Epoch { return s.rt().Epoch() }

// Storage returns the object's storage. Any goroutine; its methods need the turn.
func (s *State) Storage() *Storage { return &s.store }

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
func (s *State) Pin(reason string) (release func()) { return s.rt().Pin(reason) }

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
