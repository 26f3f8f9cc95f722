package dohost

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"

	"github.com/dohost/dohost/objectstore"
	"github.com/dohost/dohost/runtime"
)

// ErrorBody is what a caller over HTTP gets, as JSON, when there is no answer.
type ErrorBody struct {
	Code       string `json:"code"`
	Message    string `json:"message"`
	Op         string `json:"op,omitempty"`
	Object     string `json:"object,omitempty"`
	Ran        string `json:"ran"` // no, yes or unknown
	Remote     bool   `json:"remote"`
	Retryable  bool   `json:"retryable"`
	Overloaded bool   `json:"overloaded"`
	Reset      bool   `json:"reset"`
}

// Error returns the message, so that a client may pass the body on.
func (b *ErrorBody) Error() string { return b.Message }

// statusClosedRequest is for a client that has gone: it is only ever logged.
const statusClosedRequest = 499

// errorCodes are the kinds of errors that a caller can tell apart, most specific
// first: one code and one status for each.
var errorCodes = []struct {
	is     error
	code   string
	status int
}{
	{ErrNoSpace, "no_space", http.StatusInsufficientStorage},
	{ErrDamaged, "damaged", http.StatusInternalServerError},
	{ErrConstructor, "constructor", http.StatusInternalServerError}, // whatever its cause is, and
	{ErrFenced, "fenced", http.StatusInternalServerError},           // the same
	{ErrOverloaded, "overloaded", http.StatusServiceUnavailable},
	{ErrHalfImported, "half_imported", http.StatusConflict},
	{ErrClosed, "closed", http.StatusServiceUnavailable},
	{ErrNoClass, "no_class", http.StatusNotFound},
	{ErrNoMethod, "no_method", http.StatusNotFound},
	{ErrPrivate, "private", http.StatusForbidden},
	{ErrUnauthenticated, "unauthenticated", http.StatusUnauthorized},
	{ErrForbidden, "forbidden", http.StatusForbidden},
	{ErrReadOnly, "read_only", http.StatusForbidden},
	{ErrTooManyNew, "too_many_new", http.StatusTooManyRequests},
	{ErrNoHTTPHandler, "no_http_handler", http.StatusNotFound},
	{ErrNoObject, "no_object", http.StatusNotFound},
	{ErrNoAlarmHandler, "no_alarm_handler", http.StatusBadRequest},
	{ErrExport, "bad_export", http.StatusBadRequest},
	{ErrExists, "exists", http.StatusConflict},
	{ErrDeadlock, "deadlock", http.StatusInternalServerError},
	{context.DeadlineExceeded, "timeout", http.StatusGatewayTimeout},
	{context.Canceled, "canceled", statusClosedRequest},
}

// DescribeError says how err is told to a caller over HTTP, and with which status.
// An error of an object's own code is an internal server error, whatever it wraps,
// and its message is passed on: it is the object's own word to its callers. What a panic
// or a constructor says is not, so the body names only that it happened; the [Listener]
// has the rest.
func DescribeError(err error) (ErrorBody, int) {
	b := ErrorBody{Code: "internal", Message: err.Error(), Ran: RanUnknown.String()}
	cause := err
	if e, ok := errors.AsType[*Error](err); ok {
		cause = e.Err
		b = ErrorBody{
			Code: "internal", Message: e.Err.Error(), Op: e.Op, Object: e.ID.String(), Ran: e.Ran.String(),
			Remote: e.Remote, Retryable: e.Retryable, Overloaded: e.Overloaded, Reset: e.Reset,
		}
	}
	if text, internal := internals(cause); internal {
		b.Message = text
	}
	code, status := classify(cause, b.Remote)
	b.Code = code
	switch {
	case b.Overloaded, closing(cause) && !b.Remote:
		status = http.StatusServiceUnavailable
	}
	return b, status
}

// internals returns the message of an error whose own text callers do not get.
func internals(err error) (text string, ok bool) {
	if _, ok := errors.AsType[*PanicError](err); ok {
		return "the object's code panicked", true
	}
	if errors.Is(err, ErrConstructor) {
		return ErrConstructor.Error(), true
	}
	return "", false
}

func classify(err error, remote bool) (code string, status int) {
	if remote {
		if errors.Is(err, ErrNoSpace) {
			return "no_space", http.StatusInsufficientStorage
		}
		if errors.Is(err, ErrReadOnly) {
			return "read_only", http.StatusForbidden
		}
		return "failed", http.StatusInternalServerError
	}
	if _, ok := errors.AsType[*NameError](err); ok {
		return "bad_name", http.StatusBadRequest
	}
	if _, ok := errors.AsType[*ArgumentError](err); ok {
		return "bad_argument", http.StatusBadRequest
	}
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return "too_large", http.StatusRequestEntityTooLarge
	}
	if _, ok := errors.AsType[*LimitError](err); ok {
		return "too_large", http.StatusRequestEntityTooLarge
	}
	for _, c := range errorCodes {
		if errors.Is(err, c.is) {
			return c.code, c.status
		}
	}
	return "internal", http.StatusInternalServerError
}

// closing says that the host is on its way down, so that another may have the object.
func closing(err error) bool {
	f, ok := errors.AsType[*Fenced](err)
	return ok && f.Reason == runtime.ReasonClosing
}

// WriteError answers an HTTP request with err as an [ErrorBody]. Overload,
// closing and [ErrTooManyNew] come with Retry-After.
func WriteError(w http.ResponseWriter, err error) {
	b, status := DescribeError(err)
	h := w.Header()
	h.Del("Content-Length")
	h.Set("Content-Type", "application/json")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "no-store")
	switch status {
	case http.StatusServiceUnavailable, http.StatusTooManyRequests:
		h.Set("Retry-After", "1")
	case http.StatusUnauthorized:
		h.Set("WWW-Authenticate", "Bearer")
	}
	w.WriteHeader(status)
	// The client may have gone; there is nobody else to tell.
	_ = json.NewEncoder(w).Encode(b)
}

// ErrNoHTTPHandler says that the class has no [OnHTTP] entry.
var ErrNoHTTPHandler = errors.New("dohost: class has no HTTP handler")

// These errors are about exports and imports.
var (
	ErrNoObject = objectstore.ErrNoObject // the object has nothing durable
	ErrExport   = objectstore.ErrStream   // not an export, or a damaged one
)
