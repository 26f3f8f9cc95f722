package dohost

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"net/http"
	"slices"

	"github.com/dohost/dohost/alarm"
	"github.com/dohost/dohost/internal/socket"
	"github.com/dohost/dohost/runtime"
)

// Class is the implementation of the objects of one namespace, made by [Bind].
type Class struct {
	rt   runtime.Class
	http func(instance any, w http.ResponseWriter, r *http.Request)
	// private selects the names of objects that callers outside the host cannot reach.
	private func(name string) bool
	// authorize decides about callers from outside; nil admits all callers.
	authorize func(context.Context, *AccessRequest) (Access, error)
	// reads are the methods that callers with ReadOnly rights can call.
	reads map[string]bool
	subs  SubObjects
	// look and operate are the functions of OnInspect and OnAdmin.
	look    func(context.Context, *Snapshot) iter.Seq2[Resource, error]
	operate func(ctx context.Context, instance any, a Action, kind, id string) (bool, error)
	// sockets are nil if the class has none.
	sockets *socket.Handlers
	speaks  []string // see Protocols
	err     error    // the first mistake in Bind, reported by Open
}

func (c *Class) mistake(format string, args ...any) {
	if c.err == nil {
		c.err = fmt.Errorf("dohost: class %q: %w", c.rt.Name, fmt.Errorf(format, args...))
	}
}

// Name returns the class's stored name.
func (c Class) Name() string { return c.rt.Name }

// ServesHTTP reports whether the class has an [OnHTTP].
func (c Class) ServesHTTP() bool { return c.http != nil }

// HasProtocol reports whether [Protocols] names a protocol.
func (c Class) HasProtocol(protocol string) bool { return slices.Contains(c.speaks, protocol) }

// Methods returns the names of the exposed methods, in no order.
func (c Class) Methods() []string {
	var names []string
	for n := range c.rt.Methods {
		names = append(names, n)
	}
	return names
}

// Entry is one way to enter an object of type O, in addition to its constructor.
type Entry[O any] func(*Class)

// Protocols names the protocols of the WebSockets of the class's objects, for programs that list classes. Objects of
// package agent speak "agent"; objects of package chat speak "chat" too.
func Protocols[O any](names ...string) Entry[O] {
	return func(c *Class) { c.speaks = append(c.speaks, names...) }
}

// Bind makes a class of a namespace and a constructor. The constructor runs with the object's turn when the object
// wakes, before any event. If it fails, the waiting events fail too, and the host calls it again after 100 ms,
// doubling up to 10 s. The entries list all other ways to enter the object. [Open] returns an error for an invalid
// entry: a nil function, or a second entry of a kind that allows one.
func Bind[O any](ns Namespace[O], construct func(context.Context, *State) (*O, error), entries ...Entry[O]) Class {
	c := Class{rt: runtime.Class{
		Name:    string(ns),
		Methods: map[string]runtime.Method{},
		New: func(ctx context.Context, rt *runtime.State) (any, error) {
			return construct(ctx, stateOf(rt))
		},
	}}
	if construct == nil {
		c.mistake("Bind without a constructor")
	}
	for i, e := range entries {
		if e == nil {
			c.mistake("entry %d is nil", i)
			continue
		}
		e(&c)
	}
	return c
}

// ArgumentError reports that the encoded argument of an exposed method cannot be decoded.
type ArgumentError struct {
	Method string
	Err    error
}

// Error names the method.
func (e *ArgumentError) Error() string {
	return fmt.Sprintf("argument of %s: %v", e.Method, e.Err)
}

// Unwrap returns the error of the decoder.
func (e *ArgumentError) Unwrap() error { return e.Err }

// unreadError marks the ArgumentError of a method that did not run. Methods return
// ArgumentErrors too: those that they got from other objects.
type unreadError struct{ *ArgumentError }

// ExposeRead is [Expose] for a method that callers with [ReadOnly] rights may call as well. The host
// does not check that the method changes nothing.
func ExposeRead[O, In, Out any](name string, m func(*O, context.Context, In) (Out, error)) Entry[O] {
	expose := Expose(name, m)
	return func(c *Class) {
		expose(c)
		if c.reads == nil {
			c.reads = map[string]bool{}
		}
		c.reads[name] = true
	}
}

