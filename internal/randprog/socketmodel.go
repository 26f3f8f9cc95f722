package randprog

import (
	"fmt"
	"slices"

	"github.com/coder/websocket"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/internal/randtest"
)

// socketTags are the tags in programs. The empty one selects all sockets.
var socketTags = []string{"", "a", "b"}

func socketTag(k int) string { return socketTags[k%len(socketTags)] }

// socket is a socket in the model.
type socket struct {
	name    string // the first of its tags
	o       *object
	process *dohost.Host

	// As the object has it.
	tags       []string
	attachment string
	closing    *output // of the last CloseSocket; nil: none
	closed     bool    // a CloseSocket was committed
	expected   []*output
	over       bool // the object was notified of the end
	handled    int  // messages whose handler has begun

	// As the client has it.
	ws        *websocket.Conn // nil until it is connected
	busy      bool            // the client sends a message
	requested int             // messages that the client has begun to send
	written   int             // messages that the client has sent
	received  int             // of expected
	leaving   bool            // the client ends the connection
	ended     bool            // the connection has ended
	code      int             // of the closing frame that ended it
}

// muted reports whether the object has closed the socket. A Close that was rolled back has no effect.
func (s *socket) muted() bool { return s.over || s.closing != nil && s.closing.state != dropped }

// unsure reports whether the object may have lost the socket: its client leaves, the host has closed it because the
// incarnation or the host ends, or the store has failed.
func (s *socket) unsure() bool {
	return s.leaving || s.ended && (s.code == dohost.CloseRestart || s.code == noClosingFrame) || s.failing()
}

// failing reports whether the store has failed, and the host is about to end all incarnations. Until then an object may
// find that its handshakes and its Closes, which are lost with the commits, have failed.
func (s *socket) failing() bool { return s.process.Err() != nil }

// noClosingFrame is the code of a connection that ends without a closing frame.
const noClosingFrame = -1

// foundSocket is a socket as an object finds it.
type foundSocket struct {
	tags       []string
	attachment string
}

func describe(list []*dohost.Socket) []foundSocket {
	found := make([]foundSocket, len(list))
	for i, s := range list {
		found[i] = foundSocket{s.Tags(), string(s.Attachment())}
	}
	return found
}

// expect adds a frame that was committed to the frames that its clients receive.
func (out *output) expect() {
	for _, s := range out.to {
		if !s.closed {
			s.expected = append(s.expected, out)
			s.closed = out.code != 0
		}
	}
}

// checkSocketsLocked compares the sockets that an object finds by a tag with those of the model. An unsure
// socket may be among them or not.
func (w *Observer) checkSocketsLocked(o *object, by, tag string, found []foundSocket) {
	rest := found
	for _, s := range o.sockets {
		switch {
		case s.muted() && !s.failing() || tag != "" && !slices.Contains(s.tags, tag):
		case len(rest) > 0 && slices.Equal(rest[0].tags, s.tags) && rest[0].attachment == s.attachment:
			rest = rest[1:]
		case !s.unsure():
			w.faultOf(o, "%s finds the sockets %v with the tag %q, want %v %q there", by, found, tag, s.tags, s.attachment)
			return
		}
	}
	if len(rest) > 0 {
		w.faultOf(o, "%s finds the sockets %v with the tag %q, want nothing instead of %v", by, found, tag, rest)
	}
}

// wakeSockets compares the sockets that a new incarnation finds.
func (w *Observer) wakeSockets(name string, found map[string][]foundSocket) {
	w.mu.Lock()
	defer w.mu.Unlock()
	o := w.objectLocked(name)
	o.sockets = slices.DeleteFunc(o.sockets, func(s *socket) bool { return s.process != o.process })
	for _, tag := range socketTags {
		w.checkSocketsLocked(o, fmt.Sprintf("incarnation %d", o.incarnation), tag, found[tag])
	}
}

