package cluster

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/internal/sockettest"
)

// fakeOwner is an object with durable sockets. It handles inputs as a host does: each once, in order. It answers each frame with the same.
type fakeOwner struct {
	mu       sync.Mutex
	current  *fakeLink
	links    []*dohost.LinkOptions
	handled  map[uint64][]*dohost.LinkInput
	rows     []*dohost.LinkOutput
	position int
	acks     []string

	step, cutAt int                          // the link ends at this step; 0: at none
	every       bool                         // and at each multiple of it
	poison      func(*dohost.LinkInput) bool // the link ends before such an input is durable
	silent      bool                         // inputs are neither handled nor acknowledged
	refusal     error                        // of LinkSockets
	other       *fakeOwner                   // with the sockets of otherObject
}

// fakeLink is a link to a fakeOwner.
type fakeLink struct {
	owner *fakeOwner
	o     *dohost.LinkOptions
	done  chan struct{}
	ended bool
}

func newOwner() *fakeOwner {
	return &fakeOwner{handled: map[uint64][]*dohost.LinkInput{}, other: &fakeOwner{handled: map[uint64][]*dohost.LinkInput{}}}
}

// now returns the newest link.
func (o *fakeOwner) now() *fakeLink {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.current
}

// linked returns the options of all links.
func (o *fakeOwner) linked() []*dohost.LinkOptions {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.links)
}

func (l *fakeLink) endLocked() {
	if !l.ended {
		l.ended = true
		close(l.done)
	}
}

// cutLocked is a step. It ends the link at the step that the test has chosen.
func (o *fakeOwner) cutLocked(l *fakeLink) bool {
	if o.step++; o.step == o.cutAt || o.every && o.step%o.cutAt == 0 {
		l.endLocked()
	}
	return l.ended
}

// Deliver is a step before the input is durable, one before it is acknowledged, and one after that.
func (l *fakeLink) Deliver(in *dohost.LinkInput) error {
	o := l.owner
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.poison != nil && o.poison(in) {
		l.endLocked()
	}
	if o.cutLocked(l) {
		return dohost.ErrClosed
	}
	if o.silent {
		return nil
	}
	if list := o.handled[in.Socket]; in.Number == uint64(len(list)+1) {
		o.handled[in.Socket] = append(list, in)
		if in.Closing == nil {
			o.sendLocked(&dohost.LinkOutput{Sockets: []uint64{in.Socket}, Frame: &in.Frame})
		} else {
			o.rows = slices.DeleteFunc(o.rows, func(r *dohost.LinkOutput) bool { return slices.Equal(r.Sockets, []uint64{in.Socket}) })
		}
	}
	if o.cutLocked(l) {
		return dohost.ErrClosed
	}
	l.o.Send(&dohost.LinkOutput{Sockets: []uint64{in.Socket}, Received: in.Number})
	o.cutLocked(l)
	return nil
}

// sendLocked adds a row, and sends it: a step before that.
func (o *fakeOwner) sendLocked(out *dohost.LinkOutput) {
	o.position++
	out.Position = fmt.Sprintf("history1%06d", o.position)
	o.rows = append(o.rows, out)
	if o.current != nil && !o.cutLocked(o.current) {
		o.current.o.Send(out)
	}
}

// send sends an output of the object.
func (o *fakeOwner) send(out *dohost.LinkOutput) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.sendLocked(out)
}

func (l *fakeLink) Acknowledge(position string) {
	o := l.owner
	o.mu.Lock()
	defer o.mu.Unlock()
	o.acks = append(o.acks, position)
	o.rows = slices.DeleteFunc(o.rows, func(r *dohost.LinkOutput) bool { return r.Position <= position })
}

func (l *fakeLink) Done() <-chan struct{} { return l.done }

func (l *fakeLink) Close() {
	l.owner.mu.Lock()
	defer l.owner.mu.Unlock()
	l.endLocked()
}

// fakeHost is the host of a fakeOwner.
type fakeHost struct {
	served
	owner *fakeOwner
}

func (h fakeHost) linkSockets(_ context.Context, id dohost.ID, options *dohost.LinkOptions) (socketLink, error) {
	o := h.owner
	if id == otherObject {
		o = o.other
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.links = append(o.links, options)
	if o.refusal != nil {
		return nil, o.refusal
	}
	l := &fakeLink{owner: o, o: options, done: make(chan struct{})}
	if o.current != nil {
		o.current.endLocked()
	}
	o.current = l
	for _, row := range o.rows {
		if row.Position > options.After && !o.cutLocked(l) {
			options.Send(row)
		}
	}
	return l, nil
}

// accepts is a handler that accepts a durable socket for each request.
func accepts(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set(dohost.RelayHeader, "accepted")
	w.WriteHeader(http.StatusOK)
}

// edgeTest has a node with an edge, and another node. One of them has the cell of the object.
type edgeTest struct {
	*testing.T
	edge, other *Node
	router      http.Handler // of the edge
	transport   *http.Transport
	owner       *fakeOwner
	dials       map[string]*sockettest.Pipes
}

// otherObject is the object of requests with the path /other.
var edgeObject, otherObject = dohost.ID{Class: "room", Name: "1"}, dohost.ID{Class: "room", Name: "other"}

// withEdge runs f in a bubble. The owner is on the other node if wire.
func withEdge(t *testing.T, wire bool, h http.HandlerFunc, f func(t *edgeTest)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		e := &edgeTest{T: t, owner: newOwner(), dials: map[string]*sockettest.Pipes{}}
		transport := &http.Transport{DialContext: func(_ context.Context, _, address string) (net.Conn, error) {
			host, _, _ := net.SplitHostPort(address)
			return e.dials[host].Dial(), nil
		}, DisableKeepAlives: true}
		e.transport = transport
		start := func(id string) (*Node, http.Handler) {
			n := &Node{o: Options{Secret: []byte(testSecret), Cell: func(dohost.ID) int { return 0 }}, self: Member{ID: id}, log: slog.New(slog.DiscardHandler)}
			n.cells = append(n.cells, &localCell{node: n})
			router := n.Router(&RouterOptions{
				Transport: transport, MaxFrame: 1 << 20, Cell: func(*http.Request) (int, bool) { return 0, true },
				Durable: func(r *http.Request) (dohost.ID, bool) {
					switch r.URL.Path {
					case "/other":
						return otherObject, true
					case "/third":
						return dohost.ID{Class: "room", Name: "third"}, true
					}
					return edgeObject, r.URL.Path != "/plain"
				},
			})
			l := sockettest.NewPipes()
			e.dials[id] = l
			server := &http.Server{Handler: router}
			go func() { _ = server.Serve(l) }()
			t.Cleanup(func() { _ = server.Close() })
			return n, router
		}
		e.edge, e.router = start("edge")
		t.Cleanup(e.edge.edge.close) // if f fails
		e.other, _ = start("other")
		at := e.edge
		if wire {
			at = e.other
		}
		e.serve(at, h)
		f(e)
		e.edge.edge.close()
		synctest.Wait()
		if n := e.objects(); n != 0 {
			t.Errorf("%d objects are left", n)
		}
	})
}

