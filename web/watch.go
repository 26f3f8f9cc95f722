package web

import (
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/oklog/ulid/v2"
)

// requestIDHeader names a request. The server uses the client's value or makes one, returns and logs it, and passes it
// to the object's handler.
const requestIDHeader = "X-Request-Id"

const maxRequestID = 128

// maxStep is the number of bytes of a response that a client has to take in one step's time.
const maxStep = 64 << 10

// watch names each request, bounds its steps in time, and logs and counts its end.
func (p *public) watch(a *agents, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id := r.Header.Get(requestIDHeader)
		if !validRequestID(id) {
			id = ulid.Make().String()
			r.Header.Set(requestIDHeader, id)
		}
		w.Header().Set(requestIDHeader, id)
		ww := &watchedWriter{ResponseWriter: w, rc: http.NewResponseController(w), step: p.opts.StepTimeout}
		if r.Body != nil && r.Body != http.NoBody {
			body := &watchedBody{ReadCloser: r.Body, rc: ww.rc, step: ww.step, total: p.opts.BodyTimeout}
			defer body.end()
			r.Body = body
		}
		begun := time.Now()
		returned := false
		defer func() {
			p.opts.Metrics.response(routeOf(a, r), ww.status, !returned)
			level := slog.LevelInfo
			if ww.status >= http.StatusInternalServerError || !returned {
				level = slog.LevelWarn
			}
			p.opts.Logger.Log(r.Context(), level, "request", "request_id", id, "method", r.Method, "path", r.URL.Path,
				"status", ww.status, "bytes", ww.bytes, "took", time.Since(begun), "aborted", !returned)
		}()
		next.ServeHTTP(ww, r)
		returned = true
	})
}

func validRequestID(id string) bool {
	if id == "" || len(id) > maxRequestID {
		return false
	}
	for _, c := range []byte(id) {
		if c <= ' ' || c > '~' {
			return false
		}
	}
	return true
}

// routeOf is the kind of request for the metrics: few values, for any path.
func routeOf(a *agents, r *http.Request) string {
	if _, ok := a.matches(r); ok {
		return "agent"
	}
	segments, _, ok := cutSegments(r.URL.EscapedPath(), "/objects/", 3)
	switch {
	case r.URL.Path == "/" || strings.HasPrefix(r.URL.Path, "/page/"):
		return "page"
	case !ok:
		return "none"
	case segments[2] == "http":
		return "http"
	}
	return "call"
}

// watchedWriter records the status and size of a response, and sets a deadline for each write.
type watchedWriter struct {
	http.ResponseWriter
	rc     *http.ResponseController
	step   time.Duration
	status int
	bytes  int64
}

// Unwrap is for http.ResponseController.
func (w *watchedWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// WriteHeader records the status.
func (w *watchedWriter) WriteHeader(status int) {
	if w.status == 0 {
		w.status = status
	}
	w.extend()
	w.ResponseWriter.WriteHeader(status)
}

// Write counts the bytes.
func (w *watchedWriter) Write(p []byte) (int, error) {
	if w.status == 0 {
		w.status = http.StatusOK
	}
	n := 0
	for {
		part := p[n:min(len(p), n+maxStep)]
		w.extend()
		m, err := w.ResponseWriter.Write(part)
		w.bytes += int64(m)
		n += m
		if err != nil || n == len(p) {
			return n, err
		}
	}
}

// FlushError flushes the response.
func (w *watchedWriter) FlushError() error {
	w.extend()
	return w.rc.Flush()
}

func (w *watchedWriter) extend() {
	if w.step > 0 {
		_ = w.rc.SetWriteDeadline(time.Now().Add(w.step)) // not every server has one
	}
}

// bodyRate is the number of bytes of a body that give a client another second.
const bodyRate = 16 << 10

// watchedBody sets a deadline for each read, and one for all of them together, during the request: an object may still
// read after the request has ended.
type watchedBody struct {
	io.ReadCloser
	rc          *http.ResponseController
	step, total time.Duration // not positive: no bound

	// Of the reader.
	waited time.Duration
	bytes  int64

	mu    sync.Mutex
	ended bool
}

// Read reads. It clears the deadline afterwards, because the server waits on the same connection for the client to
// leave.
func (b *watchedBody) Read(p []byte) (int, error) {
	begun := time.Now()
	if !b.setDeadline(b.deadline(begun)) {
		return 0, http.ErrBodyReadAfterClose
	}
	defer b.setDeadline(time.Time{})
	n, err := b.ReadCloser.Read(p)
	b.waited += time.Since(begun)
	b.bytes += int64(n)
	return n, err
}

// deadline is the deadline of a read that begins now; zero if there is no bound.
func (b *watchedBody) deadline(now time.Time) (at time.Time) {
	if b.step > 0 {
		at = now.Add(b.step)
	}
	if b.total <= 0 {
		return at
	}
	left := b.total + time.Duration(b.bytes/bodyRate)*time.Second - b.waited
	if all := now.Add(left); at.IsZero() || all.Before(at) {
		return all
	}
	return at
}

func (b *watchedBody) setDeadline(at time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.ended {
		_ = b.rc.SetReadDeadline(at) // not every server has one
	}
	return !b.ended
}

func (b *watchedBody) end() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ended = true
}