// accepted adds a socket to the object of an event.
func (w *Observer) accepted(e *event, name string, process *dohost.Host, found foundSocket) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.actsLocked(e)
	w.Compared()
	s := w.sockets[name]
	s.process, s.tags, s.attachment = process, found.tags, found.attachment
	e.o.sockets = append(e.o.sockets, s)
}

// frame adds a frame for sockets to the batch of an event, and returns its number. A code makes it a closing frame.
func (w *Observer) frame(e *event, code int, to []foundSocket) (*output, int) {
	out := w.emit(e)
	w.mu.Lock()
	defer w.mu.Unlock()
	out.code = code
	for _, f := range to {
		if s := w.sockets[f.tags[0]]; s != nil {
			out.to = append(out.to, s)
		}
	}
	w.frames = append(w.frames, out)
	return out, len(w.frames) - 1
}

// socketStep compares an instruction for sockets with the model. found are the sockets with its tag; name is that of
// the socket that it was for, if it was for one.
func (w *Observer) socketStep(e *event, in Instr, found []foundSocket, name string, out *output, got string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.actsLocked(e)
	w.Compared()
	o := e.o
	w.checkSocketsLocked(o, e.name+": "+randtest.Literal(in), socketTag(in.K), found)
	if got != "" && out != nil {
		out.state = dropped
		o.pending = slices.DeleteFunc(o.pending, func(p *output) bool { return p == out })
	}
	s, want := w.sockets[name], ""
	switch {
	case s == nil:
	case got == "closed" && s.unsure(), got == "" && s.failing():
		want = got
	case s.muted():
		want = "closed"
	}
	if got != want {
		w.faultOf(o, "%s: %s for the socket of %s returns %q, want %q", e.name, randtest.Literal(in), name, got, want)
	}
	switch {
	case s == nil || got != "":
	case in.Op == CloseSocket:
		s.closing = out
	case in.Op == Attach:
		s.attachment = attachment(in.N)
	}
}

// message begins the event of a message, and returns its program.
func (w *Observer) message(object, name string, incarnation int, text string) (*event, []Instr) {
	var number int
	var program string
	if _, err := fmt.Sscanf(text, "%d %q", &number, &program); err != nil {
		program = err.Error()
	}
	e := w.begin(object, program, incarnation, nil)
	w.mu.Lock()
	defer w.mu.Unlock()
	if e.alive() {
		s := w.ownLocked(e, name)
		if s.handled++; number != s.handled {
			w.faultOf(e.o, "%s is message %d of the socket of %s, want %d", program, number, name, s.handled)
		}
	}
	return e, w.code[program]
}

// ownLocked returns the socket of an event.
func (w *Observer) ownLocked(e *event, name string) *socket {
	s := w.sockets[name]
	if s == nil || !slices.Contains(e.o.sockets, s) {
		w.faultOf(e.o, "%s is of the socket of %s, which the object does not have", e.name, name)
		return &socket{}
	}
	return s
}

// closedNotice begins the event of the end of a socket. From then on the object does not find the socket.
func (w *Observer) closedNotice(object, name string, incarnation int, how dohost.Closing) *event {
	e := w.begin(object, "the end of the socket of "+name, incarnation, nil)
	w.mu.Lock()
	defer w.mu.Unlock()
	if !e.alive() {
		return e
	}
	s := w.ownLocked(e, name)
	s.over = true
	e.o.sockets = slices.DeleteFunc(e.o.sockets, func(other *socket) bool { return other == s })
	switch {
	case s.closed && !s.unsure() && (!how.Clean || how.Code != s.closing.code):
		w.faultOf(e.o, "%s: the object has closed it with %d, the end is %+v", e.name, s.closing.code, how)
	case !s.closed && !s.unsure():
		w.faultOf(e.o, "%s, which is connected: %+v", e.name, how)
	case !s.closed && s.handled < s.written:
		w.faultOf(e.o, "%s, before message %d of %d", e.name, s.handled+1, s.written)
	}
	return e
}
