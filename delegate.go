package dohost

import (
	"errors"
	"net/http"
)

// maxDelegations is how often one request is handed on.
const maxDelegations = 8

// delegation is to whom an object hands a request on, and how.
type delegation struct {
	id  ID
	own *http.Request // as the handler has it
}

// request is the server's request r, as the handler wants it to be seen.
func (d *delegation) request(r *http.Request) *http.Request {
	next := r.Clone(r.Context())
	next.URL, next.Header, next.RequestURI = d.own.URL, d.own.Header, d.own.URL.RequestURI()
	next.Body = r.Body
	return next
}

// Delegate hands the request that an [OnHTTP] handler was called with on to another object, which
// answers in its place, with all that it can: a stream, a WebSocket. It does so when the handler
// has returned and what it wrote is durable, and not at all if that is lost. The other object sees
// URL and header of r, and what the handler has not read of the body. Nothing may be written to
// w. Eight objects at most see a request.
//
// Errors: [ErrFenced], [ErrNoTurn], one for a response that has begun; each leaves the request to
// the handler. An object that cannot answer is the client's to be told.
func (s *State) Delegate(w http.ResponseWriter, r *http.Request, id ID) error {
	rw, ok := responseOf(w)
	switch {
	case !ok || rw.state != s.rt():
		return errors.New("dohost: Delegate wants the ResponseWriter of the object's OnHTTP handler")
	case rw.status != 0 || rw.socket != nil || rw.next != nil:
		return errors.New("dohost: Delegate after the response has begun")
	}
	if err := alive(r.Context(), s.rt()); err != nil {
		return err
	}
	rw.next = &delegation{id: id, own: r.Clone(r.Context())}
	return nil
}
