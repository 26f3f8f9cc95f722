package dohost

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"

	"github.com/oklog/ulid/v2"

	"github.com/dohost/dohost/internal/errkind"
	"github.com/dohost/dohost/internal/guard"
	"github.com/dohost/dohost/objectstore"
	"github.com/dohost/dohost/runtime"
)

// ErrorBody is the JSON body of an HTTP response that reports an error.
type ErrorBody struct {
	Code       string `json:"code"`
	Message    string `json:"message"`
	Op         string `json:"op,omitempty"`
	Object     string `json:"object,omitempty"`
	Ran        string `json:"ran"` // no, yes or unknown: see Error.Outcome
	Remote     bool   `json:"remote"`
	Retryable  bool   `json:"retryable"`
	Overloaded bool   `json:"overloaded"`
	Reset      bool   `json:"reset"`
	// ID names the line of the host's log that has the text, if Message does not.
	ID string `json:"id,omitempty"`
}

// Error returns the message, so a client may pass the body on as an error.
func (b *ErrorBody) Error() string {
	if b == nil {
		return "dohost: nil *ErrorBody"
	}
	return b.Message
}

// statusClosedRequest is for a client that has disconnected: it is only logged.
const statusClosedRequest = 499

// errorCodes are the kinds of errors that a caller can distinguish, most specific
// first: one code and one status for each.
var errorCodes = []struct {
	is     error
	code   string
	status int
}{
	{ErrNoSpace, "no_space", http.StatusInsufficientStorage},
	{objectstore.ErrDamaged, "damaged", http.StatusInternalServerError},
	{runtime.ErrConstructor, "constructor", http.StatusInternalServerError},  // precedes the errors that may cause it, as does
	{errCallInterrupted, "call_interrupted", http.StatusInternalServerError}, // precedes its kind, which does too
	{ErrFenced, "fenced", http.StatusInternalServerError},
	{errTooManyNew, "too_many_new", http.StatusTooManyRequests}, // precedes its kind
	{runtime.ErrOverloaded, "overloaded", http.StatusServiceUnavailable},
	{ErrOverloaded, "overloaded", http.StatusServiceUnavailable},
	{runtime.ErrHalfImported, "half_imported", http.StatusConflict},
	{runtime.ErrClosed, "closed", http.StatusServiceUnavailable},
	{runtime.ErrNoClass, "no_class", http.StatusNotFound},
	{errkind.ErrElsewhere, "elsewhere", http.StatusMisdirectedRequest},
	{errCallConflict, "call_conflict", http.StatusConflict},
	{errCallExpired, "call_expired", http.StatusConflict},
	{runtime.ErrNoMethod, "no_method", http.StatusNotFound},
	{errPrivate, "private", http.StatusForbidden},    // precedes its kind, as does
	{errReadOnly, "read_only", http.StatusForbidden}, // this one
	{ErrUnauthenticated, "unauthenticated", http.StatusUnauthorized},
	{errNoHTTPHandler, "no_http_handler", http.StatusNotFound},
	{objectstore.ErrNoObject, "no_object", http.StatusNotFound},
	{runtime.ErrNoAlarmHandler, "no_alarm_handler", http.StatusBadRequest},
	{objectstore.ErrNotArchived, "not_archived", http.StatusNotFound},
	{objectstore.ErrNoBase, "no_base", http.StatusNotFound},
	{objectstore.ErrForeignBookmark, "foreign_bookmark", http.StatusConflict},
	{objectstore.ErrNotShipping, "not_shipping", http.StatusConflict},
	{objectstore.ErrStandbyLags, "standby_lags", http.StatusConflict},
	{objectstore.ErrStream, "bad_export", http.StatusBadRequest},
	{objectstore.ErrExists, "exists", http.StatusConflict},
	{runtime.ErrDeadlock, "deadlock", http.StatusInternalServerError},
	{ErrForbidden, "forbidden", http.StatusForbidden},
	{context.DeadlineExceeded, "timeout", http.StatusGatewayTimeout},
	{context.Canceled, "canceled", statusClosedRequest},
}

