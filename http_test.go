package dohost_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/eviction"
	"github.com/dohost/dohost/objectstore"
	"github.com/dohost/dohost/runtime"
	"github.com/dohost/dohost/sharedlog"
	"github.com/dohost/dohost/sharedlog/logtest"
)

// httpObject is an object with an HTTP handler that a test chooses.
type httpObject struct {
	st    *dohost.State
	serve func(p *httpObject, w http.ResponseWriter, r *http.Request)
}

const httpObjects dohost.Namespace[httpObject] = "page"

func (p *httpObject) ServeHTTP(w http.ResponseWriter, r *http.Request) { p.serve(p, w, r) }

// Touch does nothing: it returns after it has had the turn.
func (p *httpObject) Touch(context.Context) error { return nil }

func httpClass(serve func(p *httpObject, w http.ResponseWriter, r *http.Request)) dohost.Class {
	return dohost.Bind(httpObjects, func(_ context.Context, st *dohost.State) (*httpObject, error) {
		return &httpObject{st, serve}, nil
	}, &dohost.Handlers[httpObject]{OnHTTP: (*httpObject).ServeHTTP})
}

func put(p *httpObject, r *http.Request, key string) error {
	return dohost.Put(r.Context(), p.st.Storage(), key, 1)
}

// client is a connection that a test may stop reading from.
type client struct {
	header http.Header
	clear  chan struct{} // nil: reads always; else each Write waits for one

	mu     sync.Mutex
	status int
	body   bytes.Buffer
	fails  error
}

func newClient() *client { return &client{header: http.Header{}} }

func (c *client) Header() http.Header { return c.header }

func (c *client) WriteHeader(status int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.status == 0 {
		c.status = status
	}
}

func (c *client) Write(p []byte) (int, error) {
	if c.clear != nil {
		<-c.clear
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.fails != nil {
		return 0, c.fails
	}
	return c.body.Write(p)
}

func (c *client) Flush() {}

func (c *client) got() (int, string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.status, c.body.String()
}

func (c *client) want(t *testing.T, status int, body string) {
	t.Helper()
	if s, b := c.got(); s != status || b != body {
		t.Fatalf("client has %d %.200q, want %d %.200q", s, b, status, body)
	}
}

func (c *client) wantError(t *testing.T, status int, code string) dohost.ErrorBody {
	t.Helper()
	s, b := c.got()
	var e dohost.ErrorBody
	if err := json.Unmarshal([]byte(b), &e); err != nil || s != status || e.Code != code {
		t.Fatalf("client has %d %q (%v), want %d %s", s, b, err, status, code)
	}
	return e
}

// serve calls ServeObject as a server would. When it has returned, the channel yields the value of its panic.
func serve(h *dohost.Host, w http.ResponseWriter, r *http.Request) <-chan any {
	done := make(chan any, 1)
	go func() {
		defer func() { done <- recover() }()
		h.ServeObject(w, r, dohost.ID{Class: "page", Name: "x"})
	}()
	return done
}

func get(t *testing.T) *http.Request {
	return httptest.NewRequestWithContext(t.Context(), "GET", "/", nil)
}

func mustTouch(t *testing.T, h *dohost.Host) {
	t.Helper()
	if err := dohost.CallBare(t.Context(), httpObjects.Get(h, "x"), (*httpObject).Touch); err != nil {
		t.Fatal(err)
	}
}

func TestResponseWaitsForTheDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs := objectstore.NewMemFS()
		h := openOn(t, fs, nil, httpClass(func(p *httpObject, w http.ResponseWriter, r *http.Request) {
			w.Header().Set("X-Kind", "page")
			if err := put(p, r, "k"); err != nil {
				t.Error(err)
			}
			w.WriteHeader(http.StatusCreated)
			fmt.Fprint(w, "hello")
		}))
		mustTouch(t, h)
		release := fs.HoldSyncs()
		c := newClient()
		done := serve(h, c, get(t))
		synctest.Wait()
		c.want(t, 0, "")
		release()
		if p := <-done; p != nil {
			t.Fatal(p)
		}
		c.want(t, http.StatusCreated, "hello")
		if c.header.Get("X-Kind") != "page" || c.header.Get("Content-Length") != "5" {
			t.Fatalf("header %v", c.header)
		}
	})
}

