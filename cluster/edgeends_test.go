package cluster

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/internal/sockettest"
)

// both runs f with the owner on the node of the edge, and on another one.
func both(t *testing.T, h http.HandlerFunc, f func(t *edgeTest)) {
	t.Helper()
	for _, wire := range []bool{false, true} {
		withEdge(t, wire, h, f)
	}
}

// TestHandshakeThatIsRefusedPassesThrough has an object that answers without a WebSocket, and with a socket that is not durable.
func TestHandshakeThatIsRefusedPassesThrough(t *testing.T) {
	both(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/hijack" {
			if c, err := websocket.Accept(w, r, nil); err == nil {
				go func() { _ = c.Close(4002, "") }()
			}
			return
		}
		w.Header().Set("X-Kept", "yes")
		w.WriteHeader(http.StatusTeapot)
		_, _ = io.WriteString(w, "refused")
	}, func(t *edgeTest) {
		if _, _, err := sockettest.Dial(t.Context(), t.router, "/1"); err == nil || !strings.Contains(err.Error(), "418: refused") {
			t.Errorf("%v", err)
		}
		if n := t.objects(); n != 0 || len(t.owner.linked()) != 0 {
			t.Errorf("%d objects, %d links", n, len(t.owner.linked()))
		}
		c, _, err := websocket.Dial(t.Context(), "http://edge/hijack", &websocket.DialOptions{HTTPClient: &http.Client{Transport: t.transport}})
		if err != nil {
			t.Fatal(err)
		}
		t.wantClosed(c, 4002)
	})
}

// TestInputThatEndsEachLinkIsDropped has a frame that the object cannot handle, and another socket of the object.
func TestInputThatEndsEachLinkIsDropped(t *testing.T) {
	both(t, accepts, func(t *edgeTest) {
		tries := 0
		t.owner.poison = func(in *dohost.LinkInput) bool {
			bad := string(in.Frame.Data) == "bad"
			if bad {
				tries++
			}
			return bad
		}
		c, other := t.dial(), t.dial()
		t.write(c, "good")
		t.want(c, "good")
		t.write(c, "bad")
		t.write(c, "later")
		t.wantClosed(c, 1011)
		t.write(other, "text")
		t.want(other, "text")
		time.Sleep(time.Second)
		t.wantHandled(1, "good", "1011")
		t.wantHandled(2, "text")
		t.owner.mu.Lock()
		defer t.owner.mu.Unlock()
		// One more if the frame before it was not acknowledged when the first link delivered it.
		if tries != maxTries && tries != maxTries+1 {
			t.Errorf("the frame was delivered %d times", tries)
		}
	})
}

// TestEndThatEndsEachLinkIsGivenUp has an object that cannot handle the end of a socket.
func TestEndThatEndsEachLinkIsGivenUp(t *testing.T) {
	both(t, accepts, func(t *edgeTest) {
		t.owner.poison = func(in *dohost.LinkInput) bool { return in.Closing != nil }
		_ = t.dial().Close(4001, "")
		time.Sleep(time.Minute)
		if n := t.objects(); n != 0 {
			t.Errorf("%d objects are left", n)
		}
	})
}

// TestClientThatReadsNothingIsClosed sends to a client that takes nothing for a while, and to a client that gets much in a burst.
func TestClientThatReadsNothingIsClosed(t *testing.T) {
	frame := &dohost.LinkOutput{Sockets: []uint64{1}, Frame: &dohost.Frame{Data: make([]byte, 600<<10)}}
	send := func(t *edgeTest, n int) {
		for range n {
			out := *frame
			t.owner.send(&out)
			synctest.Wait()
		}
	}
	both(t, accepts, func(t *edgeTest) {
		c := t.dial()
		c.SetReadLimit(1 << 20)
		send(t, 3)
		time.Sleep(stuckAfter + time.Second)
		send(t, 1)
		if _, _, err := c.Read(t.Context()); err != nil { // the frame that is being written
			t.Fatal(err)
		}
		if _, _, err := c.Read(t.Context()); websocket.CloseStatus(err) != 1013 {
			t.Errorf("after a pause: %v", err)
		}
		time.Sleep(time.Second)
		t.wantHandled(1, "1013")
	})
	both(t, accepts, func(t *edgeTest) {
		c := t.dial()
		c.SetReadLimit(1 << 20)
		send(t, 60)
		n := 0
		for ; ; n++ {
			if _, _, err := c.Read(t.Context()); err != nil {
				if websocket.CloseStatus(err) != 1013 {
					t.Errorf("after a burst: %v", err)
				}
				break
			}
		}
		if n != 1 {
			t.Errorf("%d frames", n)
		}
	})
}

