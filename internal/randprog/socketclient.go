package randprog

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"time"

	"github.com/coder/websocket"

	"github.com/dohost/dohost/dohosttest"
	"github.com/dohost/dohost/internal/sockettest"
)

// maxSockets is the number of sockets of an object.
const maxSockets = 3

// Connect connects a client to an object, which executes a program and accepts the socket in it.
func (w *Observer) Connect(ctx context.Context, h *dohosttest.Host, r *rand.Rand, k int, p Program) error {
	p.Code = slices.Insert(slices.Clone(p.Code), r.IntN(len(p.Code)+1), Instr{Op: Accept, K: r.IntN(numKeys), N: r.IntN(100)})
	w.Sent(objectName(k) + ", a request for a socket" + ": " + p.String())
	s := w.request(objectName(k), nameOf(p))
	serve := http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		h.Host().ServeObject(rw, r, machines.Get(h, objectName(k)).ID())
	})
	q := request{Name: nameOf(p), Code: p.Code, Socket: true}
	ws, _, err := sockettest.Dial(context.WithValue(ctx, requestKey{}, q), serve, "/")
	if err != nil {
		w.disconnected(s, noClosingFrame)
		return w.Err()
	}
	w.connected(s, ws)
	go func() {
		for {
			_, text, err := ws.Read(context.WithoutCancel(ctx))
			if err != nil {
				w.disconnected(s, int(websocket.CloseStatus(err)))
				_ = ws.CloseNow() // in case it is open
				return
			}
			w.received(s, string(text))
		}
	}()
	return w.Err()
}

// Message sends a program through a socket of an object. If there is none, it connects one with that program.
func (w *Observer) Message(ctx context.Context, h *dohosttest.Host, r *rand.Rand, k int, p Program) error {
	s := w.choose(r, objectName(k))
	if s == nil {
		return w.Connect(ctx, h, r, k, p)
	}
	w.Sent(objectName(k) + ", a message of the socket of " + s.name + ": " + p.String())
	text := w.beginMessage(s, p)
	w.endMessage(s, s.ws.Write(context.WithoutCancel(ctx), websocket.MessageText, []byte(text)))
	return w.Err()
}

// Leave ends the connection of a socket, with a closing frame or without.
func (w *Observer) Leave(r *rand.Rand, k int) error {
	s := w.choose(r, objectName(k))
	if s == nil {
		return w.Err()
	}
	w.beginLeave(s)
	if r.IntN(2) == 0 {
		_ = s.ws.CloseNow() // the host may have been first
	} else {
		_ = s.ws.Close(3000, "")
	}
	return w.Err()
}

// request adds a socket that a client asks an object for.
func (w *Observer) request(object, name string) *socket {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := &socket{name: name, o: w.objectLocked(object)}
	w.sockets[name] = s
	w.list = append(w.list, s)
	return s
}

// choose chooses a connected socket of an object, or nil.
func (w *Observer) choose(r *rand.Rand, object string) *socket {
	w.mu.Lock()
	defer w.mu.Unlock()
	list := w.connectedLocked(object)
	if list = slices.DeleteFunc(list, func(s *socket) bool { return s.busy }); len(list) == 0 {
		return nil
	}
	return list[r.IntN(len(list))]
}

// full reports whether an object has maxSockets sockets.
func (w *Observer) full(object string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.connectedLocked(object)) >= maxSockets
}

func (w *Observer) connectedLocked(object string) (list []*socket) {
	for _, s := range w.list {
		if s.o.name == object && s.ws != nil && !s.leaving && !s.ended {
			list = append(list, s)
		}
	}
	return list
}

// connected records that the client of a socket was answered.
func (w *Observer) connected(s *socket, ws *websocket.Conn) {
	w.mu.Lock()
	defer w.mu.Unlock()
	s.ws = ws
	if e := w.events[s.name]; e == nil || !e.ended || s.process == nil {
		w.faultOf(s.o, "the socket of %s is connected, but its event has not ended", s.name)
	} else {
		w.acknowledgeLocked(s.o, e.serial)
	}
}

// received records that a client has received a frame.
func (w *Observer) received(s *socket, text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	var n int
	if _, err := fmt.Sscanf(text, "%d", &n); err != nil || n >= len(w.frames) {
		w.faultOf(s.o, "the socket of %s receives %q", s.name, text)
		return
	}
	w.receivedLocked(s, w.frames[n], fmt.Sprintf("frame %d", n))
}

func (w *Observer) receivedLocked(s *socket, out *output, what string) {
	what += " of the socket of " + s.name
	w.leavesLocked(out, what)
	if s.received == len(s.expected) || s.expected[s.received] != out {
		w.faultOf(s.o, "%s arrives out of order, twice, or at another socket; %d frames were received", what, s.received)
		return
	}
	s.received++
}

// disconnected records that the connection of a client has ended, or was refused.
func (w *Observer) disconnected(s *socket, code int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	s.ended, s.code = true, code
	switch {
	case s.leaving || code < 4000:
	case s.received == len(s.expected) || s.expected[s.received].code != code:
		w.faultOf(s.o, "the socket of %s is closed with %d after %d frames", s.name, code, s.received)
	default:
		w.receivedLocked(s, s.expected[s.received], fmt.Sprintf("closing frame %d", code))
	}
}

// beginMessage returns the text of a message that a client is about to send.
func (w *Observer) beginMessage(s *socket, p Program) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.code[nameOf(p)] = p.Code
	s.busy = true
	s.requested++
	return fmt.Sprintf("%d %q", s.requested, nameOf(p))
}

func (w *Observer) endMessage(s *socket, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	s.busy = false
	if err == nil {
		s.written++
	}
}

func (w *Observer) beginLeave(s *socket) {
	w.mu.Lock()
	defer w.mu.Unlock()
	s.leaving = true
}

// closingTime is longer than any closing handshake.
const closingTime = time.Minute

// checkClients checks, when the objects are at rest, that the connections of the model are there, and no others, and
// that no frame or message was lost.
func (w *Observer) checkClients(h *dohosttest.Host) {
	h.Advance(closingTime)
	present := h.Host()
	inHost := map[string]int{}
	for k := range Objects {
		inHost[objectName(k)] = len(present.Sockets(machines.Get(h, objectName(k)).ID()))
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, s := range w.list {
		owned := s.process == present && slices.Contains(s.o.sockets, s)
		switch {
		case !owned && !s.ended:
			w.faultOf(s.o, "the connection of the socket of %s has not ended", s.name)
		case !owned:
		case s.leaving, s.closed:
			w.faultOf(s.o, "the object was not notified of the end of the socket of %s", s.name)
		case s.ended:
			w.faultOf(s.o, "the connection of the socket of %s has ended", s.name)
		case s.received < len(s.expected):
			w.faultOf(s.o, "the socket of %s has received %d of %d frames", s.name, s.received, len(s.expected))
		case s.handled < s.written:
			w.faultOf(s.o, "of the socket of %s, %d of %d messages were handled", s.name, s.handled, s.written)
		}
		if owned {
			inHost[s.o.name]--
		}
	}
	for k := range Objects {
		if name := objectName(k); inHost[name] != 0 {
			w.faultOf(w.objectLocked(name), "the host has %+d sockets compared with the model", inHost[name])
		}
	}
}
