package dohost

import (
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/dohost/dohost/internal/seal"
	"github.com/dohost/dohost/internal/socket"
	"github.com/dohost/dohost/runtime"
)

// relayedOf returns the durable socket of a connection, or nil.
func relayedOf(c *socket.Conn) *relayed {
	s, _ := c.Relay().(*relayed)
	return s
}

// sendDurable sends a frame to durable sockets of one object: a row, and an output.
func sendDurable(ctx context.Context, st *State, to []*relayed, f Frame) error {
	if len(to) == 0 {
		return nil
	}
	if len(to) > MaxSockets {
		return &LimitError{Subject: "broadcast", Size: len(to), Limit: MaxSockets, Unit: "durable sockets"}
	}
	if len(f.Data) > maxDurableFrame {
		return &LimitError{Subject: "frame of a durable socket", Size: len(f.Data), Limit: maxDurableFrame}
	}
	return to[0].of.send(ctx, st, to, func(row *outputRow) { row.Text, row.Data = f.Text, slices.Clone(f.Data) })
}

// closeDurable closes a durable socket after all frames sent before.
func (s *relayed) closeDurable(ctx context.Context, st *State, how Closing) error {
	s.conn.MuteSends(true)
	err := runtime.Transaction(ctx, func(ctx context.Context) error {
		if err := relayedRows.Put(ctx, st.Storage(), s.stored()); err != nil {
			return err
		}
		err := st.rt().EmitOutput(ctx, 0, func(err error) {
			if err != nil {
				s.conn.MuteSends(false)
			}
		})
		if err != nil {
			return err
		}
		return s.of.send(ctx, st, []*relayed{s}, func(row *outputRow) { row.Code, row.Reason = how.Code, how.Reason })
	})
	if err != nil {
		s.conn.MuteSends(false)
	}
	return err
}

// attachDurable stores an attachment.
func (s *relayed) attachDurable(ctx context.Context, st *State, data []byte) error {
	former := s.conn.Attachment()
	row, number := s.stored(), s.beginAttach()
	row.Attachment = slices.Clone(data)
	err := runtime.Transaction(ctx, func(ctx context.Context) error {
		if err := relayedRows.Put(ctx, st.Storage(), row); err != nil {
			return err
		}
		return st.rt().EmitOutput(ctx, 0, func(err error) {
			if err != nil {
				s.undoAttach(number, former)
			}
		})
	})
	if err == nil {
		s.conn.Attach(data)
	}
	return err
}

// beginAttach numbers a change of the attachment.
func (s *relayed) beginAttach() uint64 {
	s.of.mu.Lock()
	defer s.of.mu.Unlock()
	s.attached++
	s.undone = 0
	return s.attached
}

// undoAttach restores the attachment from before a change. Of the changes that are rolled back together, the first one is undone first,
// and the others have no effect.
func (s *relayed) undoAttach(number uint64, former []byte) {
	s.of.mu.Lock()
	later := s.undone != 0 && s.undone < number
	if !later {
		s.undone = number
	}
	s.of.mu.Unlock()
	if !later {
		s.conn.Attach(former)
	}
}

// send writes the row of an output, and releases it.
func (r *relay) send(ctx context.Context, st *State, to []*relayed, fill func(*outputRow)) error {
	names := make([]RelayedSocket, len(to))
	for i, s := range to {
		names[i] = s.name
	}
	row := newOutputRow(r.nextPosition(), names)
	fill(&row)
	return runtime.Transaction(ctx, func(ctx context.Context) error {
		r.trim(ctx, st)
		if err := outputRows.Insert(ctx, st.Storage(), row); err != nil {
			return err
		}
		r.keep(&row)
		err := st.rt().EmitOutput(ctx, row.size(), func(err error) { r.release(&row, err) })
		if err != nil {
			r.discard(row.Position)
		}
		return err
	})
}

// nextPosition returns a position after all others of the object.
func (r *relay) nextPosition() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.last++
	return outputPosition(r.epoch, r.last)
}

// keep adds an output to the outputs in memory. If the object has too many, the sockets of the edges that have not received the oldest one end.
func (r *relay) keep(row *outputRow) {
	for _, edge := range r.add(row) {
		how := Closing{Code: CloseBusy, Reason: "too many frames wait for the client"}
		r.endSockets(r.edge(edge), how, &slowEnded{r, edge})
	}
}

// slowEnded is the event after the ends of the sockets of a slow edge. Later sockets of the edge may be too slow again.
type slowEnded struct {
	of   *relay
	edge string
}

