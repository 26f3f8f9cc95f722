package streams

import (
	"net/http"
	"time"
)

// boundedWriter is a ResponseWriter with a deadline for each write and each flush, so that a client that does not read holds the
// goroutine of its request and one page for this time only.
type boundedWriter struct {
	http.ResponseWriter
	rc    *http.ResponseController
	step  time.Duration
	begun bool
}

// Unwrap is for http.ResponseController.
func (w *boundedWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// Write writes.
func (w *boundedWriter) Write(p []byte) (int, error) {
	w.extend()
	return w.ResponseWriter.Write(p)
}

// FlushError flushes the response.
func (w *boundedWriter) FlushError() error {
	w.extend()
	return w.rc.Flush()
}

func (w *boundedWriter) extend() {
	w.begun = true
	_ = w.rc.SetWriteDeadline(time.Now().Add(w.step)) // not every server has one
}

// end flushes the response and removes the deadline: the next response on the connection may be another handler's.
func (w *boundedWriter) end() {
	if w.begun {
		_ = w.FlushError() // the client may have disconnected
		_ = w.rc.SetWriteDeadline(time.Time{})
	}
}
