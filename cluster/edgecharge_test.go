package cluster

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/internal/budget"
	"github.com/dohost/dohost/internal/sockettest"
)

// TestEdgeCountsAFrameOfManyClientsOnce sends a frame to clients that all read.
func TestEdgeCountsAFrameOfManyClientsOnce(t *testing.T) {
	withEdge(t, false, accepts, func(t *edgeTest) {
		const size = 1 << 20
		var all []*websocket.Conn
		var numbers []uint64
		for i := range maxSends/size + 20 {
			c := t.dial()
			c.SetReadLimit(2 * size)
			all, numbers = append(all, c), append(numbers, uint64(i+1))
		}
		synctest.Wait()
		t.owner.send(&dohost.LinkOutput{Sockets: numbers, Frame: &dohost.Frame{Data: make([]byte, size)}})
		if n := t.edge.edge.sends.bytes.Load(); n < size || n > 2*size {
			t.Errorf("%d bytes wait for the clients", n)
		}
		for i, c := range all {
			if _, p, err := c.Read(t.Context()); err != nil || len(p) != size {
				t.Fatalf("client %d gets %d bytes, %v", i, len(p), err)
			}
		}
		time.Sleep(time.Second)
		if n := t.edge.edge.sends.bytes.Load(); n != 0 {
			t.Errorf("%d bytes wait after all were read", n)
		}
	})
}

// TestEdgeForgetsTheFramesOfAClientThatNeverOpens has an object that sends a frame before its answer, and the answer does not reach the client.
func TestEdgeForgetsTheFramesOfAClientThatNeverOpens(t *testing.T) {
	for _, path := range []string{"/refused", "/lost", "/accepted", "/panic"} {
		var hold chan struct{}
		withEdge(t, false, func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/1" {
				accepts(w, r)
				return
			}
			<-hold
			switch r.URL.Path {
			case "/refused":
				w.WriteHeader(http.StatusForbidden)
			case "/lost":
				panic(http.ErrAbortHandler)
			case "/panic":
				accepts(w, r)
				panic(http.ErrAbortHandler)
			default:
				accepts(w, r)
			}
		}, func(t *edgeTest) {
			hold = make(chan struct{})
			t.dial().CloseRead(t.Context())
			time.Sleep(time.Second)
			done := make(chan struct{})
			go func() {
				defer close(done)
				defer func() { _ = recover() }()
				r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil)
				r.Header.Set("Upgrade", "websocket")
				t.router.ServeHTTP(httptest.NewRecorder(), r) // it cannot be hijacked
			}()
			time.Sleep(time.Second)
			t.owner.send(&dohost.LinkOutput{Sockets: []uint64{2}, Frame: &dohost.Frame{Data: make([]byte, 100<<10)}})
			if n := t.edge.edge.sends.bytes.Load(); n < 100<<10 {
				t.Errorf("%s: %d bytes wait", path, n)
			}
			close(hold)
			<-done
			time.Sleep(time.Second)
			if n := t.edge.edge.sends.bytes.Load(); n != 0 {
				t.Errorf("%s: %d bytes wait after the handshake", path, n)
			}
		})
	}
}

// TestEdgeBoundsSmallFramesOfAllClients has clients that send small frames, and an object that does not answer.
func TestEdgeBoundsSmallFramesOfAllClients(t *testing.T) {
	withEdge(t, false, accepts, func(t *edgeTest) {
		const limit, clients = 256 << 10, 4
		t.owner.silent = true
		t.edge.edge.reads = budget.New(limit)
		for i := range clients {
			c := t.dial()
			go func() {
				for range 200 {
					if c.Write(t.Context(), websocket.MessageText, []byte(strings.Repeat("x", 4000/(i+1)))) != nil {
						return
					}
				}
			}()
		}
		time.Sleep(time.Second)
		t.edge.edge.mu.Lock()
		e := t.edge.edge.entries[edgeObject]
		t.edge.edge.mu.Unlock()
		e.mu.Lock()
		defer e.mu.Unlock()
		bytes := 0
		for _, s := range e.sockets {
			bytes += s.unacked
		}
		if bytes < limit/3 || bytes > limit/2+clients*budget.Free { // half of the limit is for other objects
			t.Errorf("the edge keeps %d bytes of frames", bytes)
		}
	})
}

// TestHelloWithNamesOfHeadersThatJSONEscapes has clients that send long names of headers.
func TestHelloWithNamesOfHeadersThatJSONEscapes(t *testing.T) {
	o := &dohost.LinkOptions{}
	for i := range 100 {
		r := &http.Request{Method: http.MethodGet, URL: &url.URL{Path: "/"}, Header: http.Header{strings.Repeat("&", 60<<10): {""}}}
		o.Sockets = append(o.Sockets, dohost.LinkedSocket{Number: uint64(i + 1), Handshake: r})
	}
	for i, p := range helloMessages(nil, o) {
		if len(p) > 2*maxHelloPart {
			t.Fatalf("part %d has %d bytes", i, len(p))
		}
	}
}

// TestHandshakeThatNoLinkCanHaveIsRefused has a URL without a path, as in "GET room:1 HTTP/1.1", and another client of the object.
func TestHandshakeThatNoLinkCanHaveIsRefused(t *testing.T) {
	withEdge(t, false, accepts, func(t *edgeTest) {
		c := t.dial()
		_, _, err := sockettest.Dial(t.Context(), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			r.URL = &url.URL{Scheme: "room", Opaque: "1"}
			t.router.ServeHTTP(w, r)
		}), "/1")
		if err == nil || !strings.Contains(err.Error(), "answers 400") {
			t.Errorf("the answer is %v", err)
		}
		time.Sleep(time.Second)
		t.serve(t.other, accepts) // the next link is a message
		t.owner.mu.Lock()
		t.owner.current.endLocked()
		t.owner.mu.Unlock()
		t.write(c, "text")
		t.want(c, "text")
	})
}

// TestEdgeAcknowledgesInLinearTime acknowledges many inputs one by one.
func TestEdgeAcknowledgesInLinearTime(t *testing.T) {
	withEdge(t, false, accepts, func(t *edgeTest) {
		t.owner.silent = true
		c := t.dial()
		const n = maxUnacked / inputOverhead
		for range n {
			if err := c.Write(t.Context(), websocket.MessageBinary, nil); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Second)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		for i := range n {
			t.owner.now().o.Send(&dohost.LinkOutput{Sockets: []uint64{1}, Received: uint64(i + 1)})
		}
		runtime.ReadMemStats(&after)
		if bytes := after.TotalAlloc - before.TotalAlloc; bytes > 20<<20 {
			t.Errorf("%d bytes were allocated", bytes)
		}
	})
}

// TestHandshakeWithTheHeaderAndAnotherStatusIsRefused has an object that sets the header of a response that accepts no socket.
func TestHandshakeWithTheHeaderAndAnotherStatusIsRefused(t *testing.T) {
	both(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set(dohost.RelayHeader, "accepted")
		w.WriteHeader(http.StatusTeapot)
		_, _ = fmt.Fprint(w, "refused")
	}, func(t *edgeTest) {
		if _, _, err := sockettest.Dial(t.Context(), t.router, "/1"); err == nil || !strings.Contains(err.Error(), "418: refused") {
			t.Errorf("%v", err)
		}
		if n := t.objects(); n != 0 {
			t.Errorf("%d objects have sockets", n)
		}
	})
}
