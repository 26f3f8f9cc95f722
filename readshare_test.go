package dohost_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/objectstore"
)

const mib = 1 << 20

// silentHooks returns echoHooks, except that the object "silent" keeps its frames until quit is closed.
func silentHooks(quit chan struct{}) *socketHooks {
	e := echoHooks()
	echo := e.message
	e.message = func(o *socketObject, ctx context.Context, s *dohost.Socket, f dohost.Frame) error {
		if o.st.ID().Name == "silent" {
			_, _, err := dohost.Recv(ctx, quit)
			return err
		}
		return echo(o, ctx, s, f)
	}
	return e
}

// wantRead reads a body of 1 MiB for a call to another object, and must not wait.
func wantRead(t *testing.T, h *dohost.Host, other dohost.ID) {
	t.Helper()
	begun := time.Now()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", strings.NewReader(strings.Repeat("x", mib)))
	_, body, release, err := h.ReadCall(r, other)
	if err != nil || len(body) != mib || time.Since(begun) != 0 {
		t.Errorf("after %v: %d bytes of a body, %v", time.Since(begun), len(body), err)
	}
	release()
}

// wantUnused checks that nothing is counted.
func wantUnused(t *testing.T, h *dohost.Host) {
	t.Helper()
	synctest.Wait()
	if u := h.ReadBudget(); u.Used != 0 {
		t.Errorf("in the end: %+v", u)
	}
}

// TestReadBudgetIsLeftToSocketsOfOtherObjects has many sockets of an object that keeps all frames. They get at most half of
// the budget. A frame and a body for another object do not wait.
func TestReadBudgetIsLeftToSocketsOfOtherObjects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		quit := make(chan struct{})
		d := openSocketServer(t, silentHooks(quit), &dohost.Options{MaxFrame: mib, ReadBudget: 9 * mib, Grace: -1})
		for range 20 {
			ws, _ := d.dial(t, "silent")
			go func() { _, _, _ = ws.Read(t.Context()) }() // the host may close the socket
			go func() {
				for ws.Write(t.Context(), websocket.MessageBinary, make([]byte, mib)) == nil {
				}
			}()
		}
		synctest.Wait()
		if u := d.ReadBudget(); u.Used < u.Limit/4 || u.Used > u.Limit/2 {
			t.Errorf("the sockets of an object have %+v", u)
		}
		other, _ := d.dial(t, "other")
		other.SetReadLimit(-1)
		begun, text := time.Now(), strings.Repeat("x", mib)
		go func() { _ = other.Write(t.Context(), websocket.MessageText, []byte(text)) }() // heard below
		if got := readText(t, other); got != text || time.Since(begun) != 0 {
			t.Errorf("after %v: %d bytes", time.Since(begun), len(got))
		}
		wantRead(t, d.Host, socketObjects.Get(d, "other").ID())
		d.CloseSockets(socketObjects.Get(d, "silent").ID(), "")
		close(quit)
		advance(time.Minute)
		wantUnused(t, d.Host)
	})
}

// relayedObject is an object with durable sockets.
type relayedObject struct{ st *dohost.State }

const relayedObjects dohost.Namespace[relayedObject] = "relayed"