// TestClientIsNotReadWhileManyInputsWait has an object that acknowledges nothing, and then everything.
func TestClientIsNotReadWhileManyInputsWait(t *testing.T) {
	const size, frames = 100 << 10, 30
	both(t, accepts, func(t *edgeTest) {
		t.owner.silent = true
		c := t.dial()
		c.SetReadLimit(1 << 20)
		var written atomic.Int64
		go func() {
			for range frames {
				if c.Write(t.Context(), websocket.MessageBinary, make([]byte, size)) != nil {
					return
				}
				written.Add(1)
			}
		}()
		time.Sleep(5 * time.Second)
		if got, want := written.Load(), int64(maxUnacked/size+1); got != want {
			t.Errorf("%d frames of the client were read, want %d", got, want)
		}
		t.owner.mu.Lock()
		t.owner.silent = false
		t.owner.current.endLocked()
		t.owner.mu.Unlock()
		for range frames {
			if _, p, err := c.Read(t.Context()); err != nil || len(p) != size {
				t.Fatal(len(p), err)
			}
		}
		if n := len(t.owner.got(1)); n != frames {
			t.Errorf("the object has handled %d frames", n)
		}
	})
}

// TestFramesWithoutDataAreBounded has a client that sends frames without data.
func TestFramesWithoutDataAreBounded(t *testing.T) {
	withEdge(t, false, accepts, func(t *edgeTest) {
		t.owner.silent = true
		c := t.dial()
		go func() {
			for c.Write(t.Context(), websocket.MessageBinary, nil) == nil {
			}
		}()
		time.Sleep(5 * time.Second)
		t.edge.edge.mu.Lock()
		e := t.edge.edge.entries[edgeObject]
		t.edge.edge.mu.Unlock()
		e.mu.Lock()
		defer e.mu.Unlock()
		s := e.sockets[1]
		if n := len(s.inputs); n != maxUnacked/inputOverhead+1 {
			t.Errorf("%d inputs", n)
		}
	})
}

// TestObjectClosesASocket has a frame before the closing frame.
func TestObjectClosesASocket(t *testing.T) {
	both(t, accepts, func(t *edgeTest) {
		c := t.dial()
		t.owner.send(&dohost.LinkOutput{Sockets: []uint64{1}, Frame: &dohost.Frame{Text: true, Data: []byte("last")}})
		t.owner.send(&dohost.LinkOutput{Sockets: []uint64{1}, Closing: &dohost.Closing{Code: 4003, Reason: "bye"}})
		t.want(c, "last")
		t.wantClosed(c, 4003)
		time.Sleep(time.Second)
		t.wantHandled(1, "4003")
	})
}

// TestSocketThatTheObjectDoesNotHaveIsClosed delivers nothing, and closes with 1012 or the code of the object.
func TestSocketThatTheObjectDoesNotHaveIsClosed(t *testing.T) {
	both(t, accepts, func(t *edgeTest) {
		c, other := t.dial(), t.dial()
		time.Sleep(time.Second)
		l := t.owner.now()
		l.o.Send(&dohost.LinkOutput{Sockets: []uint64{1, 7}, Gone: true})
		l.o.Send(&dohost.LinkOutput{Sockets: []uint64{2}, Gone: true, Closing: &dohost.Closing{Code: 4004}})
		t.wantClosed(c, 1012)
		t.wantClosed(other, 4004)
		time.Sleep(time.Second)
		t.wantHandled(1)
		t.wantHandled(2)
		if n := t.objects(); n != 0 {
			t.Errorf("%d objects are left", n)
		}
	})
}

// TestOpeningSocketIsListed has a link that ends while a second handshake waits. Its frames wait until the client is answered.
func TestOpeningSocketIsListed(t *testing.T) {
	slow := func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			time.Sleep(10 * time.Second)
		}
		accepts(w, r)
	}
	both(t, slow, func(t *edgeTest) {
		t.dial()
		got := make(chan *websocket.Conn)
		go func() {
			c, _, err := sockettest.Dial(t.Context(), t.router, "/slow")
			if err != nil {
				t.Error(err)
			}
			got <- c
		}()
		time.Sleep(time.Second)
		t.owner.mu.Lock()
		t.owner.current.endLocked()
		t.owner.mu.Unlock()
		time.Sleep(time.Second)
		o := t.owner.linked()[len(t.owner.linked())-1]
		opening := map[uint64]bool{}
		for _, s := range o.Sockets {
			opening[s.Number] = s.Opening
		}
		if len(opening) != 2 || opening[1] || !opening[2] || o.Next != 3 || o.Edge != "edge" {
			t.Errorf("%v, next %d", opening, o.Next)
		}
		t.owner.now().o.Send(&dohost.LinkOutput{Sockets: []uint64{2}, Gone: true}) // ignored
		t.owner.send(&dohost.LinkOutput{Sockets: []uint64{2}, Frame: &dohost.Frame{Text: true, Data: []byte("early")}})
		c := <-got
		t.want(c, "early")
		_ = c.CloseNow()
	})
}

