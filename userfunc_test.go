package dohost_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	goruntime "runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/eviction"
	"github.com/dohost/dohost/internal/kernel"
	"github.com/dohost/dohost/internal/sockettest"
	"github.com/dohost/dohost/objectstore"
	"github.com/dohost/dohost/runtime"
)

// stuckFunc is a user's function that does not return, at one place.
type stuckFunc struct {
	armed   atomic.Bool
	called  atomic.Bool
	failing atomic.Bool // the constructor returns an error
	place   string
	end     func(quit <-chan struct{})
	quit    chan struct{}
	disk    *objectstore.FS
}

// reach is called by all functions of the test; the call at the tested place does not return.
func (tr *stuckFunc) reach(place string) {
	if place == tr.place && tr.armed.Load() {
		tr.called.Store(true)
		tr.end(tr.quit)
	}
}

// stuckObject is an object with functions that may not return.
type stuckObject struct {
	st *dohost.State
	tr *stuckFunc
}

const stuckObjects dohost.Namespace[stuckObject] = "trapped"

// stuckValue is a value with codec methods.
type stuckValue struct{ tr *stuckFunc }

func (c stuckValue) MarshalMsgpack() ([]byte, error) {
	c.tr.reach("codec methods")
	return []byte{0xc0}, nil
}

const errorMethods = "Error, Is, As, Unwrap of errors"

// stuckError is an error with methods.
type stuckError struct{ tr *stuckFunc }

func (e stuckError) Error() string { e.tr.reach(errorMethods); return "bad" }
func (e stuckError) Is(error) bool { e.tr.reach(errorMethods); return false }
func (e stuckError) As(any) bool   { e.tr.reach(errorMethods); return false }
func (e stuckError) Unwrap() error { e.tr.reach(errorMethods); return nil }

func (tr *stuckFunc) class() dohost.Class {
	return dohost.Bind(stuckObjects, func(_ context.Context, st *dohost.State) (*stuckObject, error) {
		if st.ID().Name == "a" {
			tr.reach("constructor")
			if tr.failing.Load() && tr.armed.Load() {
				return nil, stuckError{tr}
			}
		}
		return &stuckObject{st, tr}, nil
	},
		&dohost.Handlers[stuckObject]{
			OnAlarm: func(*stuckObject, context.Context, dohost.AlarmInfo) error {
				if tr.reach("alarm handler"); tr.place == "Listener.AlarmParked" {
					return errors.New("bad")
				}
				return nil
			},
			OnHTTP: func(x *stuckObject, w http.ResponseWriter, r *http.Request) {
				tr.reach("HTTP handler")
				if r.Header.Get("Upgrade") != "" {
					_, _ = x.st.Accept(w, r, nil)
				}
			},
			OnSocket: &dohost.SocketHandlers[stuckObject]{
				Message: func(*stuckObject, context.Context, *dohost.Socket, dohost.Frame) error { return nil },
				Closed: func(*stuckObject, context.Context, *dohost.Socket, dohost.Closing) error {
					tr.reach("socket handlers")
					return nil
				},
			},
			Private: func(name string) bool {
				if name == "a" {
					tr.reach("Authorize, Private")
				}
				return false
			},
			OnInspect: func(context.Context, *dohost.Snapshot) iter.Seq2[dohost.Resource, error] {
				tr.reach("OnInspect")
				return func(func(dohost.Resource, error) bool) {}
			},
		})
}