// DescribeError returns the [ErrorBody] and the HTTP status for an error of a call, with its whole
// text. It is for operators: [Host.WriteError] describes an error to a client. The body contains
// neither the value of a panic nor the error of a constructor; the [Listener] gets these.
func DescribeError(err error) (ErrorBody, int) { return describe(readable(err)) }

// errUnreadable matches no error. readable searches for it.
var errUnreadable = errors.New("dohost: the methods of an error panic")

// readable returns err, or an error with the text of [guard.Text] in place of one whose methods panic: code that
// declares a pointer to an error, and returns it as an error, returns a nil pointer.
func readable(err error) error {
	failure := guard.Run(func() {
		_ = err.Error()
		_ = errors.Is(err, errUnreadable)
		if e, ok := errors.AsType[publicTexter](err); ok {
			_ = e.PublicText()
		}
	})
	if failure == nil {
		return err
	}
	if e, ok := err.(*Error); ok {
		unreadable := *e
		unreadable.Err = errors.New(guard.Text(e.Err))
		return &unreadable
	}
	return errors.New(guard.Text(err))
}

// describe is DescribeError for a readable error.
func describe(err error) (ErrorBody, int) {
	b := ErrorBody{Message: err.Error(), Ran: OutcomeUnknown.String()}
	cause := err
	if e := errorOf(err); e != nil {
		cause = e.Err
		b = ErrorBody{
			Message: e.Err.Error(), Op: e.Op, Object: e.ID.String(), Ran: e.Outcome.String(),
			Remote: e.Remote(), Retryable: e.Retryable, Overloaded: e.Overloaded(), Reset: e.Reset(),
		}
	}
	if text, internal := internals(cause); internal {
		b.Message = text
	}
	code, status := classify(cause, b.Remote)
	b.Code = code
	switch {
	case status == http.StatusTooManyRequests:
		b.Overloaded = false // the caller has reached its limit, not the object
	case b.Overloaded, unavailable(cause) && !b.Remote:
		status = http.StatusServiceUnavailable
	}
	return b, status
}

// internals returns a message in place of an error's text, if callers must not get that
// text.
func internals(err error) (text string, ok bool) {
	if _, ok := errors.AsType[*PanicError](err); ok {
		return "the object's code panicked", true
	}
	if errors.Is(err, runtime.ErrConstructor) {
		return runtime.ErrConstructor.Error(), true
	}
	return "", false
}

// publicTexter is an error with a text that any caller may read, such as a [PublicError].
type publicTexter interface {
	error
	PublicText() string
}

// isPublic reports whether err has a text that any caller may read.
func isPublic(err error) bool {
	_, ok := errors.AsType[publicTexter](err)
	return ok
}

// publicText returns the part of an error that any caller may read. The text of a status below 500 is dohost's own:
// it names the caller's mistake. The text of another status may come from the object's code, so only the text of its
// code is public, if it has one.
func publicText(err error, remote bool, status int) (text string, ok bool) {
	if e, ok := errors.AsType[publicTexter](err); ok {
		return e.PublicText(), true
	}
	_, nested := errors.AsType[*Error](err) // of a call that the object made: its text may have the object's own
	if e, ok := errors.AsType[*ArgumentError](err); ok && !nested && !insideObject(err) {
		return strings.TrimPrefix(e.Error(), "dohost: "), true
	}
	if e, ok := errors.AsType[*LimitError](err); ok && !nested && !insideObject(err) {
		return e.Error(), true
	}
	if !remote && status < http.StatusInternalServerError {
		return err.Error(), true
	}
	if text, ok := internals(err); ok {
		return text, true
	}
	for _, c := range errorCodes {
		if errors.Is(err, c.is) && (!remote || publicOfObjects(c.is)) {
			return c.is.Error(), true
		}
	}
	return "", false
}

// insideObject reports whether err is the end or the failed start of an incarnation, which wraps an error of the object's
// code. The types of that error say nothing about the request.
func insideObject(err error) bool {
	_, panicked := errors.AsType[*PanicError](err)
	return panicked || errors.Is(err, runtime.ErrConstructor) || errors.Is(err, ErrFenced)
}

// publicOfObjects reports whether an error keeps its code if an object's own code returns it.
func publicOfObjects(err error) bool { return err == ErrNoSpace || err == errReadOnly }

