package cluster

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httputil"
	"sync"
	"time"

	"github.com/dohost/dohost"
)

// Header is the header of a request that a node has passed on: the number of times that nodes have passed it on, the address of the client, and a
// signature by the secret of the cluster, separated by spaces.
const Header = "Dohost-Passed-On"

// MaxHops is the largest number of times that nodes pass on a request. More than one is needed only while nodes have read different plans.
const MaxHops = 2

// minSecret is the length of a secret in bytes.
const minSecret = 16

// RouterOptions are the options of [Node.Router].
type RouterOptions struct {
	// Cell returns the cell of the object that a request is for; ok is false for a request that is for no object, and that any cell may
	// answer. It is called concurrently. Required.
	Cell func(r *http.Request) (cell int, ok bool)
	// StepTimeout bounds each write of a response that another node has made, and each write to the client of a WebSocket. Zero means 30 s; negative, no bound.
	StepTimeout time.Duration
	// Bound returns a handler that bounds the time for the body of a request, and then calls next. The router uses it for the requests that no
	// host of this node gets. If reading a body fails with os.ErrDeadlineExceeded, the status is 408. Nil bounds nothing: then a client that
	// sends no body keeps its connection for as long as it wants.
	Bound func(next http.Handler) http.Handler
	// Durable returns the object that a WebSocket handshake is for, if its class has durable sockets: see dohost.Class.DurableSockets. Its
	// cell is the cell that Cell returns. Nil means none. It is called concurrently.
	Durable func(r *http.Request) (id dohost.ID, ok bool)
	// MaxFrame is the largest frame in bytes that the client of a durable socket may send. Zero means dohost.DefaultMaxFrame.
	MaxFrame int64
	// Transport connects to other nodes. Nil means TCP, and TLS for addresses with https.
	Transport *http.Transport
}

// router passes requests on. Its methods may be called from any goroutine.
type router struct {
	node  *Node
	o     RouterOptions
	proxy *httputil.ReverseProxy

	failures rareLog // of other nodes
}

// Router returns the handler of a node's listener: it serves a request for an object of a cell of this node, and passes others on to the
// nodes that have their cells. WebSockets are passed on, too, and end with either node. A durable socket of RouterOptions.Durable ends with
// this node, and not with the node of its object.
//
// If no node serves the cell, the status is 503 with Retry-After, and the request has not run. If the connection to the other node
// breaks, or the node is not a member any more for 30 s, the status is 502, and it is unknown whether the request has run: the router does not
// repeat it. A handshake of a durable socket beyond the bounds of an edge gets the status 503. The host of the cell checks the
// credentials of the client. The router replaces RemoteAddr of a request that was passed on by the address of the client.
// A request with a Header, CallHeader or LinkHeader that has no valid signature gets the status 403.
func (n *Node) Router(o *RouterOptions) http.Handler {
	r := &router{node: n, o: *o}
	if r.o.StepTimeout == 0 {
		r.o.StepTimeout = 30 * time.Second
	}
	if r.o.MaxFrame == 0 {
		r.o.MaxFrame = dohost.DefaultMaxFrame
	}
	if r.o.Transport == nil {
		r.o.Transport = &http.Transport{MaxIdleConnsPerHost: 64, IdleConnTimeout: time.Minute, TLSHandshakeTimeout: dialTime}
	}
	r.o.Transport = transport(r.o.Transport)
	r.proxy = &httputil.ReverseProxy{
		Rewrite: r.rewrite, Transport: &sender{r}, ErrorHandler: r.fail, FlushInterval: -1,
		ErrorLog: slog.NewLogLogger(n.log.Handler(), slog.LevelWarn),
	}
	return r
}

// passed is the content of Header.
type passed struct {
	hops   int
	client string // the address of the client's connection
	relay  string // the RelaySocketHeader, or ""
}

type passedKey struct{}

// ServeHTTP serves a request, or passes it on.
func (rt *router) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h, here := http.Handler(nil), false
	if header, has := r.Header[CallHeader]; has {
		h = rt.called(r, header)
	} else if header, has := r.Header[LinkHeader]; has {
		h = rt.linked(r, header)
	} else {
		h, here = rt.route(r)
	}
	if !here && rt.o.Bound != nil {
		h = rt.o.Bound(h)
	}
	h.ServeHTTP(w, r)
}

