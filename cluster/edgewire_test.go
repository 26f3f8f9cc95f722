package cluster

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/internal/sockettest"
)

// TestRelayHeaderIsSigned sends the header of relayed sockets as a client, and with signatures for another one.
func TestRelayHeaderIsSigned(t *testing.T) {
	a, b := startRouted(t, "a", testSecret, 2), startRouted(t, "b", testSecret, 2)
	knows(map[string]string{"a": a.URL, "b": b.URL}, []string{"a", "b"}, a, b)
	echo := func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "header ", r.Header[RelaySocketHeader]) }
	a.serve(0, echo)
	b.serve(1, echo)
	for _, path := range []string{"/0/x", "/1/x"} {
		if status, body := send(t, http.MethodGet, a.URL+path, http.Header{RelaySocketHeader: {"a 1"}}, nil); status != http.StatusOK || body != "header []" {
			t.Errorf("%s: %d %s", path, status, body)
		}
	}
	rt := &router{node: b.Node}
	cases := 0
	for name, tt := range map[string]struct {
		signed string
		header []string
		status int
	}{
		"valid": {"a 1", []string{"a 1"}, 200}, "no header": {"a 1", nil, 403}, "not signed": {"", []string{"a 1"}, 403}, "another": {"a 1", []string{"a 2"}, 403},
		"two": {"a 1", []string{"a 1", "a 2"}, 403}, "no number": {"a x", []string{"a x"}, 403}, "no edge": {" 1", []string{" 1"}, 403},
		"number 0": {"a 0", []string{"a 0"}, 403}, "a long edge": {strings.Repeat("a", 65) + " 1", []string{strings.Repeat("a", 65) + " 1"}, 403},
	} {
		cases++
		r, err := http.NewRequest(http.MethodGet, a.URL+"/0/x", nil)
		if err != nil {
			t.Fatal(err)
		}
		header := http.Header{Header: {rt.sign(r, passed{hops: 1, client: "10.0.0.1:1", relay: tt.signed})}}
		if tt.header != nil {
			header[RelaySocketHeader] = tt.header
		}
		status, body := send(t, http.MethodGet, a.URL+"/0/x", header, nil)
		if status != tt.status || status == 200 && body != "header []" {
			t.Errorf("%s: %d %s", name, status, body)
		}
		r.Header = header
		if p, ok := rt.verify(r, header[Header]); ok && p.relay != "a 1" {
			t.Errorf("%s: %+v", name, p)
		}
	}
	if cases != 9 {
		t.Errorf("%d cases", cases)
	}
}

// TestRelayHeaderIsPassedOn has a node that gets the handshake of a client at another one.
func TestRelayHeaderIsPassedOn(t *testing.T) {
	withEdge(t, true, accepts, func(t *edgeTest) {
		next := t.other.cells[0].serves.Load()
		got := make(chan string, 2)
		rt := &router{node: t.other}
		l := sockettest.NewPipes()
		around := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if header, has := r.Header[Header]; has {
				p, ok := rt.verify(r, header)
				got <- fmt.Sprint(p.relay, " ", ok)
			}
			(*next).ServeHTTP(w, r)
		})}
		go func() { _ = around.Serve(l) }()
		t.Cleanup(func() { _ = around.Close() })
		t.dials["other"] = l
		t.dial()
		t.dial()
		if first, second := <-got, <-got; first != "edge 1 true" || second != "edge 2 true" {
			t.Errorf("%s, %s", first, second)
		}
	})
}

