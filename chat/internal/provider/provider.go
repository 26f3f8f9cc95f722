// Package provider is what the adapters of providers of models have in common: how their failures are told, so
// that a client learns what is wrong, and nobody a key.
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

// Provider is one, by its name, and the key that it is asked with.
type Provider struct {
	Name string
	Key  string // empty if there is none
}

// maxMessage is how many bytes of what a provider says are passed on.
const maxMessage = 1 << 10

// secret is what keys of providers look like, also those that they have shortened themselves.
var secret = regexp.MustCompile(`\b(sk|pk|key)-[A-Za-z0-9_*.-]{4,}`)

// clean takes keys out of a text, and bounds it.
func (p Provider) clean(s string) string {
	if p.Key != "" {
		s = strings.ReplaceAll(s, p.Key, "[key]")
	}
	s = strings.Join(strings.Fields(secret.ReplaceAllString(s, "[key]")), " ")
	return strings.ToValidUTF8(s[:min(len(s), maxMessage)], "")
}

// Input is the input of a call. One that a model had no room for is none, or the tool would run with an empty one.
func Input(input string, cut bool) string {
	if cut && input == "" {
		return " " // which is not JSON
	}
	return input
}

// Refused is an answer that is not 2xx, with what it says.
func (p Provider) Refused(res *http.Response, message string) error {
	e := &chat.ModelError{Provider: p.Name, Status: res.StatusCode, Message: p.clean(message)}
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

// Said is an error that a stream has told.
func (p Provider) Said(message string) error {
	return &chat.ModelError{Provider: p.Name, Message: p.clean(message)}
}

// Severed is a stream that has ended before the answer had.
func (p Provider) Severed() error {
	return &chat.ModelError{Provider: p.Name, Message: "the connection ended in the middle of the answer", Severed: true}
}

// Watch is a middleware of an SDK: what its answers cannot be read for is known by [Provider.Failed]. What ends a
// connection depends on what that is made of, so there is no list of such errors.
func Watch(r *http.Request, next func(*http.Request) (*http.Response, error)) (*http.Response, error) {
	res, err := next(r)
	if res != nil && res.Body != nil {
		res.Body = watched{res.Body}
	}
	return res, err
}

// watched is the body of an answer.
type watched struct{ io.ReadCloser }

// Read implements io.Reader.
func (w watched) Read(p []byte) (int, error) {
	n, err := w.ReadCloser.Read(p)
	if err != nil && err != io.EOF { //nolint:errorlint // as readers say it
		err = &readError{err}
	}
	return n, err
}

// readError is why there is no more of an answer.
type readError struct{ error }

// Unwrap is what has gone wrong.
func (e *readError) Unwrap() error { return e.error }

// Failed is any other error of a request that [Watch] has seen, or of reading the stream that it has opened.
func (p Provider) Failed(ctx context.Context, err error, opened bool) error {
	_, cut := errors.AsType[*readError](err)
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case opened && cut:
		return p.Severed()
	case opened && errors.Is(err, bufio.ErrTooLong):
		return p.Said("an event of the answer is too large")
	case opened:
		return p.because("the answer is malformed", err)
	}
	return p.because("it cannot be reached", err)
}

// because is a failure whose cause is for the log alone.
func (p Provider) because(message string, err error) error {
	return &chat.ModelError{Provider: p.Name, Message: message, Err: errors.New(p.clean(err.Error()))}
}

// Newest is which of the messages is the user's newest, but for one that asks to go on; -1 if none is.
func Newest(list []chat.ModelMessage, goesOn bool) int {
	if goesOn && len(list) > 0 && list[len(list)-1].Role == chat.User {
		list = list[:len(list)-1]
	}
	for i, m := range slices.Backward(list) {
		if m.Role == chat.User {
			return i
		}
	}
	return -1
}

// Omitted says to the model that a file is not shown to it. One that has just come is refused instead: whoever has
// sent it can send another.
func (p Provider) Omitted(b *chat.Block, newest bool) (string, error) {
	if newest {
		return "", fmt.Errorf("%s: a file of the type %q cannot be sent", p.Name, b.MediaType)
	}
	return fmt.Sprintf("[a file of the type %s, which cannot be shown]", b.MediaType), nil
}
