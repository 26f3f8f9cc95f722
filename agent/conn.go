package agent

import (
	"context"
	"encoding/json"
	"errors"
	"iter"
	"net/http"
	"reflect"
	"slices"

	"github.com/oklog/ulid/v2"

	"github.com/dohost/dohost"
)

// Conn is a client's connection to an agent. Like a [dohost.Socket] it outlives the agent's time in memory. Its
// methods may be called from any goroutine, SetState and SetReadonly one at a time; methods with a context need
// one of an event of the agent.
type Conn struct{ s *dohost.Socket }

// The codes of connections that the agent closes by itself.
const (
	CloseFailed   = dohost.CloseFailed // OnConnect failed
	CloseReplaced = 4409               // a newer connection has the same id; the client does not reconnect
)

// flags are the first byte of an attachment; the connection's own state follows.
type flags byte

const (
	readonly flags = 1 << iota
	noProtocol
	refused // the agent ignores its frames
)

// ConnOptions are the properties of a new connection.
type ConnOptions struct {
	// Tags select the connection in [Agent.Connections], in addition to its id: at most nine, each
	// of 1 to 256 bytes. The client chooses the id, so it may equal a tag of another connection.
	Tags []string
	// State is the connection's own: see [Conn.SetState].
	State any
	// Readonly refuses its changes of the agent's state and of a conversation: see [Conn.SetReadonly].
	Readonly bool
	// NoProtocol withholds the frames of the protocol: identity, state and servers. The agent
	// still answers calls.
	NoProtocol bool
}

// currentKey is the context key of an event's connection.
type currentKey struct{}

// ConnFromContext returns the connection that sent the frame being handled, or nil.
func ConnFromContext(ctx context.Context) *Conn {
	c, _ := ctx.Value(currentKey{}).(*Conn)
	return c
}

// withConn makes c the current connection.
func withConn(ctx context.Context, c *Conn) context.Context {
	return context.WithValue(ctx, currentKey{}, c)
}

func (c *core) conn(s *dohost.Socket) *Conn { return &Conn{s} }

// ID returns the id that the client chose. The client keeps it when it connects again.
func (c *Conn) ID() string { return c.s.Tags()[0] }

// Tags returns the connection's tags. The first is its id.
func (c *Conn) Tags() []string { return c.s.Tags() }

// Send sends a frame: see [dohost.Socket.Send].
func (c *Conn) Send(ctx context.Context, f dohost.Frame) error { return c.s.Send(ctx, f) }

// Close closes the connection: see [dohost.Socket.Close].
func (c *Conn) Close(ctx context.Context, code int, reason string) error {
	return c.s.Close(ctx, code, reason)
}

// State decodes the value of [Conn.SetState] into v, and reports whether there is one.
func (c *Conn) State(v any) (bool, error) {
	a := c.s.Attachment()
	if len(a) < 2 {
		return false, nil
	}
	return true, json.Unmarshal(a[1:], v)
}

// SetState stores v, as JSON, with the connection for as long as the connection lasts. It takes effect
// immediately.
//
// Errors: those of [dohost.Socket.SetAttachment], and one for a value that is not JSON.
func (c *Conn) SetState(ctx context.Context, v any) error {
	raw, err := marshal(v)
	if err != nil {
		return err
	}
	return c.s.SetAttachment(ctx, append([]byte{byte(c.flags())}, raw...))
}

// Access returns the access that Authorize has granted to the client. ok is false if the class
// has no Authorize function.
func (c *Conn) Access() (a dohost.Access, ok bool) { return c.s.Access() }

// Readonly reports whether the agent refuses the connection's changes of its state and of a conversation: because
// of SetReadonly, or because the connection's Access has no more than [dohost.ReadOnly]
// rights.
func (c *Conn) Readonly() bool {
	a, ok := c.s.Access()
	return c.flags()&readonly != 0 || ok && a.Rights != dohost.ReadWrite
}

// SetReadonly makes the agent refuse changes of its state, and of a conversation, that come from the connection: changes
// that the client sends, and changes by the methods that it calls. Other effects of the methods are
// not refused. SetReadonly cannot lift a restriction of the connection's Access.
func (c *Conn) SetReadonly(ctx context.Context, on bool) error {
	f := c.flags() &^ readonly
	if on {
		f |= readonly
	}
	return c.setFlags(ctx, f)
}

func (c *Conn) setFlags(ctx context.Context, f flags) error {
	a := c.s.Attachment()
	if len(a) == 0 {
		a = []byte{0}
	}
	a[0] = byte(f)
	return c.s.SetAttachment(ctx, a)
}

// Protocol reports whether the connection gets the frames of the protocol.
func (c *Conn) Protocol() bool { return c.flags()&noProtocol == 0 }

func (c *Conn) flags() flags {
	if a := c.s.Attachment(); len(a) > 0 {
		return flags(a[0])
	}
	return 0
}

// Connections yields the agent's open connections, the oldest first; with a tag, only those that have it. The
// id is a tag.
func (a *promoted) Connections(tag string) iter.Seq[*Conn] { return a.core.connections(tag) }

func (c *core) connections(tag string) iter.Seq[*Conn] {
	return func(yield func(*Conn) bool) {
		for _, s := range c.obj.Sockets(tag) {
			if !yield(&Conn{s}) {
				return
			}
		}
	}
}

// Broadcast sends a frame to all connections but some.
//
// Errors: those of [dohost.State.Broadcast].
func (a *promoted) Broadcast(ctx context.Context, f dohost.Frame, except ...*Conn) error {
	return a.core.broadcast(ctx, f, func(to *Conn) bool { return !slices.ContainsFunc(except, to.Is) })
}