// TestReadBudgetIsLeftToOtherSocketsOfALink sends frames of edges to an object that keeps them. One socket gets at most a quarter of the
// budget, although its handlers give up the turn, and all sockets get at most three eighths, and a frame of the reserve. A frame for another
// object, and a body, do not wait.
func TestReadBudgetIsLeftToOtherSocketsOfALink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		quit := make(chan struct{})
		var begun, other atomic.Int64
		class := dohost.Bind(relayedObjects, func(_ context.Context, st *dohost.State) (*relayedObject, error) { return &relayedObject{st}, nil },
			&dohost.Handlers[relayedObject]{
				OnHTTP: func(o *relayedObject, w http.ResponseWriter, r *http.Request) { _, _ = o.st.Accept(w, r, nil) },
				OnSocket: &dohost.SocketHandlers[relayedObject]{Durable: true, Message: func(o *relayedObject, ctx context.Context, _ *dohost.Socket, _ dohost.Frame) error {
					if o.st.ID().Name != "silent" {
						other.Add(1)
						return nil
					}
					begun.Add(1)
					_, _, err := dohost.Recv(ctx, quit)
					return err
				}},
			})
		h := openOn(t, objectstore.NewMemFS(), &dohost.Options{MaxFrame: mib, ReadBudget: 12 * mib, Grace: -1}, class)
		edges := map[string]*memoryEdge{}
		for _, name := range []string{"silent", "other"} {
			e := newMemoryEdge("edge", relayedObjects.Get(h, name).ID(), func() *dohost.Host { return h })
			for range 10 {
				if _, err := e.connect(t.Context(), "/"); err != nil {
					t.Fatal(err)
				}
			}
			e.ensureLink(t.Context())
			edges[name] = e
		}
		send := func(name string, socket, number uint64) {
			in := dohost.LinkInput{Socket: socket, Number: number, Frame: dohost.Frame{Data: make([]byte, mib)}}
			if err := edges[name].link.Deliver(&in); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		for i := range uint64(10) {
			send("silent", 1, i+1)
		}
		if n := begun.Load(); n != 4 {
			t.Errorf("%d frames of a socket are handled, want a quarter of the budget, and a frame of the reserve", n)
		}
		for i := range uint64(9) {
			send("silent", i+2, 1)
		}
		if n := begun.Load(); n != 5 {
			t.Errorf("%d frames of all sockets are handled, want at most three eighths of the budget, and a frame of the reserve", n)
		}
		send("other", 1, 1)
		if other.Load() != 1 {
			t.Error("a frame for another object waits")
		}
		wantRead(t, h, edges["other"].id)
		advance(15 * time.Second) // the waits end, and begin again
		close(quit)
		advance(time.Minute)
		if n := begun.Load(); n != 19 {
			t.Errorf("%d frames were handled", n)
		}
		wantUnused(t, h)
	})
}

// keepBody reads the body of a request, and keeps it until the incarnation ends.
func keepBody(o *nilObject, w http.ResponseWriter, r *http.Request) {
	if _, err := io.Copy(io.Discard, r.Body); err != nil {
		o.st.WriteError(w, err)
		return
	}
	_, _, _ = dohost.Recv(r.Context(), make(chan struct{}))
}

// TestReadBudgetIsLeftToBodiesForOtherObjects has many requests that keep their bodies, for one object: of requests that the program reads, of calls from
// other hosts, and of requests to the object.
func TestReadBudgetIsLeftToBodiesForOtherObjects(t *testing.T) {
	for name, read := range map[string]func(h *dohost.Host, r *http.Request, id dohost.ID) (release func(), err error){
		"ReadBody": func(h *dohost.Host, r *http.Request, id dohost.ID) (func(), error) {
			_, release, err := h.ReadBody(r, id)
			return release, err
		},
		"ReadCall": func(h *dohost.Host, r *http.Request, id dohost.ID) (func(), error) {
			_, _, release, err := h.ReadCall(r, id)
			return release, err
		},
		"ServeObject": func(h *dohost.Host, r *http.Request, id dohost.ID) (func(), error) {
			ctx, cancel := context.WithCancel(r.Context())
			c, done := newClient(), make(chan struct{})
			go func() {
				defer close(done)
				defer func() { _ = recover() }() // the client disconnects
				h.ServeObject(c, r.WithContext(ctx), id)
			}()
			synctest.Wait()
			time.Sleep(11 * time.Second)
			release := func() { cancel(); <-done }
			if status, _ := c.got(); status != 0 {
				return release, dohost.ErrOverloaded
			}
			return release, nil
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			h := open(t, &dohost.Options{MaxFrame: 1000, ReadBudget: 9 * mib, Grace: -1}, dohost.Bind(nilObjects,
				func(_ context.Context, st *dohost.State) (*nilObject, error) { return &nilObject{st}, nil },
				&dohost.Handlers[nilObject]{OnHTTP: keepBody},
				dohost.Expose("get", func(_ *nilObject, ctx context.Context, _ struct{}) (struct{}, error) { return struct{}{}, nil })))
			var all []func()
			ask := func(id dohost.ID) error {
				r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", strings.NewReader(strings.Repeat("x", mib)))
				release, err := read(h, r, id)
				all = append(all, release)
				return err
			}
			n, err := 0, error(nil)
			for ; err == nil && n < 20; n++ {
				err = ask(nilObjects.Get(h, "silent").ID())
			}
			if u := h.ReadBudget(); !errors.Is(err, dohost.ErrOverloaded) || u.Used > u.Limit/2 || u.Used < u.Limit/4 {
				t.Errorf("%s: request %d of an object: %v; they have %+v", name, n, err, u)
			}
			wantRead(t, h, nilObjects.Get(h, "other").ID())
			for _, release := range all {
				release()
			}
			h.Close()
			wantUnused(t, h)
		})
	}
}

