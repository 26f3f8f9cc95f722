package consumer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"time"
)

// maxOffset bounds an offset in bytes.
const maxOffset = 1024

// response is a response to a read of a stream. Each read of it has the time of Subscription.Timeout. close ends it.
type response struct {
	body io.ReadCloser
	next string // the offset of its end; empty: there is no such stream any more
	json bool

	timer   *time.Timer
	timeout time.Duration
	cancel  context.CancelCauseFunc
	ctx     context.Context
}

var errTimeout = errors.New("consumer: the server has sent nothing within the time limit")

// read reads a stream from an offset. For HEAD the response has no body, and next is the tail.
func (s *Subscription) read(ctx context.Context, method, path, offset string) (*response, error) {
	r := &response{timeout: s.timeout()}
	r.ctx, r.cancel = context.WithCancelCause(ctx)
	r.timer = time.AfterFunc(r.timeout, func() { r.cancel(errTimeout) })
	to := s.streamURL(path)
	if offset != "" {
		to += "?" + url.Values{"offset": {offset}}.Encode()
	}
	w, err := s.request(r.ctx, method, to, "", nil)
	r.timer.Stop()
	if err != nil {
		return nil, r.fail(err)
	}
	r.body = w.Body
	switch w.StatusCode {
	case http.StatusOK:
	case http.StatusNotFound, http.StatusGone:
		return r, nil
	default:
		text, err := io.ReadAll(io.LimitReader(r, maxReply))
		return nil, r.fail(errors.Join(errorOf(w.StatusCode, text), err))
	}
	r.next = w.Header.Get("Stream-Next-Offset")
	if r.next == "" || len(r.next) > maxOffset {
		return nil, r.fail(fmt.Errorf("consumer: the response to %s %s has the next offset %.100q", method, to, r.next))
	}
	kind, _, _ := mime.ParseMediaType(w.Header.Get("Content-Type")) // another one is no JSON
	r.json = kind == "application/json"
	if !r.json && method == http.MethodGet && w.Close && w.ContentLength < 0 && len(w.TransferEncoding) == 0 && !w.Uncompressed {
		return nil, r.fail(errors.New("consumer: the response has no length, and ends with its connection: a cut would not be seen"))
	}
	return r, nil
}

// fail closes the response, and returns its error.
func (r *response) fail(err error) error {
	if cause := context.Cause(r.ctx); cause != nil && !errors.Is(err, cause) {
		err = errors.Join(cause, err)
	}
	r.close()
	return err
}

// Read reads from the body.
func (r *response) Read(b []byte) (int, error) {
	r.timer.Reset(r.timeout)
	defer r.timer.Stop()
	n, err := r.body.Read(b)
	if cause := context.Cause(r.ctx); err != nil && cause != nil {
		err = errors.Join(cause, err)
	}
	return n, err
}

func (r *response) close() {
	r.timer.Stop()
	r.cancel(nil)
	if r.body != nil {
		_ = r.body.Close() // read as far as needed
	}
}
