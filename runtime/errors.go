package runtime

import (
	"errors"
	"fmt"

	"github.com/dohost/dohost/internal/errkind"
	"github.com/dohost/dohost/objectstore"
)

// These errors mean that the object did not run.
var (
	// ErrOverloaded: the object's queue is full by count, by bytes or by age.
	ErrOverloaded = errkind.New(errkind.ErrOverloaded, "object overloaded")
	// ErrClosed: the host accepts no more calls.
	ErrClosed = errkind.New(errkind.ErrClosed, "host closed")
	// ErrDeadlock: the call leads back into an Exclusive section, or a constructor, that
	// waits for it.
	ErrDeadlock = errkind.New(errkind.ErrMisuse, "call leads back into an exclusive section that waits for it")
	// ErrConstructor: the object's constructor failed, now or a moment ago.
	ErrConstructor = errors.New("dohost: constructor failed")
	// ErrHalfImported: an import of the object was interrupted and could not be undone.
	// Importing the object again repairs it.
	ErrHalfImported = errkind.New(errkind.ErrDamaged, "object is half imported")
	// ErrNoClass: no class of that name is bound.
	ErrNoClass = errkind.New(errkind.ErrNotFound, "no such class")
	// ErrElsewhere: another host has the object.
	ErrElsewhere = errkind.ErrElsewhere
	// ErrNoMethod: the class exposes no method of that name.
	ErrNoMethod = errkind.New(errkind.ErrNotFound, "no such method")
)

// ErrFenced means that the incarnation has ended. A call that fails with it may or may not
// have taken effect; a write that fails with it did not.
var ErrFenced = objectstore.ErrFenced

// These errors mean that the caller misused the runtime.
var (
	// ErrNoTurn: the context does not hold the turn of this incarnation.
	ErrNoTurn = errkind.New(errkind.ErrMisuse, "context does not hold the object's turn")
	// ErrTurnBusy: two goroutines used one turn at the same time.
	ErrTurnBusy = errkind.New(errkind.ErrMisuse, "turn is in use by another goroutine")
	// ErrInTransaction: the operation would give up the turn, or make half of a transaction
	// durable.
	ErrInTransaction = errkind.New(errkind.ErrMisuse, "not possible inside a transaction")
	// ErrTurnOver: an iterator was used after its turn was given up.
	ErrTurnOver = errkind.New(errkind.ErrMisuse, "iterator outlived its turn")
	// ErrNoAlarmHandler: the class has no alarm handler.
	ErrNoAlarmHandler = errkind.New(errkind.ErrMisuse, "class has no alarm handler")
)

// Outcome reports whether the handler of a failed call ran.
type Outcome uint8

// The outcomes.
const (
	OutcomeUnknown Outcome = iota
	OutcomeNotRun
	OutcomeRan
)

// String returns "no", "yes" or "unknown", which answers whether the handler ran.
func (o Outcome) String() string {
	switch o {
	case OutcomeNotRun:
		return "no"
	case OutcomeRan:
		return "yes"
	}
	return "unknown"
}

// Error is a failed operation on an object. It reports whether the operation ran, and whether the caller may repeat
// it. Remote, Retryable, Overloaded and Reset are the four facts of a Durable Object's exception in workerd
// (jsg/util.c++). Its methods may be called from any goroutine.
type Error struct {
	Op  string
	ID  ID
	Err error
	// Outcome reports whether the handler ran.
	Outcome Outcome
	// Retryable is set when the call did not run and may be repeated immediately. It is not set if a repetition fails
	// in the same way: after a misuse, for a class or a name that does not exist, and when the host is closed, unless a
	// Locator of package dohost may find another host.
	Retryable bool
}

