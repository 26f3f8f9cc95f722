package chat

import (
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"time"
)

// ModelError is why a provider of models has not answered, or not to the end. Its text does not contain
// the key. Clients do not get Message, unless [dohost.Options.ErrorTexts] is set.
type ModelError struct {
	Provider string
	Status   int    // of HTTP; 0 if there was none
	Message  string // what the provider says, or what has gone wrong
	// RetryAfter is how long the provider wants to be left alone. Zero if it has not said so.
	RetryAfter time.Duration
	// Severed says that the connection ended in the middle of an answer. Such a reply is gone on with, like one
	// whose incarnation has ended, as often as [Recovery] says.
	Severed bool
	// Err is the cause, for the log: addresses may stand in it. Nil if the rest says all there is.
	Err error
}

// LogValue is the error with its cause.
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

// ModelPanic is the error of a reply whose [Model] panicked, or ended its goroutine. Its text does not
// contain the value, since clients read it; the log does.
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

// LogValue is the error with the value and the stack.
func (e *ModelPanic) LogValue() slog.Value {
	return slog.StringValue(fmt.Sprintf("%v: %v\n%s", e.Error(), e.Value, e.Stack))
}
