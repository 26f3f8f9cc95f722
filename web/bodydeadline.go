package web

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"
)

// BoundBodies is for a handler that is not [Handler]: it bounds the time for the body of a request, as Handler does, before next gets the
// request. It has to be the outermost handler. Of the options it uses StepTimeout and BodyTimeout; nil means the defaults.
func BoundBodies(o *Options, next http.Handler) http.Handler {
	opts := o.withDefaults()
	return boundBodies(opts.StepTimeout, opts.BodyTimeout, next)
}

// boundBodies sets deadlines for each request's body, from the start of the request: net/http reads the unread rest of
// a body after the handler has returned. It has to be the outermost handler. A refusal with an unread body closes the
// connection.
func boundBodies(step, total time.Duration, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Body == nil || r.Body == http.NoBody {
			next.ServeHTTP(w, r)
			return
		}
		b := &boundedBody{ReadCloser: r.Body, rc: http.NewResponseController(w), step: step, total: total}
		b.setDeadline(b.deadline(time.Now()))
		r = r.WithContext(r.Context()) // net/http checks the type of its own request's body
		r.Body = b
		defer func() {
			if b.end() {
				closeAfter(w)
			}
		}()
		next.ServeHTTP(&refusalWriter{w, b}, r)
	})
}

// closeAfter makes the server close the connection after the response, even if its header is written. It uses
// http.MaxBytesReader, which does so when it reaches its limit.
func closeAfter(w http.ResponseWriter) {
	_, _ = http.MaxBytesReader(w, io.NopCloser(strings.NewReader("x")), 0).Read(make([]byte, 1))
}

// refusalWriter adds "Connection: close" to refusals with an unread body.
type refusalWriter struct {
	http.ResponseWriter
	body *boundedBody
}

// Unwrap is for http.ResponseController.
func (w *refusalWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// WriteHeader writes the header.
func (w *refusalWriter) WriteHeader(status int) {
	if status >= http.StatusBadRequest && w.body.unread() {
		w.Header().Set("Connection", "close")
	}
	w.ResponseWriter.WriteHeader(status)
}

// Hijack ends the deadlines of the body: the connection has another owner.
func (w *refusalWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	w.body.end()
	return w.body.rc.Hijack()
}

// bodyRate is the number of bytes of a body that give a client a second back.
const bodyRate = 16 << 10

// boundedBody sets a deadline for each read, and one for all of them together, during the request: an object may still
// read after the request has ended. All reads together may spend total. Each bodyRate bytes give a second back, but
// never more than the reads have spent: a client that sends fast gains no time for later.
type boundedBody struct {
	io.ReadCloser
	rc          *http.ResponseController
	step, total time.Duration // not positive: no bound

	// Of the reader.
	spent time.Duration // of total

	mu                   sync.Mutex
	ended                bool // no deadline is set any more
	eof, failed, reading bool
}

// Read reads. It clears the deadline at the end of the body, because the server then waits on the same connection for
// the client to disconnect.
func (b *boundedBody) Read(p []byte) (int, error) {
	begun := time.Now()
	if !b.begin(b.deadline(begun)) {
		return 0, http.ErrBodyReadAfterClose
	}
	n, err := b.ReadCloser.Read(p)
	b.finish(err)
	earned := time.Duration(n) * time.Second / bodyRate
	b.spent = max(0, b.spent+time.Since(begun)-earned)
	return n, err
}

// deadline is the deadline of a read that begins now; zero if there is no bound.
func (b *boundedBody) deadline(now time.Time) (at time.Time) {
	if b.step > 0 {
		at = now.Add(b.step)
	}
	if b.total <= 0 {
		return at
	}
	if all := now.Add(b.total - b.spent); at.IsZero() || all.Before(at) {
		return all
	}
	return at
}

func (b *boundedBody) setDeadline(at time.Time) {
	_ = b.rc.SetReadDeadline(at) // not every server has one
}

func (b *boundedBody) begin(deadline time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ended {
		return false
	}
	b.reading = true
	if !b.eof {
		b.setDeadline(deadline)
	}
	return true
}

func (b *boundedBody) finish(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.reading = false
	switch {
	case err == io.EOF && !b.eof:
		b.eof = true
		if !b.ended {
			b.setDeadline(time.Time{})
		}
	case err != nil && !b.eof:
		b.failed = true
	}
}

func (b *boundedBody) unread() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return !b.eof
}

// end ends the deadlines. It reports whether a read has failed or is running: net/http could then mistake the rest of
// the body for another request.
func (b *boundedBody) end() (broken bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ended = true
	return b.failed || b.reading
}
