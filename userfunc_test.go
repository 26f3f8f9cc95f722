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

// trap is a user's function that does not return, at one place.
type trap struct {
	armed   atomic.Bool
	sprung  atomic.Bool
	failing atomic.Bool // the constructor returns an error
	place   string
	end     func(quit <-chan struct{})
	quit    chan struct{}
	disk    *objectstore.FS
}

// at is called by all functions of the test; that of the trap's place does not return.
func (tr *trap) at(place string) {
	if place == tr.place && tr.armed.Load() {
		tr.sprung.Store(true)
		tr.end(tr.quit)
	}
}

// trapped is an object with functions that may not return.
type trapped struct {
	st *dohost.State
	tr *trap
}

const trappeds dohost.Namespace[trapped] = "trapped"

// coded is a value with codec methods.
type coded struct{ tr *trap }

func (c coded) MarshalMsgpack() ([]byte, error) {
	c.tr.at("codec methods")
	return []byte{0xc0}, nil
}

const errorMethods = "Error, Is, As, Unwrap of errors"

// trapError is an error with methods.
type trapError struct{ tr *trap }

func (e trapError) Error() string { e.tr.at(errorMethods); return "bad" }
func (e trapError) Is(error) bool { e.tr.at(errorMethods); return false }
func (e trapError) As(any) bool   { e.tr.at(errorMethods); return false }
func (e trapError) Unwrap() error { e.tr.at(errorMethods); return nil }

func (tr *trap) class() dohost.Class {
	return dohost.Bind(trappeds, func(_ context.Context, st *dohost.State) (*trapped, error) {
		if st.ID().Name == "a" {
			tr.at("constructor")
			if tr.failing.Load() && tr.armed.Load() {
				return nil, trapError{tr}
			}
		}
		return &trapped{st, tr}, nil
	},
		&dohost.Handlers[trapped]{
			OnAlarm: func(*trapped, context.Context, dohost.AlarmInfo) error {
				if tr.at("alarm handler"); tr.place == "Listener.AlarmParked" {
					return errors.New("bad")
				}
				return nil
			},
			OnHTTP: func(x *trapped, w http.ResponseWriter, r *http.Request) {
				tr.at("HTTP handler")
				if r.Header.Get("Upgrade") != "" {
					_, _ = x.st.Accept(w, r, nil)
				}
			},
			OnSocket: &dohost.SocketHandlers[trapped]{
				Message: func(*trapped, context.Context, *dohost.Socket, dohost.Frame) error { return nil },
				Closed: func(*trapped, context.Context, *dohost.Socket, dohost.Closing) error {
					tr.at("socket handlers")
					return nil
				},
			},
			Private: func(name string) bool {
				if name == "a" {
					tr.at("Authorize, Private")
				}
				return false
			},
			OnInspect: func(context.Context, *dohost.Snapshot) iter.Seq2[dohost.Resource, error] {
				tr.at("OnInspect")
				return func(func(dohost.Resource, error) bool) {}
			},
		})
}

// options returns the options of a host with functions of its own that may not return.
func (tr *trap) options() *dohost.Options {
	lis := func() { tr.at("Listener functions") }
	tr.disk = objectstore.NewMemFS()
	o := &dohost.Options{
		FS: tr.disk, Grace: time.Second, IdleAfter: time.Minute,
		Logger: slog.New(trapHandler{tr}),
		Listener: dohost.Listener{
			Waking: func(dohost.ID, dohost.Epoch) { lis() }, Live: func(dohost.ID, dohost.Epoch) { lis() },
			Fenced: func(dohost.Ended) { lis() }, Refused: func(dohost.ID, dohost.Epoch) { lis() },
			AlarmEnded: func(dohost.AlarmRun) { lis() }, AlarmStale: func(dohost.ID) { lis() },
			AlarmParked: func(dohost.ParkedAlarm) { lis(); tr.at("Listener.AlarmParked") },
			Space:       func(dohost.DiskSpace) { lis(); tr.at("Listener.Space, Listener.Damaged") },
			Damaged:     func(dohost.Damage) { lis(); tr.at("Listener.Space, Listener.Damaged") },
			TurnHeld:    func(dohost.LongTurn) { lis() }, StoreFailed: func(error) { lis() }, Failed: func(error) { lis() },
			EventEnded: func(e dohost.EndedEvent) {
				if e.ID.Name == "a" {
					tr.at("Listener.EventEnded")
				}
			},
			Service: func(dohost.ID, string, ...slog.Attr) {
				tr.at("Listener.Service")
				if tr.place == "handler of Options.Logger" {
					panic("so that something is logged")
				}
			},
		},
	}
	kernel.Tune(o, func(o *runtime.Options) {
		o.Store.ReserveBytes = 1000
		idle := o.Policy.Idle
		o.Policy.Idle = func(id dohost.ID, life, events uint64) time.Duration {
			if id.Name == "a" {
				tr.at("Policy.Idle, Policy.Shed")
			}
			return idle(id, life, events)
		}
		o.Policy.Shed = func(int) int { tr.at("Policy.Idle, Policy.Shed"); return 0 }
		if tr.place == "Policy.At" {
			o.Policy.At = func(p runtime.Point) eviction.EndMode {
				if p.ID.Name == "a" {
					tr.at("Policy.At")
				}
				return eviction.EndNone
			}
		}
	})
	return o
}

