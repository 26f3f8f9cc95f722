package dohost

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/dohost/dohost/internal/errkind"
	"github.com/dohost/dohost/internal/seal"
	"github.com/dohost/dohost/internal/socket"
	"github.com/dohost/dohost/runtime"
)

// closeNoFrame is the code of a connection that broke without a closing frame.
const closeNoFrame = 1006

// linkEvent makes a link.
type linkEvent struct {
	host    *Host
	options *LinkOptions
	link    *SocketLink
	listed  map[uint64]bool // sockets of the edge; true: they are opening
	access  map[uint64]*Access
	refused map[uint64]Closing
	// Set by Handle.
	lost []*relayed // sockets that the edge does not have
	gone []uint64   // sockets that the object does not have
}

// authorize asks the Authorize function of the class about each socket.
func (e *linkEvent) authorize(ctx context.Context, id ID) {
	if e.host.classes[id.Class].authorize == nil {
		return
	}
	e.access, e.refused = map[uint64]*Access{}, map[uint64]Closing{}
	for _, s := range e.options.Sockets {
		how := Closing{Code: closePolicy, Reason: "access denied"}
		if s.Handshake != nil {
			hops, err := e.host.authorize(s.Handshake.WithContext(ctx), id, AccessSocket, "", nil)
			if err == nil {
				e.access[s.Number] = hops[0].access
				continue
			}
			if c, ok := errors.AsType[*CloseError](err); ok && c != nil && sendable(c.Code) && len(c.Reason) <= maxReason {
				how = Closing{Code: c.Code, Reason: c.Reason}
			}
		}
		e.refused[s.Number] = how
	}
}

// Handle reads the rows that the edge needs. The link begins when everything written before is durable, in order with the outputs.
func (e *linkEvent) Handle(ctx context.Context, _ any) error {
	st := stateOf(runtime.StateOf(ctx, seal.New()))
	r, edge := st.relay(), e.options.Edge
	if r == nil {
		return runtime.ErrFenced
	}
	e.link.relay = r
	if after := e.options.After; after != "" && !sameFork(after, outputPosition(st.Epoch(), 0)) {
		e.forget() // the positions of two forks cannot be compared
	}
	var first []*LinkOutput
	for number, opening := range e.listed {
		s := r.get(RelayedSocket{edge, number})
		switch {
		case s == nil && !opening:
			e.gone = append(e.gone, number)
		case s != nil && s.received > 0:
			first = append(first, &LinkOutput{Sockets: []uint64{number}, Received: s.received})
		}
	}
	for _, s := range r.edge(edge) {
		if _, ok := e.listed[s.name.Number]; !ok && s.name.Number < e.options.Next {
			e.lost = append(e.lost, s)
		} else if a := e.access[s.name.Number]; a != nil {
			s.conn.SetAccess(a)
		}
	}
	after := e.options.After
	r.acknowledge(edge, after)
	if len(e.gone) > 0 {
		first = append(first, &LinkOutput{Sockets: e.gone, Gone: true})
	}
	backlog, err := r.backlog(ctx, st, edge, after)
	if err != nil {
		return err
	}
	first = append(first, backlog...)
	return st.rt().EmitOutput(ctx, 0, func(err error) {
		if err != nil {
			return
		}
		r.link(e.link)
		for _, o := range first {
			e.link.link.Push(o)
		}
	})
}

// forget makes the link begin without sockets: the object ends the sockets of the edge, and the edge closes its own.
func (e *linkEvent) forget() {
	for number := range e.listed {
		e.gone = append(e.gone, number)
	}
	clear(e.listed)
}

// backlog returns the outputs for an edge after a position.
func (r *relay) backlog(ctx context.Context, st *State, edge, after string) (all []*LinkOutput, err error) {
	for row, err := range outputRows.All(ctx, st.Storage(), nil) {
		if err != nil {
			return nil, err
		}
		if row.Value.Position <= after {
			continue
		}
		if o := row.Value.output(edge); o != nil {
			all = append(all, o)
		}
	}
	return all, nil
}

// endLost ends the sockets that the edge does not have, or that Authorize has refused.
func (e *linkEvent) endLost() {
	r := e.link.relay
	r.endSockets(e.lost, Closing{Code: closeNoFrame, Reason: "the connection is lost"})
	for number, how := range e.refused {
		if s := r.get(RelayedSocket{e.options.Edge, number}); s != nil {
			r.endSockets([]*relayed{s}, how)
		}
	}
}

