package dohost

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/dohost/dohost/internal/seal"
	"github.com/dohost/dohost/internal/socket"
	"github.com/dohost/dohost/runtime"
)

// ServeObject delivers an HTTP request to the object's OnHTTP handler and writes its response to w. The handler
// runs as an event of the object; the calling goroutine writes the released parts of the response. A part reaches the
// client only when all earlier writes of the object are durable.
//
// The handler's Flush, and the Flush of [http.ResponseController], releases a part. It is an [Await] that also waits while
// more than 256 KiB is unsent to a slow client. [Options].SendBudget bounds the unsent bytes of all clients. Reading
// the request's body gives up the turn as well. At most 16 MiB of a response may be unflushed; the rest is released
// when the handler returns. A handler can neither hijack the connection nor send informational responses. If it has
// accepted a WebSocket ([State.Accept]), the host owns the connection when ServeObject returns. If it has delegated the
// request ([State.Delegate]), the other object answers.
//
// The host first calls the Authorize function of the class, if it has one, and the functions
// of the objects that the request is passed on to. A refused request wakes no object.
//
// If the object cannot answer, the client gets an [ErrorBody]. If a part of the response has left already,
// ServeObject panics with [http.ErrAbortHandler], so that the server cuts the connection and the client notices. If
// the client disconnects, a queued request is withdrawn; a handler that has started continues, and its Flush
// returns an error.
func (h *Host) ServeObject(w http.ResponseWriter, r *http.Request, id ID) {
	if err := h.reachable(id); err != nil {
		h.WriteError(w, &Error{Op: opHTTP, ID: id, Err: err, Outcome: OutcomeNotRun})
		return
	}
	if err := h.serves(id); err != nil {
		h.WriteError(w, &Error{Op: opHTTP, ID: id, Err: err, Outcome: OutcomeNotRun})
		return
	}
	if refused := h.checkHandshake(r, id); refused != nil {
		refused.Answer(w)
		return
	}
	hops, err := h.authorize(r, id, h.kindOf(r, id), "", nil)
	if err != nil {
		h.refuse(w, r, id.Class, err)
		return
	}
	first := id
	for n := range maxDelegations {
		access := hops[0].access
		next := h.serveObject(&servedHop{w: w, first: first, delegated: n > 0}, r, id, access)
		if next == nil {
			return
		}
		from := id
		r, id = withoutRelay(next.request(r)), next.id // an edge knows the first object only
		if hops = hops[1:]; len(hops) > 0 && hops[0].is(id, r.URL) {
			continue
		}
		// The object has delegated to another object than the request's path names.
		if hops, err = h.authorize(r, id, h.kindOf(r, id), "", access); err != nil {
			h.refuse(w, r, from.Class, afterDelegation(first, err)) // the handshake for this class was checked
			return
		}
	}
	h.WriteError(w, &Error{Op: opHTTP, ID: first, Err: errTooManyDelegations})
}

var errTooManyDelegations = &PublicError{
	Message: fmt.Sprintf("dohost: too many delegations: the limit is %d objects per request", maxDelegations), Code: "too_many_delegations",
}

// reachable returns an error if callers from outside may not reach an object. An object is private if its Private
// function panics, unless the panic aborts the request.
func (h *Host) reachable(id ID) error {
	c, bound := h.classes[id.Class]
	if !bound || c.private == nil {
		return nil
	}
	return h.ask(id, errPrivate, func() error {
		if c.private(id.Name) {
			return errPrivate
		}
		return nil
	})
}

// serves returns an error for an object that no request can reach.
func (h *Host) serves(id ID) error {
	if err := id.Validate(); err != nil {
		return err
	}
	c, bound := h.classes[id.Class]
	switch {
	case !bound:
		return fmt.Errorf("%w: %q", runtime.ErrNoClass, id.Class)
	case c.http == nil:
		return fmt.Errorf("%w: %q", errNoHTTPHandler, id.Class)
	}
	return nil
}

// checkHandshake returns an error for a request for a WebSocket that the object could not
// accept, or that comes from a page that may not connect. It is called before any code of
// the class runs: such a request has no effect.
func (h *Host) checkHandshake(r *http.Request, id ID) *socket.HandshakeError {
	switch c := h.classes[id.Class]; {
	case !socket.IsUpgrade(r):
	case c.sockets != nil:
		return socket.CheckHandshake(r, h.originsOf(c.sockets))
	case len(c.subs.Classes) == 0: // the handler may answer the request, but not for any page
		if refused := socket.CheckHandshake(r, h.origins); refused != nil && refused.Status == http.StatusForbidden {
			return refused
		}
	}
	return nil
}

