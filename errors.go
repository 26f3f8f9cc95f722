package dohost

import (
	"errors"
	"fmt"

	"github.com/dohost/dohost/internal/errkind"
	"github.com/dohost/dohost/objectstore"
	"github.com/dohost/dohost/runtime"
)

// These are the kinds of errors: errors.Is(err, kind) reports whether err is of that kind. The message has the
// details, and so do the types [*Error], [*Fenced], [*RowError], [*FeedError], [*DamageError], [*NameError],
// [*LimitError] and [*ArgumentError]; [DescribeError] returns a code for most of them.
//
// errors.Is does not report which object returned the error: it also finds an error that a method got from
// another object and returned. The Outcome of the outermost [*Error] reports whether the caller's own call ran.
var (
	// ErrFenced reports that the incarnation of an object has ended. Whether its call took effect is unknown, unless
	// the [*Error] has [OutcomeRan]: then the method returned ErrFenced, and the incarnation of another object has
	// ended. A storage operation that returns it did nothing.
	ErrFenced = errkind.ErrFenced
	// ErrOverloaded reports that the object, the host or the caller has reached a limit, and that a later attempt may
	// succeed: the object's queue is full, or the object has too many background tasks; the host's memory is used up;
	// the caller creates too many objects.
	ErrOverloaded = errkind.ErrOverloaded
	// ErrClosed reports that the host accepts no more calls, or that nothing more can be sent on a socket because
	// the object has closed it or the client has disconnected.
	ErrClosed = errkind.ErrClosed
	// ErrNotFound reports that there is no such class, method, object, row, position of a feed, or store, or that a
	// class has no handler for a request or a socket.
	ErrNotFound = errkind.ErrNotFound
	// ErrConflict reports that a row exists or has another version than expected, that an object to be imported
	// exists, that another host has the store open, or that a standby may lack records of the archive.
	ErrConflict = errkind.ErrConflict
	// ErrUnauthenticated reports that the caller has not proved its identity.
	ErrUnauthenticated = errkind.ErrUnauthenticated
	// ErrForbidden reports that the caller has no right to the object, or may only read it, or that the object is
	// private.
	ErrForbidden = errkind.ErrForbidden
	// ErrMisuse reports a mistake of the program: the context does not hold the object's turn, or two goroutines use one
	// turn; the operation is not possible inside a [Transaction]; an iterator is used after its turn was given up; the
	// class has no OnAlarm; a function, a method or a socket is nil; a [Collection] or a [Query] is wrong; a call leads
	// back into an [Exclusive] section that waits for it.
	ErrMisuse = errkind.ErrMisuse
	// ErrNoSpace reports that the disk is nearly full, or that the store cannot write its files. The write did nothing.
	ErrNoSpace = errkind.ErrNoSpace
	// ErrDamaged reports data that cannot be read: a damaged block of the disk, while reads that do not need the block
	// succeed; a format that this version does not know; a directory that is not a store; a stream that is not a whole
	// export; an object whose import was interrupted, which another import repairs.
	ErrDamaged = errkind.ErrDamaged
)

// PanicError is the cause of an incarnation's end after a panic in a handler. It includes the stack.
type PanicError = runtime.PanicError

// PublicError is an error with a Message that callers outside the process may read. If an exposed method or a handler
// returns it, or an error that wraps it, these callers get Code and Message as an [ErrorBody] with Status, or Message
// in a frame of their WebSocket. They do not get the text of any other error of an object's code, unless
// [Options.ErrorTexts] is set: such a text may contain addresses, user names and passwords. An error of another type
// that has the method PublicText is treated in the same way, with the code "failed" and the status 500.
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
	if e == nil {
		return "dohost: nil *PublicError"
	}
	if e.Err == nil {
		return e.Message
	}
	return e.Message + ": " + e.Err.Error()
}

// PublicText returns the message.
func (e *PublicError) PublicText() string {
	if e == nil {
		return hiddenText
	}
	return e.Message
}

// Unwrap returns the cause.
func (e *PublicError) Unwrap() error {
	if e == nil {
		return nil
	}
	return e.Err
}

// Error names the operation and the object, reports whether the operation ran, and whether the caller may repeat it.
// Every error of Call, Do and Invoke is an Error about that call: Err may wrap the [*Error] of a call that the object
// made itself.
type Error = runtime.Error

// errorOf returns the outermost *Error of err, or nil: also if code of the program has returned a nil *Error as an error.
func errorOf(err error) *Error {
	e, _ := errors.AsType[*Error](err)
	return e
}

// Fenced is the reason why an incarnation ended: the cause of its contexts, and of ErrFenced.
type Fenced = runtime.Fenced

// Reason is the kind of the cause that ended an incarnation: the Reason of a [*Fenced]. It is a text for logs.
type Reason = runtime.Reason

// The reasons.
const (
	ReasonIdle        = runtime.ReasonIdle        // the object had no work for [Options].IdleAfter
	ReasonPressure    = runtime.ReasonPressure    // the host needed the memory
	ReasonChaos       = runtime.ReasonChaos       // [Options].Chaos
	ReasonEvicted     = runtime.ReasonEvicted     // [Host.Evict], or [Host.Import] with its name, also a refused one
	ReasonRestored    = runtime.ReasonRestored    // the object returns to an earlier state
	ReasonPanic       = runtime.ReasonPanic       // a handler, or a function given to Emit, panicked or ended its goroutine
	ReasonAborted     = runtime.ReasonAborted     // [State.Abort]
	ReasonConstructor = runtime.ReasonConstructor // the constructor failed
	ReasonExclusive   = runtime.ReasonExclusive   // an [Exclusive] section took too long
	ReasonAlarm       = runtime.ReasonAlarm       // an alarm handler took too long
	ReasonEvent       = runtime.ReasonEvent       // an event took longer than its limit
	ReasonStall       = runtime.ReasonStall       // the disk, or the shared log, stored nothing for too long
	ReasonOutput      = runtime.ReasonOutput      // a function given to Emit took too long
	ReasonStore       = runtime.ReasonStore       // the store failed
	ReasonClosing     = runtime.ReasonClosing     // [Host.Close]
	ReasonKilled      = runtime.ReasonKilled      // a test ended the process of the host, as a crash does
)

// LimitError reports that a key, a value or a batch is too large, or that one operation names too many keys.
type LimitError = objectstore.LimitError

// DamageError is the error of a read that needs a damaged block: [ErrDamaged].
type DamageError = objectstore.DamageError

// Damage describes an unreadable part of the store.
type Damage = objectstore.Damage

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

// ArgumentError reports that the encoded argument of an exposed method cannot be decoded. Any caller may read its text.
type ArgumentError struct {
	Method string
	Err    error
}

// maxArgumentText bounds the text of an ArgumentError, in bytes: the decoder's text may quote the argument.
const maxArgumentText = 512

// Error names the method. The text has at most 512 bytes: a longer text is cut, and ends with "…".
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

// CloseError is an error that makes the host close a WebSocket with a code. Clients of agents do
// not reconnect after 1008 and 4000 to 4999.
type CloseError struct {
	Code   int    // as of [Socket.Close]
	Reason string // at most 123 bytes
}

// Error names code and reason.
func (e *CloseError) Error() string {
	if e == nil {
		return "dohost: nil *CloseError"
	}
	return fmt.Sprintf("dohost: close %d: %s", e.Code, e.Reason)
}
