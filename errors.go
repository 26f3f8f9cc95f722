package dohost

import (
	"errors"

	"github.com/dohost/dohost/objectstore"
	"github.com/dohost/dohost/runtime"
)

// These errors report that an object did not run. errors.Is does not tell which object: it also finds an error that
// the method got from another object and returned. The Outcome of the outermost [*Error] reports whether this call ran.
var (
	ErrOverloaded  = runtime.ErrOverloaded  // the object's queue is full, or it has too many background tasks
	ErrClosed      = runtime.ErrClosed      // the host takes no more calls
	ErrDeadlock    = runtime.ErrDeadlock    // the call leads back into an Exclusive section that waits for it
	ErrConstructor = runtime.ErrConstructor // the object's constructor failed, now or a moment ago
	// ErrHalfImported: the process ended during an import of the object. Import it again.
	ErrHalfImported = runtime.ErrHalfImported
	ErrNoClass      = runtime.ErrNoClass  // no such class is bound
	ErrNoMethod     = runtime.ErrNoMethod // the class exposes no such method
	// ErrPrivate: the object is for other objects alone.
	ErrPrivate = errors.New("dohost: the object is not for callers from outside")
)

// ErrFenced reports that an object ran in an incarnation that has ended. Whether the call took effect is unknown,
// unless the [*Error] has OutcomeRan: then the method returned ErrFenced, and the incarnation of another object has
// ended. A storage operation that returns it did nothing.
var ErrFenced = runtime.ErrFenced

// PanicError is the cause of the end of an incarnation after a panic in a handler. It has the stack.
type PanicError = runtime.PanicError

// These errors report a misuse of the API.
var (
	ErrNoTurn         = runtime.ErrNoTurn         // the context does not hold this object's turn
	ErrTurnBusy       = runtime.ErrTurnBusy       // two goroutines used one turn at the same moment
	ErrInTransaction  = runtime.ErrInTransaction  // not possible inside a transaction
	ErrTurnOver       = runtime.ErrTurnOver       // an iterator was used after its turn was given up
	ErrNoAlarmHandler = runtime.ErrNoAlarmHandler // the class has no OnAlarm entry
)

// PublicError is an error with a Message that callers outside the process may read. If an exposed method or a handler
// returns it, or an error that wraps it, they get Code and Message as an [ErrorBody] with Status, or Message in a
// frame of their WebSocket. They do not get the text of any other error of an object's code, unless
// [Options.ErrorTexts] is set: it may contain addresses, names of users, and passwords. An error of another type that
// has the method PublicText is treated in the same way, with the code "failed" and the status 500.
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

// Error names the operation and the object, reports whether the operation ran, and whether the caller may repeat it.
// Every error of Call, Do and Invoke is an Error about that call: Err may wrap the [*Error] of a call that the object
// made itself.
type Error = runtime.Error

// Fenced is why an incarnation ended: the cause of its contexts, and of ErrFenced.
type Fenced = runtime.Fenced

// LimitError reports that a key, a value or a batch is too large, or that one operation names too many keys.
type LimitError = objectstore.LimitError

// NameError reports that the name of a class or an object is not allowed.
type NameError = objectstore.NameError

// Outcome reports whether the handler of a failed call ran.
type Outcome = runtime.Outcome

// The outcomes of a failed call.
const (
	OutcomeUnknown = runtime.OutcomeUnknown // it may have taken effect, or may yet
	OutcomeNotRun  = runtime.OutcomeNotRun  // it did not run, and will not
	OutcomeRan     = runtime.OutcomeRan     // it ran to its end, and its writes stay
)