func TestResponseFlushReleasesItsPart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs := objectstore.NewMemFS()
		proceed := make(chan struct{})
		h := openOn(t, fs, nil, httpClass(func(p *httpObject, w http.ResponseWriter, r *http.Request) {
			if err := put(p, r, "k"); err != nil {
				t.Error(err)
			}
			fmt.Fprint(w, "one ")
			if err := http.NewResponseController(w).Flush(); err != nil {
				t.Error(err)
			}
			fmt.Fprint(w, "two")
			if _, _, err := dohost.Recv(r.Context(), proceed); err != nil {
				t.Error(err)
			}
		}))
		mustTouch(t, h)
		release := fs.HoldSyncs()
		c := newClient()
		done := serve(h, c, get(t))
		synctest.Wait()
		c.want(t, 0, "")
		release()
		synctest.Wait()
		c.want(t, http.StatusOK, "one ")
		mustTouch(t, h) // the handler waits without the turn
		close(proceed)
		if p := <-done; p != nil {
			t.Fatal(p)
		}
		c.want(t, http.StatusOK, "one two")
	})
}

func TestResponseToASlowClientBlocksItsHandlerOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const piece = 100 << 10
		var flushed int
		h := open(t, nil, httpClass(func(_ *httpObject, w http.ResponseWriter, _ *http.Request) {
			for range 6 {
				w.Write(make([]byte, piece))
				if err := http.NewResponseController(w).Flush(); err != nil {
					t.Error(err)
				}
				flushed++
			}
		}))
		c := newClient()
		c.clear = make(chan struct{})
		done := serve(h, c, get(t))
		synctest.Wait()
		if flushed != 2 {
			t.Fatalf("%d flushes returned before the client read anything, want those of the first 256 KiB", flushed)
		}
		mustTouch(t, h)
		close(c.clear)
		if p := <-done; p != nil {
			t.Fatal(p)
		}
		if _, body := c.got(); flushed != 6 || len(body) != 6*piece {
			t.Fatalf("%d flushes, %d bytes", flushed, len(body))
		}
	})
}

func TestRequestBodyReadReleasesTheTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := open(t, nil, httpClass(func(_ *httpObject, w http.ResponseWriter, r *http.Request) {
			b, err := io.ReadAll(r.Body)
			fmt.Fprintf(w, "%s %v", b, err)
		}))
		r, w := io.Pipe()
		c := newClient()
		done := serve(h, c, httptest.NewRequestWithContext(t.Context(), "POST", "/", r))
		fmt.Fprint(w, "slow ")
		mustTouch(t, h)
		fmt.Fprint(w, "client")
		w.Close()
		if p := <-done; p != nil {
			t.Fatal(p)
		}
		c.want(t, http.StatusOK, "slow client <nil>")
	})
}

func TestRequestBodyAndFlushWorkInsideAnAwait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := open(t, nil, httpClass(func(_ *httpObject, w http.ResponseWriter, r *http.Request) {
			err := dohost.Await(r.Context(), func(context.Context) error {
				_, err := io.Copy(w, r.Body)
				return errors.Join(err, http.NewResponseController(w).Flush())
			})
			if err != nil {
				t.Error(err)
			}
		}))
		c := newClient()
		if p := <-serve(h, c, httptest.NewRequestWithContext(t.Context(), "POST", "/", strings.NewReader("echo"))); p != nil {
			t.Fatal(p)
		}
		c.want(t, http.StatusOK, "echo")
	})
}

func TestHTTPHandlerPanicIsReportedToTheClient(t *testing.T) {
	for name, flush := range map[string]bool{"before the header": false, "after it": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := open(t, nil, httpClass(func(_ *httpObject, w http.ResponseWriter, _ *http.Request) {
					fmt.Fprint(w, "half")
					if flush {
						w.(http.Flusher).Flush()
					}
					panic("bug")
				}))
				c := newClient()
				p := <-serve(h, c, get(t))
				if flush {
					c.want(t, http.StatusOK, "half")
					if p != http.ErrAbortHandler {
						t.Fatalf("panicked with %v", p)
					}
					return
				}
				e := c.wantError(t, http.StatusInternalServerError, "fenced")
				if !e.Reset || e.Ran != "unknown" || e.Object != "page/x" || e.Op != "http" || p != nil {
					t.Fatalf("%+v, panicked with %v", e, p)
				}
			})
		})
	}
}

func TestAbortHandlerCutsTheConnectionOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := open(t, nil, httpClass(func(p *httpObject, _ http.ResponseWriter, r *http.Request) {
			if err := put(p, r, "k"); err != nil {
				t.Error(err)
			}
			panic(http.ErrAbortHandler)
		}))
		c := newClient()
		if p := <-serve(h, c, get(t)); p != http.ErrAbortHandler {
			t.Fatalf("panicked with %v", p)
		}
		c.want(t, 0, "")
		id := httpObjects.Get(h, "x").ID()
		if ok, err := h.Exists(t.Context(), id); !ok || err != nil {
			t.Fatalf("what the handler wrote is gone: %v", err)
		}
		if !h.Evict(id, dohost.EndFence) {
			t.Fatal("the incarnation has ended")
		}
	})
}

func TestResponseOfAnEndedIncarnationIsDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		proceed := make(chan struct{})
		late := make(chan error, 1)
		h := open(t, nil, httpClass(func(_ *httpObject, w http.ResponseWriter, _ *http.Request) {
			<-proceed // ignores its context
			fmt.Fprint(w, "late")
			late <- http.NewResponseController(w).Flush()
		}))
		c := newClient()
		done := serve(h, c, get(t))
		synctest.Wait()
		h.Evict(httpObjects.Get(h, "x").ID(), dohost.EndFence)
		if p := <-done; p != nil {
			t.Fatal(p)
		}
		c.wantError(t, http.StatusInternalServerError, "fenced")
		_, before := c.got()
		close(proceed)
		if err := <-late; err == nil {
			t.Fatal("a flush after the end succeeded")
		}
		synctest.Wait()
		c.want(t, http.StatusInternalServerError, before)
	})
}

func TestResponseWithoutFlushIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := open(t, nil, httpClass(func(_ *httpObject, w http.ResponseWriter, _ *http.Request) {
			for range 17 {
				if _, err := w.Write(make([]byte, 1<<20)); err != nil {
					return
				}
			}
			t.Error("17 MiB were taken unflushed")
		}))
		c := newClient()
		if p := <-serve(h, c, get(t)); p != nil {
			t.Fatal(p)
		}
		if e := c.wantError(t, http.StatusInternalServerError, "failed"); !strings.Contains(e.Message, "16777216") {
			t.Fatalf("the message does not name the limit: %s", e.Message)
		}
	})
}

func TestHTTPClientThatLeavesCancelsItsRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		proceed := make(chan struct{})
		ran := 0
		flushed := make(chan error, 2)
		h := open(t, nil, httpClass(func(_ *httpObject, w http.ResponseWriter, _ *http.Request) {
			ran++
			<-proceed
			flushed <- http.NewResponseController(w).Flush()
		}))
		ctx, leave := context.WithCancel(t.Context())
		first, second := newClient(), newClient()
		started := serve(h, first, get(t).WithContext(ctx))
		synctest.Wait()
		queued := serve(h, second, get(t).WithContext(ctx))
		synctest.Wait()
		leave()
		<-started
		<-queued
		if e := first.wantError(t, 499, "canceled"); e.Ran != "unknown" {
			t.Fatalf("started: %+v", e)
		}
		if e := second.wantError(t, 499, "canceled"); e.Ran != "no" || !e.Retryable {
			t.Fatalf("queued: %+v", e)
		}
		close(proceed)
		if err := <-flushed; !errors.Is(err, context.Canceled) {
			t.Fatalf("the flush of a handler whose client has left: %v", err)
		}
		synctest.Wait()
		if ran != 1 {
			t.Fatalf("%d handlers ran", ran)
		}
	})
}

func TestHTTPClientWriteErrorEndsTheResponse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		again := make(chan error, 1)
		h := open(t, nil, httpClass(func(_ *httpObject, w http.ResponseWriter, r *http.Request) {
			rc := http.NewResponseController(w)
			fmt.Fprint(w, "piece")
			rc.Flush()
			dohost.Sleep(r.Context(), 1)
			fmt.Fprint(w, "piece")
			again <- rc.Flush()
		}))
		c := newClient()
		c.fails = io.ErrClosedPipe
		if p := <-serve(h, c, get(t)); p != http.ErrAbortHandler {
			t.Fatalf("panicked with %v", p)
		}
		if err := <-again; !errors.Is(err, io.ErrClosedPipe) {
			t.Fatalf("the next flush: %v", err)
		}
	})
}

func TestChaosEndsAnIncarnationAtAChunk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := open(t, &dohost.Options{
			Chaos: eviction.Chaos{Seed: 1, Rate: 1, Places: []eviction.Place{eviction.PlaceChunk}},
		}, httpClass(func(_ *httpObject, w http.ResponseWriter, _ *http.Request) {
			fmt.Fprint(w, "one")
			if err := http.NewResponseController(w).Flush(); !errors.Is(err, dohost.ErrFenced) {
				t.Errorf("flush at which chaos struck: %v", err)
			}
		}))
		c := newClient()
		if p := <-serve(h, c, get(t)); p != http.ErrAbortHandler {
			t.Fatalf("panicked with %v", p)
		}
		c.want(t, http.StatusOK, "one") // it was durable
	})
}

