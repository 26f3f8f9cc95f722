// Package provider is the common part of the adapters for model providers. It converts their failures to errors that
// explain the failure and contain no key.
package provider

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dohost/dohost/chat"
)

// Provider is a provider's name and key.
type Provider struct {
	Name string
	Key  string // empty if there is none
}

// maxMessage bounds the bytes of a provider's message in an error.
const maxMessage = 1 << 10

// secret matches the keys of providers, including keys that a provider has masked.
var secret = regexp.MustCompile(`\b(sk|pk|key)-[A-Za-z0-9_*.-]{4,}`)

// redact removes keys from a text, and bounds its length.
func (p Provider) redact(s string) string {
	if p.Key != "" {
		s = strings.ReplaceAll(s, p.Key, "[key]")
	}
	s = strings.Join(strings.Fields(secret.ReplaceAllString(s, "[key]")), " ")
	return strings.ToValidUTF8(s[:min(len(s), maxMessage)], "")
}

// Input returns a call's input. If the model ran out of space before it, Input returns invalid JSON: the call must
// fail.
func Input(input string, cut bool) string {
	if cut && input == "" {
		return " " // not JSON
	}
	return input
}

// Refused returns the error of a response that is not 2xx, with the provider's message.
func (p Provider) Refused(res *http.Response, message string) error {
	e := &chat.ModelError{Provider: p.Name, Status: res.StatusCode, Message: p.redact(message)}
	switch res.StatusCode {
	case http.StatusUnauthorized:
		e.Message = "the key was refused"
	case http.StatusTooManyRequests, http.StatusServiceUnavailable:
		if s, err := strconv.ParseFloat(res.Header.Get("Retry-After"), 64); err == nil && s > 0 && s < 1e6 {
			e.RetryAfter = time.Duration(s * float64(time.Second)).Round(time.Millisecond)
		}
	}
	return e
}

// StreamError returns an error that the provider reported in a stream.
func (p Provider) StreamError(message string) error {
	return &chat.ModelError{Provider: p.Name, Message: p.redact(message)}
}

// Truncated returns the error of a stream that ended before its answer.
func (p Provider) Truncated() error {
	return &chat.ModelError{Provider: p.Name, Message: "the connection ended in the middle of the answer", Truncated: true}
}

// Report records the usage of an answer, if the provider has sent it and an agent asks.
func Report(ctx context.Context, p *chat.Prompt, u chat.Usage) {
	if p.ReportUsage != nil && u.InputTokens+u.OutputTokens > 0 {
		p.ReportUsage(ctx, u)
	}
}

// Watch is a middleware for an SDK. It marks errors of reading a response, for [Provider.Failed]. Connections fail
// with errors of many types, so a list of these errors would be incomplete.
func Watch(r *http.Request, next func(*http.Request) (*http.Response, error)) (*http.Response, error) {
	res, err := next(r)
	if res != nil && res.Body != nil {
		res.Body = responseBody{res.Body}
	}
	return res, err
}

// responseBody is the body of a response.
type responseBody struct{ io.ReadCloser }

// Read implements io.Reader.
func (w responseBody) Read(p []byte) (int, error) {
	n, err := w.ReadCloser.Read(p)
	if err != nil && err != io.EOF { //nolint:errorlint // io.Reader requires io.EOF unwrapped
		err = &readError{err}
	}
	return n, err
}

// readError is an error of reading a response.
type readError struct{ error }

// Unwrap returns the error of the reader.
func (e *readError) Unwrap() error { return e.error }

// Failed converts any other error of a request with [Watch], or of reading the stream that it opened.
func (p Provider) Failed(ctx context.Context, err error, opened bool) error {
	_, cut := errors.AsType[*readError](err)
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case opened && cut:
		return p.Truncated()
	case opened && errors.Is(err, bufio.ErrTooLong):
		return p.StreamError("an event of the answer is too large")
	case opened:
		return p.failure("the answer is malformed", err)
	}
	return p.failure("the provider cannot be reached", err)
}

// failure returns a failure with a cause that only the log contains.
func (p Provider) failure(message string, err error) error {
	return &chat.ModelError{Provider: p.Name, Message: message, Err: errors.New(p.redact(err.Error()))}
}

// Newest returns the index of the user's newest message, except a request to continue; -1 if there is none.
func Newest(list []chat.ModelMessage, continues bool) int {
	if continues && len(list) > 0 && list[len(list)-1].Role == chat.RoleUser {
		list = list[:len(list)-1]
	}
	for i, m := range slices.Backward(list) {
		if m.Role == chat.RoleUser {
			return i
		}
	}
	return -1
}

// Omitted returns a text that informs the model about an omitted file. For a file in the newest message it returns an
// error instead: the sender can send another file.
func (p Provider) Omitted(b *chat.Block, newest bool) (string, error) {
	if newest {
		return "", fmt.Errorf("%s: a file of the type %q cannot be sent", p.Name, b.MediaType)
	}
	return fmt.Sprintf("[a file of the type %s, which cannot be shown]", b.MediaType), nil
}