// Expose lets callers outside the process call the method m by name: see [Host.Invoke]. Argument and
// result are JSON; no argument is the zero value. Callers with [ReadOnly] rights of [Authorize]
// cannot call it.
func Expose[O, In, Out any](name string, m func(*O, context.Context, In) (Out, error)) Entry[O] {
	return func(c *Class) {
		switch {
		case name == "":
			c.mistake("Expose without a name")
		case m == nil:
			c.mistake("Expose of %q without a method", name)
		case c.rt.Methods[name] != nil:
			c.mistake("a second Expose of %q", name)
		}
		c.rt.Methods[name] = func(ctx context.Context, instance any, arg []byte) ([]byte, error) {
			o, err := instanceOf[O](instance)
			if err != nil {
				return nil, err
			}
			var in In
			if len(arg) > 0 {
				if err := json.Unmarshal(arg, &in); err != nil {
					return nil, unreadError{&ArgumentError{name, err}}
				}
			}
			out, err := m(o, ctx, in)
			if err != nil {
				return nil, err
			}
			return json.Marshal(out)
		}
	}
}

// AlarmInfo is the due time of an alarm and the number of its failed runs, for an alarm handler.
type AlarmInfo = alarm.Info

// AlarmRuns is the number of times that the handler of a failing alarm runs before the
// alarm is parked.
const AlarmRuns = alarm.MaxRuns

// OnAlarm handles the object's alarm. A handler that fails runs again after 2 s, doubling, with up to 25 % of jitter,
// [AlarmRuns] times in all; then the alarm is parked, see [State.ParkedAlarm]. An eviction repeats a run without
// counting it. A constructor that fails before the handler counts as a failed run. If the delivery of an alarm wakes
// the object and the constructor sets the alarm, the count and the delay stay: the alarm is due at its new time or
// after the delay, whichever is later. Without an Await, a Call or a Sync in it, a handler changes its own object
// exactly once. With them, each part between two of them is atomic, and a crash repeats the handler over the writes of
// its earlier parts.
func OnAlarm[O any](m func(*O, context.Context, AlarmInfo) error) Entry[O] {
	return func(c *Class) {
		switch {
		case m == nil:
			c.mistake("OnAlarm without a method")
		case c.rt.Alarm != nil:
			c.mistake("a second OnAlarm")
		}
		c.rt.Alarm = func(ctx context.Context, instance any, info alarm.Info) error {
			o, err := instanceOf[O](instance)
			if err != nil {
				return err
			}
			return m(o, ctx, info)
		}
	}
}

// OnHTTP handles HTTP requests to the object, as an http.Handler does. The request's
// context holds the turn. Each flushed piece of the response waits for the writes
// before it, and flushing, like reading the request's body, is an [Await].
//
// The path is exactly as the client sent it. It is not cleaned, so it may contain ".." and
// empty segments. The object's name may be any valid name, such as "../../etc" or a name
// with U+202E. Check both before you use them as names of files.
func OnHTTP[O any](m func(*O, http.ResponseWriter, *http.Request)) Entry[O] {
	return func(c *Class) {
		switch {
		case m == nil:
			c.mistake("OnHTTP without a method")
		case c.http != nil:
			c.mistake("a second OnHTTP")
		}
		c.http = func(instance any, w http.ResponseWriter, r *http.Request) {
			if o, err := instanceOf[O](instance); err != nil {
				http.Error(w, err.Error(), http.StatusInternalServerError)
			} else {
				m(o, w, r)
			}
		}
	}
}

// Private keeps callers outside the process from objects of the class with some names: ServeObject
// and Invoke refuse them. Other objects reach them, by [State.Delegate] too.
func Private[O any](name func(string) bool) Entry[O] {
	return func(c *Class) { c.private = name }
}

// ByReference makes callers in the process and objects of this class pass arguments and results by reference instead
// of a copy. Neither side may change a value after it has passed it.
func ByReference[O any]() Entry[O] {
	return func(c *Class) { c.rt.ByReference = true }
}

// Mistake makes [Open] fail with err, unless err is nil. It is for packages that build classes from their users'
// input.
func Mistake[O any](err error) Entry[O] {
	return func(c *Class) {
		if err != nil {
			c.mistake("%w", err)
		}
	}
}
