package dohost

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"reflect"
	"slices"
	"strings"

	"github.com/dohost/dohost/alarm"
	"github.com/dohost/dohost/internal/errkind"
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
	// reads are the methods that callers with RightsReadOnly can call.
	reads map[string]bool
	subs  SubObjects
	// inspect and admin are the functions of OnInspect and OnAdmin.
	inspect func(context.Context, *Snapshot) iter.Seq2[Resource, error]
	admin   func(ctx context.Context, instance any, r *AdminRequest) (bool, error)
	// sockets are nil if the class has none.
	sockets   *socket.Handlers
	protocols []string // see Handlers.Protocols
	errs      []error  // the mistakes in Bind, reported by Open
}

func (c *Class) addError(format string, args ...any) {
	c.errs = append(c.errs, fmt.Errorf("dohost: class %q: %w", c.rt.Name, fmt.Errorf(format, args...)))
}

// InvalidClass returns c with errors. [Open] returns them in addition to the errors that [Bind] has found. It ignores nil
// errors. It is for packages that make classes of their users' input, such as package agent.
func InvalidClass(c Class, errs ...error) Class {
	c.errs = slices.Clip(c.errs)
	for _, err := range errs {
		if err != nil {
			c.addError("%w", err)
		}
	}
	return c
}

// Name returns the class's stored name.
func (c Class) Name() string { return c.rt.Name }

// ServesHTTP reports whether the class has an OnHTTP handler.
func (c Class) ServesHTTP() bool { return c.http != nil }

// HasProtocol reports whether [Handlers].Protocols names a protocol.
func (c Class) HasProtocol(protocol string) bool { return slices.Contains(c.protocols, protocol) }

// Methods returns the names of the exposed methods, in no order.
func (c Class) Methods() []string {
	var names []string
	for n := range c.rt.Methods {
		names = append(names, n)
	}
	return names
}

// Entry is a named entry point of objects of type O: a method that [Expose] or [ExposeRead] names.
type Entry[O any] struct {
	_    [0]*O // an entry of one class does not convert to an entry of another
	bind func(*Class)
}

// Bind makes a class of a namespace and a constructor. The constructor runs with the object's turn when the object
// wakes, before any event. If it fails, or returns a nil object, the waiting events fail too, and the host calls it
// again after 100 ms, doubling up to 10 s. h has the handlers of all events; nil means none. The entries are the methods
// that callers outside the process may call by name. Bind copies h.
//
// [Open] returns the errors in the arguments: a nil constructor, a zero Entry, an entry without a name or a method, a
// name given twice, an argument or a result that JSON cannot carry, and the errors that the fields of [Handlers] and
// [SocketHandlers] document.
func Bind[O any](ns Namespace[O], construct func(context.Context, *State) (*O, error), h *Handlers[O], entries ...Entry[O]) Class {
	c := Class{rt: runtime.Class{
		Name:    string(ns),
		Methods: map[string]runtime.Method{},
		New: func(ctx context.Context, rt *runtime.State) (any, error) {
			o, err := construct(ctx, stateOf(rt))
			if err == nil && o == nil {
				return nil, errNoObject
			}
			return o, err
		},
	}}
	if construct == nil {
		c.addError("Bind without a constructor")
	}
	if h != nil {
		h.bind(&c)
	}
	for i, e := range entries {
		if e.bind == nil {
			c.addError("entry %d is the zero Entry", i)
			continue
		}
		e.bind(&c)
	}
	return c
}

// errNoObject is the error of a constructor that returns nil.
var errNoObject = errors.New("dohost: the constructor returned neither an object nor an error")

// ArgumentError reports that the encoded argument of an exposed method cannot be decoded. Any caller may read its text.
type ArgumentError struct {
	Method string
	Err    error
}

// maxArgumentText bounds the text of an ArgumentError, in bytes: the decoder's text may quote the argument.
const maxArgumentText = 512

// Error names the method. The text has at most 512 bytes: a longer one is cut, and ends with "…".
func (e *ArgumentError) Error() string {
	if e == nil {
		return "dohost: nil *ArgumentError"
	}
	return truncatedText(errkind.Text("argument of "+e.Method, e.Err), maxArgumentText)
}

// Unwrap returns the error of the decoder.
func (e *ArgumentError) Unwrap() error {
	if e == nil {
		return nil
	}
	return e.Err
}

// notRunError marks the error of an event whose method did not run. Methods return errors of the same types, which
// they got from other objects.
type notRunError struct{ error }

// Unwrap returns the error, for the Listener.
func (e notRunError) Unwrap() error { return e.error }

// unmarked replaces the mark in the error of a call by the Outcome.
func unmarked(err error) error {
	e, ok := err.(*Error)
	if !ok || e.Outcome != OutcomeRan {
		return err
	}
	if marked, ok := e.Err.(notRunError); ok {
		e.Err, e.Outcome = marked.error, OutcomeNotRun
	}
	return err
}

// ExposeRead is [Expose] for a method that callers with [RightsReadOnly] may call as well. The host
// does not check that the method changes nothing.
func ExposeRead[O, In, Out any](name string, m func(*O, context.Context, In) (Out, error)) Entry[O] {
	expose := Expose(name, m)
	return Entry[O]{bind: func(c *Class) {
		expose.bind(c)
		if c.reads == nil {
			c.reads = map[string]bool{}
		}
		c.reads[name] = true
	}}
}

// Expose lets callers outside the process call the method m by name: see [Host.Invoke]. Argument and
// result are JSON; no argument is the zero value. The name "http" is reserved, and so are names that begin with "dohost.". Callers with
// [RightsReadOnly] of [Handlers].Authorize cannot call it.
func Expose[O, In, Out any](name string, m func(*O, context.Context, In) (Out, error)) Entry[O] {
	return Entry[O]{bind: func(c *Class) {
		switch {
		case name == "":
			c.addError("Expose without a name")
		case m == nil:
			c.addError("Expose of %q without a method", name)
		case name == opHTTP: // package web uses this name for requests to OnHTTP
			c.addError("Expose of %q: the name is reserved", name)
		case strings.HasPrefix(name, reservedMethods):
			c.addError("Expose of %q: names that begin with %q are reserved", name, reservedMethods)
		case c.rt.Methods[name] != nil:
			c.addError("a second Expose of %q", name)
		}
		for _, err := range []error{checkJSON(reflect.TypeFor[In](), true), checkJSON(reflect.TypeFor[Out](), false)} {
			if err != nil {
				c.addError("Expose of %q: %w", name, err)
			}
		}
		c.rt.Methods[name] = func(ctx context.Context, instance any, arg []byte) ([]byte, error) {
			o, err := instanceOf[O](instance)
			if err != nil {
				return nil, notRunError{err}
			}
			var in In
			if len(arg) > 0 {
				if err := json.Unmarshal(arg, &in); err != nil {
					return nil, notRunError{&ArgumentError{name, err}}
				}
			}
			out, err := m(o, ctx, in)
			if err != nil {
				return nil, err
			}
			return json.Marshal(out)
		}
	}}
}

// AlarmInfo is the due time of an alarm and the number of its failed runs, for an alarm handler.
type AlarmInfo = alarm.Info

// AlarmRuns is the number of times that the handler of a failing alarm runs before the
// alarm is parked.
const AlarmRuns = alarm.MaxRuns
