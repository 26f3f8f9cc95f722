package web

import (
	"log/slog"
	"net/http"
	"strings"
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
		begun := time.Now()
		returned := false
		defer func() {
			p.opts.Metrics.response(p.routeOf(a, r), ww.status, !returned)
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
func (p *public) routeOf(a *agents, r *http.Request) string {
	if _, ok := p.mount(r); ok {
		return "handler"
	}
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