// options returns the options of a host with functions of its own that may not return.
func (tr *stuckFunc) options() *dohost.Options {
	lis := func() { tr.reach("Listener functions") }
	o := &dohost.Options{
		Grace: time.Second, IdleAfter: time.Minute,
		Logger: slog.New(stuckLogHandler{tr}),
		Listener: dohost.Listener{
			Waking: func(dohost.ID, dohost.Epoch) { lis() }, Live: func(dohost.ID, dohost.Epoch) { lis() },
			Fenced: func(dohost.Ended) { lis() }, Refused: func(dohost.ID, dohost.Epoch) { lis() },
			AlarmEnded: func(dohost.AlarmRun) { lis() }, AlarmStale: func(dohost.ID) { lis() },
			AlarmParked: func(dohost.ParkedAlarm) { lis(); tr.reach("Listener.AlarmParked") },
			Space:       func(dohost.DiskSpace) { lis(); tr.reach("Listener.Space, Listener.Damaged") },
			Damaged:     func(dohost.Damage) { lis(); tr.reach("Listener.Space, Listener.Damaged") },
			TurnHeld:    func(dohost.LongTurn) { lis() }, StoreFailed: func(error) { lis() }, Failed: func(error) { lis() },
			EventEnded: func(e dohost.EndedEvent) {
				if e.ID.Name == "a" {
					tr.reach("Listener.EventEnded")
				}
			},
			Service: func(dohost.ID, string, ...slog.Attr) {
				tr.reach("Listener.Service")
				if tr.place == "handler of Options.Logger" {
					panic("so that something is logged")
				}
			},
		},
	}
	kernel.Tune(o, func(o *runtime.Options) {
		o.Policy.Trusted = false
		o.Store.ReserveBytes = 1000
		idle := o.Policy.Idle
		o.Policy.Idle = func(id dohost.ID, incarnation, events uint64) time.Duration {
			if id.Name == "a" {
				tr.reach("Policy.Idle, Policy.Shed")
			}
			return idle(id, incarnation, events)
		}
		o.Policy.Shed = func(int) int { tr.reach("Policy.Idle, Policy.Shed"); return 0 }
		if tr.place == "Policy.At" {
			o.Policy.At = func(p runtime.Point) eviction.EndMode {
				if p.ID.Name == "a" {
					tr.reach("Policy.At")
				}
				return eviction.EndNone
			}
		}
	})
	return o
}

type stuckLogHandler struct{ tr *stuckFunc }

func (h stuckLogHandler) Enabled(context.Context, slog.Level) bool { return true }
func (h stuckLogHandler) Handle(context.Context, slog.Record) error {
	h.tr.reach("handler of Options.Logger")
	return nil
}
func (h stuckLogHandler) WithAttrs([]slog.Attr) slog.Handler { return h }
func (h stuckLogHandler) WithGroup(string) slog.Handler      { return h }

// inStuckObject calls f as an event of the object a.
func inStuckObject(f func(ctx context.Context, x *stuckObject) error) func(context.Context, *dohost.Host) {
	return func(ctx context.Context, h *dohost.Host) { _ = stuckObjects.Get(h, "a").Do(ctx, f) }
}

func nothing(context.Context, *stuckObject) error { return nil }

func serveStuck(change func(*http.Request)) func(context.Context, *dohost.Host) {
	return func(ctx context.Context, h *dohost.Host) {
		defer func() { _ = recover() }() // as net/http does
		r := httptest.NewRequestWithContext(ctx, http.MethodGet, "/", nil)
		change(r)
		client, server := net.Pipe()
		_ = client.Close()
		h.ServeObject(&hijackedResponse{httptest.NewRecorder(), server}, r, stuckObjects.Get(h, "a").ID())
	}
}

