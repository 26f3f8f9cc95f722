package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

const (
	// silence is the time without a line after which the connection counts as lost: the server sends one each 15 s.
	silence = 45 * time.Second
	// answerWithin bounds the time of a report.
	answerWithin = time.Minute
	// minWait is the first wait after a lost connection. Each further one is twice as long, up to maxWait.
	minWait = 100 * time.Millisecond
	maxWait = 5 * time.Second
)

// executor prints jobs. Invariants:
//
//   - A job is open until its report is durable at the desk. A connection begins with all open jobs, so the executor gets each job that
//     it has not reported.
//   - The book has a line for each printed job. The executor reads it before it prints, so a job that was printed before
//     a kill is only reported.
type executor struct {
	client      *http.Client
	desk, calls string // URLs
	token       string // may be empty
	book        *book
	delay       time.Duration
	out         io.Writer
}

// refusal is the error of a request that the server refuses. A repetition is useless.
type refusal struct{ text string }

func (r *refusal) Error() string { return r.text }

// run prints jobs until ctx ends, or the server refuses a request. It connects again after any other error.
func (e *executor) run(ctx context.Context) error {
	wait, last := minWait, ""
	for {
		begun, err := e.follow(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if _, refused := errors.AsType[*refusal](err); refused {
			return err
		}
		if begun {
			wait, last = minWait, ""
		}
		if err != nil && err.Error() != last {
			last = err.Error()
			fmt.Fprintln(e.out, last)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(wait):
		}
		wait = min(2*wait, maxWait)
	}
}

// follow prints the open jobs, and those that are added, until the connection ends. begun reports whether the server has sent something.
func (e *executor) follow(ctx context.Context) (begun bool, err error) {
	following, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	silent := time.AfterFunc(silence, func() { cancel(fmt.Errorf("the server has sent nothing for %v", silence)) })
	defer silent.Stop()
	res, err := e.send(following, http.MethodGet, e.desk+"/jobs?open", nil)
	if err != nil {
		return false, cause(following, err)
	}
	defer res.Body.Close()
	err = eachEvent(res.Body, func(event, data string) error {
		silent.Reset(silence)
		if event != "enter" {
			begun = begun || event != ""
			return nil
		}
		begun = true
		var row struct{ Value Job }
		if err := json.Unmarshal([]byte(data), &row); err != nil {
			return err
		}
		return e.print(ctx, row.Value) // not following: a print may take longer than the server may be silent
	})
	return begun, cause(following, err)
}

// cause returns the reason for the end of ctx, or else err.
func cause(ctx context.Context, err error) error {
	if why := context.Cause(ctx); why != nil {
		return why
	}
	return err
}

// eachEvent calls do for each event of a stream, and without an event for each other line.
func eachEvent(stream io.Reader, do func(event, data string) error) error {
	lines := bufio.NewScanner(stream)
	lines.Buffer(nil, 4<<20) // a row has at most 2 MiB
	event := ""
	for lines.Scan() {
		name, value, _ := strings.Cut(lines.Text(), ": ")
		var err error
		switch name {
		case "event":
			event = value
		case "data":
			err = do(event, value)
		default:
			err = do("", "")
		}
		if err != nil {
			return err
		}
	}
	return lines.Err()
}

// print prints a job, unless the book has it, and reports it.
func (e *executor) print(ctx context.Context, j Job) error {
	page, err := e.book.print(j)
	if err != nil {
		return err
	}
	select {
	case <-time.After(e.delay):
	case <-ctx.Done():
		return ctx.Err()
	}
	if err := e.post(ctx, e.calls+"/report", Result{j.ID, fmt.Sprintf("on page %d", page)}, new(Job)); err != nil {
		return err
	}
	fmt.Fprintf(e.out, "page %d: %.60q\n", page, j.Text)
	return nil
}

// post calls a method of the desk, and decodes its result.
func (e *executor) post(ctx context.Context, url string, arg, result any) error {
	body, err := json.Marshal(arg)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	res, err := e.send(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	defer res.Body.Close()
	return json.NewDecoder(res.Body).Decode(result)
}

// send sends a request. The error is a refusal after a status that another attempt would get again.
func (e *executor) send(ctx context.Context, method, url string, body io.Reader) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, url, body)
	if err != nil {
		return nil, &refusal{err.Error()}
	}
	if e.token != "" {
		req.Header.Set("Authorization", "Bearer "+e.token)
	}
	res, err := e.client.Do(req)
	if err != nil || res.StatusCode == http.StatusOK {
		return res, err
	}
	text, _ := io.ReadAll(io.LimitReader(res.Body, 1<<10))
	_ = res.Body.Close()
	why := strings.TrimSpace(fmt.Sprintf("%s: %s %s", url, res.Status, text))
	switch c := res.StatusCode; {
	case c == http.StatusRequestTimeout, c == http.StatusTooManyRequests, c < 400, c >= 500:
		return nil, errors.New(why)
	}
	return nil, &refusal{why}
}
