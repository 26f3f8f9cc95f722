package dohost

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/dohost/dohost/internal/socket"
	"github.com/dohost/dohost/runtime"
)

const (
	// linkTimeout is the time without a link after which the sockets of an edge end.
	linkTimeout = 30 * time.Second
	// maxOutputs bounds the bytes of the outputs of an object that its edges have not received. Beyond it the sockets of the edge that
	// has not received the oldest one end.
	maxOutputs = 32 << 20
	// maxDurableFrame bounds a frame that an object sends to durable sockets: it is a row.
	maxDurableFrame = 1 << 20
)

// relay has the durable sockets of an object of the host. Events of the object change the relay with the turn, in the same way as the rows.
type relay struct {
	host     *Host
	id       ID
	handlers *socket.Handlers
	done     chan struct{} // closed when the relay has ended: with the incarnation, or the host

	// mu guards the rest. It is held neither during I/O nor while the object is called; order: before the mu of a link.
	mu      sync.Mutex
	ended   bool
	sockets map[RelayedSocket]*relayed
	counts  map[string]int         // of sockets, by edge
	links   map[string]*SocketLink // by edge
	timers  map[string]*time.Timer // of edges without a link
	acked   map[string]string      // the position that an edge has received
	slow    map[string]bool        // edges with sockets that end, since the edge does not receive outputs
	outputs []relayedOutput        // in the order of their positions
	bytes   int                    // of outputs
	epoch   Epoch
	last    uint64 // number of the last position in epoch
}

// relayed is a durable socket. It is a socket.Relay.
type relayed struct {
	of       *relay
	name     RelayedSocket
	row      relayedRow // as it was accepted or loaded
	received uint64     // the last input that the object has handled; guarded by the turn
	refused  *Closing   // by Authorize: no input is handled; likewise
	conn     *socket.Conn
	attached uint64 // changes of the attachment; guarded by mu of the relay
	undone   uint64 // the first of the last changes that were rolled back; likewise
}

// stored returns the row of the socket as it is now.
func (s *relayed) stored() relayedRow {
	row := s.row
	row.Attachment, row.Closing = s.conn.Attachment(), s.conn.Muted()
	return row
}

// deleteRows deletes the rows of the socket.
func (s *relayed) deleteRows(ctx context.Context, store *Storage) error {
	_, err := relayedRows.Delete(ctx, store, s.name.key())
	if err == nil {
		_, err = receivedRows.Delete(ctx, store, s.name.key())
	}
	return err
}

// relayedOutput is an output that an edge may not have received.
type relayedOutput struct {
	position string
	edges    []string
	size     int
}

// relay returns the relay of an object with durable sockets, or nil: also if the incarnation has ended. The code of an incarnation may run
// after its end, and must not get the relay of the next one.
func (s *State) relay() *relay {
	if r := s.host().relays.of(s.ID()); r != nil && r.isOf(s.Epoch()) {
		return r
	}
	return nil
}

// loadRelay makes the relay of an object, before its constructor runs, or continues the relay of an evicted incarnation.
func (s *State) loadRelay(ctx context.Context, handlers *socket.Handlers) error {
	h := s.host()
	if r := h.relays.of(s.ID()); r != nil {
		return h.relays.pass(ctx, r, s.Epoch())
	}
	r := &relay{
		host: h, id: s.ID(), handlers: handlers, done: make(chan struct{}), sockets: map[RelayedSocket]*relayed{}, links: map[string]*SocketLink{},
		timers: map[string]*time.Timer{}, acked: map[string]string{}, counts: map[string]int{}, slow: map[string]bool{}, epoch: s.Epoch(),
	}
	if err := r.load(ctx, s); err != nil {
		r.end()
		return err
	}
	if err := h.relays.add(ctx, r); err != nil {
		r.end()
		return err
	}
	r.trimRest()
	return nil
}

// load reads the rows.
func (r *relay) load(ctx context.Context, s *State) error {
	var access any
	byKey := map[string]*relayed{}
	if r.host.classes[r.id.Class].authorize != nil {
		access = &Access{} // until the edge links, and Authorize has decided again
	}
	rows, err := relayedRows.List(ctx, s.Storage(), nil)
	if err != nil {
		return err
	}
	slices.SortStableFunc(rows, func(a, b Row[relayedRow]) int { return cmp.Compare(a.Value.Since, b.Value.Since) })
	for _, row := range rows {
		if err := r.list(row.Value, access); err != nil {
			return err
		}
	}
	for _, s := range r.sockets {
		byKey[s.name.key()] = s
	}
	for row, err := range receivedRows.All(ctx, s.Storage(), nil) {
		if err != nil {
			return err
		}
		if s := byKey[row.Key]; s != nil {
			s.received = row.Value.Last
		}
	}
	foreign := 0
	for row, err := range outputRows.All(ctx, s.Storage(), nil) {
		if err != nil {
			return err
		}
		if position := row.Value.Position; !socket.SameHistory(position, outputPosition(s.Epoch(), 0)) {
			// Its sockets end: their edges know another history. The next load deletes the rest.
			if foreign++; foreign <= maxTrimmed {
				_, err = outputRows.Delete(ctx, s.Storage(), position)
			}
			if err != nil {
				return err
			}
			continue
		}
		edges := slices.DeleteFunc(row.Value.edges(), func(edge string) bool { return r.counts[edge] == 0 })
		r.outputs = append(r.outputs, relayedOutput{row.Value.Position, edges, row.Value.size()})
		r.bytes += row.Value.size()
	}
	return nil
}