// stuckCalls has a call of each function of the table in docs/guarantees.md.
var stuckCalls = map[string]func(context.Context, *dohost.Host){
	"constructor": inStuckObject(nothing),
	"method, call, OnAdmin": inStuckObject(func(_ context.Context, x *stuckObject) error {
		x.tr.reach("method, call, OnAdmin")
		return nil
	}),
	errorMethods: func(ctx context.Context, h *dohost.Host) {
		inStuckObject(func(ctx context.Context, x *stuckObject) error {
			return x.st.SetAlarm(ctx, time.Now().Add(time.Second))
		})(ctx, h)
		inStuckObject(func(ctx context.Context, x *stuckObject) error {
			x.tr.failing.Store(true)
			return x.st.Abort(ctx, stuckError{x.tr}, nil)
		})(ctx, h)
		inStuckObject(nothing)(ctx, h)
	},
	"alarm handler": inStuckObject(func(ctx context.Context, x *stuckObject) error { return x.st.SetAlarm(ctx, time.Now()) }),
	"HTTP handler":  serveStuck(func(*http.Request) {}),
	"socket handlers": serveStuck(func(r *http.Request) {
		r.Header = handshake(r.Context()).Header
	}),
	"function of Await or HoldTurn": inStuckObject(func(ctx context.Context, x *stuckObject) error {
		return dohost.Await(ctx, func(ctx context.Context) error {
			return dohost.HoldTurn(ctx, func(context.Context) error { x.tr.reach("function of Await or HoldTurn"); return nil })
		})
	}),
	"function of Exclusive": inStuckObject(func(ctx context.Context, x *stuckObject) error {
		return dohost.Exclusive(ctx, func(context.Context) error { x.tr.reach("function of Exclusive"); return nil })
	}),
	"function of Transaction": inStuckObject(func(ctx context.Context, x *stuckObject) error {
		return dohost.Transaction(ctx, func(context.Context) error { x.tr.reach("function of Transaction"); return nil })
	}),
	"task of Go or GoImmediately": inStuckObject(func(ctx context.Context, x *stuckObject) error {
		return x.st.Go(ctx, "task", func(context.Context) error { x.tr.reach("task of Go or GoImmediately"); return nil })
	}),
	"body of a range loop": inStuckObject(func(ctx context.Context, x *stuckObject) error {
		if err := dohost.Put(ctx, x.st.Storage(), "k", 1); err != nil {
			return err
		}
		for range dohost.All[int](ctx, x.st.Storage(), nil) {
			x.tr.reach("body of a range loop")
		}
		return nil
	}),
	"codec methods": inStuckObject(func(ctx context.Context, x *stuckObject) error {
		return dohost.Put(ctx, x.st.Storage(), "c", stuckValue{x.tr})
	}),
	"Key and Index functions": inStuckObject(func(ctx context.Context, x *stuckObject) error {
		c := dohost.Collection[int]{Name: "c", Key: func(int) string { x.tr.reach("Key and Index functions"); return "k" }}
		return c.Put(ctx, x.st.Storage(), 1)
	}),
	"function of Emit": inStuckObject(func(ctx context.Context, x *stuckObject) error {
		if err := dohost.Put(ctx, x.st.Storage(), "k", 1); err != nil {
			return err
		}
		return x.st.Emit(ctx, func(error) { x.tr.reach("function of Emit") })
	}),
	"OnInspect": func(ctx context.Context, h *dohost.Host) {
		for range h.Details(ctx, stuckObjects.Get(h, "a").ID()) {
			break
		}
	},
	"Authorize, Private":   serveStuck(func(*http.Request) {}),
	"Listener functions":   inStuckObject(nothing),
	"Listener.EventEnded":  inStuckObject(nothing),
	"Listener.AlarmParked": inStuckObject(func(ctx context.Context, x *stuckObject) error { return x.st.SetAlarm(ctx, time.Now()) }),
	"Listener.Space, Listener.Damaged": inStuckObject(func(ctx context.Context, x *stuckObject) error {
		for _, free := range []uint64{999, 1000} {
			x.tr.disk.SetFree(free)
			time.Sleep(1100 * time.Millisecond)
			_ = dohost.Put(ctx, x.st.Storage(), "k", 1) // looks at the disk
		}
		return nil
	}),
	"Listener.Service": inStuckObject(func(ctx context.Context, x *stuckObject) error {
		x.st.Report(ctx, "test")
		return nil
	}),
	"Policy.At":                inStuckObject(func(ctx context.Context, x *stuckObject) error { return dohost.Put(ctx, x.st.Storage(), "k", 1) }),
	"Policy.Idle, Policy.Shed": inStuckObject(nothing),
	"handler of Options.Logger": inStuckObject(func(ctx context.Context, x *stuckObject) error {
		x.st.Report(ctx, "test")
		return nil
	}),
}

