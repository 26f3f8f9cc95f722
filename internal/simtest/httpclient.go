package simtest

import (
	"context"
	"io"
	"net/http"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/dohosttest"
)

// responseRecorder is the client's side of a request: a ResponseWriter that keeps the response.
type responseRecorder struct {
	header http.Header
	status int
	pieces []string
}

// Header is part of http.ResponseWriter.
func (b *responseRecorder) Header() http.Header { return b.header }

// WriteHeader is part of http.ResponseWriter.
func (b *responseRecorder) WriteHeader(status int) { b.status = status }

// Write gets a piece.
func (b *responseRecorder) Write(p []byte) (int, error) {
	b.pieces = append(b.pieces, string(p))
	return len(p), nil
}

// Flush is part of http.Flusher.
func (b *responseRecorder) Flush() {}

// lineReader is a body that yields line by line.
type lineReader []string

// Read reads a line.
func (s *lineReader) Read(p []byte) (int, error) {
	if len(*s) == 0 {
		return 0, io.EOF
	}
	n := copy(p, (*s)[0])
	*s = (*s)[1:]
	return n, nil
}

// request sends lines to an object, and returns the pieces of the response, and whether it is complete.
func request(ctx context.Context, h *dohosttest.Host, id dohost.ID, lines []string) (pieces []string, whole bool, err error) {
	body := lineReader(lines)
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "/", &body)
	if err != nil {
		return nil, false, err
	}
	b := &responseRecorder{header: http.Header{}}
	defer func() {
		if p := recover(); p == http.ErrAbortHandler {
			pieces = b.pieces
		} else if p != nil {
			panic(p)
		}
	}()
	h.Host().ServeObject(b, r, id)
	if b.status != http.StatusOK {
		return nil, false, nil // an error page
	}
	return b.pieces, true, nil
}
