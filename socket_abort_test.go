package dohost_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	goruntime "runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/eviction"
	"github.com/dohost/dohost/internal/kernel"
	"github.com/dohost/dohost/runtime"
)

// handshake is the request for a WebSocket of a socketObject.
func handshake(ctx context.Context) *http.Request {
	r := httptest.NewRequestWithContext(ctx, http.MethodGet, "http://host.test/a", nil)
	r.Header.Set("Connection", "keep-alive, Upgrade")
	r.Header.Set("Upgrade", "websocket")
	r.Header.Set("Sec-WebSocket-Version", "13")
	r.Header.Set("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ==")
	return r
}

// hijackedResponse is a response with a connection that can be hijacked, if there is one.
type hijackedResponse struct {
	*httptest.ResponseRecorder
	conn net.Conn
}

func (w *hijackedResponse) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	if w.conn == nil {
		return nil, nil, errors.New("the connection is gone")
	}
	return w.conn, bufio.NewReadWriter(bufio.NewReader(w.conn), bufio.NewWriter(w.conn)), nil
}

// serveAborted is ServeObject for a client that leaves.
func serveAborted(h *dohost.Host, w http.ResponseWriter, r *http.Request) (panicked any) {
	defer func() {
		if p := recover(); p != http.ErrAbortHandler {
			panicked = p
		}
	}()
	h.ServeObject(w, r, socketObjects.Get(h, "a").ID())
	return nil
}

// decideAt returns options with a policy for each point.
func decideAt(at func(runtime.Point) eviction.EndMode) *dohost.Options {
	o := &dohost.Options{}
	kernel.Tune(o, func(ro *runtime.Options) { ro.Policy.At, ro.Policy.Trusted = at, false })
	return o
}

// TestSocketHandshakeAbortedAtEachPoint makes the client leave at each point of the handshake's event, in turn.
func TestSocketHandshakeAbortedAtEachPoint(t *testing.T) {
	var points []string // of an undisturbed handshake, in order
	for k := 0; k == 0 || k <= len(points); k++ {
		name := "nowhere"
		if k > 0 {
			name = points[k-1]
		}
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, leave := context.WithCancel(t.Context())
				defer leave()
				var left atomic.Bool
				at := func(p runtime.Point) eviction.EndMode {
					place := fmt.Sprint(p.Place, " ", p.N)
					switch {
					case p.Op != "http" || p.ID.Class != "hall":
					case k == 0:
						points = append(points, place)
					case place == name && left.CompareAndSwap(false, true):
						leave()
						time.Sleep(time.Millisecond)
					}
					return eviction.EndNone
				}
				e := &socketHooks{message: echo}
				h := open(t, decideAt(at), e.class())
				client, server := net.Pipe()
				defer client.Close()
				if p := serveAborted(h, &hijackedResponse{httptest.NewRecorder(), server}, handshake(ctx)); p != nil {
					t.Errorf("ServeObject panicked: %v", p)
				}
				synctest.Wait() // the answer may arrive before the event has come to its last point
				if k > 0 && !left.Load() {
					t.Fatalf("the handshake did not come to %q", name)
				}
				_ = client.Close()
				wantNoSocket(t, h)
			})
		})
	}
	if len(points) < 6 {
		t.Errorf("the handshake has the points %q only", points)
	}
}

// wantNoSocket checks that an object has no socket, and that the host closes immediately.
func wantNoSocket(t *testing.T, h *dohost.Host) {
	t.Helper()
	advance(time.Second)
	if infos := h.Sockets(socketObjects.Get(h, "a").ID()); len(infos) > 0 {
		t.Errorf("sockets that stay: %+v", infos)
	}
	n := -1
	err := socketObjects.Get(h, "a").Do(t.Context(), func(_ context.Context, x *socketObject) error {
		n = len(x.st.Sockets(""))
		return nil
	})
	if n != 0 || err != nil {
		t.Errorf("the object has %d sockets, %v", n, err)
	}
	began := time.Now()
	if err := h.Close(); err != nil || time.Since(began) > time.Second {
		t.Errorf("Close returned %v after %v", err, time.Since(began))
	}
}

