package socket

import (
	"context"
	"strconv"
	"time"
)

// Limits, those of workerd (io/hibernation-manager.c++, api/web-socket.c++).
const (
	MaxSockets = 32_768   // of an object
	maxUnsent  = 1 << 20  // bytes that may wait for a client that takes nothing
	maxHeld    = 32 << 20 // bytes that may wait for one client
)

// Codes that the host closes sockets with.
const (
	notUTF8 = 1007 // a text frame is not UTF-8
	Failed  = 1011 // a message could not be delivered
	Restart = 1012 // the incarnation was ended, or the host
	Busy    = 1013 // too much waits for the object, or for the client
	noFrame = 1006 // the connection broke: never sent
)

// Frame is a message that is sent or received as a whole.
type Frame struct {
	Text bool // else binary
	Data []byte
}

// Closing is how a socket has ended.
type Closing struct {
	Code   int    // 1006 if the connection broke without a closing frame
	Reason string // as the other side gave it
	Clean  bool   // by a closing frame
}

// Handlers are the socket handlers of an object's class. They run as events.
type Handlers struct {
	Message func(ctx context.Context, instance any, c *Conn, f Frame) error
	Closed  func(ctx context.Context, instance any, c *Conn, how Closing) error
	Limit   time.Duration // of one event; zero: none
	Origins []string      // of pages that may connect, in addition to the server's own and the host's
	Durable bool          // sockets of an edge outlive the host
}

// Options are the properties of a socket that is accepted.
type Options struct {
	Tags       []string
	Attachment []byte
	Origins    []string // that may connect, in addition to the server's own
	Access     any      // the caller's: see Conn.Access
	// Since is when the object accepted it; zero means now.
	Since time.Time
}

// Info describes a socket at one moment.
type Info struct {
	Tags   []string
	Since  time.Time // when the object accepted it
	State  State
	Unsent int // bytes that wait for the client
}

// State is the state of a socket's connection.
type State uint8

// The states of a connection.
const (
	StateOpening State = iota // the object has accepted it, and the client has no answer yet
	StateOpen                 // the client has its answer
	StateClosing              // the object sends nothing more
)

var stateNames = [...]string{"opening", "open", "closing"}

// String returns the name of the state: opening, open or closing. Of an undefined state it returns the number, as in
// "state 9".
func (s State) String() string {
	if int(s) >= len(stateNames) {
		return "state " + strconv.Itoa(int(s))
	}
	return stateNames[s]
}
