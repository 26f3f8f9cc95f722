package cluster

import (
	"time"

	"github.com/dohost/dohost"
)

// The bounds of the inputs and outputs of an edge.
const (
	maxUnacked    = 1 << 20  // bytes of a socket's inputs, after which its client is not read
	inputOverhead = 128      // bytes that each input counts in addition to its data
	maxInFlight   = 64 << 10 // bytes of a socket's inputs that are delivered and not acknowledged, unless it is one input
	maxTries      = 5        // links over which an input is delivered without an acknowledgment
	ackTime       = 20 * time.Millisecond
	ackOutputs    = 64
)

// add adds a frame to the inputs of a socket. It drops a frame after the end.
func (e *edgeEntry) add(s *edgeSocket, f dohost.Frame) {
	e.mu.Lock()
	defer e.mu.Unlock()
	s.buffer, s.largest = 0, 0
	if !s.ended {
		s.unacked += len(f.Data) + inputOverhead
		e.appendLocked(s, &dohost.LinkInput{Frame: f})
	}
	e.releaseUnusedLocked(s)
}

// end adds the end of a connection to the inputs of its socket.
func (e *edgeEntry) end(s *edgeSocket, how closing) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !s.ended {
		s.ended = true
		how.Reason = cutText(how.Reason, maxCloseReason)
		e.appendLocked(s, &dohost.LinkInput{Closing: &how})
	}
}

func (e *edgeEntry) appendLocked(s *edgeSocket, in *dohost.LinkInput) {
	in.Socket, in.Number = s.number, s.next
	s.next++
	s.inputs = append(s.inputs, in)
	if e.link != nil {
		e.link.queueLocked(s)
	}
}

// queueLocked makes the link deliver the inputs of a socket.
func (l *edgeLink) queueLocked(s *edgeSocket) {
	if !s.queued {
		s.queued = true
		l.ready = append(l.ready, s)
		l.entry.hint()
	}
}

// sizeOf returns the bytes that an input counts.
func sizeOf(in *dohost.LinkInput) int { return inputOverhead + len(in.Frame.Data) }

// isFull reports whether too many inputs of a socket wait for an acknowledgment.
func (e *edgeEntry) isFull(s *edgeSocket) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return !s.ended && s.unacked > maxUnacked
}

// acknowledgeLocked removes the inputs up to a number, and the socket if its end is one of them.
func (e *edgeEntry) acknowledgeLocked(s *edgeSocket, number uint64) {
	number = min(number, s.next-1)
	if number <= s.acked {
		return
	}
	n := number - s.acked
	for i, in := range s.inputs[:n] {
		if in.Closing == nil {
			s.unacked -= len(in.Frame.Data) + inputOverhead
		}
		if s.acked+uint64(i) < s.delivered {
			s.inFlight -= sizeOf(in)
		}
	}
	e.releaseUnusedLocked(s)
	clear(s.inputs[:n])
	s.inputs = s.inputs[n:]
	s.acked, s.delivered, s.tries = number, max(s.delivered, number), 0
	s.hasSpace()
	if e.link != nil && s.delivered-s.acked < uint64(len(s.inputs)) {
		e.link.queueLocked(s)
	}
	if s.ended && len(s.inputs) == 0 {
		// An input that has closed the socket may have been durable: then the object has not got the end.
		e.relink = e.relink || s.poisoned
		e.removeLocked(s)
	}
}

// begin makes a link the newest one of the entry, and returns its options. The link delivers the inputs that are not acknowledged again.
func (e *edgeEntry) begin(l *edgeLink) *dohost.LinkOptions {
	d := e.edge
	d.mu.Lock()
	defer d.mu.Unlock()
	e.mu.Lock()
	defer e.mu.Unlock()
	e.link, e.relink = l, false
	for _, s := range e.sockets {
		s.queued, s.delivered, s.inFlight = false, s.acked, 0
		if s.tries >= maxTries {
			e.poisonedLocked(s)
		}
		if len(s.inputs) > 0 {
			l.queueLocked(s)
		}
	}
	o := &dohost.LinkOptions{Edge: e.rt.node.self.ID, Next: d.last + 1, After: e.after, Send: l.receive}
	for _, s := range e.sockets {
		o.Sockets = append(o.Sockets, dohost.LinkedSocket{Number: s.number, Opening: s.opening, Handshake: s.handshake})
	}
	return o
}