// Error returns the operation, the object and the cause.
func (e *Error) Error() string {
	if e == nil {
		return "dohost: nil *Error"
	}
	return errkind.Text(fmt.Sprintf("%s %v", e.Op, e.ID), e.Err)
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error {
	if e == nil {
		return nil
	}
	return e.Err
}

// Remote reports whether the object's own code returned Err.
func (e *Error) Remote() bool { return e != nil && e.Outcome == OutcomeRan }

// Overloaded reports whether the object or the host has too much to do. The caller may repeat the call later.
func (e *Error) Overloaded() bool {
	if e == nil || e.Remote() {
		return false
	}
	switch cause := e.Err.(type) {
	case *Fenced:
		return cause != nil && cause.Reason == ReasonExclusive
	case *constructorError:
		f, ok := cause.cause.(*Fenced)
		return ok && f != nil && f.Reason == ReasonExclusive
	}
	if inner, ok := errors.AsType[*Error](e.Err); ok { // the error of an attempt, in the errors that wrap it
		return inner.Overloaded()
	}
	return errors.Is(e.Err, errkind.ErrOverloaded) && !e.Reset()
}

// Reset reports whether the incarnation ended.
func (e *Error) Reset() bool {
	return e != nil && !e.Remote() && (errors.Is(e.Err, ErrFenced) || errors.Is(e.Err, ErrConstructor))
}

// Fenced is the reason why an incarnation ended. It is the cause of the contexts of that
// incarnation, and errors.Is(f, ErrFenced) holds.
type Fenced struct {
	// Reason is one of the Reason constants.
	Reason Reason
	// Place names the point where chaos ended the incarnation, or is empty.
	Place string
	// Err is the underlying error, or nil.
	Err error

	by *event // the event at fault, or nil
}

// Reason is a word for why an incarnation ended.
type Reason string

// The reasons.
const (
	ReasonIdle        Reason = "idle"
	ReasonPressure    Reason = "pressure"
	ReasonChaos       Reason = "chaos"
	ReasonEvicted     Reason = "evicted"
	ReasonRestored    Reason = "restored to an earlier state"
	ReasonPanic       Reason = "panic"
	ReasonAborted     Reason = "aborted"
	ReasonConstructor Reason = "constructor failed"
	ReasonExclusive   Reason = "exclusive section took too long"
	ReasonAlarm       Reason = "alarm handler took too long"
	ReasonEvent       Reason = "event took longer than its limit"
	ReasonStall       Reason = "disk took too long"
	ReasonOutput      Reason = "function given to Emit took too long"
	ReasonStore       Reason = "store failed"
	ReasonClosing     Reason = "host closing"
	ReasonKilled      Reason = "host killed"
)

// Error names the reason and the cause.
func (f *Fenced) Error() string {
	if f == nil {
		return "dohost: nil *Fenced"
	}
	const what = "dohost: incarnation fenced: "
	switch {
	case f.Place != "":
		return what + string(f.Reason) + " at " + f.Place
	case f.Err == nil:
		return what + string(f.Reason)
	case f.Reason == ReasonPanic || f.Reason == ReasonStore: // the cause names the reason
		return what + fmt.Sprint(f.Err)
	}
	return what + string(f.Reason) + ": " + fmt.Sprint(f.Err)
}

// cause returns the underlying error, which may be of the object's code, or f itself.
func (f *Fenced) cause() error {
	if f.Err != nil {
		return f.Err
	}
	return f
}

// Unwrap returns ErrFenced and the cause.
func (f *Fenced) Unwrap() []error {
	if f == nil || f.Err == nil {
		return []error{ErrFenced}
	}
	return []error{ErrFenced, f.Err}
}

// PanicError is the cause of an incarnation that ended by a panic, or by a handler that
// exited its goroutine.
type PanicError struct {
	// Value is the argument of panic; nil for a handler that called runtime.Goexit.
	Value any
	// Stack is the stack of the goroutine that panicked.
	Stack []byte
}

// Error returns the panic's value.
func (p *PanicError) Error() string {
	if p == nil {
		return "dohost: nil *PanicError"
	}
	if p.Value == nil {
		return "handler exited its goroutine"
	}
	return fmt.Sprintf("panic: %v", p.Value)
}

// errForeignTime is for a test that mixes real time with the time of a synctest bubble, or
// two bubbles: waiting across bubbles would end the process.
var errForeignTime = errors.New("dohost: the host was opened outside of this synctest bubble: open it inside")

func isName(err error) bool {
	_, ok := errors.AsType[*objectstore.NameError](err)
	return ok
}

// failure returns err as the caller of ev gets it. A nil err stays nil.
func (ev *event) failure(err error, o Outcome) error {
	if err == nil {
		return nil
	}
	return failure(ev.obj.id(), ev.op, err, o)
}

// refusal is the error of a call that never entered a queue.
func refusal(id ID, op string, err error) error { return failure(id, op, err, OutcomeNotRun) }

// failure returns the *Error for err. It calls no method of an error of the object's code (the cause
// of a Fenced or of a constructorError): the caller may be the committer, or hold a lock.
func failure(id ID, op string, err error, o Outcome) error {
	return &Error{Op: op, ID: id, Err: err, Outcome: o, Retryable: o == OutcomeNotRun && repeatable(err)}
}

// repeatable reports whether a call that failed with err before it ran may succeed if it is repeated immediately.
func repeatable(err error) bool {
	switch err.(type) {
	case *Fenced:
		return true
	case *constructorError:
		return false
	}
	if errors.Is(err, ErrFenced) {
		return true
	}
	for _, final := range []error{ErrOverloaded, ErrClosed, errkind.ErrMisuse, ErrNoClass, ErrElsewhere} {
		if errors.Is(err, final) {
			return false
		}
	}
	return !isName(err)
}
