package dohost

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/dohost/dohost/internal/errkind"
	"github.com/dohost/dohost/internal/guard"
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
	listed  map[uint64]bool // the numbers of the sockets of the edge
	access  map[uint64]*Access
	refused map[uint64]Closing
	// Set by Handle.
	lost []*relayed // sockets that the edge does not have
	gone []uint64   // sockets that the object does not have
	// foreign is set if the edge knows another history: the sockets of both sides end.
	foreign bool
}

// authorize asks the Authorize function of the class about each socket.
func (e *linkEvent) authorize(ctx context.Context, id ID) {
	if e.host.classes[id.Class].authorize == nil {
		return
	}
	e.access, e.refused = map[uint64]*Access{}, map[uint64]Closing{}
	for _, s := range e.options.Sockets {
		e.refused[s.Number] = Closing{Code: CloseRestart, Reason: "the authorization takes too long"}
	}
	ctx, cancel := context.WithTimeout(ctx, authorizeTime)
	defer cancel()
	var mu sync.Mutex // a call that takes too long may end later
	over := false
	socket.ForEach(ctx, len(e.options.Sockets), maxAuthorizing, func(i int) {
		s := e.options.Sockets[i]
		access, refused := (*Access)(nil), &Closing{Code: closePolicy, Reason: "access denied"} // also if the function panics
		defer func() {
			mu.Lock()
			defer mu.Unlock()
			switch {
			case over || ctx.Err() != nil:
			case refused == nil:
				delete(e.refused, s.Number)
				e.access[s.Number] = access
			default:
				e.refused[s.Number] = *refused
			}
		}()
		if s.Handshake != nil {
			_ = guard.Call(func() { access, refused = e.host.authorizeAgain(ctx, s.Handshake, id) }) // then it is refused
		}
	})
	mu.Lock()
	defer mu.Unlock()
	over = true
}

const (
	// maxAuthorizing is the number of concurrent calls of an Authorize function for a link.
	maxAuthorizing = 64
	// authorizeTime bounds these calls together. The clients of the others are closed.
	authorizeTime = 10 * time.Second
)

// authorizeAgain decides about the handshake of a socket. Its context has the values of the client's request if the edge is in this
// process, and none otherwise.
func (h *Host) authorizeAgain(ctx context.Context, handshake *http.Request, id ID) (*Access, *Closing) {
	own, cancel := context.WithCancelCause(handshake.Context())
	defer cancel(nil)
	defer context.AfterFunc(ctx, func() { cancel(context.Cause(ctx)) })()
	hops, err := h.authorize(handshake.WithContext(own), id, AccessSocket, "", nil)
	if err == nil {
		return hops[0].access, nil
	}
	if c, ok := errors.AsType[*CloseError](err); ok && c != nil && sendable(c.Code) && len(c.Reason) <= maxReason {
		return nil, &Closing{Code: c.Code, Reason: c.Reason}
	}
	return nil, &Closing{Code: closePolicy, Reason: "access denied"}
}