func TestHTTPErrorsOfRequestsWithoutAHandler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		type mute struct{}
		h := open(t, nil, dohost.Bind(dohost.Namespace[mute]("mute"), func(context.Context, *dohost.State) (*mute, error) {
			return &mute{}, nil
		}, nil))
		for _, tt := range []struct {
			id     dohost.ID
			status int
			code   string
		}{
			{dohost.ID{Class: "mute", Name: "x"}, http.StatusNotFound, "no_http_handler"},
			{dohost.ID{Class: "none", Name: "x"}, http.StatusNotFound, "no_class"},
			{dohost.ID{Class: "mute", Name: ""}, http.StatusBadRequest, "bad_name"},
			{dohost.ID{Class: "mute", Name: "a\x00"}, http.StatusBadRequest, "bad_name"},
		} {
			c := newClient()
			h.ServeObject(c, get(t), tt.id)
			if e := c.wantError(t, tt.status, tt.code); e.Ran != "no" {
				t.Errorf("%v: ran %s", tt.id, e.Ran)
			}
		}
		h.Close()
		c := newClient()
		h.ServeObject(c, get(t), dohost.ID{Class: "mute", Name: "x"})
		c.wantError(t, http.StatusNotFound, "no_http_handler")
	})
}

func TestHTTPRequestToAClosedHostGetsRetryAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := open(t, nil, httpClass(func(*httpObject, http.ResponseWriter, *http.Request) {}))
		h.Close()
		c := newClient()
		if p := <-serve(h, c, get(t)); p != nil {
			t.Fatal(p)
		}
		if e := c.wantError(t, http.StatusServiceUnavailable, "closed"); e.Retryable || e.Ran != "no" || c.header.Get("Retry-After") == "" {
			t.Fatalf("%+v %v", e, c.header)
		}
	})
}

// lostLease is a lease that a test ends.
type lostLease struct {
	sharedlog.Lease
	lost chan struct{}
}

func (l *lostLease) Lost() <-chan struct{} { return l.lost }

// TestHTTPRequestOfALostLeaseGetsRetryAfter has a handler that has written when its host loses the lease. Another host may serve the object
// then. The client must not repeat the request blindly, since the handler has run.
func TestHTTPRequestOfALostLeaseGetsRetryAfter(t *testing.T) {
	lease, err := new(logtest.Log).Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	l := &lostLease{Lease: lease, lost: make(chan struct{})}
	h := open(t, &dohost.Options{Lease: l}, httpClass(func(p *httpObject, _ http.ResponseWriter, r *http.Request) {
		if err := put(p, r, "key"); err != nil {
			t.Error(err)
		}
		close(l.lost)
		<-r.Context().Done()
	}))
	c := newClient()
	if p := <-serve(h, c, get(t)); p != nil {
		t.Fatal(p)
	}
	e := c.wantError(t, http.StatusServiceUnavailable, "fenced")
	if e.Ran != "unknown" || e.Retryable || c.header.Get("Retry-After") == "" {
		t.Errorf("%+v %v", e, c.header)
	}
}

func TestHTTPHandlerHasTheRequestsValuesAndTheTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		type key struct{}
		h := open(t, nil, httpClass(func(p *httpObject, w http.ResponseWriter, r *http.Request) {
			fmt.Fprintf(w, "%v %v %v", r.Context().Value(key{}), put(p, r, "k"), context.Cause(r.Context()))
		}))
		c := newClient()
		r := get(t)
		if p := <-serve(h, c, r.WithContext(context.WithValue(r.Context(), key{}, "mine"))); p != nil {
			t.Fatal(p)
		}
		c.want(t, http.StatusOK, "mine <nil> <nil>")
	})
}

// TestTimeoutHandler has a client that never sends the rest of its body. The handler that reads the body, on a
// goroutine of http's own, outlives the request.
func TestTimeoutHandler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		left := make(chan error, 1)
		h := open(t, nil, httpClass(func(p *httpObject, w http.ResponseWriter, r *http.Request) {
			http.TimeoutHandler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				_, err := io.Copy(io.Discard, r.Body)
				left <- err
			}), time.Second, "too slow").ServeHTTP(w, r)
		}))
		body, more := io.Pipe()
		r := httptest.NewRequestWithContext(t.Context(), "POST", "/", body)
		c := newClient()
		<-serve(h, c, r)
		c.want(t, http.StatusServiceUnavailable, "too slow")
		for range 3 {
			mustTouch(t, h)
		}
		more.Close()
		if err := <-left; !errors.Is(err, runtime.ErrNoTurn) {
			t.Errorf("the goroutine that outlived its handler continued to read: %v", err)
		}
		mustTouch(t, h)
	})
}

