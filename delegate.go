package dohost

import (
	"errors"
	"net/http"
)

// maxDelegations is the largest number of objects that see one request.
const maxDelegations = 8

// delegation is the target of a delegated request, and the request as the target sees it.
type delegation struct {
	id  ID
	own *http.Request // as the handler sees it
}

// request returns the server's request r with the URL and header that the handler has chosen.
func (d *delegation) request(r *http.Request) *http.Request {
	next := r.Clone(r.Context())
	next.URL, next.Header, next.RequestURI = d.own.URL, d.own.Header, d.own.URL.RequestURI()
	next.Body = r.Body
	return next
}

// Delegate passes the request of an OnHTTP handler on to another object, which answers in its place with any
// response, a stream or a WebSocket included. The other object gets the request when the handler has returned and its
// writes are durable; if these writes are lost, it does not. It sees the URL and header of r, and the unread part of
// the body. The handler must write nothing to w. At most eight objects see a request.
//
// Errors: [ErrFenced], [ErrMisuse], and one for a response that has begun. After an error the handler still answers
// the request. If the other object cannot answer, the client gets the error.
func (s *State) Delegate(w http.ResponseWriter, r *http.Request, id ID) error {
	rw, ok := responseOf(w)
	switch {
	case !ok || rw.state != s.rt():
		return errors.New("dohost: Delegate needs the ResponseWriter of the object's OnHTTP handler")
	case rw.status != 0 || rw.socket != nil || rw.next != nil:
		return errors.New("dohost: Delegate was called after the response had begun")
	}
	if err := alive(r.Context(), s.rt()); err != nil {
		return err
	}
	rw.next = &delegation{id: id, own: r.Clone(r.Context())}
	return nil
}

// servedHop is the service of a request by one object.
type servedHop struct {
	w         http.ResponseWriter
	first     ID   // the object that the client requested
	delegated bool // by another object, whose handler has run
}

// fail answers the request with an error.
func (p *servedHop) fail(h *Host, err error) {
	if p.delegated {
		err = afterDelegation(p.first, err)
	}
	h.WriteError(p.w, err)
}

// afterDelegation returns an error of a later object as one of the request to the first object, whose handler has run:
// a repetition would run it again. The error does not name the later object, which may be private.
func afterDelegation(first ID, err error) error {
	e := errorOf(err)
	if e == nil {
		return err
	}
	outcome := e.Outcome
	if outcome == OutcomeNotRun {
		outcome = OutcomeUnknown
	}
	return &Error{Op: e.Op, ID: first, Err: e.Err, Outcome: outcome}
}
