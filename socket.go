package dohost

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/dohost/dohost/internal/errkind"
	"github.com/dohost/dohost/internal/seal"
	"github.com/dohost/dohost/internal/socket"
	"github.com/dohost/dohost/runtime"
)

// Limits of WebSockets, as workerd has them (io/hibernation-manager.c++, api/web-socket.c++).
const (
	MaxSockets      = socket.MaxSockets // of an object
	MaxTags         = 10                // of a socket
	MaxTag          = 256               // bytes
	MaxAttachment   = 16 << 10          // bytes
	MaxAutoResponse = 2048              // bytes, of the request and of the response
	maxReason       = 123               // bytes, of a closing frame

	MaxSocketTimeout = 7 * 24 * time.Hour // of a handler
)

// errSocketClosed reports that nothing more can be sent: the object has closed the socket, or the client has left.
var errSocketClosed = errkind.New(errkind.ErrClosed, "the socket is closed")

var errNotUTF8 = errors.New("dohost: the text frame is not valid UTF-8")

// Socket is a client's WebSocket, which belongs to an object. It outlives an incarnation that ends
// because it is idle or because memory is short: the object leaves memory, but the connection
// stays, with its tags and its attachment, and the next message wakes the object. Every other end
// closes the object's sockets: see [CloseRestart].
//
// Its methods may be called from any goroutine; the methods that take a context need the context
// of an event of the object.
type Socket struct{ c *socket.Conn }

// Frame is one message to or from a client. The host receives at most [Options].MaxFrame
// bytes in one.
type Frame = socket.Frame

// Closing is how a socket has ended.
type Closing = socket.Closing

// SocketHandlers are a class's handlers of WebSocket events. Each runs as an event of the object, and wakes it. An
// error of a handler does not close the socket.
type SocketHandlers[O any] struct {
	// Message handles a frame. The next frame of the same socket is delivered when the handler has returned or has
	// given up the turn for the first time. Frames of other sockets may be delivered in between. Nil is an error of
	// [Open].
	Message func(o *O, ctx context.Context, s *Socket, f Frame) error
	// Closed is called once, after the last frame. Nil does nothing.
	Closed func(o *O, ctx context.Context, s *Socket, c Closing) error
	// Timeout is how long a handler may take, including its Awaits. A handler that takes longer ends
	// the incarnation, and with it the object's sockets (CloseRestart). Zero means no bound; negative,
	// or more than MaxSocketTimeout, is an error of [Open].
	Timeout time.Duration
	// Origins are the origins of pages that may connect, in addition to the server's own and
	// to the host's: see [Options]. The host refuses a handshake of any other page before it
	// wakes the object. A malformed pattern is an error of [Open].
	Origins []string
	// Durable makes the sockets outlive the object's incarnation and its host, if an edge has the connections of the clients, as in a
	// cluster of several cells: frames in both directions arrive in order and once, also after a take-over. Each received frame, and
	// each event that sends frames, then costs a record; Send, Broadcast, Close and SetAttachment need the turn, a frame has at most
	// 1 MiB, and SetAutoResponse has no effect. Without an edge, and for requests that another object has delegated, the sockets are
	// ordinary ones.
	Durable bool
}

// Codes that the host closes an object's sockets with.
const (
	CloseNormal  = 1000
	CloseFailed  = socket.Failed  // a message could not be delivered
	CloseRestart = socket.Restart // the incarnation was ended, or the host
	CloseBusy    = socket.Busy    // too much waits for the object, or for the client
)

// bind adds the handlers to a class.
func (h *SocketHandlers[O]) bind(c *Class) {
	if h.Message == nil {
		c.addError("OnSocket without a Message handler")
	}
	if h.Timeout < 0 || h.Timeout > MaxSocketTimeout {
		c.addError("OnSocket with a Timeout of %v: want 0 to %v", h.Timeout, MaxSocketTimeout)
	}
	for _, pattern := range h.Origins {
		if err := socket.CheckOrigin(pattern); err != nil {
			c.addError("OnSocket with the origin %q: %w", pattern, err)
		}
	}
	message, closed := h.Message, h.Closed
	c.sockets = &socket.Handlers{
		Limit:   h.Timeout,
		Durable: h.Durable,
		Origins: slices.Clone(h.Origins),
		Message: func(ctx context.Context, instance any, sc *socket.Conn, f Frame) error {
			o, err := instanceOf[O](instance)
			if err != nil {
				return err
			}
			s := &Socket{sc}
			return message(o, carryAccess(ctx, s.access()), s, f)
		},
		Closed: func(ctx context.Context, instance any, sc *socket.Conn, how Closing) error {
			o, err := instanceOf[O](instance)
			if err != nil || closed == nil {
				return err
			}
			s := &Socket{sc}
			return closed(o, carryAccess(ctx, s.access()), s, how)
		},
	}
}

