package dohost_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/objectstore"
)

// probe is an object with durable sockets. A test notes the calls of its handlers.
type probe struct{ st *dohost.State }

const probes dohost.Namespace[probe] = "probe"

// probeTest has a host with a probe on a file system, and an edge with a socket.
type probeTest struct {
	*testing.T
	fs     *objectstore.FS
	h      *dohost.Host
	edge   *memoryEdge
	s      *edgeSocket
	mu     sync.Mutex // guards the next one, which the handlers of several incarnations use
	noted  []string
	closed func(ctx context.Context) // is called by Closed
	accept func(ctx context.Context, p *probe)
}

func runProbe(t *testing.T, handlers *dohost.Handlers[probe], f func(t *probeTest)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := &probeTest{T: t, fs: objectstore.NewMemFS(), closed: func(context.Context) {}, accept: func(context.Context, *probe) {}}
		handlers.OnHTTP = func(p *probe, w http.ResponseWriter, q *http.Request) {
			r.accept(q.Context(), p)
			if _, err := p.st.Accept(w, q, nil); err != nil {
				p.st.WriteError(w, err)
			}
		}
		if handlers.OnSocket == nil {
			handlers.OnSocket = &dohost.SocketHandlers[probe]{}
		}
		handlers.OnSocket = &dohost.SocketHandlers[probe]{
			Durable: true,
			Timeout: handlers.OnSocket.Timeout,
			Message: func(_ *probe, _ context.Context, s *dohost.Socket, f dohost.Frame) error {
				a, _ := s.Access()
				r.note(string(f.Data), " ", a.Identity)
				return nil
			},
			Closed: func(_ *probe, ctx context.Context, _ *dohost.Socket, how dohost.Closing) error {
				r.note("closed ", how.Code)
				r.closed(ctx)
				return nil
			},
		}
		construct := func(_ context.Context, st *dohost.State) (*probe, error) { return &probe{st}, nil }
		r.h = openOn(t, r.fs, nil, dohost.Bind(probes, construct, handlers))
		r.edge = newMemoryEdge("edge", probes.Get(r.h, "x").ID(), func() *dohost.Host { return r.h })
		r.s = r.connect("/")
		r.send("one")
		f(r)
	})
}

func (t *probeTest) note(what ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.noted = append(t.noted, fmt.Sprint(what...))
}