// serve makes a node serve the cell.
func (e *edgeTest) serve(at *Node, h http.HandlerFunc) {
	s := Snapshot{Plan: Plan{Cells: []Cell{{Owner: at.self.ID, Holder: at.self.ID}}}}
	for _, n := range []*Node{e.edge, e.other} {
		s.Members = append(s.Members, Member{ID: n.self.ID, Address: "http://" + n.self.ID})
	}
	for _, n := range []*Node{e.edge, e.other} {
		n.cells[0].serves.Store(nil)
		n.known.Store(newView(&s))
	}
	host := Host(fakeHost{served{h}, e.owner})
	at.cells[0].serves.Store(&host)
}

// dial connects a client.
func (e *edgeTest) dial() *websocket.Conn {
	e.Helper()
	return e.dialPath("/1")
}

func (e *edgeTest) dialPath(path string) *websocket.Conn {
	e.Helper()
	c, _, err := sockettest.Dial(e.Context(), e.router, path)
	if err != nil {
		e.Fatal(err)
	}
	e.Cleanup(func() { _ = c.CloseNow() })
	return c
}

func (e *edgeTest) write(c *websocket.Conn, text string) {
	e.Helper()
	if err := c.Write(e.Context(), websocket.MessageText, []byte(text)); err != nil {
		e.Fatal(err)
	}
}

func (e *edgeTest) want(c *websocket.Conn, text string) {
	e.Helper()
	if _, got, err := c.Read(e.Context()); err != nil || string(got) != text {
		e.Fatalf("%q, %v, want %q", got, err, text)
	}
}

// wantClosed reads until the connection ends.
func (e *edgeTest) wantClosed(c *websocket.Conn, code websocket.StatusCode) {
	e.Helper()
	for {
		if _, _, err := c.Read(e.Context()); err != nil {
			if websocket.CloseStatus(err) != code {
				e.Errorf("%v, want code %d", err, code)
			}
			return
		}
	}
}

// objects returns the number of objects that have sockets at the edge.
func (e *edgeTest) objects() int {
	e.edge.edge.mu.Lock()
	defer e.edge.edge.mu.Unlock()
	return len(e.edge.edge.entries)
}

// got returns the inputs of a socket that the object has handled: texts, and the code of the end.
func (o *fakeOwner) got(socket uint64) (list []string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, in := range o.handled[socket] {
		if in.Closing != nil {
			list = append(list, fmt.Sprint(in.Closing.Code))
		} else {
			list = append(list, string(in.Frame.Data))
		}
	}
	return list
}

func (e *edgeTest) wantHandled(socket uint64, want ...string) {
	e.Helper()
	if got := e.owner.got(socket); !slices.Equal(got, want) {
		e.Errorf("the object has handled %q, want %q", got, want)
	}
}

// TestFramesArriveOnceAndInOrder ends a link at each step of a conversation, and at each second, third and so on.
func TestFramesArriveOnceAndInOrder(t *testing.T) {
	for _, wire := range []bool{false, true} {
		for _, every := range []bool{false, true} {
			ended := false
			for cutAt := 1; !ended; cutAt++ {
				if cutAt > 100 {
					t.Fatal("the conversation does not end")
				}
				withEdge(t, wire, accepts, func(t *edgeTest) {
					t.owner.cutAt, t.owner.every = cutAt, every
					if every {
						t.owner.cutAt += 3 // so that an input is acknowledged now and then
					}
					c := t.dial()
					for i := range 3 {
						t.write(c, fmt.Sprint(2*i))
						t.write(c, fmt.Sprint(2*i+1))
						t.want(c, fmt.Sprint(2*i))
						t.want(c, fmt.Sprint(2*i+1))
					}
					_ = c.Close(4001, "bye")
					time.Sleep(10 * time.Second)
					t.wantHandled(1, "0", "1", "2", "3", "4", "5", "4001")
					t.owner.mu.Lock()
					defer t.owner.mu.Unlock()
					if n := t.objects(); n != 0 || len(t.owner.rows) != 0 {
						t.Errorf("cut at %d: %d objects and %d rows are left", cutAt, n, len(t.owner.rows))
					}
					ended = t.owner.step < t.owner.cutAt
					if len(t.owner.links) == 1 && t.owner.step > t.owner.cutAt+1 {
						t.Errorf("cut at %d: there was one link", cutAt)
					}
				})
			}
		}
	}
}