type trapHandler struct{ tr *trap }

func (h trapHandler) Enabled(context.Context, slog.Level) bool { return true }
func (h trapHandler) Handle(context.Context, slog.Record) error {
	h.tr.at("handler of Options.Logger")
	return nil
}
func (h trapHandler) WithAttrs([]slog.Attr) slog.Handler { return h }
func (h trapHandler) WithGroup(string) slog.Handler      { return h }

// inTrap calls f as an event of the object a.
func inTrap(f func(ctx context.Context, x *trapped) error) func(context.Context, *dohost.Host) {
	return func(ctx context.Context, h *dohost.Host) { _ = trappeds.Get(h, "a").Do(ctx, f) }
}

func nothing(context.Context, *trapped) error { return nil }

func serveTrap(change func(*http.Request)) func(context.Context, *dohost.Host) {
	return func(ctx context.Context, h *dohost.Host) {
		defer func() { _ = recover() }() // as net/http does
		r := httptest.NewRequestWithContext(ctx, http.MethodGet, "/", nil)
		change(r)
		client, server := net.Pipe()
		_ = client.Close()
		h.ServeObject(&taken{httptest.NewRecorder(), server}, r, trappeds.Get(h, "a").ID())
	}
}

// springs has a call of each function of the table in docs/guarantees.md.
var springs = map[string]func(context.Context, *dohost.Host){
	"constructor": inTrap(nothing),
	"method, call, OnAdmin": inTrap(func(_ context.Context, x *trapped) error {
		x.tr.at("method, call, OnAdmin")
		return nil
	}),
	errorMethods: func(ctx context.Context, h *dohost.Host) {
		inTrap(func(ctx context.Context, x *trapped) error {
			return x.st.SetAlarm(ctx, time.Now().Add(time.Second))
		})(ctx, h)
		inTrap(func(ctx context.Context, x *trapped) error {
			x.tr.failing.Store(true)
			return x.st.Abort(ctx, trapError{x.tr}, nil)
		})(ctx, h)
		inTrap(nothing)(ctx, h)
	},
	"alarm handler": inTrap(func(ctx context.Context, x *trapped) error { return x.st.SetAlarm(ctx, time.Now()) }),
	"HTTP handler":  serveTrap(func(*http.Request) {}),
	"socket handlers": serveTrap(func(r *http.Request) {
		r.Header = handshake(r.Context()).Header
	}),
	"function of Await or HoldTurn": inTrap(func(ctx context.Context, x *trapped) error {
		return dohost.Await(ctx, func(ctx context.Context) error {
			return dohost.HoldTurn(ctx, func(context.Context) error { x.tr.at("function of Await or HoldTurn"); return nil })
		})
	}),
	"function of Exclusive": inTrap(func(ctx context.Context, x *trapped) error {
		return dohost.Exclusive(ctx, func(context.Context) error { x.tr.at("function of Exclusive"); return nil })
	}),
	"function of Transaction": inTrap(func(ctx context.Context, x *trapped) error {
		return dohost.Transaction(ctx, func(context.Context) error { x.tr.at("function of Transaction"); return nil })
	}),
	"task of Go or GoImmediately": inTrap(func(ctx context.Context, x *trapped) error {
		return x.st.Go(ctx, "task", func(context.Context) error { x.tr.at("task of Go or GoImmediately"); return nil })
	}),
	"body of a range loop": inTrap(func(ctx context.Context, x *trapped) error {
		if err := dohost.Put(ctx, x.st.Storage(), "k", 1); err != nil {
			return err
		}
		for range dohost.All[int](ctx, x.st.Storage(), nil) {
			x.tr.at("body of a range loop")
		}
		return nil
	}),
	"codec methods": inTrap(func(ctx context.Context, x *trapped) error {
		return dohost.Put(ctx, x.st.Storage(), "c", coded{x.tr})
	}),
	"Key and Index functions": inTrap(func(ctx context.Context, x *trapped) error {
		c := dohost.Collection[int]{Name: "c", Key: func(int) string { x.tr.at("Key and Index functions"); return "k" }}
		return c.Put(ctx, x.st.Storage(), 1)
	}),
	"function of Emit": inTrap(func(ctx context.Context, x *trapped) error {
		if err := dohost.Put(ctx, x.st.Storage(), "k", 1); err != nil {
			return err
		}
		return x.st.Emit(ctx, func(error) { x.tr.at("function of Emit") })
	}),
	"OnInspect": func(ctx context.Context, h *dohost.Host) {
		defer func() { _ = recover() }()
		for range h.Details(ctx, trappeds.Get(h, "a").ID()) {
			break
		}
	},
	"Authorize, Private":   serveTrap(func(*http.Request) {}),
	"Listener functions":   inTrap(nothing),
	"Listener.EventEnded":  inTrap(nothing),
	"Listener.AlarmParked": inTrap(func(ctx context.Context, x *trapped) error { return x.st.SetAlarm(ctx, time.Now()) }),
	"Listener.Space, Listener.Damaged": inTrap(func(ctx context.Context, x *trapped) error {
		for _, free := range []uint64{999, 1000} {
			x.tr.disk.SetFree(free)
			time.Sleep(1100 * time.Millisecond)
			_ = dohost.Put(ctx, x.st.Storage(), "k", 1) // looks at the disk
		}
		return nil
	}),
	"Listener.Service": inTrap(func(ctx context.Context, x *trapped) error {
		x.st.Report(ctx, "test")
		return nil
	}),
	"Policy.At":                inTrap(func(ctx context.Context, x *trapped) error { return dohost.Put(ctx, x.st.Storage(), "k", 1) }),
	"Policy.Idle, Policy.Shed": inTrap(nothing),
	"handler of Options.Logger": inTrap(func(ctx context.Context, x *trapped) error {
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
	if known := slices.Sorted(maps.Keys(springs)); !slices.Equal(slices.Sorted(slices.Values(names)), known) {
		t.Errorf("docs/guarantees.md has the functions\n%q, this test\n%q", slices.Sorted(slices.Values(names)), known)
	}
	for _, name := range names {
		for ending, end := range map[string]func(<-chan struct{}){
			"panic":  func(<-chan struct{}) { panic("bad") },
			"goexit": func(<-chan struct{}) { goruntime.Goexit() },
			"hang":   func(quit <-chan struct{}) { <-quit },
		} {
			if springs[name] != nil {
				t.Run(fmt.Sprint(name, "/", ending), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) { spring(t, &trap{place: name, end: end, quit: make(chan struct{})}) })
				})
			}
		}
	}
}

