package cluster

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/sharedlog"
)

// served is a host of tests.
type served struct{ http.Handler }

func (served) Close() error            { return nil }
func (served) Failed() <-chan struct{} { return nil }

// routed is a node without a goroutine, which knows a view that the test sets, and its listener.
type routed struct {
	*Node
	*httptest.Server
	requests atomic.Int64
	around   atomic.Pointer[func(http.Handler) http.Handler] // if set, it wraps the router
}

const testSecret = "0123456789abcdef"

// startRouted starts a router whose requests are for the cell that begins their path, as in /3/rest.
func startRouted(t *testing.T, id, secret string, cells int) *routed {
	t.Helper()
	n := &routed{Node: &Node{o: Options{Secret: []byte(secret)}, self: Member{ID: id}, log: slog.New(slog.DiscardHandler)}}
	for i := range cells {
		n.cells = append(n.cells, &localCell{node: n.Node, number: i})
	}
	h := n.Router(&RouterOptions{
		Cell: func(r *http.Request) (cell int, ok bool) {
			first, _, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
			_, err := fmt.Sscan(first, &cell)
			return cell, err == nil && cell < cells
		},
	})
	n.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n.requests.Add(1)
		if around := n.around.Load(); around != nil {
			(*around)(h).ServeHTTP(w, r)
			return
		}
		h.ServeHTTP(w, r)
	}))
	t.Cleanup(n.Server.Close)
	return n
}

// serve makes the node serve a cell.
func (n *routed) serve(cell int, h http.HandlerFunc) {
	host := Host(served{h})
	n.cells[cell].serves.Store(&host)
}

// knows makes the nodes know the holders of cells, in order; "" is no holder.
func knows(address map[string]string, holders []string, nodes ...*routed) {
	s := Snapshot{Plan: Plan{Cells: make([]Cell, len(holders))}}
	for i, id := range holders {
		s.Plan.Cells[i] = Cell{Owner: id, Holder: id}
	}
	for id, a := range address {
		s.Members = append(s.Members, Member{ID: id, Address: a})
	}
	for _, n := range nodes {
		n.known.Store(newView(&s))
	}
}

func get(t *testing.T, url string) (status int, body string) {
	t.Helper()
	return send(t, http.MethodGet, url, nil, nil)
}

// uncompressed adds no header Accept-Encoding.
var uncompressed = &http.Client{Transport: &http.Transport{DisableCompression: true}}

func send(t *testing.T, method, url string, header http.Header, body io.Reader) (int, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, body)
	if err != nil {
		t.Fatal(err)
	}
	for name, values := range header {
		r.Header[name] = values
	}
	res, err := uncompressed.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	if res.StatusCode == http.StatusServiceUnavailable && res.Header.Get("Retry-After") == "" {
		t.Error("503 without Retry-After")
	}
	return res.StatusCode, string(text)
}

func ran(t *testing.T, body string) string {
	t.Helper()
	var b dohost.ErrorBody
	if err := json.Unmarshal([]byte(body), &b); err != nil {
		t.Errorf("%q: %v", body, err)
	}
	return b.Ran
}

// TestRequestReachesTheHolderUnchanged sends requests to both nodes. The owner gets the same.
func TestRequestReachesTheHolderUnchanged(t *testing.T) {
	a, b := startRouted(t, "a", testSecret, 2), startRouted(t, "b", testSecret, 2)
	knows(map[string]string{"a": a.URL, "b": b.URL}, []string{"a", "b"}, a, b)
	echo := func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		host, _, err2 := net.SplitHostPort(r.RemoteAddr)
		w.Header().Set("X-Kept", "yes")
		w.WriteHeader(http.StatusAccepted)
		fmt.Fprintln(w, r.Method, r.URL.EscapedPath(), r.URL.RawQuery, host, string(body), r.Header["X-Forwarded-For"], r.Header["Accept-Encoding"], r.ContentLength, r.Header[Header], err, err2)
	}
	a.serve(0, echo)
	b.serve(1, echo)
	cases := 0
	for _, path := range []string{"/a%2Fb//c/%F0?q=1&x=%zz;y", "/", "/x?"} {
		for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodDelete, http.MethodOptions} {
			for _, body := range []string{"", "text"} {
				cases++
				header := http.Header{"X-Forwarded-For": {"10.1.2.3"}, "Accept-Encoding": {"br"}, "Idempotency-Key": {"1"}}
				if method == http.MethodPost {
					header.Del("Accept-Encoding")
				}
				if method == http.MethodGet || body != "" {
					header.Del("Idempotency-Key")
				}
				_, direct := send(t, method, a.URL+"/0"+path, header, strings.NewReader(body))
				status, passed := send(t, method, b.URL+"/0"+path, header, strings.NewReader(body))
				if body == "" && header["Idempotency-Key"] != nil && method != http.MethodOptions {
					passed = strings.Replace(passed, " -1 ", " 0 ", 1) // the length of an empty body is not passed on
				}
				if status != http.StatusAccepted || passed != direct {
					t.Errorf("%s %s: %d, got\n%swant\n%s", method, path, status, passed, direct)
				}
			}
		}
	}
	if cases != 24 || b.requests.Load() != 24 || a.requests.Load() != 48 {
		t.Errorf("%d cases, %d and %d requests", cases, a.requests.Load(), b.requests.Load())
	}
}