// AcceptOptions tunes Accept. Nil, and the zero value, mean the defaults.
type AcceptOptions struct {
	// Tags are labels of the socket for [State.Sockets]: at most MaxTags, each of 1 to MaxTag bytes. They do not
	// change.
	Tags []string
	// Attachment is data that the socket keeps for the object: see [Socket.SetAttachment].
	Attachment []byte
}

// Accept turns the request of an OnHTTP handler into a WebSocket. The object can use the socket immediately, and
// its frames queue. The client gets its response when the handler has returned and its writes are durable; if
// these writes are lost, the client gets no WebSocket. The handler must write nothing to w.
//
// Errors: a [*LimitError], [ErrNotFound] for a class without OnSocket, [ErrMisuse], [ErrFenced], and one for a response
// that has begun or a request that is not for a WebSocket. After an error the handler still answers the request. A
// handshake that is malformed, or of a page that may not connect, does not reach the handler.
func (s *State) Accept(w http.ResponseWriter, r *http.Request, o *AcceptOptions) (*Socket, error) {
	rw, ok := responseOf(w)
	switch {
	case !ok || rw.state != s.rt():
		return nil, errors.New("dohost: Accept needs the ResponseWriter of the object's OnHTTP handler")
	case rw.status != 0 || rw.socket != nil || rw.next != nil:
		return nil, errors.New("dohost: Accept was called after the response had begun")
	case rw.handlers == nil:
		return nil, fmt.Errorf("%w: %q", errNoSocketHandler, s.ID().Class)
	}
	if o == nil {
		o = &AcceptOptions{}
	}
	if err := o.check(); err != nil {
		return nil, err
	}
	host := s.host()
	origins := host.originsOf(rw.handlers)
	if refused := socket.CheckHandshake(r, origins); refused != nil {
		return nil, refused
	}
	so := socket.Options{Tags: o.Tags, Attachment: o.Attachment, Origins: origins, Access: rw.access}
	if name, relayed := r.Context().Value(relayKey{}).(RelayedSocket); relayed && rw.handlers.Durable {
		return s.acceptDurable(rw, r, name, &so)
	}
	c, err := host.sockets.Accept(s.ID(), rw.handlers, &so)
	if err != nil {
		return nil, err
	}
	// An end of the incarnation that did not find the socket among the object's is noticed here.
	if err = alive(r.Context(), s.rt()); err == nil {
		err = rw.out.accept(c)
	}
	if err != nil {
		c.Remove()
		return nil, err
	}
	rw.socket = c
	return &Socket{c}, nil
}

// originsOf returns the origins of pages that may connect to a class.
func (h *Host) originsOf(c *socket.Handlers) []string { return slices.Concat(h.origins, c.Origins) }

// Sockets returns the object's sockets that are open, or will be open when the client gets its response, in the
// order of their acceptance. With a tag it returns only the sockets that have the tag.
func (s *State) Sockets(tag string) []*Socket {
	cs := s.sockets().Of(s.ID(), tag)
	all, each := make([]*Socket, len(cs)), make([]Socket, len(cs))
	for i, c := range cs {
		each[i].c = c
		all[i] = &each[i]
	}
	return all
}

// SetAutoResponse makes the host answer text frames of the object's sockets that equal request with response,
// without notifying or waking the object. An empty request ends the automatic answers. SetAutoResponse takes effect
// when all earlier writes of the object are durable, and ends with the incarnation, unless the host evicts the
// incarnation for being idle or to save memory.
//
// Errors: a [*LimitError], [ErrMisuse], [ErrFenced].
func (s *State) SetAutoResponse(ctx context.Context, request, response string) error {
	if n := max(len(request), len(response)); n > MaxAutoResponse {
		return &LimitError{Subject: "automatic response", Size: n, Limit: MaxAutoResponse}
	}
	return s.rt().EmitOutput(ctx, 0, func(err error) {
		if err == nil {
			s.sockets().SetAutoResponse(s.ID(), request, response)
		}
	})
}

// alive returns an error if the incarnation may not perform operations that take effect without a commit.
func alive(ctx context.Context, st *runtime.State) error {
	return st.EmitOutput(ctx, 0, func(error) {})
}

// errNoSocketHandler reports that the object's class has no OnSocket.
var errNoSocketHandler = errkind.New(errkind.ErrNotFound, "the class has no socket handler")

func (o *AcceptOptions) check() error {
	for _, tag := range o.Tags {
		if len(tag) == 0 || len(tag) > MaxTag {
			return &LimitError{Subject: "tag", Size: len(tag), Limit: MaxTag}
		}
	}
	if len(o.Tags) > MaxTags { // counted before duplicates are dropped, as in workerd
		return &LimitError{Subject: "socket", Size: len(o.Tags), Limit: MaxTags, Unit: "tags"}
	}
	if len(o.Attachment) > MaxAttachment {
		return &LimitError{Subject: "attachment", Size: len(o.Attachment), Limit: MaxAttachment}
	}
	return nil
}