// BroadcastTo sends a frame to some connections.
//
// Errors: those of [dohost.State.Broadcast].
func (a *promoted) BroadcastTo(ctx context.Context, f dohost.Frame, to []*Conn) error {
	sockets := make([]*dohost.Socket, len(to))
	for i, conn := range to {
		sockets[i] = conn.s
	}
	return a.core.obj.Broadcast(ctx, f, sockets)
}

func (c *core) broadcast(ctx context.Context, f dohost.Frame, wanted func(*Conn) bool) error {
	to := slices.DeleteFunc(c.obj.Sockets(""), func(s *dohost.Socket) bool { return !wanted(&Conn{s}) })
	return c.obj.Broadcast(ctx, f, to)
}

// Is reports whether c and o are the same connection. Any goroutine.
func (c *Conn) Is(o *Conn) bool { return o != nil && *c.s == *o.s }

// serve answers the agent's HTTP requests.
func (c *core) serve(w http.ResponseWriter, r *http.Request) {
	switch {
	case c.forwardSub(w, r):
	case dohost.IsUpgrade(r):
		c.accept(w, r)
	case c.extendedRequest(w, r):
	case c.class.request != nil:
		c.class.request(c.self, w, r)
	default:
		http.Error(w, "Not implemented", http.StatusNotFound)
	}
}

// accept opens a connection for a request.
func (c *core) accept(w http.ResponseWriter, r *http.Request) {
	var o ConnOptions
	if c.class.accepted != nil {
		o = c.class.accepted(c.self, r)
	}
	conn, err := c.open(w, r, o)
	if err != nil {
		http.Error(w, c.errorText("connect", err), http.StatusBadRequest)
		return
	}
	ctx := withConn(r.Context(), conn)
	if err := c.handleConnect(ctx, conn, r); err != nil {
		c.refuse(ctx, conn, err)
	}
}

// open accepts the socket, in place of an older one of the same client.
func (c *core) open(w http.ResponseWriter, r *http.Request, options ConnOptions) (*Conn, error) {
	id := r.URL.Query().Get("_pk")
	older := c.socketsByID(id)
	if id == "" || slices.ContainsFunc(older, func(s *dohost.Socket) bool { return !sameCaller(s, r) }) {
		id, older = ulid.Make().String(), nil
	}
	attached := []byte{byte(options.flags())}
	if options.State != nil {
		raw, err := marshal(options.State)
		if err != nil {
			return nil, err
		}
		attached = append(attached, raw...)
	}
	s, err := c.obj.Accept(w, r, &dohost.AcceptOptions{Tags: append([]string{id}, options.Tags...), Attachment: attached})
	if err != nil {
		return nil, err
	}
	for _, o := range older {
		c.closeConn(r.Context(), &Conn{o}, CloseReplaced, "replaced by a newer connection of the same id")
	}
	return &Conn{s}, nil
}

// socketsByID returns the sockets of the connections with an id.
func (c *core) socketsByID(id string) []*dohost.Socket {
	return slices.DeleteFunc(c.obj.Sockets(id), func(s *dohost.Socket) bool { return id == "" || s.Tags()[0] != id })
}

// sameCaller reports whether a request has the identity of a connection. The client of another identity may know the id
// of the connection, and must not close it.
func sameCaller(s *dohost.Socket, r *http.Request) bool {
	before, _ := s.Access()
	now, _ := dohost.AccessFrom(r.Context())
	return reflect.DeepEqual(before.Identity, now.Identity)
}

// closeConn closes a connection that may be closed by now. The end of an incarnation closes all of them. If the
// code or reason is invalid, closeConn uses valid ones, so that the connection closes.
func (c *core) closeConn(ctx context.Context, conn *Conn, code int, reason string) {
	err := conn.Close(ctx, code, reason)
	if err == nil || errors.Is(err, dohost.ErrClosed) || ctx.Err() != nil {
		return
	}
	c.reportError(ctx, "close", err)
	if err := conn.Close(ctx, CloseFailed, "the agent gave no valid reason"); err != nil {
		c.reportError(ctx, "close", err)
	}
}

func (o *ConnOptions) flags() (f flags) {
	if o.Readonly {
		f |= readonly
	}
	if o.NoProtocol {
		f |= noProtocol
	}
	return f
}

// handleConnect sends the first frames of the protocol to a new connection and calls the user's hook.
func (c *core) handleConnect(ctx context.Context, conn *Conn, r *http.Request) error {
	if err := c.extendedConnect(ctx, conn); err != nil {
		return err
	}
	if conn.Protocol() {
		if err := c.sendInitialFrames(ctx, conn); err != nil {
			return err
		}
	}
	if c.class.connect == nil {
		return nil
	}
	return c.class.connect(c.self, ctx, conn, r)
}

// refuse sends the reason of a refusal to a client and closes its connection. The agent ignores the frames
// that the client has sent by then.
func (c *core) refuse(ctx context.Context, conn *Conn, why error) {
	if err := conn.setFlags(ctx, conn.flags()|refused); err != nil {
		return // the incarnation has ended
	}
	if e, ok := errors.AsType[*dohost.CloseError](why); ok && e != nil {
		c.closeConn(ctx, conn, e.Code, e.Reason)
		return
	}
	c.reportError(ctx, "connect", why)
	if err := conn.send(ctx, errorFrame{Error: c.errorText("connect", why)}); err == nil {
		c.closeConn(ctx, conn, CloseFailed, "the agent refused the connection")
	}
}

// disconnected calls the hooks for a closed connection.
func (c *core) disconnected(ctx context.Context, conn *Conn, how dohost.Closing) error {
	c.extendedClose(withConn(ctx, conn), conn)
	if c.class.closed == nil || conn.flags()&refused != 0 {
		return nil
	}
	return c.class.closed(c.self, withConn(ctx, conn), conn, how)
}