// TestClientsOfAnObjectThatCannotBeReachedAreClosed ends the cell for longer than a minute.
func TestClientsOfAnObjectThatCannotBeReachedAreClosed(t *testing.T) {
	for name, end := range map[string]func(t *edgeTest){
		"no node": func(t *edgeTest) {
			s := Snapshot{Plan: Plan{Cells: []Cell{{}}}}
			for _, n := range []*Node{t.edge, t.other} {
				n.cells[0].serves.Store(nil)
				n.known.Store(newView(&s))
			}
		},
		"refused": func(t *edgeTest) {
			t.owner.mu.Lock()
			defer t.owner.mu.Unlock()
			t.owner.refusal = errors.New("refused")
		},
	} {
		both(t, accepts, func(t *edgeTest) {
			c := t.dial()
			t.write(c, "1")
			t.want(c, "1")
			end(t)
			t.owner.mu.Lock()
			t.owner.current.endLocked()
			t.owner.mu.Unlock()
			begun := time.Now()
			t.wantClosed(c, 1012)
			if took := time.Since(begun); took < linkWait || took > linkWait+2*longestLinkPause {
				t.Errorf("%s: closed after %v", name, took)
			}
		})
	}
}

// TestClientThatIsSilentIsPinged has a client that reads, and a client that is lost.
func TestClientThatIsSilentIsPinged(t *testing.T) {
	withEdge(t, false, accepts, func(t *edgeTest) {
		t.dial() // it reads nothing, so it answers no ping
		c := t.dial()
		c.CloseRead(t.Context())
		time.Sleep(10 * time.Minute)
		t.wantHandled(1, "1006")
		t.wantHandled(2)
	})
}

// TestOutputsAreAcknowledgedInBatches sends many outputs, and one.
func TestOutputsAreAcknowledgedInBatches(t *testing.T) {
	both(t, accepts, func(t *edgeTest) {
		c := t.dial()
		c.CloseRead(t.Context())
		time.Sleep(time.Second)
		for range 10 * ackOutputs {
			t.owner.send(&dohost.LinkOutput{Sockets: []uint64{1}, Closing: nil, Frame: nil})
		}
		time.Sleep(time.Second)
		t.owner.send(&dohost.LinkOutput{Sockets: []uint64{1}})
		time.Sleep(2 * ackTime)
		t.owner.mu.Lock()
		defer t.owner.mu.Unlock()
		if n := len(t.owner.acks); n < 2 || n > 11 || len(t.owner.rows) != 0 {
			t.Errorf("%d acknowledgments, %d rows are left", n, len(t.owner.rows))
		}
	})
}

// TestOutputsOfAnEarlierLinkAreIgnored sends outputs over a link that another one has replaced, and an output twice.
func TestOutputsOfAnEarlierLinkAreIgnored(t *testing.T) {
	withEdge(t, false, accepts, func(t *edgeTest) {
		c := t.dial()
		time.Sleep(time.Second)
		frame := func(position, text string) *dohost.LinkOutput {
			return &dohost.LinkOutput{Sockets: []uint64{1}, Position: position, Frame: &dohost.Frame{Text: true, Data: []byte(text)}}
		}
		t.owner.mu.Lock()
		first := t.owner.current
		first.endLocked()
		t.owner.mu.Unlock()
		time.Sleep(time.Second)
		now := t.owner.now()
		now.o.Send(frame("history11", "one"))
		first.o.Send(frame("history12", "of the earlier link"))
		now.o.Send(frame("history11", "again"))
		now.o.Send(frame("history12", "two"))
		t.want(c, "one")
		t.want(c, "two")
	})
}

// TestEndHasTheCodeOfTheObject closes a client that is not read, since its inputs are not acknowledged.
func TestEndHasTheCodeOfTheObject(t *testing.T) {
	withEdge(t, false, accepts, func(t *edgeTest) {
		t.owner.silent = true
		c := t.dial()
		go func() {
			for c.Write(t.Context(), websocket.MessageBinary, make([]byte, 300<<10)) == nil {
			}
		}()
		time.Sleep(time.Second)
		t.owner.send(&dohost.LinkOutput{Sockets: []uint64{1}, Closing: &dohost.Closing{Code: 4003}})
		t.wantClosed(c, 4003)
		time.Sleep(time.Minute)
		t.owner.mu.Lock()
		t.owner.silent = false
		t.owner.current.endLocked()
		t.owner.mu.Unlock()
		time.Sleep(time.Second)
		if got := t.owner.got(1); len(got) == 0 || got[len(got)-1] != "4003" {
			t.Errorf("%d inputs do not end with the code of the object", len(got))
		}
	})
}
