package socket

import (
	"net/http"

	"github.com/dohost/dohost/runtime"
)

// RelayHeader is the header of the response to a handshake that an edge answers.
const RelayHeader = "Dohost-Relay"

// Relay is the owner of a socket's connection: an edge has it, and this table only lists the socket. The methods return immediately.
type Relay interface {
	// Close closes the connection, for an operator.
	Close(how Closing)
	// Unopened ends a socket if the edge has got no answer.
	Unopened()
}

// AddRelayed adds a socket with a connection that an edge has. It ends with Forget, or with the incarnation, and the object is not
// notified of that.
//
// Errors: the errors of Accept.
func (t *Table) AddRelayed(id runtime.ID, h *Handlers, o *Options, r Relay) (*Conn, error) {
	c := t.conn(id, h, o)
	c.relay = r
	return c, t.add(c)
}

// Relay returns the relay of a socket that AddRelayed has added, or else nil.
func (c *Conn) Relay() Relay { return c.relay }

// Forget removes a relayed socket from its object.
func (c *Conn) Forget() {
	c.mu.Lock()
	c.muted, c.detached = true, true
	c.mu.Unlock()
	c.table.remove(c)
}

// Seq numbers the sockets of an object in the order of their acceptance.
func (c *Conn) Seq() uint64 { return c.seq }

// SetAccess replaces the access of the client.
func (c *Conn) SetAccess(access any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.access = access
}

// answerEdge notifies the edge that the object has accepted the socket; or with the status 502 that it is unknown whether the next incarnation
// has the socket.
func answerEdge(w http.ResponseWriter, detached bool) {
	if detached {
		http.Error(w, "the incarnation that accepted the socket has ended", http.StatusBadGateway)
		return
	}
	w.Header().Set(RelayHeader, "accepted")
	w.WriteHeader(http.StatusOK)
}
