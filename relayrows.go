package dohost

import (
	"fmt"
	"slices"
	"time"

	"github.com/dohost/dohost/internal/socket"
)

// relayedRow is the row of a durable socket.
type relayedRow struct {
	Edge       string
	Number     uint64
	Tags       []string `msgpack:",omitempty"`
	Attachment []byte   `msgpack:",omitempty"`
	Since      int64    // ms since 1970, when the object accepted it
	Closing    bool     `msgpack:",omitempty"` // the object has closed it
}

func (r *relayedRow) name() RelayedSocket { return RelayedSocket{r.Edge, r.Number} }

func (s RelayedSocket) key() string { return fmt.Sprintf("%s/%016x", s.Edge, s.Number) }

// relayedRows are the durable sockets of an object.
var relayedRows = Collection[relayedRow]{
	Name: "dohost.sockets",
	Key:  func(r relayedRow) string { return r.name().key() },
}

// receivedRow has the number of the last input of a socket that the object has handled. It is small: each input writes it.
type receivedRow struct {
	Key  string
	Last uint64
}

// receivedRows are the numbers of the last inputs of an object's sockets. A socket without an input has none.
var receivedRows = Collection[receivedRow]{
	Name: "dohost.sockets.received",
	Key:  func(r receivedRow) string { return r.Key },
}

// outputRow is the row of an output that an edge may not have received.
type outputRow struct {
	Position string
	To       []recipients
	Text     bool   `msgpack:",omitempty"`
	Data     []byte `msgpack:",omitempty"`
	Code     int    `msgpack:",omitempty"` // not zero: a closing frame, with Reason
	Reason   string `msgpack:",omitempty"`
}

// recipients are sockets of one edge.
type recipients struct {
	Edge    string
	Numbers []uint64
}

// outputRows are the outputs of an object, in the order of their release.
var outputRows = Collection[outputRow]{
	Name: "dohost.sockets.outputs",
	Key:  func(r outputRow) string { return r.Position },
}

// outputPosition returns the position of an output: positions of one fork are ordered.
func outputPosition(e Epoch, number uint64) string {
	return fmt.Sprintf("%08x%016x%016x%016x", e.Fork, e.Host, e.Incarnation, number)
}

// newOutputRow returns the row of an output to sockets.
func newOutputRow(position string, to []RelayedSocket) outputRow {
	row := outputRow{Position: position}
	for _, s := range to {
		i := slices.IndexFunc(row.To, func(r recipients) bool { return r.Edge == s.Edge })
		if i < 0 {
			i, row.To = len(row.To), append(row.To, recipients{Edge: s.Edge})
		}
		row.To[i].Numbers = append(row.To[i].Numbers, s.Number)
	}
	return row
}

// size returns the bytes of memory that an output takes while it waits for its edges.
func (r *outputRow) size() int {
	n := pieceSize + len(r.Data) + len(r.Reason)
	for _, to := range r.To {
		n += len(to.Edge) + 8*len(to.Numbers)
	}
	return n
}

// edges returns the edges of the recipients.
func (r *outputRow) edges() []string {
	edges := make([]string, len(r.To))
	for i, to := range r.To {
		edges[i] = to.Edge
	}
	return edges
}

// output returns the output for one of the edges, or nil if it has no recipient.
func (r *outputRow) output(edge string) *LinkOutput {
	for _, to := range r.To {
		if to.Edge != edge {
			continue
		}
		o := &LinkOutput{Sockets: to.Numbers, Position: r.Position}
		if r.Code != 0 {
			o.Closing = &Closing{Code: r.Code, Reason: r.Reason}
		} else {
			o.Frame = &Frame{Text: r.Text, Data: r.Data}
		}
		return o
	}
	return nil
}

// options returns the properties of a socket that is read from its row.
func (r *relayedRow) options(access any) *socket.Options {
	return &socket.Options{Tags: r.Tags, Attachment: r.Attachment, Access: access, Since: time.UnixMilli(r.Since)}
}