// TestLinkHeaderIsSigned sends requests for links that no node has made, and a captured one.
func TestLinkHeaderIsSigned(t *testing.T) {
	a, b := startRouted(t, "a", testSecret, 2), startRouted(t, "b", "another secret..", 2)
	knows(map[string]string{"a": a.URL}, []string{"a", ""}, a)
	owner := newOwner()
	host := Host(fakeHost{served{http.NotFoundHandler()}, owner})
	a.cells[0].serves.Store(&host)
	valid := sentLink{To: "a", Cell: 0, Class: []byte("room"), Name: []byte("1"), Edge: "e"}
	signed := func(change func(*sentLink)) string {
		s := valid
		change(&s)
		return a.signContent(LinkHeader, &s)
	}
	good := signed(func(*sentLink) {})
	fields, _, _ := strings.Cut(good, " ")
	cases := 0
	for name, tt := range map[string]struct {
		header []string
		status int
	}{
		"empty": {[]string{""}, 403}, "no signature": {[]string{fields}, 403}, "two": {[]string{good, good}, 403},
		"another secret": {[]string{b.signContent(LinkHeader, &valid)}, 403}, "the signature of a call": {[]string{a.signContent(CallHeader, &valid)}, 403},
		"a former process":       {[]string{signed(func(s *sentLink) { s.To = "old" })}, 421},
		"a cell of another node": {[]string{signed(func(s *sentLink) { s.Cell = 1 })}, 421}, "no cell": {[]string{signed(func(s *sentLink) { s.Cell = -1 })}, 421},
	} {
		cases++
		_, res, err := websocket.Dial(t.Context(), a.URL+linkPath, &websocket.DialOptions{HTTPHeader: http.Header{LinkHeader: tt.header}})
		if err == nil || res == nil || res.StatusCode != tt.status {
			t.Errorf("%s: %v", name, err)
		}
	}
	if cases != 8 {
		t.Errorf("%d cases", cases)
	}
	proof := a.proofOf(good, "captured")
	for name, hello := range map[string][]byte{
		"no proof": helloMessages(nil, &dohost.LinkOptions{})[0], "a captured proof": helloMessages(proof, &dohost.LinkOptions{})[0],
		"no hello": {aliveMessage}, "an input": appendInput(nil, inputsOfTests()[0]), "empty": {},
	} {
		c, res, err := websocket.Dial(t.Context(), a.URL+linkPath, &websocket.DialOptions{HTTPHeader: http.Header{LinkHeader: {good}}})
		if err != nil || res.Header.Get(LinkHeader) == "" {
			t.Fatal(name, err)
		}
		if err := c.Write(t.Context(), websocket.MessageBinary, hello); err != nil {
			t.Fatal(name, err)
		}
		if _, _, err := c.Read(t.Context()); websocket.CloseStatus(err) != websocket.StatusPolicyViolation {
			t.Errorf("%s: %v", name, err)
		}
		_ = c.CloseNow()
	}
	if len(owner.links) != 0 {
		t.Errorf("%d links were made", len(owner.links))
	}
}

// TestOutputsThatDoNotFitAreSentAgain sends more than the queue for another node holds, in one burst.
func TestOutputsThatDoNotFitAreSentAgain(t *testing.T) {
	withEdge(t, true, accepts, func(t *edgeTest) {
		c := t.dial()
		c.SetReadLimit(1 << 20)
		time.Sleep(time.Second)
		const n = 25
		t.edge.edge.mu.Lock()
		e := t.edge.edge.entries[edgeObject]
		t.edge.edge.mu.Unlock()
		e.mu.Lock() // the edge receives nothing
		for i := range n {
			data := make([]byte, 900<<10)
			data[0] = byte(i)
			t.owner.send(&dohost.LinkOutput{Sockets: []uint64{1}, Frame: &dohost.Frame{Data: data}})
		}
		e.mu.Unlock()
		for i := range n {
			if _, p, err := c.Read(t.Context()); err != nil || p[0] != byte(i) {
				t.Fatal(i, err)
			}
		}
		if len(t.owner.linked()) < 2 || len(t.owner.linked()) > n/2 {
			t.Errorf("%d links", len(t.owner.linked()))
		}
	})
}

// TestLinkToALostNodeEnds has a node that makes a link, and then sends nothing, and a node that leaves the view.
func TestLinkToALostNodeEnds(t *testing.T) {
	for name, lose := range map[string]func(t *edgeTest) time.Duration{
		"silent": func(*edgeTest) time.Duration { return silentTime },
		"no member": func(t *edgeTest) time.Duration {
			s := t.edge.known.Load().Snapshot
			s.Members = nil
			t.edge.learn(newView(&s))
			return leaveTime
		},
	} {
		withEdge(t, true, accepts, func(t *edgeTest) {
			silent := name == "silent"
			l := sockettest.NewPipes()
			ended, begun := make(chan time.Duration, 1), time.Now()
			server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Header[LinkHeader] == nil {
					accepts(w, r)
					return
				}
				c, err := websocket.Accept(w, r, nil)
				if err != nil {
					return
				}
				for first := true; err == nil; first = false {
					if first || !silent {
						_ = c.Write(t.Context(), websocket.MessageBinary, []byte{readyMessage})
					}
					_, _, err = c.Read(t.Context())
				}
				select {
				case ended <- time.Since(begun):
				default:
				}
			})}
			go func() { _ = server.Serve(l) }()
			t.Cleanup(func() { _ = server.Close() })
			t.dials["other"] = l
			t.dial()
			time.Sleep(time.Second)
			want := lose(t)
			if took := <-ended; took < want-time.Second || took > want+time.Second {
				t.Errorf("%s: the link has ended after %v, want %v", name, took, want)
			}
		})
	}
}

