package dohost

import "github.com/dohost/dohost/internal/socket"

// SocketInfo describes an object's WebSocket at one moment.
type SocketInfo = socket.Info

// SocketState is the state of a WebSocket's connection.
type SocketState = socket.State

// The states of a connection. While a connection is opening, the object has accepted it, but the client has no
// response yet. The object sends nothing more on a closing connection.
const (
	SocketOpening = socket.StateOpening
	SocketOpen    = socket.StateOpen
	SocketClosing = socket.StateClosing
)

// Sockets describes an object's WebSockets, in the order of their acceptance. Like Inspect, it does not wake the
// object.
func (h *Host) Sockets(id ID) []SocketInfo { return h.sockets.Infos(id) }

// CloseSockets closes the WebSockets of an object, or only those with a tag if tag is not empty, and returns their
// number. Frames that have left the object are sent first; frames that still wait for the disk are not sent. The
// connection of a socket that is already closing is cut. The code is 1008, so clients do not reconnect by
// themselves. As always, the host notifies the object of each closed socket, which wakes the object.
func (h *Host) CloseSockets(id ID, tag string) int {
	return h.sockets.CloseAll(id, tag, socket.Closing{Code: closePolicy, Reason: "closed by an operator"})
}

// closePolicy is "policy violation".
const closePolicy = 1008

// SocketCount returns the number of WebSockets of objects with an incarnation, and of objects
// without one: the latter hibernate.
func (h *Host) SocketCount() (live, hibernating int) {
	for id, n := range h.sockets.Objects() {
		if h.IsLive(id) {
			live += n
		} else {
			hibernating += n
		}
	}
	return live, hibernating
}
