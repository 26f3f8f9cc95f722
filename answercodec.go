package dohost

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/dohost/dohost/internal/errkind"
)

// callAnswer is the answer to a call of [Invoke], as an object stores it and hosts send it. Either field is set.
type callAnswer struct {
	Result json.RawMessage `json:"result,omitempty"`
	Error  *callError      `json:"error,omitempty"`
}

// callError is an [Error] between hosts.
type callError struct {
	Text      string      `json:"text"`
	Kinds     []string    `json:"kinds,omitempty"`
	Public    *publicPart `json:"public,omitempty"`
	Code      string      `json:"code"`
	Status    int         `json:"status"`
	Outcome   Outcome     `json:"outcome"`
	Retryable bool        `json:"retryable,omitempty"`
}

// publicPart is the part of a [PublicError] that callers may read.
type publicPart struct {
	Message string `json:"message"`
	Code    string `json:"code,omitempty"`
	Status  int    `json:"status,omitempty"`
}

// sentKinds are the errors that errors.Is finds on both hosts.
var sentKinds = []struct {
	name string
	err  error
}{
	{"fenced", ErrFenced}, {"overloaded", ErrOverloaded}, {"closed", ErrClosed}, {"not_found", ErrNotFound}, {"elsewhere", errkind.ErrElsewhere},
	{"conflict", ErrConflict}, {"unauthenticated", ErrUnauthenticated}, {"forbidden", ErrForbidden}, {"misuse", ErrMisuse},
	{"no_space", ErrNoSpace}, {"damaged", ErrDamaged}, {"call_interrupted", errCallInterrupted}, {"call_conflict", errCallConflict},
	{"deadline", context.DeadlineExceeded}, {"canceled", context.Canceled},
}

// sentEnds are the results of codeEnd.
var sentEnds = []struct {
	name string
	err  error
}{{"reset", errCodeReset}, {"fault", errCodeFault}}

// encodeResult returns the answer with the JSON of a result.
func encodeResult(result []byte) []byte {
	answer := make([]byte, 0, len(result)+len(`{"result":}`))
	answer = append(answer, `{"result":`...)
	return append(append(answer, result...), '}')
}

// encodeFailure returns the answer with an error.
func encodeFailure(e *Error) []byte {
	err, _ := readable(e).(*Error)
	body, status := describe(err)
	c := &callError{
		Text: truncatedText(err.Err.Error(), maxReportText), Code: body.Code, Status: status, Outcome: err.Outcome, Retryable: err.Retryable,
	}
	if text, internal := internals(err.Err); internal {
		c.Text = text
	}
	if p, ok := errors.AsType[*PublicError](err.Err); ok && p != nil {
		c.Public = &publicPart{p.Message, p.Code, p.Status}
	} else if p, ok := errors.AsType[publicTexter](err.Err); ok {
		c.Public = &publicPart{Message: p.PublicText()}
	}
	end := codeEnd(e)
	for _, k := range sentEnds {
		if end == k.err {
			c.Kinds = append(c.Kinds, k.name)
		}
	}
	for _, k := range sentKinds {
		if errors.Is(err.Err, k.err) {
			c.Kinds = append(c.Kinds, k.name)
		}
	}
	answer, _ := json.Marshal(callAnswer{Error: c}) // it never fails
	return answer
}

// decodeAnswer returns the result in an answer, or its error, which is an *Error.
func decodeAnswer(c *RemoteCall, answer []byte) (json.RawMessage, error) {
	var a callAnswer
	if err := json.Unmarshal(answer, &a); err != nil {
		return nil, &Error{Op: c.Method, ID: c.ID, Err: fmt.Errorf("dohost: the answer of the other host cannot be read: %w", err)}
	}
	if a.Error == nil {
		return a.Result, nil
	}
	e := &remoteError{text: a.Error.Text, code: a.Error.Code, status: a.Error.Status}
	for _, k := range sentKinds {
		if slices.Contains(a.Error.Kinds, k.name) {
			e.are = append(e.are, k.err)
		}
	}
	for _, k := range sentEnds {
		if slices.Contains(a.Error.Kinds, k.name) {
			e.end = k.err
		}
	}
	if p := a.Error.Public; p != nil {
		e.are = append(e.are, &PublicError{Message: p.Message, Code: p.Code, Status: p.Status})
	}
	return nil, &Error{Op: c.Method, ID: c.ID, Err: e, Outcome: a.Error.Outcome, Retryable: a.Error.Retryable}
}

// remoteError is an error of a call of [Invoke], in place of its value on the host of the object.
type remoteError struct {
	text   string
	are    []error // the kinds of the error, and its PublicError
	code   string  // of DescribeError
	status int
	end    error // of codeEnd
}

// Error returns the text that the error has on its host.
func (e *remoteError) Error() string { return e.text }

// Unwrap returns the kinds of the error, and its PublicError.
func (e *remoteError) Unwrap() []error { return e.are }
