package dohost

import (
	"context"
	"encoding/json"
	"reflect"
	"strings"

	"github.com/dohost/dohost/runtime"
)

// Entry is a named entry point of objects of type O: a method that [Expose] or [ExposeRead] names.
type Entry[O any] struct {
	_    [0]*O // an entry of one class does not convert to an entry of another
	bind func(*Class)
}

// ExposeRead is [Expose] for a method that callers with [RightsReadOnly] rights may call as well. The host
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

// Expose lets callers outside the process call the method m by name: see [Host.Invoke]. Argument and result are JSON;
// without an argument, the method gets the zero value. The name "http" is reserved, and so are names that begin with
// "dohost.". Callers with [RightsReadOnly] rights from [Handlers].Authorize cannot call the method.
func Expose[O, In, Out any](name string, m func(*O, context.Context, In) (Out, error)) Entry[O] {
	return Entry[O]{bind: func(c *Class) {
		c.checkExposed(name, m == nil, reflect.TypeFor[In](), reflect.TypeFor[Out]())
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

// checkExposed adds the errors of an Expose. It is not generic, so that the compiler makes it once, and not for each method.
func (c *Class) checkExposed(name string, isNil bool, in, out reflect.Type) {
	switch {
	case name == "":
		c.addError("Expose without a name")
	case isNil:
		c.addError("Expose of %q without a method", name)
	case name == opHTTP: // package web uses this name for requests to OnHTTP
		c.addError("Expose of %q: the name is reserved", name)
	case strings.HasPrefix(name, reservedMethods):
		c.addError("Expose of %q: names that begin with %q are reserved", name, reservedMethods)
	case c.rt.Methods[name] != nil:
		c.addError("a second Expose of %q", name)
	}
	for _, err := range []error{checkJSON(in, true), checkJSON(out, false)} {
		if err != nil {
			c.addError("Expose of %q: %w", name, err)
		}
	}
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

// Invoke calls an exposed method by name, with JSON, for a caller outside the process. If the class
// has an Authorize function, ctx must come from [Host.AuthorizeCall] or [GrantAccess].
//
// Errors: an [*Error], with [OutcomeNotRun] for [ErrNotFound], [ErrForbidden], [ErrUnauthenticated] for a ctx without
// an Access, and an argument that cannot be read ([*ArgumentError]); with [OutcomeRan] it is the error that the method
// returned.
func (h *Host) Invoke(ctx context.Context, id ID, method string, arg []byte) (result []byte, err error) {
	access := grantFrom(ctx, id)
	m, err := h.callable(id, method, access)
	if err != nil {
		return nil, &Error{Op: method, ID: id, Err: err, Outcome: OutcomeNotRun}
	}
	share := argumentShare(ctx)
	size := len(arg)
	var out []byte
	run := runtime.Func(func(ctx context.Context, instance any) (err error) {
		share.begin()
		defer share.release()
		encoded := arg
		arg = nil // the method decodes it first, and may run for long
		out, err = m(carryAccess(ctx, access), instance, encoded)
		return err
	})
	if err := h.rt.Do(ctx, id, runtime.Call{Op: method, Size: size, Handler: run}); err != nil {
		return nil, unmarked(err)
	}
	return out, nil
}

// callable returns the method that a caller from outside may call with an access, which may be nil.
func (h *Host) callable(id ID, method string, access *Access) (runtime.Method, error) {
	c := h.classes[id.Class]
	if err := h.reachable(id); err != nil {
		return nil, err
	}
	if access == nil && c.authorize != nil {
		return nil, ErrUnauthenticated
	}
	if access != nil {
		if err := permits(access); err != nil {
			return nil, err
		}
	}
	m, err := h.rt.Method(id.Class, method)
	if err == nil && access != nil && access.Rights == RightsReadOnly && !c.reads[method] {
		return nil, errReadOnly
	}
	return m, err
}