// TestTimeoutHandlerWhileTheDiskIsSlow lets the handler that outlives its request use the turn at that moment.
func TestTimeoutHandlerWhileTheDiskIsSlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs := objectstore.NewMemFS()
		h := openOn(t, fs, nil, httpClass(func(p *httpObject, w http.ResponseWriter, r *http.Request) {
			http.TimeoutHandler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				if err := put(p, r, "k"); err != nil {
					t.Error(err)
				}
				_ = p.st.Storage().Sync(r.Context())
			}), time.Second, "too slow").ServeHTTP(w, r)
		}))
		mustTouch(t, h)
		release := fs.HoldSyncs()
		time.AfterFunc(5*time.Second, release)
		c := newClient()
		<-serve(h, c, get(t))
		c.want(t, http.StatusServiceUnavailable, "too slow")
		mustTouch(t, h)
	})
}

// TestRequestBodyLeavesTheTurnAfterTheHandler has a goroutine that reads the body, as the transport of an http.Client does. It reads on after the
// handler has returned, while a Sync on another goroutine delays the end of the event.
func TestRequestBodyLeavesTheTurnAfterTheHandler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs, release := objectstore.NewMemFS(), func() {}
		read, synced := make(chan error, 1), make(chan error, 1)
		h := openOn(t, fs, nil, httpClass(func(p *httpObject, w http.ResponseWriter, r *http.Request) {
			err := dohost.Await(r.Context(), func(ctx context.Context) error {
				go func() {
					_, err := io.Copy(io.Discard, r.Body)
					read <- err
				}()
				return dohost.Sleep(ctx, time.Second)
			})
			if err := errors.Join(err, put(p, r, "k")); err != nil {
				t.Error(err)
			}
			release = fs.HoldSyncs()
			go func() { synced <- p.st.Storage().Sync(r.Context()) }()
			time.Sleep(time.Second) // the Sync begins
			fmt.Fprint(w, "done")
		}))
		body, more := io.Pipe()
		c := newClient()
		done := serve(h, c, httptest.NewRequestWithContext(t.Context(), "POST", "/", body))
		advance(3 * time.Second) // the handler has returned
		fmt.Fprint(more, "late")
		more.Close()
		if err := <-read; err != nil {
			t.Errorf("the body after the handler: %v", err)
		}
		release()
		if p, err := <-done, <-synced; p != nil || err != nil {
			t.Errorf("%v, the Sync: %v", p, err)
		}
		c.want(t, http.StatusOK, "done")
	})
}

// The server discards the unread rest of a body, also if the handler answers late, and takes no request for a part of
// another.
func TestRequestBodiesThatAreNotReadAreDiscarded(t *testing.T) {
	h := open(t, nil, dohost.Bind(dohost.Namespace[partialReader]("lazy"), func(context.Context, *dohost.State) (*partialReader, error) {
		return &partialReader{}, nil
	}, &dohost.Handlers[partialReader]{OnHTTP: (*partialReader).serve}))
	var log lockedBuffer
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.ServeObject(w, r, dohost.ID{Class: "lazy", Name: "a"})
	}))
	server.Config.ErrorLog = slog.NewLogLogger(slog.NewTextHandler(&log, nil), slog.LevelInfo)
	server.Start()
	for _, size := range []int{4, 100 << 10, 300 << 10, 2 << 20, 20 << 20} {
		for _, path := range []string{"/", "/flush", "/some"} {
			for range 3 {
				res, err := http.Post(server.URL+path, "text/plain", strings.NewReader(strings.Repeat("x", size)))
				if err != nil {
					if path == "/" && size > 256<<10 || size > 16<<20 {
						continue // it was cut off while it still sent
					}
					t.Fatal(path, size, err)
				}
				got, err := io.ReadAll(res.Body)
				if size > 16<<20 && err != nil {
					continue
				}
				if err := errors.Join(err, res.Body.Close()); err != nil || string(got) != "no" {
					t.Errorf("%s %d: %q, %v", path, size, got, err)
				}
			}
		}
	}
	server.Close()
	if text := log.String(); strings.Contains(text, "panic") {
		t.Error(text)
	}
}

// partialReader is an object that reads little.
type partialReader struct{}

func (*partialReader) serve(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/some" {
		if _, err := io.ReadFull(r.Body, make([]byte, 2)); err != nil {
			panic(err)
		}
	}
	fmt.Fprint(w, "no")
	if r.URL.Path != "/" {
		_ = http.NewResponseController(w).Flush()
	}
}

type lockedBuffer struct {
	mu sync.Mutex
	b  strings.Builder
}

// Write writes.
func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}