// list adds a socket to the sockets of the object.
func (r *relay) list(row relayedRow, access any) error {
	s := &relayed{of: r, name: row.name(), row: row}
	c, err := r.host.sockets.AddRelayed(r.id, r.handlers, row.options(access), s)
	if err != nil {
		return err
	}
	s.conn = c
	c.MuteSends(row.Closing)
	r.mu.Lock()
	ended := r.ended
	if !ended {
		r.sockets[s.name] = s
		r.counts[s.name.Edge]++
		r.expectLinkLocked(s.name.Edge)
	}
	r.mu.Unlock()
	if ended { // by another goroutine
		c.Forget()
		return runtime.ErrFenced
	}
	return nil
}

// inUse reports whether the relay has anything.
func (r *relay) inUse() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.sockets)+len(r.links)+len(r.outputs) > 0
}

// forget removes all sockets from the object.
func (r *relay) forget() {
	r.mu.Lock()
	all := slices.Collect(maps.Values(r.sockets))
	clear(r.sockets)
	clear(r.counts)
	clear(r.slow)
	for edge := range r.timers {
		r.stopTimerLocked(edge)
	}
	r.mu.Unlock()
	for _, s := range all {
		s.conn.Forget()
	}
}

// end ends the links. The rows stay.
func (r *relay) end() {
	r.mu.Lock()
	if !r.ended {
		r.ended = true
		close(r.done)
	}
	links := slices.Collect(maps.Values(r.links))
	clear(r.links)
	r.mu.Unlock()
	for _, l := range links {
		l.link.End()
	}
	r.forget()
}

// isLinked reports whether a link is the present one of its edge.
func (r *relay) isLinked(l *SocketLink) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.links[l.edge] == l
}

// get returns a socket, or nil.
func (r *relay) get(name RelayedSocket) *relayed {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.sockets[name]
}

// remove removes a socket.
func (r *relay) remove(s *relayed) {
	r.mu.Lock()
	if r.sockets[s.name] == s {
		delete(r.sockets, s.name)
		if r.counts[s.name.Edge]--; r.counts[s.name.Edge] == 0 {
			r.forgetEdgeLocked(s.name.Edge)
		}
	}
	r.mu.Unlock()
	s.conn.Forget()
}

// forgetEdgeLocked is called when an edge has no more sockets: the outputs so far need not reach it.
func (r *relay) forgetEdgeLocked(edge string) {
	r.stopTimerLocked(edge)
	delete(r.counts, edge)
	delete(r.slow, edge)
	r.acked[edge] = outputPosition(r.epoch, r.last)
}

// edge returns the sockets of an edge.
func (r *relay) edge(name string) (all []*relayed) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.sockets {
		if s.name.Edge == name {
			all = append(all, s)
		}
	}
	slices.SortFunc(all, func(a, b *relayed) int { return cmp.Compare(a.conn.Seq(), b.conn.Seq()) })
	return all
}

// link makes l the link of its edge.
func (r *relay) link(l *SocketLink) {
	r.mu.Lock()
	former, ended := r.links[l.edge], r.ended
	switch {
	case ended:
	case l.link.HasEnded(): // the edge has given up
		r.expectLinkLocked(l.edge)
		former = nil
	default:
		r.links[l.edge] = l
		r.stopTimerLocked(l.edge)
	}
	r.mu.Unlock()
	if former != nil {
		former.link.End()
	}
	if ended {
		l.link.End()
	}
}

// unlink is called when a link has ended.
func (r *relay) unlink(l *SocketLink) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.links[l.edge] == l {
		delete(r.links, l.edge)
		r.expectLinkLocked(l.edge)
	}
}

// expectLinkLocked ends the sockets of an edge that has no link, unless it links in time.
func (r *relay) expectLinkLocked(edge string) {
	if r.counts[edge] > 0 && r.links[edge] == nil && r.timers[edge] == nil && !r.ended {
		var t *time.Timer
		t = time.AfterFunc(linkTimeout, func() {
			r.mu.Lock()
			due := r.timers[edge] == t // not stopped
			if due {
				delete(r.timers, edge)
			}
			r.mu.Unlock()
			if due {
				r.endSockets(r.edge(edge), Closing{Code: closeNoFrame, Reason: "the process with the connection is lost"})
			}
		})
		r.timers[edge] = t
	}
}

// stopTimerLocked is called when an edge has a link, or no sockets.
func (r *relay) stopTimerLocked(edge string) {
	if t := r.timers[edge]; t != nil {
		t.Stop()
		delete(r.timers, edge)
	}
}

// acknowledge notes that an edge has received the outputs up to a position, and returns its position: earlier
// outputs are not sent again. It ignores a position that the object has not reached.
func (r *relay) acknowledge(edge, position string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	newest := outputPosition(r.epoch, r.last)
	if position > r.acked[edge] && position <= newest && socket.SameHistory(position, newest) {
		r.acked[edge] = position
	}
	return r.acked[edge]
}

// push passes an output to the link of an edge.
func (r *relay) push(edge string, o *LinkOutput) {
	r.mu.Lock()
	l := r.links[edge]
	r.mu.Unlock()
	if l != nil {
		l.link.Push(o)
	}
}

// endSockets ends sockets by events of the object, one after the other, and sends the ends to their edges. Other events follow. It returns
// immediately.
func (r *relay) endSockets(all []*relayed, how Closing, then ...runtime.Handler) {
	events := make([]runtime.Handler, len(all), len(all)+len(then))
	for i, s := range all {
		events[i] = &endEvent{of: r, socket: s, how: how}
	}
	events = append(events, then...)
	r.host.sockets.SendAll(r.id, "socket closed", events, r.done)
}