func classify(err error, remote bool) (code string, status int) {
	if e, ok := errors.AsType[*PublicError](err); ok && e != nil {
		if status = e.Status; status < 400 || status > 599 {
			status = http.StatusInternalServerError
		}
		return cmp.Or(e.Code, "failed"), status
	}
	if remote {
		if errors.Is(err, ErrNoSpace) {
			return "no_space", http.StatusInsufficientStorage
		}
		if errors.Is(err, errReadOnly) {
			return "read_only", http.StatusForbidden
		}
		return "failed", http.StatusInternalServerError
	}
	if e, ok := err.(*remoteError); ok {
		return e.code, e.status
	}
	if !insideObject(err) {
		if code, status := classifyRequest(err); code != "" {
			return code, status
		}
	}
	for _, c := range errorCodes {
		if errors.Is(err, c.is) {
			return c.code, c.status
		}
	}
	return "internal", http.StatusInternalServerError
}

// classifyRequest returns the code of an error in the request itself, or "".
func classifyRequest(err error) (code string, status int) {
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
	return "", 0
}

// unavailable reports whether an incarnation has ended for a temporary cause: its host is closing, or has lost its lease on the shared
// log, so that another host may serve the object, or the log of the host stored nothing for too long.
func unavailable(err error) bool {
	f, ok := errors.AsType[*Fenced](err)
	return ok && f != nil && (f.Reason == ReasonClosing || f.Reason == ReasonStall || f.Reason == ReasonStore && errors.Is(f.Err, ErrFenced))
}

// WriteError answers an HTTP request with err as an [ErrorBody]. For the status 429 or 503 it sets Retry-After, if w has none. Unless
// [Options.ErrorTexts] is set, it replaces a text that is not public, and writes it with an id to the host's logger; the
// client gets the id. The id is the X-Request-Id of the response, if that has been set.
func (h *Host) WriteError(w http.ResponseWriter, err error) {
	err = readable(err)
	b, status := describe(err)
	if !h.errorTexts {
		cause := err
		if e := errorOf(err); e != nil {
			cause = e.Err
		}
		text, public := publicText(cause, b.Remote, status)
		if !public {
			b.ID = cmp.Or(w.Header().Get("X-Request-Id"), ulid.Make().String())
			text = hiddenText
			h.logHidden(b.ID, b.Object, b.Op, cause)
		}
		b.Message = text
	}
	b.Write(w, status)
}

// hiddenText replaces the text of an error that a client does not get.
const hiddenText = "internal error"

// logHidden logs an error that a client got without its text.
func (h *Host) logHidden(id, object, op string, err error) {
	if h.log != nil {
		h.log.Warn("internal error", "error_id", id, "object", object, "op", op, "err", err)
	}
}

// ErrorText returns the text, for a client outside the process, of an error err that the object's code returned from
// op. It is the text of a [PublicError], or "internal error" with an id that the host's logger gets together with
// err. With [Options.ErrorTexts] it is the whole text of err.
func (s *State) ErrorText(op string, err error) string {
	h := s.host()
	err = readable(err)
	if h.errorTexts {
		if text, internal := internals(err); internal {
			return text
		}
		return err.Error()
	}
	if text, ok := publicText(err, true, http.StatusInternalServerError); ok {
		return text
	}
	id := ulid.Make().String()
	h.logHidden(id, s.ID().String(), op, err)
	return hiddenText + " " + id
}

// Write answers an HTTP request with the body.
func (b *ErrorBody) Write(w http.ResponseWriter, status int) {
	h := w.Header()
	h.Del("Content-Length")
	h.Set("Content-Type", "application/json")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "no-store")
	switch status {
	case http.StatusServiceUnavailable, http.StatusTooManyRequests:
		if h.Get("Retry-After") == "" {
			h.Set("Retry-After", "1")
		}
	case http.StatusUnauthorized:
		h.Set("WWW-Authenticate", "Bearer")
	}
	w.WriteHeader(status)
	// An error means that the client has disconnected.
	_ = json.NewEncoder(w).Encode(b)
}

// errNoHTTPHandler reports that the class has no OnHTTP.
var errNoHTTPHandler = errkind.New(errkind.ErrNotFound, "class has no HTTP handler")
