package ledger

import (
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/dohost/dohost"
)

// ErrUnknown reports that the outcome of an operation is unknown: it may have taken effect, or not. The error is an
// [*UnknownError].
var ErrUnknown = errors.New("ledger: the outcome of the operation is unknown")

// ErrNoCanonicalForm reports arguments that cannot identify an operation, such as an object with two members of one name, or more
// than 1 MiB as JSON: see Same of [Kind]. Nothing was recorded or called.
var ErrNoCanonicalForm = errors.New("ledger: the arguments have no canonical form")

// UnknownError wraps [ErrUnknown], with the operation. Callers outside of the process get Text, with the code "unknown_outcome"
// and the status 409.
type UnknownError struct {
	ID    ID
	Kind  string
	Since time.Time // when the operation first began
	Text  string    // of [Kind].Unknown
	// Err has the errors of the call, of Find and of the context in this Do. If the Do made no call, Err has the stored text
	// of the last error. It is nil if there was none.
	Err error
}

// Error returns the text with the kind, the ID and the time.
func (e *UnknownError) Error() string {
	s := fmt.Sprintf("ledger: the outcome of the operation %s of kind %q, begun at %s, is unknown: %s",
		e.ID, e.Kind, e.Since.UTC().Format(time.RFC3339), e.Text)
	if e.Err != nil {
		s += ": " + clip(e.Err.Error(), maxError)
	}
	return s
}

// Unwrap returns ErrUnknown, the error for callers outside of the process, and Err.
func (e *UnknownError) Unwrap() []error {
	errs := []error{ErrUnknown, &dohost.PublicError{Message: e.Text, Code: "unknown_outcome", Status: http.StatusConflict}}
	if e.Err != nil {
		errs = append(errs, e.Err)
	}
	return errs
}

// Errors of [ResolveDone] and [ResolveNotDone]. They wrap [dohost.ErrConflict].
var (
	// ErrEnded reports that the operation has completed or failed.
	ErrEnded = fmt.Errorf("ledger: the operation has ended: %w", dohost.ErrConflict)
	// ErrRunning reports that a Do of the operation is in progress.
	ErrRunning = fmt.Errorf("ledger: the operation is running: %w", dohost.ErrConflict)
)

// noEffectError marks an error as a proof.
type noEffectError struct{ error }

// Unwrap returns the error.
func (e noEffectError) Unwrap() error { return e.error }

// NoEffect marks an error of a call as proof that the call had no effect, and cannot have one later: the other side has refused
// the request, or the request was not sent. The operation fails, and the next [Do] calls again, unless the outcome of an
// earlier call of the operation is unknown. NoEffect of nil is nil.
func NoEffect(err error) error {
	if err == nil {
		return nil
	}
	return noEffectError{err}
}

// ProvesNoEffect reports whether an error of a call is marked with [NoEffect]. It follows only errors that wrap one error. A mark below the
// error of a [dohost.Call] is about an operation of another object, and one among other errors proves nothing.
func ProvesNoEffect(err error) bool {
	for err != nil {
		switch e := err.(type) {
		case noEffectError:
			return !errors.Is(err, ErrUnknown)
		case *dohost.Error, *UnknownError:
			return false
		case interface{ Unwrap() error }:
			err = e.Unwrap()
		default:
			return false
		}
	}
	return false
}

// unmarked returns an error without its mark.
func unmarked(err error) error {
	if e, ok := err.(noEffectError); ok { // a mark below another error stays
		return e.error
	}
	return err
}