// poisonedLocked ends a socket after maxTries links have ended with its first input, and drops its inputs. If that input is the end of the
// socket, it removes the socket.
func (e *edgeEntry) poisonedLocked(s *edgeSocket) {
	how := closing{Code: closeFailed, Reason: "a message could not be delivered"}
	if s.inputs[0].Closing != nil {
		e.removeLocked(s)
		return
	}
	s.ended, s.poisoned = true, true
	s.inputs, s.next, s.unacked, s.tries, s.delivered, s.inFlight = nil, s.acked+1, 0, 0, s.acked, 0
	e.appendLocked(s, &dohost.LinkInput{Closing: &how})
	e.releaseUnusedLocked(s)
	s.hasSpace()
	s.close(how)
}

// nextOf returns an input to deliver, or nil, and a position to acknowledge, or "". If there is neither, and an acknowledgment is due later,
// wait is the time until then. done reports that the caller closes the link after the acknowledgment.
func (e *edgeEntry) nextOf(l *edgeLink) (in *dohost.LinkInput, position string, wait time.Duration, done bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	done = e.relink || e.accepted == 0
	for in == nil && len(l.ready) > 0 && !done {
		s := l.ready[0]
		l.ready[0] = nil
		l.ready = l.ready[1:]
		s.queued = false
		if e.sockets[s.number] != s || s.delivered-s.acked >= uint64(len(s.inputs)) {
			continue
		}
		next := s.inputs[s.delivered-s.acked]
		if s.inFlight > 0 && s.inFlight+sizeOf(next) > maxInFlight {
			continue // until an acknowledgment
		}
		in = next
		s.delivered++
		s.inFlight += sizeOf(in)
		if in.Number == s.acked+1 {
			s.tries++
		}
		if s.delivered-s.acked < uint64(len(s.inputs)) {
			l.queueLocked(s)
		}
	}
	if l.unacked > 0 {
		wait = ackTime - time.Since(l.since)
		if wait <= 0 || done || l.unacked >= ackOutputs {
			position, l.unacked, wait = e.after, 0, 0
		}
	}
	return in, position, wait, done
}

// receive gets an output of the object.
func (l *edgeLink) receive(out *dohost.LinkOutput) {
	l.pass(out)
	l.entry.edge.sends.free()
}

// pass passes an output to its sockets.
func (l *edgeLink) pass(out *dohost.LinkOutput) {
	e := l.entry
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.link != l {
		return
	}
	if out.Position != "" {
		if !out.After(e.after) {
			return
		}
		e.after = out.Position
		if l.unacked == 0 {
			l.since = time.Now()
		}
		if l.unacked++; l.unacked == 1 || l.unacked == ackOutputs {
			e.hint()
		}
	}
	var frame *sharedFrame
	if out.Frame != nil {
		frame = e.edge.sends.newFrame(*out.Frame)
		defer frame.release()
	}
	for _, number := range out.Sockets {
		if s := e.sockets[number]; s != nil {
			e.receiveLocked(s, out, frame)
		}
	}
}

func (e *edgeEntry) receiveLocked(s *edgeSocket, out *dohost.LinkOutput, frame *sharedFrame) {
	if out.Gone {
		if s.opening {
			s.gone = true // the object may accept it, or has ended it already
			return
		}
		how := closing{Code: closeRestart, Reason: "the object does not have the socket"}
		if out.Closing != nil {
			how = *out.Closing
		}
		e.removeLocked(s)
		s.close(how)
		return
	}
	if out.Received != 0 {
		e.acknowledgeLocked(s, out.Received)
	}
	if frame != nil {
		s.push(frame)
	}
	if out.Closing != nil {
		s.close(*out.Closing)
	}
}