func (t *probeTest) connect(path string) *edgeSocket {
	t.Helper()
	s, err := t.edge.connect(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func (t *probeTest) send(frame string) {
	t.Helper()
	if err := t.edge.send(t.Context(), t.s, text(frame)); err != nil {
		t.Fatal(err)
	}
}

func (t *probeTest) do(f func(ctx context.Context, p *probe) error) {
	t.Helper()
	if err := probes.Get(t.h, "x").Do(t.Context(), f); err != nil {
		t.Fatal(err)
	}
}

func (t *probeTest) want(noted ...string) {
	t.Helper()
	time.Sleep(time.Second)
	synctest.Wait()
	if !slices.Equal(t.noted, noted) {
		t.Errorf("the handlers got %q, want %q", t.noted, noted)
	}
}

// wantSockets checks the number of sockets of the object.
func (t *probeTest) wantSockets(n int) {
	t.Helper()
	t.do(func(_ context.Context, p *probe) error {
		if got := len(p.st.Sockets("")); got != n {
			t.Errorf("the object has %d sockets, want %d", got, n)
		}
		return nil
	})
}

// TestRelayKeepsAnInputOfAFullDisk delivers an input that cannot be recorded: it is not acknowledged, and is handled later.
func TestRelayKeepsAnInputOfAFullDisk(t *testing.T) {
	runProbe(t, &dohost.Handlers[probe]{}, func(t *probeTest) {
		t.fs.SetFree(0)
		time.Sleep(time.Minute)
		t.edge.ensureLink(t.Context())
		in := text("two")
		in.Socket, in.Number = t.s.number, 2
		t.edge.mu.Lock()
		t.s.sent, t.s.unacked = 2, append(t.s.unacked, in)
		t.edge.mu.Unlock()
		if err := t.edge.link.Deliver(&in); err != nil {
			t.Fatal(err)
		}
		t.want("one <nil>")
		t.fs.SetFree(1 << 40)
		for range 60 {
			time.Sleep(time.Second)
			t.edge.ensureLink(t.Context())
		}
		t.send("three")
		t.want("one <nil>", "two <nil>", "three <nil>")
	})
}

// TestRelayOfAFullDiskIsUnchanged accepts a socket and closes one while rows cannot be written: both fail, and the socket can still be used.
func TestRelayOfAFullDiskIsUnchanged(t *testing.T) {
	runProbe(t, &dohost.Handlers[probe]{}, func(t *probeTest) {
		t.fs.SetFree(0)
		time.Sleep(time.Minute)
		accepted := errors.New("no request")
		t.accept = func(ctx context.Context, p *probe) { accepted = nil }
		if s, err := t.edge.connect(t.Context(), "/"); err == nil || accepted != nil {
			t.Errorf("connected: %+v, %v", s, err)
		}
		t.wantSockets(1)
		var closed, sent error
		t.do(func(ctx context.Context, p *probe) error {
			s := p.st.Sockets("")[0]
			closed = s.Close(ctx, dohost.CloseNormal, "")
			t.fs.SetFree(1 << 40)
			time.Sleep(time.Minute)
			sent = s.Send(ctx, dohost.Frame{Data: []byte("hello")})
			return nil
		})
		if !errors.Is(closed, dohost.ErrNoSpace) || sent != nil {
			t.Errorf("closed: %v, and sent after it: %v", closed, sent)
		}
	})
}

// TestRelayIgnoresAnInputOfAnEndedLink ends the incarnation while an input is queued: the next incarnation waits for a link, and for Authorize.
func TestRelayIgnoresAnInputOfAnEndedLink(t *testing.T) {
	runProbe(t, &dohost.Handlers[probe]{}, func(t *probeTest) {
		begun, end := make(chan struct{}), make(chan struct{})
		go func() {
			_ = probes.Get(t.h, "x").Do(t.Context(), func(ctx context.Context, p *probe) error {
				close(begun)
				<-end
				return p.st.Abort(ctx, errors.New("abort"), nil)
			})
		}()
		<-begun
		in := text("two")
		in.Socket, in.Number = t.s.number, 2
		if err := t.edge.link.Deliver(&in); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		close(end)
		t.want("one <nil>")
	})
}

// TestRelayEndsASlowEdgeAgain has a client that joins while the edge becomes too slow.
func TestRelayEndsASlowEdgeAgain(t *testing.T) {
	runProbe(t, &dohost.Handlers[probe]{}, func(t *probeTest) {
		send := func(n int) func(ctx context.Context, p *probe) error {
			return func(ctx context.Context, p *probe) (err error) {
				for range n {
					err = errors.Join(err, p.st.Broadcast(ctx, dohost.Frame{Data: make([]byte, 1<<20)}, p.st.Sockets("")))
				}
				return err
			}
		}
		for range 5 {
			t.do(send(5))
		}
		t.accept = func(ctx context.Context, p *probe) {
			if err := send(10)(ctx, p); err != nil {
				t.Error(err)
			}
		}
		t.connect("/")
		t.want("one <nil>", "closed 1013")
		t.wantSockets(1)
		for range 5 {
			t.do(send(5))
		}
		t.want("one <nil>", "closed 1013", "closed 1013")
		t.wantSockets(0)
	})
}

// TestRelayOfALinkThatIsGivenUp links while a sync takes longer than the context lasts.
func TestRelayOfALinkThatIsGivenUp(t *testing.T) {
	runProbe(t, &dohost.Handlers[probe]{}, func(t *probeTest) {
		t.edge.link.Close()
		slow := atomic.Bool{}
		slow.Store(true)
		t.fs.OnWrite(func(op, _ string, _ int64) error {
			if op == "sync" && slow.CompareAndSwap(true, false) {
				time.Sleep(25 * time.Second)
			}
			return nil
		})
		go func() {
			_ = probes.Get(t.h, "x").Do(t.Context(), func(ctx context.Context, p *probe) error { return dohost.Put(ctx, p.st.Storage(), "k", 1) })
		}()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		o := dohost.LinkOptions{Edge: "edge", Next: 9, Sockets: []dohost.LinkedSocket{{Number: t.s.number}}, Send: t.edge.receive}
		if _, err := t.h.LinkSockets(ctx, t.edge.id, &o); err == nil {
			t.Fatal("the link is made")
		}
		time.Sleep(time.Minute)
		t.wantSockets(0)
		t.want("one <nil>", "closed 1006")
	})
}

// TestRelayOfAClosedThatPanics ends a socket: its handler panics each time. The host gives up, and the other sockets stay.
func TestRelayOfAClosedThatPanics(t *testing.T) {
	runProbe(t, &dohost.Handlers[probe]{}, func(t *probeTest) {
		bad := t.s
		t.s = t.connect("/")
		t.closed = func(context.Context) { panic("closed") }
		err := t.edge.send(t.Context(), bad, dohost.LinkInput{Closing: &dohost.Closing{Code: 1000}})
		if err != nil {
			t.Fatal(err)
		}
		t.send("two")
		t.want("one <nil>", "closed 1000", "closed 1000", "closed 1000", "two <nil>")
		t.wantSockets(1)
	})
}

// TestRelayKeepsTheOrderOfSockets reads the sockets of two edges from their rows.
func TestRelayKeepsTheOrderOfSockets(t *testing.T) {
	runProbe(t, &dohost.Handlers[probe]{}, func(t *probeTest) {
		time.Sleep(time.Second)
		t.edge = newMemoryEdge("an earlier name", t.edge.id, t.edge.host)
		t.connect("/")
		t.do(func(ctx context.Context, p *probe) error {
			return p.st.Sockets("")[0].SetAttachment(ctx, []byte("first"))
		})
		t.h.Evict(t.edge.id, dohost.EndFence)
		t.do(func(_ context.Context, p *probe) error {
			if all := p.st.Sockets(""); len(all) != 2 || string(all[0].Attachment()) != "first" {
				t.Errorf("%d sockets, the first one has %q", len(all), all[0].Attachment())
			}
			return nil
		})
	})
}

// TestRelayAuthorizesEachClientAlone has a link with a context of another client, and clients that are refused, slow, or make Authorize panic.
func TestRelayAuthorizesEachClientAlone(t *testing.T) {
	again := atomic.Bool{}
	handlers := &dohost.Handlers[probe]{Authorize: func(ctx context.Context, q *dohost.AccessRequest) (dohost.Access, error) {
		user := q.Request.URL.Query().Get("user")
		switch {
		case !again.Load():
		case user == "refused":
			return dohost.Access{}, nil
		case user == "hangs":
			time.Sleep(time.Minute)
		case user == "panics":
			panic(http.ErrAbortHandler)
		default:
			time.Sleep(50 * time.Millisecond)
		}
		return dohost.Access{Identity: user, Rights: dohost.RightsReadOnly}, nil
	}}
	runProbe(t, handlers, func(t *probeTest) {
		refused := []*edgeSocket{t.connect("/?user=refused"), t.connect("/?user=hangs"), t.connect("/?user=panics")}
		for range 500 {
			t.connect("/?user=many")
		}
		t.s = t.connect("/?user=a")
		again.Store(true)
		t.h.Evict(t.edge.id, dohost.EndFence)
		<-t.edge.link.Done()
		for _, s := range refused {
			in := text("refused")
			in.Socket, in.Number = s.number, 1
			s.unacked = append(s.unacked, in)
		}
		begun := time.Now()
		admin := dohost.GrantAccess(t.Context(), dohost.Access{Identity: "admin", Rights: dohost.RightsReadWrite})
		t.edge.ensureLink(admin)
		if took := time.Since(begun); took > 11*time.Second {
			t.Errorf("the link took %v", took)
		}
		t.send("two")
		time.Sleep(time.Second)
		for i, code := range []int{1008, 1012, 1008} {
			if s := refused[i]; s.closing == nil || s.closing.Code != code {
				t.Errorf("refused client %d is closed with %v", i, s.closing)
			}
		}
		if slices.Contains(t.noted, "refused refused") || !slices.Contains(t.noted, "two a") || slices.Contains(t.noted, "two admin") {
			t.Errorf("the handlers got %q", t.noted)
		}
		t.wantSockets(502)
		time.Sleep(time.Minute) // the slow call ends
	})
}