// serveObject serves the request with an access, which may be nil, unless the object passes the
// request on.
func (h *Host) serveObject(p *servedHop, r *http.Request, id ID, access *Access) (next *delegation) {
	if err := h.serves(id); err != nil {
		p.fail(h, &Error{Op: opHTTP, ID: id, Err: err, Outcome: OutcomeNotRun})
		return nil
	}
	if refused := h.checkHandshake(r, id); refused != nil {
		refused.Answer(p.w)
		return nil
	}
	c := h.classes[id.Class]
	share, err := h.shareOf(r, id)
	if err != nil {
		p.fail(h, &Error{Op: opHTTP, ID: id, Err: err, Outcome: OutcomeNotRun})
		return nil
	}
	defer share.requestEnded()
	body := &requestBody{source: r, share: share}
	s := serving{host: h, hop: p, rc: http.NewResponseController(p.w), body: body}
	s.out = newResponseQueue(h.sockets, s.rc)
	own := r.Clone(r.Context()) // the handler may outlive this call
	run := runtime.Func(func(ctx context.Context, instance any) error {
		return c.serveHTTP(carryAccess(ctx, access), instance, own, body, s.out)
	})
	sent, err := h.rt.Send(r.Context(), id, runtime.Call{Op: opHTTP, Handler: run})
	if err != nil {
		p.fail(h, err)
		return nil
	}
	defer s.leave(r.Context())
	s.serve(r.Context(), sent)
	if s.socket != nil {
		s.opened = true
		s.socket.Open(p.w, r)
	}
	return s.next
}

// opHTTP names the operation in errors, logs and metrics.
const opHTTP = "http"

// serveHTTP runs the class's handler on the event's own goroutine.
func (c *Class) serveHTTP(ctx context.Context, instance any, r *http.Request, body *requestBody, out *responseQueue) (err error) {
	body.share.begin()
	defer body.share.release()
	own := &requestContext{Context: ctx, values: r.Context()}
	ctx = own
	r = r.WithContext(ctx)
	if r.Body != nil && r.Body != http.NoBody {
		body.ctx, body.own, body.from = ctx, r, r.Body
		r.Body = body
	}
	w := &responseWriter{ctx: ctx, state: runtime.StateOf(ctx, seal.New()), out: out, header: http.Header{}, handlers: c.sockets}
	own.response = w
	w.access, _ = ctx.Value(accessKey{}).(*Access)
	defer func() {
		// This panic is a way to return: it cuts the connection, and is not an error.
		if p := recover(); p == http.ErrAbortHandler {
			err = http.ErrAbortHandler
		} else if p != nil {
			panic(p)
		}
	}()
	body.handle(func() { c.http(instance, w, r) })
	return w.finish()
}

// serving is the request's side of a ServeObject, used by its goroutine alone.
type serving struct {
	host   *Host
	hop    *servedHop
	rc     *http.ResponseController
	out    *responseQueue
	body   *requestBody
	begun  bool         // the header has been written
	duplex bool         // the server leaves the body alone
	socket *socket.Conn // that the object has accepted, to be opened
	opened bool         // Open was called, which ends the socket if it fails
	next   *delegation  // the target, if the object has delegated the request
}

// serve writes parts of the response until the event has answered.
func (s *serving) serve(ctx context.Context, sent *runtime.Sent) {
	for {
		select {
		case <-s.out.ready:
			if err := s.write(); err != nil {
				s.out.close(err)
				_ = sent.Abandon(ctx) // the client has disconnected
				panic(http.ErrAbortHandler)
			}
		case err := <-sent.Done():
			s.finish(err)
			return
		case <-ctx.Done():
			err := sent.Abandon(ctx)
			if err == nil { // the answer came at the same moment
				s.finish(nil)
				return
			}
			s.out.close(context.Cause(ctx))
			s.fail(err)
			return
		}
	}
}

// finish writes the parts that are left when the event has ended.
func (s *serving) finish(err error) {
	failed := s.write()
	switch {
	case err != nil:
		s.out.close(err) // code of an ended incarnation may still write
		s.fail(err)
	case failed != nil:
		panic(http.ErrAbortHandler)
	}
}

// fail sends the client an error, or cuts a response that has begun.
func (s *serving) fail(err error) {
	if s.begun || errors.Is(err, http.ErrAbortHandler) {
		panic(http.ErrAbortHandler)
	}
	if s.body.reading.Load() {
		s.hop.w.Header().Set("Connection", "close")
	}
	s.hop.fail(s.host, err)
}