// TestRequestForNoObject is answered by the node itself if it has a cell, and otherwise by another one.
func TestRequestForNoObject(t *testing.T) {
	a, b, c := startRouted(t, "a", testSecret, 3), startRouted(t, "b", testSecret, 3), startRouted(t, "c", testSecret, 3)
	knows(map[string]string{"a": a.URL, "b": b.URL, "c": c.URL}, []string{"", "a", "b"}, a, b, c)
	for cell, n := range map[int]*routed{1: a, 2: b} {
		n.serve(cell, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, n.self.ID) })
	}
	for want, n := range map[string][]*routed{"a": {a, c}, "b": {b}} {
		for _, n := range n {
			if _, body := get(t, n.URL+"/page"); body != want {
				t.Errorf("%s: %s has answered, want %s", n.self.ID, body, want)
			}
		}
	}
}

func TestClientAddressIsPassedOn(t *testing.T) {
	a, b := startRouted(t, "a", testSecret, 1), startRouted(t, "b", testSecret, 1)
	knows(map[string]string{"a": a.URL, "b": b.URL}, []string{"a"}, a, b)
	a.serve(0, func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.RemoteAddr) })
	var local net.Addr
	transport := &http.Transport{DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := (&net.Dialer{}).DialContext(ctx, network, address)
		if err == nil {
			local = c.LocalAddr()
		}
		return c, err
	}}
	defer transport.CloseIdleConnections()
	res, err := (&http.Client{Transport: transport}).Get(b.URL + "/0/")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if body, _ := io.ReadAll(res.Body); string(body) != local.String() {
		t.Errorf("the owner got the address %s, want %s", body, local)
	}
}

func TestHeadersThatAreForgedAreRefused(t *testing.T) {
	a, other := startRouted(t, "a", testSecret, 2), startRouted(t, "b", "another secret of the cluster", 2)
	knows(map[string]string{"a": a.URL, "b": other.URL}, []string{"a", "a"}, a, other)
	a.serve(0, func(http.ResponseWriter, *http.Request) { t.Error("a forged request has reached the host") })
	rt := &router{node: a.Node}
	signed := func(method, path, client string, hops int) string {
		r := httptest.NewRequest(method, path, nil)
		r.Host = strings.TrimPrefix(a.URL, "http://")
		return rt.sign(r, passed{hops: hops, client: client})
	}
	valid := signed(http.MethodGet, "/1/x", "10.0.0.1:1", 1)
	a.serve(1, func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.RemoteAddr) })
	if _, body := send(t, http.MethodGet, a.URL+"/1/x", http.Header{Header: {valid}}, nil); body != "10.0.0.1:1" {
		t.Fatalf("a signed request: %s", body)
	}
	forged := map[string][]string{
		"of another path": {valid}, "empty": {""}, "no signature": {"1 10.0.0.1:1"}, "another client": {strings.Replace(valid, "10.0.0.1", "10.0.0.2", 1)},
		"two": {signed(http.MethodGet, "/0/x", "c", 1), "1"}, "of another method": {signed(http.MethodPost, "/0/x", "c", 1)},
		"too many hops": {signed(http.MethodGet, "/0/x", "c", MaxHops+1)}, "no hops": {signed(http.MethodGet, "/0/x", "c", 0)},
	}
	for name, values := range forged {
		if status, body := send(t, http.MethodGet, a.URL+"/0/x", http.Header{Header: values}, nil); status != http.StatusForbidden || ran(t, body) != "no" {
			t.Errorf("%s: %d %s", name, status, body)
		}
	}
	if status, body := get(t, other.URL+"/0/x"); status != http.StatusForbidden {
		t.Errorf("a node with another secret: %d %s", status, body)
	}
	// Also if the client asks the node to remove the header as one of its connection.
	if status, _ := send(t, http.MethodGet, a.URL+"/0/x", http.Header{"Connection": {Header}, Header: {"1 c x"}}, nil); status != http.StatusForbidden {
		t.Errorf("a header of the connection: %d", status)
	}
}