func TestSocketHandshakeWithoutAConnection(t *testing.T) {
	for name, conn := range map[string]func() net.Conn{
		"before the hijack": func() net.Conn { return nil },
		"before the answer": func() net.Conn {
			client, server := net.Pipe()
			_ = client.Close()
			return server
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := open(t, nil, (&socketHooks{message: echo}).class())
				if p := serveAborted(h, &hijackedResponse{httptest.NewRecorder(), conn()}, handshake(t.Context())); p != nil {
					t.Errorf("ServeObject panicked: %v", p)
				}
				wantNoSocket(t, h)
			})
		})
	}
}

// TestSocketsOfManyClientsThatAbort makes clients of a real server reset their connections during handshakes.
func TestSocketsOfManyClientsThatAbort(t *testing.T) {
	h := open(t, nil, (&socketHooks{message: echo}).class())
	id := socketObjects.Get(h, "a").ID()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { h.ServeObject(w, r, id) }))
	defer server.Close()
	addr := server.Listener.Addr().String()
	var clients sync.WaitGroup
	for c := range 16 {
		clients.Go(func() {
			for i := range 100 {
				abortHandshake(t, addr, c*100+i)
			}
		})
	}
	clients.Wait()
	for len(h.Sockets(id)) > 0 && t.Context().Err() == nil {
		goruntime.Gosched()
	}
	if err := h.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
}

// abortHandshake asks for a WebSocket and resets the connection, the later the larger n is.
func abortHandshake(t *testing.T, addr string, n int) {
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", addr)
	if err != nil {
		t.Error(err)
		return
	}
	defer conn.Close()
	if err := conn.(*net.TCPConn).SetLinger(0); err != nil {
		t.Error(err)
	}
	var request strings.Builder
	if err := handshake(t.Context()).Write(&request); err != nil {
		t.Error(err)
	}
	if _, err := conn.Write([]byte(request.String())); err != nil {
		t.Error(err)
	}
	switch n % 4 {
	case 0: // immediately
	case 1:
		_, _ = conn.Read(make([]byte, 1))
	default:
		for range n {
			goruntime.Gosched()
		}
	}
}

func TestSocketThatIsOpeningIsRemovedByAnOperator(t *testing.T) {
	for name, remove := range map[string]func(*dohost.Host, dohost.ID) bool{
		"close": func(h *dohost.Host, id dohost.ID) bool { return h.CloseSockets(id, "") == 1 },
		"evict": func(h *dohost.Host, id dohost.ID) bool { return h.Evict(id, dohost.EndFence) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				accepted, quit := make(chan struct{}), make(chan struct{})
				class := dohost.Bind(socketObjects, func(_ context.Context, st *dohost.State) (*socketObject, error) { return &socketObject{st: st}, nil },
					&dohost.Handlers[socketObject]{
						OnHTTP: func(x *socketObject, w http.ResponseWriter, r *http.Request) {
							if _, err := x.st.Accept(w, r, nil); err != nil {
								t.Error(err)
							}
							close(accepted)
							_ = dohost.Sleep(r.Context(), time.Second) // others get the turn
							<-quit
						},
						OnSocket: &dohost.SocketHandlers[socketObject]{Message: echo},
					})
				h := open(t, nil, class)
				client, server := net.Pipe()
				served := make(chan struct{})
				go func() {
					defer close(served)
					_ = serveAborted(h, &hijackedResponse{httptest.NewRecorder(), server}, handshake(t.Context()))
				}()
				go func() { _, _ = client.Read(make([]byte, 1000)) }()
				<-accepted
				id := socketObjects.Get(h, "a").ID()
				if infos := h.Sockets(id); len(infos) != 1 || infos[0].State != dohost.SocketOpening {
					t.Fatalf("sockets: %+v, want one that is opening", infos)
				}
				if !remove(h, id) {
					t.Error("it found nothing to remove")
				}
				if infos := h.Sockets(id); len(infos) != 0 {
					t.Errorf("sockets after the removal: %+v", infos)
				}
				close(quit)
				<-served
				_ = client.Close()
				wantNoSocket(t, h)
			})
		})
	}
}