// write writes the pieces that may leave.
func (s *serving) write() error {
	pieces := s.out.take()
	for i, p := range pieces {
		pieces[i] = piece{} // the collector frees a body that was written
		err := s.writePiece(p)
		s.out.sent(p)
		if err != nil {
			return err
		}
	}
	return s.out.cutBy()
}

func (s *serving) writePiece(p piece) error {
	switch {
	case p.socket != nil:
		s.begun, s.socket = true, p.socket
		return nil
	case p.next != nil:
		s.next = p.next
		return nil
	case !s.begun:
		s.begin(p)
	case p.last:
		maps.Copy(s.hop.w.Header(), p.header) // p.header may contain trailers
	}
	if err := s.out.write(s.hop.w, p.body); err != nil {
		return err
	}
	if p.last {
		return nil // the server flushes
	}
	if err := s.rc.Flush(); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return err
	}
	return nil
}

// begin writes the header of p.
func (s *serving) begin(p piece) {
	s.begun = true
	if r := s.body.source; !p.last && r.ProtoMajor == 1 && r.Body != nil && r.Body != http.NoBody {
		// The object may answer before it has read everything. A server that does not support
		// that discards the rest of the body first.
		s.duplex = s.rc.EnableFullDuplex() == nil
	}
	maps.Copy(s.hop.w.Header(), p.header)
	s.hop.w.Header().Del(RelayHeader) // it is the host's
	if p.last && bodyAllowed(p.status) && p.header.Get("Content-Length") == "" && p.header.Get("Trailer") == "" {
		s.hop.w.Header().Set("Content-Length", strconv.Itoa(len(p.body)))
	}
	s.hop.w.WriteHeader(p.status)
}

// leave detaches the event from the request, since the event may continue. A pending read of the body would block the
// server, which closes the body. It panics if the host has cut the response: the connection has a write deadline then.
func (s *serving) leave(ctx context.Context) {
	cut := s.out.end()
	if c := s.out.left(); c != nil && !s.opened {
		c.EndUnopened(ctx)
	}
	switch {
	case s.body.reading.Load():
		_ = s.rc.SetReadDeadline(time.Unix(1, 0)) // not every server has one
	case s.duplex && cut == nil:
		s.drain()
	}
	if cut != nil {
		panic(http.ErrAbortHandler)
	}
}

// maxDrained bounds the rest of a body that the server reads after the response.
const maxDrained = 16 << 20

// drain reads the rest of the body. If the handler was in full duplex, net/http panics when it finds the end of the
// body after the handler has returned, since it would read from the connection twice; if it does not find the end, it
// takes the rest for the next request. So drain cuts the connection of a client that sends too much.
func (s *serving) drain() {
	if _, err := io.CopyN(io.Discard, s.body.source.Body, maxDrained); err != io.EOF {
		panic(http.ErrAbortHandler)
	}
}

// requestBody is a request's body as a handler reads it: without the turn. Another goroutine may read the body while the
// handler is inside an Await, and after the handler has returned. These reads do not use the turn.
type requestBody struct {
	source   *http.Request // as the server knows it; it gets the trailers
	share    *bodyShare    // of the budget
	reading  atomic.Bool
	returned atomic.Bool // the handler has returned; the event may still have the turn

	// Set and used by the event's goroutine.
	ctx  context.Context
	own  *http.Request
	from io.ReadCloser
}

// handle calls the handler.
func (b *requestBody) handle(handler func()) {
	defer b.returned.Store(true)
	handler()
}

// Read gives up the turn while it waits for the client. Inside the fn of an Await, and after
// the handler has returned, there is no turn to give up.
//
// Errors: the errors of the client, of bodyShare.grow, and of runtime.Wait: ErrNoTurn if the handler returns during a Read
// that has given up the turn.
func (b *requestBody) Read(p []byte) (n int, err error) {
	began := false
	read := func(context.Context) error {
		began = true
		b.reading.Store(true)
		defer b.reading.Store(false)
		n, err = b.from.Read(p)
		err = b.share.grow(n, err)
		return nil
	}
	werr := runtime.ErrNoTurn
	if !b.returned.Load() {
		werr = runtime.Wait(b.ctx, read)
	}
	if !began && errors.Is(werr, runtime.ErrNoTurn) {
		werr = read(b.ctx)
	}
	if werr != nil {
		return n, werr
	}
	if err == io.EOF {
		b.own.Trailer = b.source.Trailer.Clone()
	}
	return n, err
}

// Close closes the body.
func (b *requestBody) Close() error { return b.from.Close() }
