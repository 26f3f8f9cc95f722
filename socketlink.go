package dohost

import (
	"context"
	"net/http"
	"time"

	"github.com/dohost/dohost/internal/errkind"
	"github.com/dohost/dohost/internal/socket"
	"github.com/dohost/dohost/runtime"
)

// A durable socket ([SocketHandlers].Durable) belongs to an object, and its client's connection belongs to an edge: a process that
// may differ from the process of the object's host, as a node of a cluster may. The edge survives the host, so the connection does,
// too. The rest survives in rows of the object:
//
//	dohost.sockets          a socket: its edge, tags, attachment, and the number of its last input that the object has handled
//	dohost.sockets.outputs  a frame or a closing frame that an edge may not have received yet
//
// The edge numbers the inputs of a socket (frames and the end) from 1 on, and keeps each until the object has acknowledged it. The
// number of an input is written in the first batch of the input's event, so it is durable if and only if the effects of the event up
// to its first Await are. An output is a row of the batch of the event that sends it, with a position that grows. An edge has one link
// to an object, for all of its sockets.
//
//	edge                                        host of the object
//	LinkSockets: its sockets, the position      rows after the position are sent again; sockets that only
//	of its last output                          one side has end
//	Deliver 1, 2, 3                             an event each; repeated numbers are acknowledged and dropped
//	                   <- Received 2            durable
//	                   <- output, position      durable
//	Acknowledge position                        rows up to it are deleted with the next write of the object
//
// Invariants:
//
//   - An input is handled in order and at most once. It is lost only with its edge or its socket: the object ends the socket, or the edge ends it
//     after repeated deliveries without an acknowledgment. An event that ends before its first batch is durable
//     has no effect, and its input is delivered again.
//   - An output reaches the edge in the order of release, once, and only after its batch is durable. It is lost only with the edge or the socket.
//   - A socket without a link ends after linkTimeout, with Closed.

// RelayHeader is the header of the response to a request with [RelayRequest]: the object has accepted a durable socket, and its row is
// durable. The response has status 200 and no body. The edge then answers the client's handshake.
const RelayHeader = socket.RelayHeader

// RelayedSocket names a durable socket at the edge that has the connection of its client.
type RelayedSocket struct {
	Edge   string // names the process: 1 to 64 bytes, never used for another one
	Number uint64 // of the socket at the edge, from 1 on, never used twice
}

// LinkOptions are the options of [Host.LinkSockets].
type LinkOptions struct {
	// Edge is the name of the edge: see [RelayedSocket]. Required.
	Edge string
	// Sockets are all sockets of the object that the edge has, including handshakes that are not answered yet; at most [MaxSockets]. The
	// object's sockets of the edge that are missing here, and have a number below Next, end.
	Sockets []LinkedSocket
	Next    uint64 // the number of the next socket of the edge
	// After is the position of the last output that the edge has received; empty if there was none.
	After string
	// Send gets the outputs for the edge, one at a time. It must not block, and not call the link. It may be called before LinkSockets has
	// returned. Required.
	Send func(*LinkOutput)
}

// LinkedSocket is a socket of an edge.
type LinkedSocket struct {
	Number uint64
	// Opening reports that the client's handshake has not been answered yet: then the object need not have the socket.
	Opening bool
	// Handshake is the client's request. The Authorize function of the class decides about it again; without it the socket is refused.
	Handshake *http.Request
}

// LinkOutput is an output to an edge.
type LinkOutput = socket.LinkOutput

// LinkInput is an input of a socket.
type LinkInput = socket.LinkInput

// maxEdge bounds the name of an edge.
const maxEdge = 64

type relayKey struct{}

// RelayRequest returns a shallow copy of a client's request for a WebSocket. If the object accepts a durable socket for it, the host writes a
// response with [RelayHeader] instead of answering the handshake. Only a trusted edge may name a socket.
func RelayRequest(r *http.Request, s RelayedSocket) *http.Request {
	return r.WithContext(context.WithValue(r.Context(), relayKey{}, s))
}

