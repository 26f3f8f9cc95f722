package dohost

import (
	"context"
	"errors"

	"github.com/dohost/dohost/runtime"
)

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
