package agent

import (
	"context"
	"encoding/json"
	"iter"
	"slices"

	"github.com/dohost/dohost"
)

// Conn is a client's connection to an agent. Like a [dohost.Socket] it outlives the agent's time in memory. Its
// methods may be called from any goroutine, SetState and SetReadonly one at a time; methods with a context need
// one of an event of the agent.
type Conn struct{ s *dohost.Socket }

// The codes that the agent itself closes connections with.
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
// Errors: the errors of [dohost.Socket.SetAttachment], and one for a value that is not JSON.
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
// of SetReadonly, or because the connection's Access has no more than [dohost.RightsReadOnly]
// rights.
func (c *Conn) Readonly() bool {
	a, ok := c.s.Access()
	return c.flags()&readonly != 0 || ok && a.Rights != dohost.RightsReadWrite
}

// SetReadonly makes the agent refuse changes of its state, and of a conversation, that come from the connection:
// changes that the client sends, and changes by the methods that it calls. It does not refuse other effects of
// the methods. SetReadonly cannot lift a restriction of the connection's Access.
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
func (a *promoted) Connections(tag string) iter.Seq[*Conn] { return a.core.clients.connections(tag) }

// Broadcast sends a frame to all connections except some.
//
// Errors: the errors of [dohost.State.Broadcast].
func (a *promoted) Broadcast(ctx context.Context, f dohost.Frame, except ...*Conn) error {
	return a.core.clients.broadcast(ctx, f, func(to *Conn) bool { return !slices.ContainsFunc(except, to.Is) })
}

// BroadcastTo sends a frame to some connections.
//
// Errors: the errors of [dohost.State.Broadcast].
func (a *promoted) BroadcastTo(ctx context.Context, f dohost.Frame, to []*Conn) error {
	sockets := make([]*dohost.Socket, len(to))
	for i, conn := range to {
		sockets[i] = conn.s
	}
	return a.core.obj.Broadcast(ctx, f, sockets)
}

// Is reports whether c and o are the same connection. Any goroutine.
func (c *Conn) Is(o *Conn) bool { return o != nil && *c.s == *o.s }

func (o *ConnOptions) flags() (f flags) {
	if o.Readonly {
		f |= readonly
	}
	if o.NoProtocol {
		f |= noProtocol
	}
	return f
}
