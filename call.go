package dohost

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	goruntime "runtime"
	"strings"
	"sync/atomic"

	"github.com/dohost/dohost/internal/errkind"
	"github.com/dohost/dohost/internal/seal"
	"github.com/dohost/dohost/runtime"
)

// Call runs the method m of the object and returns its result when everything that the object has written is durable.
// Argument and result are copied: types without pointers by assignment, others through msgpack, which encodes
// exported fields only. A class bound ByReference gets them uncopied.
//
// Inside a turn Call is an [Await]: the host sends the call once the caller's writes are durable, and other events
// may use the calling object until Call returns.
//
// If the argument cannot be encoded, or cannot be decoded for the method, the method does not run ([OutcomeNotRun]).
// If ctx ends before the method has started, the call is withdrawn ([OutcomeNotRun]). If ctx ends later, Call returns
// without the result ([OutcomeUnknown]), and the method continues. Every error is an [*Error]. With [OutcomeRan] it is
// the method's error, or reports that the result cannot be encoded.
//
// [CallNoArg], [CallNoResult] and [CallBare] call methods that have no argument, no result, or neither.
func Call[O, In, Out any](ctx context.Context, s Stub[O], m func(*O, context.Context, In) (Out, error), in In) (Out, error) {
	return callNamed(ctx, s, methodName(m), m, in)
}

// CallNoArg is [Call] of a method that has no argument.
func CallNoArg[O, Out any](ctx context.Context, s Stub[O], m func(*O, context.Context) (Out, error)) (Out, error) {
	return callNamed(ctx, s, methodName(m), NoArg(m), struct{}{})
}

// CallNoResult is [Call] of a method that returns only an error.
func CallNoResult[O, In any](ctx context.Context, s Stub[O], m func(*O, context.Context, In) error, in In) error {
	_, err := callNamed(ctx, s, methodName(m), NoResult(m), in)
	return err
}

// CallBare is [Call] of a method that has no argument and returns only an error.
func CallBare[O any](ctx context.Context, s Stub[O], m func(*O, context.Context) error) error {
	_, err := callNamed(ctx, s, methodName(m), Bare(m), struct{}{})
	return err
}

// NoArg makes a method without an argument fit [Expose], [ExposeRead] and agent.Callable. A caller sends no argument,
// or null or an object, which are ignored.
func NoArg[O, Out any](m func(*O, context.Context) (Out, error)) func(*O, context.Context, struct{}) (Out, error) {
	if m == nil {
		return nil
	}
	return func(o *O, ctx context.Context, _ struct{}) (Out, error) { return m(o, ctx) }
}

// NoResult makes a method that returns only an error fit [Expose], [ExposeRead] and agent.Callable. Its result is
// the empty JSON object.
func NoResult[O, In any](m func(*O, context.Context, In) error) func(*O, context.Context, In) (struct{}, error) {
	if m == nil {
		return nil
	}
	return func(o *O, ctx context.Context, in In) (struct{}, error) { return struct{}{}, m(o, ctx, in) }
}

// Bare is [NoArg] and [NoResult] of a method that has no argument and returns only an error.
func Bare[O any](m func(*O, context.Context) error) func(*O, context.Context, struct{}) (struct{}, error) {
	if m == nil {
		return nil
	}
	return func(o *O, ctx context.Context, _ struct{}) (struct{}, error) { return struct{}{}, m(o, ctx) }
}

// callNamed is Call of a method with a given name: the function that NoArg, NoResult or Bare returns has another.
func callNamed[O, In, Out any](
	ctx context.Context, s Stub[O], op string, m func(*O, context.Context, In) (Out, error), in In,
) (Out, error) {
	var none Out
	if m == nil {
		return none, s.to.failure(op, OutcomeNotRun, errNilMethod)
	}
	host := s.to.at.host().rt
	c := &invocation[O, In, Out]{method: m, byRef: host.ByReference(s.to.id.Class)}
	var err error
	if c.arg, err = copyOf(in, c.byRef); err != nil {
		return none, s.to.failure(op, OutcomeNotRun, err)
	}
	if err := s.to.do(ctx, host, runtime.Call{Op: op, Size: len(c.arg.data), Handler: c}); err != nil {
		return none, err
	}
	out, err := c.result.get()
	if err != nil {
		return none, s.to.failure(op, OutcomeRan, err)
	}
	return out, nil
}

