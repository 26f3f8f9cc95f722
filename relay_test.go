package dohost_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"time"

	"github.com/dohost/dohost"
)

// memoryEdge is an edge in memory. Its methods are for one goroutine.
type memoryEdge struct {
	name string
	id   dohost.ID
	host func() *dohost.Host

	mu       sync.Mutex
	sockets  map[uint64]*edgeSocket
	next     uint64
	after    string
	links    int // that were made
	link     *dohost.SocketLink
	position []string // of all outputs that were received
}

// edgeSocket is a socket of a memoryEdge.
type edgeSocket struct {
	number  uint64
	opening bool
	request *http.Request
	sent    uint64             // inputs
	unacked []dohost.LinkInput // in order
	frames  []string           // that the object has sent
	closing *dohost.Closing    // by the object
	gone    bool               // the object does not have the socket, and has not got the end
	dead    bool               // nothing more is received
	ended   bool               // the end is an input
}

// errInVain is the error of an edge that has waited for long.
var errInVain = errors.New("the edge waits in vain")

func newMemoryEdge(name string, id dohost.ID, host func() *dohost.Host) *memoryEdge {
	return &memoryEdge{name: name, id: id, host: host, sockets: map[uint64]*edgeSocket{}, next: 1}
}

// receive is LinkOptions.Send.
func (e *memoryEdge) receive(o *dohost.LinkOutput) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if o.Position != "" {
		if o.Position <= e.after {
			return
		}
		e.after = o.Position
		e.position = append(e.position, o.Position)
	}
	for _, number := range o.Sockets {
		s := e.sockets[number]
		switch {
		case s == nil || s.dead:
		case o.Gone && s.ended: // the object has had the end, and the acknowledgment was lost
			s.unacked, s.dead = nil, true
		case o.Gone:
			s.gone, s.dead, s.closing = !s.opening, !s.opening, o.Closing
		case o.Frame != nil:
			s.frames = append(s.frames, string(o.Frame.Data))
		case o.Closing != nil:
			s.closing = o.Closing
		default:
			s.unacked = slices.DeleteFunc(s.unacked, func(in dohost.LinkInput) bool { return in.Number <= o.Received })
		}
	}
}

// connect connects a client, which repeats its request until the object accepts the socket.
func (e *memoryEdge) connect(ctx context.Context, path string) (*edgeSocket, error) {
	for range 100 {
		r := httptest.NewRequestWithContext(ctx, http.MethodGet, path, http.NoBody)
		r.Header = http.Header{
			"Upgrade": {"websocket"}, "Connection": {"Upgrade"}, "Sec-Websocket-Version": {"13"}, "Sec-Websocket-Key": {"AAAAAAAAAAAAAAAAAAAAAA=="},
		}
		e.mu.Lock()
		s := &edgeSocket{number: e.next, opening: true, request: r}
		e.next++
		e.sockets[s.number] = s
		e.mu.Unlock()
		w := httptest.NewRecorder()
		e.host().ServeObject(w, dohost.RelayRequest(r, dohost.RelayedSocket{Edge: e.name, Number: s.number}), e.id)
		accepted := w.Header().Get(dohost.RelayHeader) != ""
		e.mu.Lock()
		if s.opening = false; !accepted {
			delete(e.sockets, s.number)
		}
		e.mu.Unlock()
		if accepted {
			return s, nil
		}
		if err := dohost.Sleep(ctx, 50*time.Millisecond); err != nil {
			return nil, err
		}
	}
	return nil, errInVain
}

// ensureLink makes a link if there is none, and delivers the inputs that have no acknowledgment.
func (e *memoryEdge) ensureLink(ctx context.Context) {
	if e.link != nil {
		select {
		case <-e.link.Done():
			e.link = nil
		default:
			return
		}
	}
	e.mu.Lock()
	o := &dohost.LinkOptions{Edge: e.name, Next: e.next, After: e.after, Send: e.receive}
	for _, s := range e.sockets {
		if !s.gone {
			o.Sockets = append(o.Sockets, dohost.LinkedSocket{Number: s.number, Opening: s.opening, Handshake: s.request})
		}
	}
	e.mu.Unlock()
	slices.SortFunc(o.Sockets, func(a, b dohost.LinkedSocket) int { return int(a.Number) - int(b.Number) })
	link, err := e.host().LinkSockets(ctx, e.id, o)
	if err != nil {
		return
	}
	e.link, e.links = link, e.links+1
	for _, s := range o.Sockets {
		e.mu.Lock()
		unacked := slices.Clone(e.sockets[s.Number].unacked)
		e.mu.Unlock()
		for _, in := range unacked {
			_ = link.Deliver(&in) // again, over the next link
		}
	}
}

