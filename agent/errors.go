package agent

import (
	"context"
	"fmt"
	"net/http"

	"github.com/dohost/dohost"
)

var errNoFiber = fmt.Errorf("agent: the context does not belong to a fiber: %w", dohost.ErrMisuse)

// readonlyText is the text of the Agents SDK for clients with read-only rights.
const readonlyText = "Connection is readonly"

// errReadonly is the error of a change by a client with read-only rights.
var errReadonly error = readonlyError{}

type readonlyError struct{}

func (readonlyError) Error() string { return "agent: the client may only read" }

// Unwrap returns the kind, and the code for clients.
func (readonlyError) Unwrap() []error {
	return []error{dohost.ErrForbidden, &dohost.PublicError{
		Message: "dohost: the caller may only read", Code: "read_only", Status: http.StatusForbidden,
	}}
}

// CheckWrite returns an error that is [dohost.ErrForbidden] in an event of a client with read-only rights, over a
// connection or over HTTP, and nil in other events. It is meant for methods that change more than the agent's
// state.
func CheckWrite(ctx context.Context) error {
	if by := ConnFromContext(ctx); by != nil && by.Readonly() {
		return errReadonly
	}
	if a, ok := dohost.AccessFrom(ctx); ok && a.Rights != dohost.RightsReadWrite {
		return errReadonly
	}
	return nil
}
