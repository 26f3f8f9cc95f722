package chat

import (
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"time"
)

// ModelError is why a provider of models has not answered, or not to the end. Clients are told its text,
// in which there is nothing of the key.
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

// Error says who, what and when to come back.
func (e *ModelError) Error() string {
	var b strings.Builder
	b.WriteString(e.Provider)
	if e.Status != 0 {
		fmt.Fprintf(&b, ": %d %s", e.Status, http.StatusText(e.Status))
	}
	if e.Message != "" {
		fmt.Fprintf(&b, ": %s", e.Message)
	}
	if e.RetryAfter > 0 {
		fmt.Fprintf(&b, " (try again after %v)", e.RetryAfter)
	}
	return b.String()
}
