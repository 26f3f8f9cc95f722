package dohost

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"

	"github.com/dohost/dohost/runtime"
)

// Procedure is a function that runs with an object of any class on any host, and that objects call by its name. It is to [Do] as
// [Invoke] is to [Call]:
//
//	               a class that the caller knows    any class
//	this host      Call, Stub.Do                    Do
//	all hosts      Invoke                           Procedure.Call
//
// So a program calls its own classes with Invoke. A Procedure is for packages that work with objects of any class, such as package chat, and for
// functions that clients must not call.
//
// No client can call a procedure: [Host.Invoke] and [Host.AuthorizeCall] find the methods of a class alone, and no class can expose a method
// with the name of a procedure. The caller is code with a [Locator]: an object or the program, on this host or, as in a cluster, on another one
// that package cluster trusts by its secret. So the function may trust its argument as much as the program trusts its own objects. It gets no
// Access.
type Procedure[In, Out any] struct{ method string }

// reservedMethods begins the names of procedures among the names of methods.
const reservedMethods = "dohost."

// procedures are the procedures of the program.
var procedures struct {
	mu     sync.Mutex // guards the rest; no lock is taken while it is held
	byName map[string]runtime.Method
	errs   []error // the mistakes in NewProcedure, reported by Open
}

// NewProcedure makes a procedure. It is meant for package variables, so that all programs of a cluster have the same procedures before [Open]. The
// name should begin with the name of the package, as in "chat.ask". fn gets the pointer that the object's constructor returned, with the object's
// turn. It must check the type of the object, since a caller may name any object. Argument and result are JSON, as for [Expose].
//
// If the program of the host has no procedure of that name, as during an upgrade, the call fails with [ErrNotFound] and OutcomeNotRun. If that host
// is not the caller's, the error is Retryable, since a later host may have the procedure.
//
// [Open] returns the errors in the arguments: an empty name, a name given twice, a nil fn, and types that JSON cannot carry. A procedure with one of
// these errors does not exist.
func NewProcedure[In, Out any](name string, fn func(ctx context.Context, object any, in In) (Out, error)) Procedure[In, Out] {
	method := reservedMethods + name
	run := func(ctx context.Context, object any, argument []byte) ([]byte, error) {
		var in In
		if err := json.Unmarshal(argument, &in); err != nil {
			return nil, notRunError{&ArgumentError{method, err}}
		}
		out, err := fn(ctx, object, in)
		if err != nil {
			return nil, err
		}
		return json.Marshal(out)
	}
	mistakes := []error{checkJSON(reflect.TypeFor[In](), true), checkJSON(reflect.TypeFor[Out](), false)}
	procedures.mu.Lock()
	defer procedures.mu.Unlock()
	switch {
	case name == "":
		mistakes = append(mistakes, errors.New("want a name"))
	case fn == nil:
		mistakes = append(mistakes, errNilFunc)
	case procedures.byName[method] != nil:
		mistakes = append(mistakes, errors.New("the name is taken"))
	}
	if err := errors.Join(mistakes...); err != nil {
		procedures.errs = append(procedures.errs, fmt.Errorf("dohost: NewProcedure of %q: %w", name, err))
		return Procedure[In, Out]{}
	}
	if procedures.byName == nil {
		procedures.byName = map[string]runtime.Method{}
	}
	procedures.byName[method] = run
	return Procedure[In, Out]{method}
}

// Call runs the function with an object, and returns its result when everything that the object has written is durable. It makes and repeats
// the call as [Invoke] does for a method, with the same errors. So an error of the function is not the same value: return outcomes that the
// caller must distinguish as results. A call to another host without a CallID in o has a random id. If the function has given up the turn and
// was interrupted, it does not run again for this id: then repeat Call, if two runs of the function have the same effect as one.
func (p Procedure[In, Out]) Call(ctx context.Context, l Locator, id ID, in In, o *InvokeOptions) (Out, error) {
	if st, ok := l.(*State); ok { // as in Get
		l = st.host()
	}
	return invokeMethod[Out](ctx, &target{at: l, id: id}, p.method, in, o)
}

// invocable returns a method that objects call: a procedure, or a method that the class exposes.
func (h *Host) invocable(class, name string) (runtime.Method, error) {
	if !strings.HasPrefix(name, reservedMethods) {
		return h.rt.Method(class, name)
	}
	procedures.mu.Lock()
	defer procedures.mu.Unlock()
	if m := procedures.byName[name]; m != nil {
		return m, nil // the call itself finds that there is no such class
	}
	return nil, errNoProcedure
}

// errNoProcedure is the error of a call of a procedure that the program does not have. The Error of the call has its name.
var errNoProcedure = fmt.Errorf("%w: the program has no such procedure", runtime.ErrNoMethod)

// procedureMistakes returns the errors in the procedures of the program.
func procedureMistakes() error {
	procedures.mu.Lock()
	defer procedures.mu.Unlock()
	return errors.Join(procedures.errs...)
}
