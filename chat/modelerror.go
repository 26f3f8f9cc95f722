package chat

import (
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"time"
)

// ModelError is the failure of a model's provider, before or during an answer. Its text does not contain the key.
// Clients do not receive Message, unless [dohost.Options.ErrorTexts] is set.
type ModelError struct {
	Provider string
	Status   int    // HTTP status; 0 if there was none
	Message  string // the provider's text, or a description
	// RetryAfter is the delay that the provider asks for; zero if it gave none.
	RetryAfter time.Duration
	// Truncated reports that the connection ended in the middle of an answer. Such a reply resumes as after the end of an
	// incarnation, within the bounds of [Recovery].
	Truncated bool
	// Err is the cause, for the log: it may contain addresses. Nil if the other fields say everything.
	Err error
}

// LogValue returns the error with its cause.
func (e *ModelError) LogValue() slog.Value {
	if e.Err == nil {
		return slog.StringValue(e.Error())
	}
	return slog.StringValue(e.Error() + ": " + e.Err.Error())
}

// Unwrap returns the cause.
func (e *ModelError) Unwrap() error { return e.Err }

// Error returns the provider, the status, the message, and the time to wait.
func (e *ModelError) Error() string { return e.text(e.Message) }

// PublicText returns the error without the provider's message, which may name an account.
func (e *ModelError) PublicText() string { return e.text("") }

func (e *ModelError) text(message string) string {
	var b strings.Builder
	b.WriteString(e.Provider)
	if e.Status != 0 {
		fmt.Fprintf(&b, ": %d %s", e.Status, http.StatusText(e.Status))
	}
	if message != "" {
		fmt.Fprintf(&b, ": %s", message)
	}
	if e.RetryAfter > 0 {
		fmt.Fprintf(&b, " (try again after %v)", e.RetryAfter)
	}
	return b.String()
}

// ModelPanic is the error of a [Model] that panicked, or ended its goroutine. Its text omits the value, since clients
// read the text; the log has the value.
type ModelPanic struct {
	// Value is the argument of panic; nil if the model called runtime.Goexit.
	Value any
	// Stack is the stack of the model's goroutine.
	Stack []byte
}

// Error does not contain the value of the panic.
func (e *ModelPanic) Error() string { return "chat: the model panicked" }

// PublicText returns the text of Error.
func (e *ModelPanic) PublicText() string { return e.Error() }

// LogValue returns the error with the value and the stack.
func (e *ModelPanic) LogValue() slog.Value {
	return slog.StringValue(fmt.Sprintf("%v: %v\n%s", e.Error(), e.Value, e.Stack))
}