// send sends a frame, and waits until it is acknowledged, or the socket has ended.
func (e *memoryEdge) send(ctx context.Context, s *edgeSocket, in dohost.LinkInput) error {
	e.ensureLink(ctx)
	e.mu.Lock()
	s.sent++
	in.Socket, in.Number = s.number, s.sent
	s.ended = in.Closing != nil
	s.unacked = append(s.unacked, in)
	e.mu.Unlock()
	if e.link != nil {
		_ = e.link.Deliver(&in) // again, over the next link
	}
	return e.wait(ctx, func() bool { return len(s.unacked) == 0 || s.gone })
}

// wait waits for a condition.
func (e *memoryEdge) wait(ctx context.Context, ok func() bool) error {
	for range 2000 {
		e.mu.Lock()
		done := ok()
		after := e.after
		e.mu.Unlock()
		if done {
			if e.link != nil && after != "" {
				e.link.Acknowledge(after)
			}
			return nil
		}
		if err := dohost.Sleep(ctx, 50*time.Millisecond); err != nil {
			return err
		}
		e.ensureLink(ctx)
	}
	return errInVain
}

func text(s string) dohost.LinkInput {
	return dohost.LinkInput{Frame: dohost.Frame{Text: true, Data: []byte(s)}}
}

// tally counts the frames of its durable sockets, and tells all of them each new count.
type tally struct {
	st     *dohost.State
	closed *[]string // the ends of sockets that it was notified of
}

const tallies dohost.Namespace[tally] = "tally"

func tallyClass(closed *[]string, h *dohost.Handlers[tally]) dohost.Class {
	h.OnHTTP = func(t *tally, w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/delegate" && t.st.ID().Name == "x" {
			if err := t.st.Delegate(w, r, dohost.ID{Class: string(tallies), Name: "y"}); err != nil {
				t.st.WriteError(w, err)
			}
			return
		}
		tags := r.URL.Query()["tag"]
		err := dohost.Transaction(r.Context(), func(ctx context.Context) error {
			_, err := t.st.Accept(w, r.WithContext(ctx), &dohost.AcceptOptions{Tags: tags, Attachment: []byte("new")})
			if err == nil && r.URL.Path == "/undo" {
				err = errors.New("undo")
			}
			return err
		})
		if err != nil && r.URL.Path != "/undo" {
			t.st.WriteError(w, err)
		}
	}
	h.OnSocket = &dohost.SocketHandlers[tally]{
		Durable: true,
		Message: (*tally).message,
		Closed: func(t *tally, ctx context.Context, s *dohost.Socket, how dohost.Closing) error {
			*t.closed = append(*t.closed, fmt.Sprint(how.Code, " ", how.Reason))
			return nil
		},
	}
	return dohost.Bind(tallies, func(_ context.Context, st *dohost.State) (*tally, error) { return &tally{st, closed}, nil }, h)
}

// count counts a frame, and tells all sockets.
func (t *tally) count(ctx context.Context, text, attachment string) error {
	store := t.st.Storage()
	n, _, err := dohost.Get[int](ctx, store, "count")
	if err != nil {
		return err
	}
	n++
	if err := dohost.Put(ctx, store, "count", n); err != nil {
		return err
	}
	return t.st.Broadcast(ctx, dohost.Frame{Text: true, Data: fmt.Appendf(nil, "%d %s %s", n, text, attachment)}, t.st.Sockets(""))
}

func (t *tally) message(ctx context.Context, s *dohost.Socket, f dohost.Frame) error {
	err := dohost.Transaction(ctx, func(ctx context.Context) error { // a frame that fails has no effect
		err := t.count(ctx, string(f.Data), string(s.Attachment()))
		switch {
		case err != nil:
			return err
		case string(f.Data) == "attach":
			return s.SetAttachment(ctx, []byte("attached"))
		case string(f.Data) == "bye":
			return s.Close(ctx, 3000, "bye")
		}
		return nil
	})
	if errors.Is(err, dohost.ErrNoSpace) {
		*t.closed = append(*t.closed, "no space")
	}
	if err != nil || string(f.Data) != "pair" { // two frames in two records
		return err
	}
	if err := dohost.Sleep(ctx, time.Second); err != nil {
		return err
	}
	return s.Send(ctx, dohost.Frame{Text: true, Data: []byte("second")})
}