// TestLinkThatIsIdleLasts has no frames for an hour.
func TestLinkThatIsIdleLasts(t *testing.T) {
	withEdge(t, true, accepts, func(t *edgeTest) {
		c := t.dial()
		c.CloseRead(t.Context())
		time.Sleep(time.Hour)
		if n := len(t.owner.linked()); n != 1 {
			t.Errorf("%d links", n)
		}
	})
}

// TestHandshakeWithoutAnAnswerEnds has an owner that may have accepted sockets: it loses the connection to the edge, or does not know.
func TestHandshakeWithoutAnAnswerEnds(t *testing.T) {
	withEdge(t, true, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/lost" {
			panic(http.ErrAbortHandler)
		}
		if r.URL.Path == "/unknown" {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		accepts(w, r)
	}, func(t *edgeTest) {
		t.dial()
		time.Sleep(time.Second)
		for _, path := range []string{"/lost", "/unknown"} {
			if _, _, err := sockettest.Dial(t.Context(), t.router, path); err == nil {
				t.Error("there is no error")
			}
		}
		time.Sleep(time.Second)
		synctest.Wait()
		t.wantHandled(2, "1006")
		t.wantHandled(3, "1006")
		if n := len(t.owner.linked()); n != 1 {
			t.Errorf("%d links", n)
		}
	})
}

// TestHandshakeIsBounded has a request with long headers.
func TestHandshakeIsBounded(t *testing.T) {
	withEdge(t, false, accepts, func(t *edgeTest) {
		header := http.Header{"X-Long": {strings.Repeat("x", maxHandshake)}}
		_, res, err := websocket.Dial(t.Context(), "http://edge/1", &websocket.DialOptions{HTTPClient: &http.Client{Transport: t.transport}, HTTPHeader: header})
		if err == nil || res.StatusCode != http.StatusServiceUnavailable {
			t.Fatal(err)
		}
		if body, _ := io.ReadAll(res.Body); !strings.Contains(string(body), "too_many_sockets") {
			t.Errorf("%s", body)
		}
	})
}

// TestHandshakesOfAllObjectsAreBounded has requests with long headers. Ordinary clients are not refused.
func TestHandshakesOfAllObjectsAreBounded(t *testing.T) {
	withEdge(t, false, accepts, func(t *edgeTest) {
		t.edge.edge.handshakesLimit = 100 << 10
		dial := func(path string, n int) (*websocket.Conn, error) {
			c, _, err := websocket.Dial(t.Context(), "http://edge"+path, &websocket.DialOptions{
				HTTPClient: &http.Client{Transport: t.transport}, HTTPHeader: http.Header{"X-Long": {strings.Repeat("x", n)}},
			})
			return c, err
		}
		var all []*websocket.Conn
		for _, path := range []string{"/1", "/other", "/other"} {
			c, err := dial(path, 30<<10)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, c)
		}
		if _, err := dial("/1", 30<<10); err == nil || !strings.Contains(err.Error(), "503") {
			t.Errorf("a fourth long request: %v", err)
		}
		if _, err := dial("/third", 30<<10); err == nil || t.objects() != 2 {
			t.Errorf("a long request for a third object: %v; the edge knows %d objects", err, t.objects())
		}
		c, err := dial("/1", 4<<10)
		if err != nil {
			t.Fatal(err)
		}
		_ = all[0].CloseNow()
		time.Sleep(time.Second)
		again, err := dial("/1", 30<<10)
		if err != nil {
			t.Fatalf("after the end of another: %v", err)
		}
		for _, c := range append(all, c, again) {
			_ = c.CloseNow()
		}
		time.Sleep(time.Second)
		if n := t.edge.edge.handshakes.Load(); n != 0 {
			t.Errorf("%d bytes are counted after the end of all", n)
		}
	})
}