// TestReadBudgetWaitEndsWithTheHandler has a handler that returns while a goroutine of it waits for the bytes of the body, as the transport of
// an http.Client may. The handler returns immediately, so that the object answers others, and the goroutine waits no longer. The goroutine begins inside
// an Await, so that it does not use the turn of the handler.
func TestReadBudgetWaitEndsWithTheHandler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		read, began := make(chan error, 1), time.Now()
		h := open(t, &dohost.Options{MaxFrame: 1000, ReadBudget: 9 * mib, Grace: -1}, dohost.Bind(nilObjects,
			func(_ context.Context, st *dohost.State) (*nilObject, error) { return &nilObject{st}, nil },
			&dohost.Handlers[nilObject]{OnHTTP: func(_ *nilObject, _ http.ResponseWriter, r *http.Request) {
				err := dohost.Await(r.Context(), func(ctx context.Context) error {
					go func() {
						_, err := io.Copy(io.Discard, r.Body)
						read <- err
					}()
					return dohost.Sleep(ctx, time.Second)
				})
				if err != nil || len(read) != 0 {
					t.Errorf("the Await: %v; its goroutine waits no longer: %v", err, len(read) != 0)
				}
			}}))
		id := nilObjects.Get(h, "a").ID()
		upload := func(ctx context.Context) *http.Request {
			return httptest.NewRequestWithContext(ctx, http.MethodPost, "/", strings.NewReader(strings.Repeat("x", mib)))
		}
		brief, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		var all []func()
		for err := error(nil); err == nil; { // other requests use the bytes for the object
			var release func()
			_, release, err = h.ReadBody(upload(brief), id)
			all = append(all, release)
		}
		h.ServeObject(newClient(), upload(t.Context()), id)
		if took := time.Since(began); took != time.Second+time.Millisecond {
			t.Errorf("the handler has returned after %v", took)
		}
		if err, took := <-read, time.Since(began); err != nil || took != time.Second+time.Millisecond {
			t.Errorf("after %v the body was read: %v", took, err)
		}
		for _, release := range all {
			release()
		}
		h.Close()
		wantUnused(t, h)
	})
}

// TestReadBudgetSufficesForTheLargestFrame sends a frame of MaxFrame bytes to a host with the smallest budget for such a frame.
func TestReadBudgetSufficesForTheLargestFrame(t *testing.T) {
	for _, size := range []int{1, 100, 4 << 10, 4<<10 + 1, 5000, 1 << 16, mib} {
		synctest.Test(t, func(t *testing.T) {
			d := openSocketServer(t, echoHooks(), &dohost.Options{MaxFrame: size, ReadBudget: 4 * int64(size)})
			ws, _ := d.dial(t, "a")
			ws.SetReadLimit(-1)
			text := strings.Repeat("x", size)
			go func() { _ = ws.Write(t.Context(), websocket.MessageText, []byte(text)) }() // heard below
			if got := readText(t, ws); got != text {
				t.Errorf("%d bytes came back, want %d", len(got), size)
			}
			wantUnused(t, d.Host)
		})
	}
}