// Input records the number of an input with the first writes of the handler, and calls the handler, unless the object has handled the input
// before.
func (l linkOwner) Input(ctx context.Context, instance any, in *LinkInput, invalid bool) error {
	st := stateOf(runtime.StateOf(ctx, seal.New()))
	r := st.relay()
	if r == nil {
		return runtime.ErrFenced
	}
	s := r.get(RelayedSocket{l.edge, in.Socket})
	if s == nil {
		return r.answer(ctx, st, l.edge, &LinkOutput{Sockets: []uint64{in.Socket}, Gone: true})
	}
	switch last := s.received; {
	case in.Number <= last:
		return r.answer(ctx, st, l.edge, &LinkOutput{Sockets: []uint64{in.Socket}, Received: last})
	case in.Number != last+1: // the object was restored from an earlier state, or an input was lost
		return s.finish(ctx, st, instance, Closing{Code: CloseFailed, Reason: "a frame is missing"})
	case invalid:
		return s.finish(ctx, st, instance, Closing{Code: 1007, Reason: errNotUTF8.Error()})
	case in.Closing != nil:
		return s.closed(ctx, st, instance, in.Number, *in.Closing)
	}
	s.received = in.Number
	if err := r.trim(ctx, st); err != nil {
		return err
	}
	if err := receivedRows.Put(ctx, st.Storage(), receivedRow{s.name.key(), in.Number}); err != nil {
		return err
	}
	err := r.answer(ctx, st, l.edge, &LinkOutput{Sockets: []uint64{in.Socket}, Received: in.Number})
	if err != nil {
		return err
	}
	return r.handlers.Message(ctx, instance, s.conn, in.Frame)
}

// answer sends an output that is no row, when everything written before is durable.
func (r *relay) answer(ctx context.Context, st *State, edge string, o *LinkOutput) error {
	return st.rt().EmitOutput(ctx, 0, func(err error) {
		if err == nil {
			r.push(edge, o)
		}
	})
}

// closed handles the last input of a socket.
func (s *relayed) closed(ctx context.Context, st *State, instance any, number uint64, how Closing) error {
	if err := s.deleteRows(ctx, st.Storage()); err != nil {
		return err
	}
	s.of.remove(s)
	if err := s.of.answer(ctx, st, s.name.Edge, &LinkOutput{Sockets: []uint64{s.name.Number}, Received: number}); err != nil {
		return err
	}
	return s.of.handlers.Closed(ctx, instance, s.conn, how)
}

// finish ends a socket, and makes the edge close the connection.
func (s *relayed) finish(ctx context.Context, st *State, instance any, how Closing) error {
	if err := s.deleteRows(ctx, st.Storage()); err != nil {
		return err
	}
	s.of.remove(s)
	gone := &LinkOutput{Sockets: []uint64{s.name.Number}, Gone: true}
	if sendable(how.Code) {
		gone.Closing = &how
	}
	if err := s.of.answer(ctx, st, s.name.Edge, gone); err != nil {
		return err
	}
	return s.of.handlers.Closed(ctx, instance, s.conn, how)
}

// endEvent ends a socket that its edge does not end.
type endEvent struct {
	of     *relay
	socket *relayed
	how    Closing
}

// Handle ends the socket, unless it has ended.
func (e *endEvent) Handle(ctx context.Context, instance any) error {
	st := stateOf(runtime.StateOf(ctx, seal.New()))
	if st.relay() != e.of || e.of.get(e.socket.name) != e.socket {
		return nil
	}
	return e.socket.finish(ctx, st, instance, e.how)
}

// Limit is how long the handler may take.
func (e *endEvent) Limit() time.Duration { return e.of.handlers.Limit }

// Close implements socket.Relay.
func (s *relayed) Close(how socket.Closing) { s.of.endSockets([]*relayed{s}, how) }

// Unopened implements socket.Relay.
func (s *relayed) Unopened() {
	s.of.endSockets([]*relayed{s}, Closing{Code: closeNoFrame, Reason: "the handshake was not completed"})
}

// acceptRelayed accepts a durable socket.
func (s *State) acceptRelayed(ctx context.Context, name RelayedSocket, o *socket.Options) (*socket.Conn, error) {
	r := s.relay()
	if r == nil {
		return nil, runtime.ErrFenced
	}
	if name.Edge == "" || len(name.Edge) > maxEdge || name.Number == 0 || r.get(name) != nil {
		return nil, errkind.New(errkind.ErrConflict, fmt.Sprintf("Accept: the socket %q exists, or its name is invalid", name.key()))
	}
	row := relayedRow{Edge: name.Edge, Number: name.Number, Tags: o.Tags, Attachment: o.Attachment, Since: time.Now().UnixMilli()}
	if err := r.list(row, o.Access); err != nil {
		return nil, err
	}
	accepted := r.get(name)
	err := runtime.Transaction(ctx, func(ctx context.Context) error {
		if err := relayedRows.Insert(ctx, s.Storage(), row); err != nil {
			return err
		}
		return s.rt().EmitOutput(ctx, 0, func(err error) {
			if err != nil {
				r.remove(accepted)
			}
		})
	})
	if err != nil {
		r.remove(accepted)
		return nil, err
	}
	return accepted.conn, nil
}

// acceptDurable accepts a durable socket for a request.
func (s *State) acceptDurable(rw *responseWriter, r *http.Request, name RelayedSocket, o *socket.Options) (*Socket, error) {
	c, err := s.acceptRelayed(r.Context(), name, o)
	if err != nil {
		return nil, err
	}
	if err := rw.out.accept(c); err != nil {
		c.Relay().Unopened()
		return nil, err
	}
	rw.socket = c
	return &Socket{c}, nil
}