func TestServeObjectDoesNotPanicIfItsClientLeaves(t *testing.T) {
	for range 100 { // select chooses at random
		synctest.Test(t, func(t *testing.T) {
			ctx, leave := context.WithCancel(t.Context())
			defer leave()
			at := func(p runtime.Point) eviction.EndMode {
				// The response leaves, and the answer after it, while the goroutine that serves the request
				// is delayed by its client.
				if p.Op == "http" && p.Place == eviction.PlaceRelease {
					leave()
				}
				return eviction.EndNone
			}
			class := dohost.Bind(socketObjects, func(_ context.Context, st *dohost.State) (*socketObject, error) { return &socketObject{st: st}, nil },
				&dohost.Handlers[socketObject]{
					OnHTTP: func(_ *socketObject, w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) },
				})
			h := open(t, decideAt(at), class)
			w := &slowHeaderWriter{ResponseRecorder: httptest.NewRecorder()}
			r := httptest.NewRequestWithContext(ctx, http.MethodGet, "/", nil)
			if p := serveAborted(h, w, r); p != nil {
				t.Errorf("ServeObject panicked: %v", p)
			}
		})
		if t.Failed() {
			return
		}
	}
}

// slowHeaderWriter is a response that takes a second to write its header.
type slowHeaderWriter struct{ *httptest.ResponseRecorder }

func (w *slowHeaderWriter) WriteHeader(status int) {
	time.Sleep(time.Second)
	w.ResponseRecorder.WriteHeader(status)
}

func TestSocketHandshakeIsRefusedBeforeTheObjectIsWoken(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*http.Request)
		status int
	}{
		"another site":   {func(r *http.Request) { r.Header.Set("Origin", "https://evil.example") }, http.StatusForbidden},
		"no connection":  {func(r *http.Request) { r.Header.Del("Connection") }, http.StatusUpgradeRequired},
		"another method": {func(r *http.Request) { r.Method = http.MethodPost }, http.StatusMethodNotAllowed},
		"no key":         {func(r *http.Request) { r.Header.Del("Sec-WebSocket-Key") }, http.StatusBadRequest},
		"a body":         {func(r *http.Request) { r.ContentLength = 5 }, http.StatusBadRequest},
		"some body":      {func(r *http.Request) { r.ContentLength = -1 }, http.StatusBadRequest},
		"old version":    {func(r *http.Request) { r.Header.Set("Sec-WebSocket-Version", "8") }, http.StatusBadRequest},
	} {
		t.Run(name, func(t *testing.T) {
			e := &socketHooks{message: echo}
			h := open(t, nil, e.class())
			r, w := handshake(t.Context()), httptest.NewRecorder()
			c.change(r)
			h.ServeObject(w, r, socketObjects.Get(h, "a").ID())
			if w.Code != c.status {
				t.Errorf("answered with %d, want %d: %s", w.Code, c.status, w.Body)
			}
			if e.incarnations > 0 || h.LiveCount() > 0 {
				t.Errorf("the object was woken: %d constructors ran", e.incarnations)
			}
		})
	}
}

func TestSocketOriginsOfTheClassMayConnect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		class := dohost.Bind(socketObjects, func(_ context.Context, st *dohost.State) (*socketObject, error) {
			return &socketObject{st: st, hooks: &socketHooks{}}, nil
		},
			&dohost.Handlers[socketObject]{
				OnHTTP:   (*socketObject).serve,
				OnSocket: &dohost.SocketHandlers[socketObject]{Message: echo, Origins: []string{"https://app.example"}},
			})
		h := open(t, nil, class)
		client, server := net.Pipe()
		r, w := handshake(t.Context()), &hijackedResponse{httptest.NewRecorder(), server}
		r.Header.Set("Origin", "https://app.example")
		h.ServeObject(w, r, socketObjects.Get(h, "a").ID())
		if w.Code != http.StatusSwitchingProtocols {
			t.Errorf("answered with %d: %s", w.Code, w.Body)
		}
		_ = client.Close()
		wantNoSocket(t, h)
	})
}

func TestAcceptRefusesARequestThatIsNoHandshake(t *testing.T) {
	e := &socketHooks{message: echo}
	h := open(t, nil, e.class())
	r, w := handshake(t.Context()), httptest.NewRecorder()
	r.Header.Del("Upgrade")
	h.ServeObject(w, r, socketObjects.Get(h, "a").ID())
	if w.Code != http.StatusBadRequest || e.incarnations != 1 {
		t.Errorf("answered with %d by %d objects, want the handler's own answer: %s", w.Code, e.incarnations, w.Body)
	}
	if infos := h.Sockets(socketObjects.Get(h, "a").ID()); len(infos) > 0 {
		t.Errorf("sockets: %+v", infos)
	}
}