func TestCellWithoutHolder(t *testing.T) {
	a, b := startRouted(t, "a", testSecret, 4), startRouted(t, "b", testSecret, 4)
	address := map[string]string{"a": a.URL, "b": b.URL}
	if status, body := get(t, a.URL+"/0/"); status != http.StatusServiceUnavailable || ran(t, body) != "no" {
		t.Errorf("before the first view: %d %s", status, body)
	}
	knows(address, []string{"", "gone", "a", "b"}, a)
	for cell := range 3 {
		if status, body := get(t, fmt.Sprint(a.URL, "/", cell, "/")); status != http.StatusServiceUnavailable || ran(t, body) != "no" {
			t.Errorf("cell %d: %d %s", cell, status, body)
		}
	}
	if got := a.requests.Load(); got != 4 {
		t.Errorf("%d requests for 4", got)
	}
	// Both nodes take the other one for the owner.
	knows(address, []string{"", "", "", "a"}, b)
	a.requests.Store(0)
	if status, body := get(t, a.URL+"/3/"); status != http.StatusServiceUnavailable || ran(t, body) != "no" {
		t.Errorf("a circle: %d %s", status, body)
	}
	if got := a.requests.Load() + b.requests.Load(); got != 1+MaxHops {
		t.Errorf("a circle of %d requests", got)
	}
}

// refusing returns an address that refuses connections.
func refusing(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return "http://" + l.Addr().String()
}

// TestHolderThatRefusesConnections has an owner that does not listen any more, and then a node that learns of the next owner while it connects.
func TestHolderThatRefusesConnections(t *testing.T) {
	a, b := startRouted(t, "a", testSecret, 1), startRouted(t, "b", testSecret, 1)
	gone := refusing(t)
	b.serve(0, func(w http.ResponseWriter, r *http.Request) {
		a.inFlight.mu.Lock()
		defer a.inFlight.mu.Unlock()
		for to := range a.inFlight.requests {
			if to.id != "b" {
				t.Errorf("the request counts as one to %s", to.id)
			}
		}
		_, _ = io.Copy(w, r.Body)
	})
	knows(map[string]string{"gone": gone}, []string{"gone"}, a)
	if status, body := send(t, http.MethodPost, a.URL+"/0/", nil, strings.NewReader("text")); status != http.StatusServiceUnavailable || ran(t, body) != "no" {
		t.Errorf("%d %s", status, body)
	}
	h := a.Router(&RouterOptions{
		Cell: func(*http.Request) (int, bool) { return 0, true },
		Transport: &http.Transport{DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			if "http://"+address == gone {
				knows(map[string]string{"b": b.URL}, []string{"b"}, a)
				return nil, errors.New("connection refused")
			}
			return (&net.Dialer{}).DialContext(ctx, network, address)
		}},
	})
	s := httptest.NewServer(h)
	defer s.Close()
	if status, body := send(t, http.MethodPost, s.URL+"/0/", nil, strings.NewReader("text")); status != http.StatusOK || body != "text" {
		t.Errorf("the next owner has answered %d %s", status, body)
	}
}

// TestRequestIsNotRepeated has an owner that reads a request on a connection that is in use for long, and closes it.
func TestRequestIsNotRepeated(t *testing.T) {
	a := startRouted(t, "a", testSecret, 1)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	arrived := make(chan string, 100)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				in := bufio.NewReader(c)
				for {
					r, err := http.ReadRequest(in)
					if err != nil {
						return
					}
					_, _ = io.Copy(io.Discard, r.Body)
					arrived <- r.Method + r.URL.Path
					if r.URL.Path == "/0/break" {
						return
					}
					fmt.Fprint(c, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
				}
			}()
		}
	}()
	knows(map[string]string{"b": "http://" + l.Addr().String()}, []string{"b"}, a)
	methods := []string{http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace, http.MethodPost, http.MethodPut, http.MethodDelete}
	cases := 0
	for i := range 4 * len(methods) {
		cases++
		method, body, header := methods[i/4], [...]string{"", "text"}[i%2], http.Header(nil)
		if i%4 > 1 {
			header = http.Header{"Idempotency-Key": {"1"}, "X-Idempotency-Key": {"1"}}
		}
		if status, _ := send(t, method, a.URL+"/0/first", header, strings.NewReader(body)); status != http.StatusOK {
			t.Fatalf("%s: %d", method, status)
		}
		status, text := send(t, method, a.URL+"/0/break", header, strings.NewReader(body))
		if status != http.StatusBadGateway || method != http.MethodHead && ran(t, text) != "unknown" {
			t.Errorf("%s: %d %s", method, status, text)
		}
		if got := <-arrived + " " + <-arrived; got != method+"/0/first "+method+"/0/break" || len(arrived) != 0 {
			t.Errorf("%s: %s have arrived, and %d more", method, got, len(arrived))
		}
	}
	if cases != 28 {
		t.Errorf("%d cases", cases)
	}
}