// Handle reads the rows that the edge needs. The link begins when everything written before is durable, in order with the outputs.
func (e *linkEvent) Handle(ctx context.Context, _ any) error {
	st := stateOf(runtime.StateOf(ctx, seal.New()))
	r, edge := st.relay(), e.options.Edge
	if r == nil {
		return runtime.ErrFenced
	}
	e.link.relay = r
	if after := e.options.After; after != "" && !socket.SameHistory(after, outputPosition(st.Epoch(), 0)) {
		e.foreign = true // the positions of two forks cannot be compared
	}
	var first []*LinkOutput
	for _, at := range e.options.Sockets {
		s := r.get(RelayedSocket{edge, at.Number})
		switch {
		case e.foreign:
			e.gone = append(e.gone, at.Number)
		case s == nil && !at.Opening:
			e.gone = append(e.gone, at.Number)
		case s != nil && s.received > 0:
			first = append(first, &LinkOutput{Sockets: []uint64{at.Number}, Received: s.received})
		}
	}
	for _, s := range r.edge(edge) {
		if (e.foreign || !e.listed[s.name.Number]) && s.name.Number < e.options.Next {
			e.lost = append(e.lost, s)
		} else if how, refused := e.refused[s.name.Number]; refused {
			s.refused = &how
			s.conn.SetAccess(&Access{})
		} else if a := e.access[s.name.Number]; a != nil {
			s.conn.SetAccess(a)
			s.refused = nil
		}
	}
	after, start := e.options.After, ""
	if e.foreign { // the edge continues with this history
		after, start = "", outputPosition(Epoch{Fork: st.Epoch().Fork}, 0)
	}
	after = r.acknowledge(edge, after)
	if len(e.gone) > 0 {
		first = append(first, &LinkOutput{Sockets: e.gone, Gone: true, Position: start})
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

// backlog returns the outputs for an edge after a position.
func (r *relay) backlog(ctx context.Context, st *State, edge, after string) (all []*LinkOutput, err error) {
	for row, err := range outputRows.All(ctx, st.Storage(), &Query[outputRow]{Start: Key(after)}) {
		if err != nil {
			return nil, err
		}
		if p := row.Value.Position; p <= after || !socket.SameHistory(p, outputPosition(st.Epoch(), 0)) {
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
	if !r.isLinked(l.SocketLink) {
		return nil // the event was queued for an incarnation that has ended: the edge delivers the input again
	}
	s := r.get(RelayedSocket{l.edge, in.Socket})
	if s == nil {
		return r.answer(ctx, st, l.edge, &LinkOutput{Sockets: []uint64{in.Socket}, Gone: true})
	}
	switch last := s.received; {
	case s.refused != nil:
		return s.finish(ctx, st, instance, *s.refused)
	case in.Number <= last:
		return r.answer(ctx, st, l.edge, &LinkOutput{Sockets: []uint64{in.Socket}, Received: last})
	case in.Number != last+1: // the object was restored from an earlier state, or an input was lost
		return s.finish(ctx, st, instance, Closing{Code: CloseFailed, Reason: "a frame is missing"})
	case invalid:
		return s.finish(ctx, st, instance, Closing{Code: 1007, Reason: errNotUTF8.Error()})
	case in.Closing != nil:
		if err := s.closed(ctx, st, in.Number); err != nil {
			l.Close() // the edge delivers the input again
			return err
		}
		return s.callClosed(ctx, instance, *in.Closing)
	}
	if err := receivedRows.Put(ctx, st.Storage(), receivedRow{s.name.key(), in.Number}); err != nil {
		l.Close()
		return err
	}
	s.received = in.Number
	r.trim(ctx, st)
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

// closed records the last input of a socket.
func (s *relayed) closed(ctx context.Context, st *State, number uint64) error {
	if err := s.deleteRows(ctx, st.Storage()); err != nil {
		return err
	}
	s.of.remove(s)
	s.of.trimUnused(ctx, st)
	return s.of.answer(ctx, st, s.name.Edge, &LinkOutput{Sockets: []uint64{s.name.Number}, Received: number})
}

// finish ends a socket, and makes the edge close the connection.
func (s *relayed) finish(ctx context.Context, st *State, instance any, how Closing) error {
	if err := s.deleteRows(ctx, st.Storage()); err != nil {
		return err
	}
	s.of.remove(s)
	s.of.trimUnused(ctx, st)
	gone := &LinkOutput{Sockets: []uint64{s.name.Number}, Gone: true}
	if sendable(how.Code) {
		gone.Closing = &how
	}
	if err := s.of.answer(ctx, st, s.name.Edge, gone); err != nil {
		return err
	}
	return s.callClosed(ctx, instance, how)
}

// maxEnds is the number of calls of Closed for a socket, if each ends the incarnation and with it the deletion of the rows.
const maxEnds = 3

// callClosed calls the class's Closed, unless it has ended several incarnations.
func (s *relayed) callClosed(ctx context.Context, instance any, how Closing) error {
	rs, key := &s.of.host.relays, endKey{s.of.id, s.name}
	if rs.countEnd(key) > maxEnds {
		return nil
	}
	err := s.of.handlers.Closed(ctx, instance, s.conn, how)
	if alive(ctx, runtime.StateOf(ctx, seal.New())) == nil { // nor after a panic
		rs.forgetEnd(key)
	}
	return err
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