// Handle lets the next output check the edge.
func (e *slowEnded) Handle(context.Context, any) error {
	e.of.mu.Lock()
	defer e.of.mu.Unlock()
	delete(e.of.slow, e.edge)
	return nil
}

// add adds an output, and returns the edges that are too slow.
func (r *relay) add(row *outputRow) (slow []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.outputs = append(r.outputs, relayedOutput{row.Position, row.edges(), row.size()})
	if r.bytes += row.size(); r.bytes <= maxOutputs {
		return nil
	}
	for _, edge := range r.outputs[0].edges {
		if r.acked[edge] < r.outputs[0].position && !r.slow[edge] {
			r.slow[edge] = true
			slow = append(slow, edge)
		}
	}
	return slow
}

// release passes an output to the links of its edges, or forgets one with a batch that was lost.
func (r *relay) release(row *outputRow, err error) {
	if err != nil {
		r.discard(row.Position)
		return
	}
	for _, to := range row.To {
		r.push(to.Edge, row.output(to.Edge))
	}
}

// discard forgets an output that has no row. The oldest and the newest ones cost constant time.
func (r *relay) discard(position string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	byPosition := func(o relayedOutput, position string) int { return strings.Compare(o.position, position) }
	i, found := slices.BinarySearchFunc(r.outputs, position, byPosition)
	if !found {
		return
	}
	r.bytes -= r.outputs[i].size
	if i == 0 {
		r.outputs[0] = relayedOutput{}
		r.outputs = r.outputs[1:]
		return
	}
	r.outputs = slices.Delete(r.outputs, i, i+1)
}

// maxTrimmed bounds the rows that an event deletes.
const maxTrimmed = 64

// trim deletes the rows of the oldest outputs that all of their edges have received. If it fails, or the caller's transaction is rolled back,
// a later event tries again.
func (r *relay) trim(ctx context.Context, st *State) {
	var trimmed []relayedOutput
	for range maxTrimmed {
		o, ok := r.oldest()
		if !ok {
			break
		}
		if _, err := outputRows.Delete(ctx, st.Storage(), o.position); err != nil {
			break
		}
		r.discard(o.position)
		trimmed = append(trimmed, o)
	}
	if len(trimmed) == 0 {
		return
	}
	_ = st.rt().EmitOutput(ctx, 0, func(err error) { // it fails only with the incarnation
		if err != nil {
			r.restore(trimmed)
		}
	})
}

// trimUnused deletes outputs after the end of a socket.
func (r *relay) trimUnused(ctx context.Context, st *State) {
	r.trim(ctx, st)
	r.trimRest()
}

// trimRest sends an event that deletes outputs if the object has outputs and no sockets: no other event would delete them.
func (r *relay) trimRest() {
	r.mu.Lock()
	left := len(r.sockets) == 0 && len(r.outputs) > 0
	r.mu.Unlock()
	if left {
		r.host.sockets.SendAll(r.id, "socket outputs deleted", []runtime.Handler{&trimEvent{r}}, r.done)
	}
}

// trimEvent deletes outputs of an object without sockets.
type trimEvent struct{ of *relay }

// Handle deletes some of the outputs.
func (e *trimEvent) Handle(ctx context.Context, _ any) error {
	if st := stateOf(runtime.StateOf(ctx, seal.New())); st.relay() == e.of {
		e.of.trimUnused(ctx, st)
	}
	return nil
}

// restore adds outputs again: their rows are stored.
func (r *relay) restore(outputs []relayedOutput) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.outputs = append(r.outputs, outputs...)
	slices.SortFunc(r.outputs, func(a, b relayedOutput) int { return strings.Compare(a.position, b.position) })
	for _, o := range outputs {
		r.bytes += o.size
	}
}

// oldest returns the oldest output, if its row can be deleted.
func (r *relay) oldest() (first relayedOutput, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.outputs) == 0 {
		return first, false
	}
	first = r.outputs[0]
	for _, edge := range first.edges {
		if r.acked[edge] < first.position {
			return first, false
		}
	}
	return first, true
}

// deleteAll forgets all sockets after the object has deleted its rows.
func (r *relay) deleteAll(ctx context.Context, st *State) error {
	r.mu.Lock()
	gone := map[string][]uint64{}
	for name := range r.sockets {
		gone[name.Edge] = append(gone[name.Edge], name.Number)
	}
	r.outputs, r.bytes = nil, 0
	r.mu.Unlock()
	r.forget()
	for _, edge := range slices.Sorted(maps.Keys(gone)) {
		numbers := gone[edge]
		slices.Sort(numbers)
		if err := r.answer(ctx, st, edge, &LinkOutput{Sockets: numbers, Gone: true}); err != nil {
			return err
		}
	}
	return nil
}