func TestResponseIsStreamedAndCut(t *testing.T) {
	a, b := startRouted(t, "a", testSecret, 1), startRouted(t, "b", testSecret, 1)
	knows(map[string]string{"a": a.URL, "b": b.URL}, []string{"a"}, a, b)
	next := make(chan struct{})
	a.serve(0, func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, "first")
		_ = http.NewResponseController(w).Flush()
		<-next
		panic(http.ErrAbortHandler)
	})
	res, err := http.Get(b.URL + "/0/")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	first := make([]byte, 5)
	if _, err := io.ReadFull(res.Body, first); err != nil || string(first) != "first" {
		t.Errorf("%s, %v", first, err)
	}
	close(next)
	if _, err := io.ReadAll(res.Body); err == nil {
		t.Error("the client takes the cut response for a complete one")
	}
}

func TestWebSocketIsPassedOn(t *testing.T) {
	a, b := startRouted(t, "a", testSecret, 1), startRouted(t, "b", testSecret, 1)
	knows(map[string]string{"a": a.URL, "b": b.URL}, []string{"a"}, a, b)
	ended := make(chan error, 1)
	a.serve(0, func(w http.ResponseWriter, r *http.Request) {
		c, err := websocket.Accept(w, r, nil)
		if err != nil {
			ended <- err
			return
		}
		defer c.CloseNow()
		for {
			kind, data, err := c.Read(context.WithoutCancel(r.Context()))
			if err == nil {
				err = c.Write(context.WithoutCancel(r.Context()), kind, data)
			}
			if err != nil {
				ended <- err
				return
			}
		}
	})
	header := http.Header{"Origin": {b.URL}} // the origin of the node that the client knows
	c, _, err := websocket.Dial(t.Context(), b.URL+"/0/", &websocket.DialOptions{HTTPHeader: header})
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"one", "two"} {
		if err := c.Write(t.Context(), websocket.MessageText, []byte(text)); err != nil {
			t.Fatal(err)
		}
		if _, data, err := c.Read(t.Context()); err != nil || string(data) != text {
			t.Errorf("%s, %v", data, err)
		}
	}
	_ = c.CloseNow()
	if err := <-ended; err == nil {
		t.Error("the owner has not noticed the end of the client")
	}
}

func TestOptionsAreChecked(t *testing.T) {
	valid := Options{
		Table: tableOf{}, TTL: time.Second, Advertise: "http://10.0.0.1:8787", Secret: []byte(testSecret),
		Log:  func(context.Context, int) (sharedlog.Log, error) { return nil, nil },
		Open: func(int, sharedlog.Lease, dohost.Remote) (Host, error) { return nil, nil },
	}
	if o, err := valid.check(); err != nil || o.Cells != DefaultCells {
		t.Errorf("%v, %v", o, err)
	}
	for name, change := range map[string]func(*Options){
		"no table": func(o *Options) { o.Table = nil }, "no TTL": func(o *Options) { o.TTL = 0 }, "no log": func(o *Options) { o.Log = nil },
		"no open": func(o *Options) { o.Open = nil }, "short secret": func(o *Options) { o.Secret = o.Secret[1:] },
		"no scheme": func(o *Options) { o.Advertise = "10.0.0.1:8787" }, "no host": func(o *Options) { o.Advertise = "http://:8787" },
		"a path": func(o *Options) { o.Advertise += "/x" }, "a user": func(o *Options) { o.Advertise = "http://u:p@host" },
	} {
		o := valid
		change(&o)
		if _, err := o.check(); err == nil {
			t.Errorf("%s is accepted", name)
		}
	}
}