// route returns the handler of a request, and whether that is the host of a cell of this node. It removes the headers of nodes from the
// request.
func (rt *router) route(r *http.Request) (h http.Handler, here bool) {
	p := passed{client: r.RemoteAddr}
	header, has := r.Header[Header]
	if has {
		var ok bool
		if p, ok = rt.verify(r, header); !ok {
			rt.node.logUnsigned(r)
			return http.HandlerFunc(refuse), false
		}
		r.Header.Del(Header) // it is not for the object
		r.RemoteAddr = p.client
	}
	r.Header.Del(RelaySocketHeader)
	if !has && rt.o.Durable != nil && isUpgrade(r) {
		if id, ok := rt.o.Durable(r); ok {
			return rt.relayed(r, id)
		}
	}
	return rt.find(r, p)
}

// find returns the handler of a request without headers of nodes, and whether that is the host of a cell of this node.
func (rt *router) find(r *http.Request, p passed) (h http.Handler, here bool) {
	cell, ok := rt.o.Cell(r)
	if !ok {
		cell = rt.node.anyCell()
	}
	if h := rt.node.Host(cell); h != nil {
		if s, ok := parseRelay(p.relay); ok {
			return withRelay(h, s), true
		}
		return h, true
	}
	id, address := rt.node.known.Load().holder(cell)
	if address == "" || id == rt.node.self.ID || p.hops >= MaxHops {
		return http.HandlerFunc(unavailable), false
	}
	p.hops++
	return rt.passOn(&target{cell: cell, id: id, address: address, passed: p}), false
}

// passOn returns a handler that passes a request on.
func (rt *router) passOn(to *target) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if rt.o.StepTimeout > 0 {
			w = &stepWriter{ResponseWriter: w, rc: http.NewResponseController(w), step: rt.o.StepTimeout}
		}
		ctx, end := rt.node.inFlight.begin(r.Context(), to)
		defer end()
		rt.proxy.ServeHTTP(w, r.WithContext(context.WithValue(ctx, passedKey{}, to)))
	})
}

// target is the node that gets a request.
type target struct {
	cell        int
	id, address string
	passed      passed
	body        *onceBody // nil if the request has none
}

func targetOf(r *http.Request) *target {
	t, _ := r.Context().Value(passedKey{}).(*target)
	return t
}

// rewrite makes the request to the other node as the client has sent it.
func (rt *router) rewrite(pr *httputil.ProxyRequest) {
	pr.Out.URL.RawQuery = pr.In.URL.RawQuery // also the part that net/http cannot parse
	for _, name := range []string{"Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto"} {
		if values, has := pr.In.Header[name]; has { // of a proxy before the cluster
			pr.Out.Header[name] = values
		}
	}
	if mayRepeat(pr.Out) {
		pr.Out.Body = &onceBody{Reader: http.NoBody}
	} else if pr.Out.Body != nil && pr.Out.Body != http.NoBody {
		body := &onceBody{Reader: pr.Out.Body}
		pr.Out.Body, targetOf(pr.Out).body = body, body
	}
}

// mayRepeat reports whether an http.Transport could send the request a second time after the connection has broken, unless it has a body:
// an object's handler of GET may write.
func mayRepeat(r *http.Request) bool {
	if r.Body != nil && r.Body != http.NoBody {
		return false
	}
	switch r.Method {
	case http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace:
		return true
	}
	return r.Header["Idempotency-Key"] != nil || r.Header["X-Idempotency-Key"] != nil
}

// onceBody cannot be read again. The server closes the body itself, so that it can still be read after a connection was refused.
type onceBody struct {
	io.Reader
	mu  sync.Mutex // guards err; held during a Read
	err *bodyError // of the last Read
}

// Read reads. Its errors are bodyErrors.
func (b *onceBody) Read(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	n, err := b.Reader.Read(p)
	if err != nil && err != io.EOF {
		b.err = &bodyError{err}
		err = b.err
	}
	return n, err
}

// failure waits for the end of a Read, and returns the error of the last one, or nil.
func (b *onceBody) failure() *bodyError {
	if b == nil {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.err
}

// Close does nothing.
func (*onceBody) Close() error { return nil }

// bodyError is an error of the client's body. It is the client's fault, not the other node's.
type bodyError struct{ error }

// Unwrap is for package errors.
func (e *bodyError) Unwrap() error { return e.error }
