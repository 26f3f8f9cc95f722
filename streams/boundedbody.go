package streams

import (
	"io"
	"net/http"
	"time"
)

// bodyRate is the number of bytes of a body that give its client a second back.
const bodyRate = 16 << 10

// boundedBody is the body of a request with a deadline for each read, so that a client that sends slowly holds the goroutine of its
// request, and its part of the host's budget of bodies, for a bounded time. All reads together may take step. Each bodyRate bytes give a
// second back, but never more than the reads have taken.
type boundedBody struct {
	io.ReadCloser
	rc         *http.ResponseController
	step, left time.Duration
}

// boundBody returns the request with a bounded body. The first deadline is set immediately: net/http reads the unread rest of a body after
// the handler has returned, and sets another deadline for the next request on the connection.
func boundBody(w http.ResponseWriter, r *http.Request, step time.Duration) *http.Request {
	if r.Body == nil || r.Body == http.NoBody {
		return r
	}
	b := &boundedBody{r.Body, http.NewResponseController(w), step, step}
	b.setDeadline(time.Now().Add(step))
	r = r.WithContext(r.Context()) // net/http checks the type of its own request's body
	r.Body = b
	return r
}

// Read reads. It removes the deadline at the end of the body: the server then waits on the connection for the client to disconnect.
func (b *boundedBody) Read(p []byte) (int, error) {
	begun := time.Now()
	b.setDeadline(begun.Add(b.left))
	n, err := b.ReadCloser.Read(p)
	if err == io.EOF {
		b.setDeadline(time.Time{})
	}
	b.left = min(b.step, b.left-time.Since(begun)+time.Duration(n)*time.Second/bodyRate)
	return n, err
}

func (b *boundedBody) setDeadline(at time.Time) {
	_ = b.rc.SetReadDeadline(at) // not every server has one
}