// spring calls a function that does not return, and checks that the host continues.
func spring(t *testing.T, tr *trap) {
	h := open(t, tr.options(), tr.class())
	put := func(name string) error {
		return trappeds.Get(h, name).Do(t.Context(), func(ctx context.Context, x *trapped) error {
			return dohost.Put(ctx, x.st.Storage(), "n", 1)
		})
	}
	tr.armed.Store(true)
	ctx, leave := context.WithTimeout(t.Context(), 20*time.Minute)
	defer leave()
	done := make(chan struct{})
	go func() {
		defer close(done)
		springs[tr.place](ctx, h)
	}()
	if pass(2 * time.Second); tr.place == "Listener.AlarmParked" {
		pass(5 * time.Minute) // seven runs
	}
	if !tr.sprung.Load() {
		t.Fatal("the function was not called")
	}
	if err := put("b"); err != nil {
		t.Errorf("a write of another object: %v", err)
	}
	tr.armed.Store(false)
	pass(2 * time.Minute)
	h.Evict(trappeds.Get(h, "a").ID(), dohost.EndFence)
	pass(time.Minute)
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
	pass(time.Minute)
	if err := h.Close(); err != nil && !errors.Is(err, dohost.ErrFenced) {
		t.Errorf("Close: %v", err)
	}
}

func TestSocketClosesIfTheConstructorErrorPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := &trap{place: errorMethods, end: func(<-chan struct{}) { panic("bad") }}
		h := open(t, &dohost.Options{IdleAfter: time.Second}, tr.class())
		id := trappeds.Get(h, "a").ID()
		ws, _, err := sockettest.Dial(t.Context(), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			h.ServeObject(w, r, id)
		}), "/")
		if err != nil {
			t.Fatal(err)
		}
		defer ws.CloseNow()
		pass(5 * time.Second)
		if h.IsLive(id) {
			t.Fatal("the object is still in memory")
		}
		tr.armed.Store(true)
		tr.failing.Store(true)
		say(t, ws, "hello")
		if _, _, err := ws.Read(t.Context()); websocket.CloseStatus(err) != websocket.StatusServiceRestart {
			t.Errorf("the socket ended with %v, want code %d", err, websocket.StatusServiceRestart)
		}
	})
}