// documented returns the first column of the table of functions.
func documented(t *testing.T) (names []string) {
	page, err := os.ReadFile("docs/guarantees.md")
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := strings.Cut(string(page), "| function | goroutine |")
	table, _, _ := strings.Cut(after, "\n\n")
	for line := range strings.SplitSeq(table, "\n") {
		if cells := strings.Split(line, "|"); len(cells) == 7 && !strings.HasPrefix(cells[1], "---") && strings.TrimSpace(cells[1]) != "panic" {
			names = append(names, strings.TrimSpace(cells[1]))
		}
	}
	return names
}

func TestUserFunctionsEndAtMostTheirIncarnation(t *testing.T) {
	names := documented(t)
	if known := slices.Sorted(maps.Keys(stuckCalls)); !slices.Equal(slices.Sorted(slices.Values(names)), known) {
		t.Errorf("docs/guarantees.md has the functions\n%q, this test\n%q", slices.Sorted(slices.Values(names)), known)
	}
	for _, name := range names {
		for ending, end := range map[string]func(<-chan struct{}){
			"panic":  func(<-chan struct{}) { panic("bad") },
			"goexit": func(<-chan struct{}) { goruntime.Goexit() },
			"hang":   func(quit <-chan struct{}) { <-quit },
		} {
			if stuckCalls[name] != nil {
				t.Run(fmt.Sprint(name, "/", ending), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) { callStuck(t, &stuckFunc{place: name, end: end, quit: make(chan struct{})}) })
				})
			}
		}
	}
}

// callStuck calls a function that does not return, and checks that the host continues.
func callStuck(t *testing.T, tr *stuckFunc) {
	tr.disk = objectstore.NewMemFS()
	h := openOn(t, tr.disk, tr.options(), tr.class())
	put := func(name string) error {
		return stuckObjects.Get(h, name).Do(t.Context(), func(ctx context.Context, x *stuckObject) error {
			return dohost.Put(ctx, x.st.Storage(), "n", 1)
		})
	}
	tr.armed.Store(true)
	ctx, leave := context.WithTimeout(t.Context(), 20*time.Minute)
	defer leave()
	done := make(chan struct{})
	go func() {
		defer close(done)
		stuckCalls[tr.place](ctx, h)
	}()
	if advance(2 * time.Second); tr.place == "Listener.AlarmParked" {
		advance(5 * time.Minute) // seven runs
	}
	if !tr.called.Load() {
		t.Fatal("the function was not called")
	}
	if err := put("b"); err != nil {
		t.Errorf("a write of another object: %v", err)
	}
	tr.armed.Store(false)
	advance(2 * time.Minute)
	h.Evict(stuckObjects.Get(h, "a").ID(), dohost.EndFence)
	advance(time.Minute)
	if err := put("a"); err != nil {
		t.Errorf("a write of the object, after an eviction: %v", err)
	}
	if err := put("c"); err != nil {
		t.Errorf("a write of a new object: %v", err)
	}
	if err := h.Err(); err != nil {
		t.Errorf("the store failed: %v", err)
	}
	close(tr.quit)
	leave()
	<-done
	advance(time.Minute)
	if err := h.Close(); err != nil && !errors.Is(err, dohost.ErrFenced) {
		t.Errorf("Close: %v", err)
	}
}

func TestSocketClosesIfTheConstructorErrorPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := &stuckFunc{place: errorMethods, end: func(<-chan struct{}) { panic("bad") }}
		h := open(t, &dohost.Options{IdleAfter: time.Second}, tr.class())
		id := stuckObjects.Get(h, "a").ID()
		ws, _, err := sockettest.Dial(t.Context(), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			h.ServeObject(w, r, id)
		}), "/")
		if err != nil {
			t.Fatal(err)
		}
		defer ws.CloseNow()
		advance(5 * time.Second)
		if h.IsLive(id) {
			t.Fatal("the object is still in memory")
		}
		tr.armed.Store(true)
		tr.failing.Store(true)
		sendText(t, ws, "hello")
		if _, _, err := ws.Read(t.Context()); websocket.CloseStatus(err) != websocket.StatusServiceRestart {
			t.Errorf("the socket ended with %v, want code %d", err, websocket.StatusServiceRestart)
		}
	})
}
