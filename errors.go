package dohost

import (
	"errors"

	"github.com/dohost/dohost/objectstore"
	"github.com/dohost/dohost/runtime"
)

// These errors say that an object did not run. Which object, errors.Is does not say:
// it also finds what a method returned that got the error from an object it called.
// Whether this call ran is what the Ran of the outermost [*Error] says.
var (
	ErrOverloaded  = runtime.ErrOverloaded  // the object's queue is full, or it has too many background tasks
	ErrClosed      = runtime.ErrClosed      // the host takes no more calls
	ErrDeadlock    = runtime.ErrDeadlock    // the call leads back into an Exclusive section that waits for it
	ErrConstructor = runtime.ErrConstructor // the object's constructor failed, now or a moment ago
	// ErrHalfImported: an import was cut off by the end of the process; import again.
	ErrHalfImported = runtime.ErrHalfImported
	ErrNoClass      = runtime.ErrNoClass  // no such class is bound
	ErrNoMethod     = runtime.ErrNoMethod // the class exposes no such method
	// ErrPrivate: the object is for other objects alone.
	ErrPrivate = errors.New("dohost: the object is not for callers from outside")
)

// ErrFenced says that an object ran in an incarnation that has ended. Whether the
// call took effect is unknown, unless the [*Error] says RanYes: then the method
// returned it, and another object's incarnation has ended. A storage operation that
// gets it did nothing.
var ErrFenced = runtime.ErrFenced

// PanicError is why an incarnation has ended in which a handler has panicked: it has the stack.
type PanicError = runtime.PanicError

// These errors say that the API was used in a way it cannot serve.
var (
	ErrNoTurn         = runtime.ErrNoTurn         // the context does not hold this object's turn
	ErrTurnBusy       = runtime.ErrTurnBusy       // two goroutines used one turn at the same moment
	ErrInTransaction  = runtime.ErrInTransaction  // not possible inside a transaction
	ErrTurnOver       = runtime.ErrTurnOver       // an iterator was used after its turn was given up
	ErrNoAlarmHandler = runtime.ErrNoAlarmHandler // the class has no OnAlarm entry
)

// PublicError is an error whose Message callers outside the process may read. An exposed method, or
// a handler, returns it, or an error that wraps it, and they get Code and Message as an [ErrorBody]
// with Status, or Message in a frame of their WebSocket. They do not get the text of any other error
// of an object's code, unless [Options.ErrorTexts] is set: it may contain addresses, names of users,
// and passwords. An error of another type that has the method PublicText is treated in the same way,
// with the code "failed" and the status 500.
type PublicError struct {
	// Message is the text for callers.
	Message string
	// Code is the code of the [ErrorBody]. Empty means "failed".
	Code string
	// Status is the status of an HTTP response, from 400 to 599. Any other means 500.
	Status int
	// Err is the cause, which callers do not see. It may be nil.
	Err error
}

// Error returns the message and the cause.
func (e *PublicError) Error() string {
	if e.Err == nil {
		return e.Message
	}
	return e.Message + ": " + e.Err.Error()
}

// PublicText returns the message.
func (e *PublicError) PublicText() string { return e.Message }

// Unwrap returns the cause.
func (e *PublicError) Unwrap() error { return e.Err }

// These errors are about the store.
var (
	ErrNoSpace = objectstore.ErrNoSpace // the disk is nearly full: writes are refused early
	ErrDamaged = objectstore.ErrDamaged // a read needs a damaged block of the disk; others succeed
	ErrLocked  = objectstore.ErrLocked  // another host has the directory
	ErrFormat  = objectstore.ErrFormat  // written by a version that this one does not know
	ErrForeign = objectstore.ErrForeign // the directory, or its database, holds something else
	ErrAbsent  = objectstore.ErrAbsent  // the store's database is not there or not whole
	ErrExists  = objectstore.ErrExists  // an import wants an absent object
)

// Error says which operation on which object failed, whether it ran, and what a
// caller may do. Every error of Call, Do and Invoke is one, and speaks of that call:
// Err may hold the [*Error] of another, that the object made.
type Error = runtime.Error

// Fenced is why an incarnation ended: the cause of its contexts, and of ErrFenced.
type Fenced = runtime.Fenced

// LimitError says that a key, a value or a segment is too large, or that one
// operation names too many keys.
type LimitError = objectstore.LimitError

// NameError says that a class or an object's name is not allowed.
type NameError = objectstore.NameError

// Ran says whether a failed call's handler ran.
type Ran = runtime.Ran

// The three answers to "did it run".
const (
	RanUnknown = runtime.RanUnknown // it may have taken effect, or may yet
	RanNo      = runtime.RanNo      // it did not run, and will not
	RanYes     = runtime.RanYes     // it ran to its end, and what it wrote stays
)