// invocation is a call of a method, with its argument and its result. After an error of the host the event may still
// use it.
type invocation[O, In, Out any] struct {
	method func(*O, context.Context, In) (Out, error)
	byRef  bool
	arg    copied[In]
	result copied[Out]
}

// minCounted is the smallest size in bytes of a result that counts toward the limit of
// undurable data. The caller of a method with a smaller result uses more memory itself.
const minCounted = 1 << 10

// Handle calls the method.
func (c *invocation[O, In, Out]) Handle(ctx context.Context, instance any) error {
	o, err := instanceOf[O](instance)
	if err != nil {
		return notRunError{err}
	}
	in, err := c.arg.get()
	if err != nil {
		return notRunError{err}
	}
	out, err := c.method(o, ctx, in)
	if err != nil {
		return err
	}
	if c.result, err = copyOf(out, c.byRef); err != nil {
		return err
	}
	return countResult(ctx, len(c.result.data))
}

// countResult counts a result toward the limit of undurable data, since the result waits until all writes of the
// object are durable.
func countResult(ctx context.Context, size int) error {
	if size < minCounted {
		return nil
	}
	return runtime.StateOf(ctx, seal.New()).EmitOutput(ctx, size, func(error) {})
}

// Do runs fn with the object, as [Call] runs a method. fn may continue after Do has returned with an error, so the
// caller must synchronize access to variables that it shares with fn.
func (s Stub[O]) Do(ctx context.Context, fn func(ctx context.Context, o *O) error) error {
	if fn == nil {
		return s.to.failure("Do", OutcomeNotRun, errNilFunc)
	}
	run := runtime.Func(func(ctx context.Context, instance any) error {
		o, err := instanceOf[O](instance)
		if err != nil {
			return notRunError{err}
		}
		return fn(ctx, o)
	})
	return s.to.do(ctx, s.to.at.host().rt, runtime.Call{Op: "Do", Handler: run})
}

// Do runs fn with the object id, as [Stub.Do] does. It is for packages that work with objects of any class and know a class
// only by its name. object is the pointer that the constructor has returned.
func Do(ctx context.Context, l Locator, id ID, fn func(ctx context.Context, object any) error) error {
	if st, ok := l.(*State); ok { // as in Get
		l = st.host()
	}
	to := &target{at: l, id: id}
	if fn == nil {
		return to.failure("Do", OutcomeNotRun, errNilFunc)
	}
	return to.do(ctx, l.host().rt, runtime.Call{Op: "Do", Handler: runtime.Func(fn)})
}

// The errors of nil functions. A call of a nil function would panic, and end the incarnation.
var (
	errNilMethod = errkind.New(errkind.ErrMisuse, "the method is nil")
	errNilFunc   = errkind.New(errkind.ErrMisuse, "the function is nil")
)

// failure returns the error of a call that the host has not returned itself.
func (t *target) failure(op string, o Outcome, err error) error {
	return &Error{Op: op, ID: t.id, Err: err, Outcome: o}
}

// do sends a call to the host. If the host is closed, the call may be repeated if the Locator may find another host.
func (t *target) do(ctx context.Context, host *runtime.Host, c runtime.Call) error {
	err := host.Do(ctx, t.id, c)
	if e, ok := err.(*Error); ok && e.Err == runtime.ErrClosed {
		_, fixed := t.at.(*Host)
		e.Retryable = !fixed
	}
	return unmarked(err)
}

// instanceOf gives a wrong type in a Namespace an error instead of a panic.
func instanceOf[O any](instance any) (*O, error) {
	if o, ok := instance.(*O); ok {
		return o, nil
	}
	return nil, fmt.Errorf("dohost: the class is bound to %T, but the namespace is for *%v", instance, reflect.TypeFor[O]())
}

// methodNames remembers the names of methods by their code's address. The map is
// replaced when it grows.
var methodNames atomic.Pointer[map[uintptr]string]

// methodName is the name of a method expression, for errors and metrics.
func methodName(m any) string {
	pc := reflect.ValueOf(m).Pointer()
	known := methodNames.Load()
	if known != nil {
		if name, ok := (*known)[pc]; ok {
			return name
		}
	}
	name := "Call"
	if f := goruntime.FuncForPC(pc); f != nil {
		name = f.Name()[strings.LastIndexByte(f.Name(), '.')+1:]
		name = strings.TrimSuffix(name, "-fm")
	}
	next := map[uintptr]string{pc: name}
	if known != nil {
		maps.Copy(next, *known)
	}
	methodNames.CompareAndSwap(known, &next) // if another goroutine was first, the next call adds the name
	return name
}
