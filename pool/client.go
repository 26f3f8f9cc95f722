package pool

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/dohost/dohost"
)

// Client calls the methods of a pool over HTTP. Any number of goroutines may use it. A request without an answer fails after 10 s; a request
// that waits for a task or a restart, 10 s after the end of its wait.
type Client struct {
	// URL is the URL of the pool, such as http://127.0.0.1:8787/objects/pool/build. Required. If it has another scheme than http or https, or
	// no host, each request returns an [ErrInvalid].
	URL string
	// Header is sent with each request, such as an Authorization. It must not change. Nil sends none.
	Header http.Header
	// HTTP sends the requests. Nil means [http.DefaultClient]. Its CheckRedirect has no effect: a Client follows no redirects, since a pool has
	// none, and the requests have tasks and tokens.
	HTTP *http.Client
}

const (
	// maxAnswer bounds an answer, in bytes. The largest is a task with its late results, each byte of it escaped.
	maxAnswer = 16 << 20
	// requestTimeout bounds a request, in addition to the time that it waits for a task.
	requestTimeout = 10 * time.Second
)

// Post posts a task: see [Pool.Post]. It ignores CreateRole and Notify. If the task has a key, Post repeats the request until ctx ends, while
// there is no answer or one with the status 5xx, 408 or 429. Without a key it sends one request.
//
// Errors: the errors of [Pool.Post]; the cause of ctx; the error of the server or of the connection.
func (c *Client) Post(ctx context.Context, n NewTask) (task Task, err error) {
	if err := checkNames("role", n.Role); err != nil {
		return Task{}, err
	}
	if n.Key == "" {
		return task, c.request(ctx, requestTimeout, "post", n, &task)
	}
	return task, c.repeat(ctx, requestTimeout, "post", n, &task)
}

// Task returns a task: see [Pool.Task]. It repeats the request like Post with a key.
//
// Errors: the errors of [Pool.Task]; the cause of ctx; the error of the server.
func (c *Client) Task(ctx context.Context, id string) (task Task, err error) {
	return task, c.repeat(ctx, requestTimeout, "task", TaskQuery{id}, &task)
}

// repeat repeats a request until it has an answer, or an error that a repetition cannot change, or ctx has ended.
func (c *Client) repeat(ctx context.Context, limit time.Duration, method string, in, out any) error {
	policy := &dohost.RetryPolicy{MaxAttempts: -1, MaxDelay: 5 * time.Second, ShouldRetry: func(err error, _ int) bool { return isTransient(err) }}
	err := dohost.Retry(ctx, policy, func(ctx context.Context) error { return c.request(ctx, limit, method, in, out) })
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// endTimeout bounds the requests that end a task or a process, after the end of the context.
const endTimeout = 10 * time.Second

// untilEnd is repeat for a request that ends something: it repeats it until ctx ends, and then for endTimeout.
func (c *Client) untilEnd(ctx context.Context, method string, in, out any) error {
	err := c.repeat(ctx, requestTimeout, method, in, out)
	if err == nil || ctx.Err() == nil {
		return err
	}
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
	defer cancel()
	return c.repeat(ending, requestTimeout, method, in, out)
}

// statusError is the error of a response that is no refusal of a pool.
type statusError struct {
	method string
	status int
	body   dohost.ErrorBody
}

func (e *statusError) Error() string {
	if e.body.Message == "" {
		return fmt.Sprintf("pool: %s: the server has answered with the status %d", e.method, e.status)
	}
	return fmt.Sprintf("pool: %s: %s", e.method, e.body.Message)
}

// Unwrap returns the body of the response.
func (e *statusError) Unwrap() error { return &e.body }

// isTransient reports whether a repetition of the request may succeed: the connection has failed, or the server has an error that is not
// about the request.
func isTransient(err error) bool {
	if isRefusal(err) {
		return false
	}
	if e, ok := errors.AsType[*statusError](err); ok {
		return e.status >= 500 || e.status == http.StatusTooManyRequests || e.status == http.StatusRequestTimeout
	}
	_, connection := errors.AsType[*connectionError](err)
	return connection
}

// connectionError is the error of a request without a response.
type connectionError struct{ err error }

func (e *connectionError) Error() string { return "pool: " + e.err.Error() }

// Unwrap returns the error of the connection.
func (e *connectionError) Unwrap() error { return e.err }

// checkURL refuses a URL that no server could answer: otherwise a worker would repeat its request forever.
func (c *Client) checkURL() error {
	u, err := url.Parse(c.URL)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return refuse(ErrInvalid, "the URL of the pool is malformed: want http or https, and a host") // it may have a password
	}
	return nil
}

// request calls a method once.
func (c *Client) request(ctx context.Context, limit time.Duration, method string, in, out any) error {
	if err := c.checkURL(); err != nil {
		return err
	}
	body := &bytes.Buffer{}
	encoder := json.NewEncoder(body)
	encoder.SetEscapeHTML(false) // a result would be longer than the pool allows
	if err := encoder.Encode(in); err != nil {
		return fmt.Errorf("pool: %s: %w", method, err)
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, strings.TrimSuffix(c.URL, "/")+"/"+method, body)
	if err != nil {
		return fmt.Errorf("pool: %s: %w", method, err)
	}
	for name, values := range c.Header {
		req.Header[name] = values
	}
	req.Header.Set("Content-Type", "application/json")
	client := *http.DefaultClient
	if c.HTTP != nil {
		client = *c.HTTP
	}
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	res, err := client.Do(req)
	if err != nil {
		return &connectionError{err}
	}
	defer res.Body.Close() // it has been read, or is useless
	text, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer))
	if err != nil {
		return &connectionError{err}
	}
	if res.StatusCode == http.StatusOK {
		if err := json.Unmarshal(text, out); err != nil {
			return fmt.Errorf("pool: %s: the answer does not come from a pool: %w", method, err)
		}
		return nil
	}
	e := &statusError{method: method, status: res.StatusCode}
	if json.Unmarshal(text, &e.body) != nil { // such as the answer of a proxy
		return e
	}
	for _, k := range kinds() {
		if k := k.(*kind); e.body.Remote && k.code == e.body.Code {
			return &refusal{k, strings.TrimPrefix(e.body.Message, "pool: ")}
		}
	}
	return e
}