// withoutRelay makes a request for an ordinary socket.
func withoutRelay(r *http.Request) *http.Request {
	if r.Context().Value(relayKey{}) == nil {
		return r
	}
	return r.WithContext(context.WithValue(r.Context(), relayKey{}, nil))
}

// SocketLink connects an object to the sockets of an edge. Its methods may be called from any goroutine.
type SocketLink struct {
	link  *socket.Link
	relay *relay // set before the link is used
	edge  string
}

// LinkSockets makes the link of an edge to an object. It waits for the object, which it wakes, and replaces the
// earlier link of the edge. If the class has an Authorize function, it decides about each socket again, at most 64 at a time, and a refused
// socket ends. A socket without a decision after 10 s for all of them ends, too.
//
// Errors: [ErrNotFound] for a class without durable sockets, [ErrMisuse] for options out of range, and the errors of a call of the object.
func (h *Host) LinkSockets(ctx context.Context, id ID, o *LinkOptions) (*SocketLink, error) {
	if !h.classes[id.Class].DurableSockets() {
		return nil, errkind.About("LinkSockets of "+id.String(), errNoSocketHandler)
	}
	if o.Edge == "" || len(o.Edge) > maxEdge || o.Send == nil || len(o.Sockets) > MaxSockets {
		return nil, errkind.New(errkind.ErrMisuse, "LinkSockets: want an edge of 1 to 64 bytes, a Send function, and at most 32768 sockets")
	}
	l := &SocketLink{edge: o.Edge}
	l.link = h.sockets.NewLink(id, linkOwner{l}, o.Send)
	e := &linkEvent{host: h, options: o, link: l, listed: map[uint64]bool{}}
	for _, s := range o.Sockets {
		e.listed[s.Number] = true
	}
	e.authorize(ctx, id)
	if err := h.rt.Do(ctx, id, runtime.Call{Op: "socket link", Handler: e}); err != nil {
		l.link.End() // the event may have run
		if r := h.relays.of(id); r != nil {
			r.unlink(l)
		}
		return nil, unmarked(err)
	}
	e.endLost()
	return l, nil
}

// Done is closed when the link has ended: by Close, by an error of Deliver, by a newer link, with the host, or with the incarnation of the
// object. An eviction for being idle or to save memory does not end the link. The edge then links again.
func (l *SocketLink) Done() <-chan struct{} { return l.link.Done() }

// Close ends the link. The sockets stay, and end if no other link is made within 30 s.
func (l *SocketLink) Close() {
	l.link.End()
	l.relay.unlink(l)
}

// Acknowledge records that the edge has received all outputs up to a position: the object may delete their rows.
func (l *SocketLink) Acknowledge(position string) { l.relay.acknowledge(l.edge, position) }

// Deliver delivers an input to the object. Inputs of one socket must be delivered in their order. It returns before the object has handled the
// input: the edge bounds the inputs of a socket that are not acknowledged.
//
// Errors: [ErrClosed] after the link has ended, [ErrMisuse] for the number zero,
// and a [*LimitError] for a frame beyond [Options].MaxFrame. After an error the link has ended.
func (l *SocketLink) Deliver(in *LinkInput) error {
	if in.Socket == 0 || in.Number == 0 {
		l.Close()
		return errkind.New(errkind.ErrMisuse, "Deliver: want numbers from 1 on")
	}
	return l.link.Deliver(in)
}

// linkOwner is the socket.LinkOwner of a link.
type linkOwner struct{ *SocketLink }

// Limit is how long Input may take.
func (l linkOwner) Limit() time.Duration { return l.relay.handlers.Limit }

// Ended is called when the link has ended by itself.
func (l linkOwner) Ended() { l.relay.unlink(l.SocketLink) }

// DurableSockets reports whether [SocketHandlers].Durable is set.
func (c Class) DurableSockets() bool { return c.sockets != nil && c.sockets.Durable }