// responseOf finds the handler's writer under the writers that wrap it.
func responseOf(w http.ResponseWriter) (*responseWriter, bool) {
	for {
		switch t := w.(type) {
		case *responseWriter:
			return t, true
		case interface{ Unwrap() http.ResponseWriter }:
			w = t.Unwrap()
		default:
			return nil, false
		}
	}
}

// Send sends a frame when all earlier writes of the object are durable, in order with the object's other outputs. If
// the event's writes are lost, the frame is not sent. Send does not wait for the client. The host closes a socket
// with CloseBusy if the client reads nothing for 10 s while more than 1 MiB waits for it, or if more than 32 MiB
// waits. If more waits for all clients than [Options].SendBudget allows, the host closes the sockets with the most
// waiting bytes.
//
// Errors: [ErrClosed], [ErrMisuse], [ErrFenced]; a text that is not UTF-8.
func (s *Socket) Send(ctx context.Context, f Frame) error {
	if f.Text && !utf8.Valid(f.Data) {
		return errNotUTF8
	}
	st, err := s.sender(ctx)
	if err != nil {
		return err
	}
	if d := relayedOf(s.c); d != nil {
		return sendDurable(ctx, stateOf(st), []*relayed{d}, f)
	}
	packed := socket.Pack(f)
	return st.EmitOutput(ctx, len(packed), func(err error) {
		if err == nil {
			s.c.Push(packed)
		}
	})
}

// Close sends a closing frame after all frames sent before, and completes the handshake. The code is one that RFC
// 6455 lets an endpoint send, or 3000 to 4999, and the reason at most 123 bytes.
//
// Errors: as Send's, and one for a code or reason that cannot be sent.
func (s *Socket) Close(ctx context.Context, code int, reason string) error {
	if !sendable(code) {
		return fmt.Errorf("dohost: close code %d: want 1000 to 1003, 1007 to 1014, or 3000 to 4999", code)
	}
	if !utf8.ValidString(reason) {
		return errors.New("dohost: the close reason is not valid UTF-8")
	}
	if len(reason) > maxReason {
		return &LimitError{Subject: "close reason", Size: len(reason), Limit: maxReason}
	}
	st, err := s.sender(ctx)
	if err != nil {
		return err
	}
	if d := relayedOf(s.c); d != nil {
		return d.closeDurable(ctx, stateOf(st), Closing{Code: code, Reason: reason})
	}
	s.c.MuteSends(true)
	err = st.EmitOutput(ctx, 0, func(err error) {
		if err == nil {
			s.c.Close(Closing{Code: code, Reason: reason})
		} else {
			s.c.MuteSends(false) // the Close was rolled back or lost
		}
	})
	if err != nil {
		s.c.MuteSends(false)
	}
	return err
}

func sendable(code int) bool {
	return code >= CloseNormal && code <= 1003 || code >= 1007 && code <= 1014 || code >= 3000 && code <= 4999
}

// sender returns the State of the object, for an event that sends something.
func (s *Socket) sender(ctx context.Context) (*runtime.State, error) {
	st := runtime.StateOf(ctx, seal.New())
	switch {
	case st == nil || st.ID() != s.c.ID():
		return nil, runtime.ErrNoTurn
	case s.c.Muted():
		return nil, errSocketClosed
	}
	return st, nil
}

// Tags returns the socket's tags.
func (s *Socket) Tags() []string { return s.c.Tags() }

// Access returns the access that Authorize granted to the socket's client, for the whole
// time of the connection. ok is false if the class has no Authorize function.
func (s *Socket) Access() (a Access, ok bool) {
	if p := s.access(); p != nil {
		return *p, true
	}
	return Access{}, false
}

func (s *Socket) access() *Access {
	p, _ := s.c.Access().(*Access)
	return p
}

// Attachment returns the data of the last SetAttachment.
func (s *Socket) Attachment() []byte { return s.c.Attachment() }

// SetAttachment keeps up to MaxAttachment bytes with the socket while it is connected, through evictions of the
// object. It takes effect immediately.
//
// Errors: a [*LimitError], [ErrClosed], [ErrMisuse], [ErrFenced].
func (s *Socket) SetAttachment(ctx context.Context, data []byte) error {
	if len(data) > MaxAttachment {
		return &LimitError{Subject: "attachment", Size: len(data), Limit: MaxAttachment}
	}
	st, err := s.sender(ctx)
	if err != nil {
		return err
	}
	if d := relayedOf(s.c); d != nil {
		return d.attachDurable(ctx, stateOf(st), data)
	}
	if err := alive(ctx, st); err != nil {
		return err
	}
	s.c.Attach(data)
	return nil
}

// AutoResponded returns the time of the last answer by [State.SetAutoResponse]; zero if there was none.
func (s *Socket) AutoResponded() time.Time { return s.c.AutoResponded() }
