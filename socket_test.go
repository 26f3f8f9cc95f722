package dohost_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/objectstore"
)

// hall is an object with socket handlers that a test chooses.
type hall struct {
	st *dohost.State
	is *hallEvents
}

// hallEvents is the test's part of all halls.
type hallEvents struct {
	accept  dohost.AcceptOptions
	message func(h *hall, ctx context.Context, s *dohost.Socket, f dohost.Frame) error
	timeout time.Duration

	mu     sync.Mutex // held while a hall writes: there may be several
	born   int
	closed []string // how sockets have ended
}

const halls dohost.Namespace[hall] = "hall"

func (e *hallEvents) class() dohost.Class {
	return dohost.Bind(halls, func(_ context.Context, st *dohost.State) (*hall, error) {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.born++
		return &hall{st, e}, nil
	}, &dohost.Handlers[hall]{
		OnHTTP: (*hall).serve,
		OnSocket: &dohost.SocketHandlers[hall]{
			Timeout: e.timeout,
			Message: func(h *hall, ctx context.Context, s *dohost.Socket, f dohost.Frame) error {
				return e.message(h, ctx, s, f)
			},
			Closed: func(h *hall, _ context.Context, s *dohost.Socket, how dohost.Closing) error {
				e.mu.Lock()
				defer e.mu.Unlock()
				e.closed = append(e.closed, fmt.Sprintf("%d %q clean %v, %d left", how.Code, how.Reason, how.Clean, len(h.st.Sockets(""))))
				return nil
			},
		},
		OnAlarm: (*hall).ring,
	})
}

func (h *hall) ring(context.Context, dohost.AlarmInfo) error { return nil }

func (h *hall) serve(w http.ResponseWriter, r *http.Request) {
	o := h.is.accept
	if tag := r.URL.Query().Get("tag"); tag != "" {
		o.Tags = append(slices.Clone(o.Tags), tag)
	}
	if _, err := h.st.Accept(w, r, &o); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
	}
}

// pass advances the clock and waits until the bubble is idle.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// pipes is a listener in memory.
type pipes struct {
	conns chan net.Conn
	done  chan struct{}
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error   { close(p.done); return nil }
func (p *pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipe", Net: "unix"} }

// door is a server of a host's halls, in memory.
type door struct {
	*dohost.Host
	pipes *pipes
	is    *hallEvents
}

func openDoor(t *testing.T, e *hallEvents, o *dohost.Options) *door {
	t.Helper()
	d := &door{open(t, o, e.class()), &pipes{make(chan net.Conn), make(chan struct{})}, e}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		d.ServeObject(w, r, halls.Get(d, strings.TrimPrefix(r.URL.Path, "/")).ID())
	})}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(d.pipes)
	}()
	t.Cleanup(func() {
		_ = server.Close()
		<-done
	})
	return d
}

// dial connects a client to a hall. Its connection is returned too.
func (d *door) dial(t *testing.T, path string) (*websocket.Conn, net.Conn) {
	t.Helper()
	var under net.Conn
	transport := &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) {
		client, server := net.Pipe()
		under = client
		d.pipes.conns <- server
		return client, nil
	}}
	ws, _, err := websocket.Dial(t.Context(), "ws://hall/"+path, &websocket.DialOptions{HTTPClient: &http.Client{Transport: transport}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ws.CloseNow() })
	return ws, under
}

// say sends a text, hear reads one.
func say(t *testing.T, ws *websocket.Conn, text string) {
	t.Helper()
	if err := ws.Write(t.Context(), websocket.MessageText, []byte(text)); err != nil {
		t.Fatal(err)
	}
}

func hear(t *testing.T, ws *websocket.Conn) string {
	t.Helper()
	kind, data, err := ws.Read(t.Context())
	if err != nil || kind != websocket.MessageText {
		t.Fatal(kind, err)
	}
	return string(data)
}

// echo answers with the frame that it got, and the socket's attachment.
func echo(_ *hall, ctx context.Context, s *dohost.Socket, f dohost.Frame) error {
	return s.Send(ctx, dohost.Frame{Text: f.Text, Data: append(f.Data, s.Attachment()...)})
}

// A socket stays, with its state, when its object leaves memory, and wakes the object.
func TestSocketsHibernate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &hallEvents{accept: dohost.AcceptOptions{Tags: []string{"x", "x"}, Attachment: []byte("!")}, message: echo}
		d := openDoor(t, e, &dohost.Options{IdleAfter: 10 * time.Second})
		ws, _ := d.dial(t, "a?tag=y")
		say(t, ws, "one")
		if got := hear(t, ws); got != "one!" {
			t.Fatal(got)
		}
		pass(30 * time.Second)
		if live := d.LiveCount(); live != 0 {
			t.Fatalf("%d live objects", live)
		}
		e.message = func(h *hall, ctx context.Context, s *dohost.Socket, f dohost.Frame) error {
			if all, y, z := h.st.Sockets(""), h.st.Sockets("y"), h.st.Sockets("z"); len(all) != 1 || len(y) != 1 || len(z) != 0 {
				t.Errorf("%d sockets, %d tagged y, %d tagged z", len(all), len(y), len(z))
			}
			if tags := s.Tags(); !slices.Equal(tags, []string{"x", "y"}) {
				t.Errorf("tags %q", tags)
			}
			if err := s.SetAttachment(ctx, []byte("?")); err != nil {
				return err
			}
			return echo(h, ctx, s, f)
		}
		say(t, ws, "two")
		if got := hear(t, ws); got != "two?" || e.born != 2 {
			t.Errorf("%q, %d incarnations", got, e.born)
		}
	})
}

// TestSocketsAtEachEndOfAnIncarnation is the table of all ends of an incarnation.
func TestSocketsAtEachEndOfAnIncarnation(t *testing.T) {
	const kept, restarted, broken = 0, dohost.CloseRestart, -1
	for _, c := range []struct {
		name string
		want int
		end  func(t *testing.T, d *door, id dohost.ID)
	}{
		{"idle", kept, func(t *testing.T, d *door, id dohost.ID) { pass(25 * time.Second) }},
		{"no memory", kept, func(t *testing.T, d *door, id dohost.ID) {
			for i := range 5 { // MaxLive is 2
				if err := halls.Get(d, fmt.Sprint(i)).Do(t.Context(), func(context.Context, *hall) error { return nil }); err != nil {
					t.Fatal(err)
				}
				pass(3 * time.Second)
			}
		}},
		{"fence", restarted, func(t *testing.T, d *door, id dohost.ID) { d.Evict(id, dohost.EndFence) }},
		{"restart", restarted, func(t *testing.T, d *door, id dohost.ID) { d.Evict(id, dohost.EndRestart) }},
		{"crash", broken, func(t *testing.T, d *door, id dohost.ID) { d.Evict(id, dohost.EndCrash) }},
		{"abort", restarted, func(t *testing.T, d *door, id dohost.ID) {
			_ = halls.Get(d, id.Name).Do(t.Context(), func(ctx context.Context, h *hall) error {
				return h.st.Abort(ctx, errors.New("enough"), nil)
			})
		}},
		{"panic", restarted, func(t *testing.T, d *door, id dohost.ID) {
			_ = halls.Get(d, id.Name).Do(t.Context(), func(context.Context, *hall) error { panic("enough") })
		}},
		{"close of the host", restarted, func(t *testing.T, d *door, id dohost.ID) { go func() { _ = d.Close() }() }},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e := &hallEvents{message: echo}
				o := &dohost.Options{IdleAfter: 10 * time.Second}
				if c.name == "no memory" {
					o.IdleAfter, o.MaxLive = -1, 2
				}
				d := openDoor(t, e, o)
				ws, _ := d.dial(t, "a")
				id := halls.Get(d, "a").ID()
				c.end(t, d, id)
				synctest.Wait()
				if c.want == kept && d.IsLive(id) {
					t.Fatal("it is still in memory")
				}
				if c.want == kept {
					say(t, ws, "still there")
					if got := hear(t, ws); got != "still there" {
						t.Error(got)
					}
				} else {
					_, _, err := ws.Read(t.Context())
					if code := int(websocket.CloseStatus(err)); code != c.want || err == nil {
						t.Errorf("closed with %d, want %d: %v", code, c.want, err)
					}
				}
				born := e.born
				pass(10 * time.Second)
				if len(e.closed) != 0 || e.born != born {
					t.Errorf("the object heard of %q, and was born %d times again", e.closed, e.born-born)
				}
			})
		})
	}
}

// A text frame that is not UTF-8 closes its socket, and is not delivered.
func TestSocketWithATextThatIsNotUTF8IsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &hallEvents{message: echo}
		ws, _ := openDoor(t, e, nil).dial(t, "a")
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		for _, kind := range []websocket.MessageType{websocket.MessageBinary, websocket.MessageText} {
			if err := ws.Write(ctx, kind, []byte("x\xff")); err != nil {
				t.Fatal(err)
			}
		}
		if kind, data, err := ws.Read(ctx); kind != websocket.MessageBinary || string(data) != "x\xff" {
			t.Errorf("%v %q %v: want the binary frame", kind, data, err)
		}
		if _, data, err := ws.Read(ctx); websocket.CloseStatus(err) != 1007 {
			t.Errorf("%q %v: want the code 1007", data, err)
		}
	})
}

// The object is notified of a socket's end once, while the socket still has its tags; after that the socket is
// removed.
func TestSocketEndIsDeliveredToTheObjectOnce(t *testing.T) {
	for _, c := range []struct {
		name, want string
		end        func(ws *websocket.Conn, under net.Conn)
	}{
		{"closed", `[4001 "bye" clean true, 0 left]`, func(ws *websocket.Conn, _ net.Conn) { _ = ws.Close(4001, "bye") }},
		{"broken", `[1006 "failed to get reader: failed to read frame header: EOF" clean false, 0 left]`, func(_ *websocket.Conn, under net.Conn) { _ = under.Close() }},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e := &hallEvents{message: echo}
				d := openDoor(t, e, nil)
				ws, under := d.dial(t, "a?tag=y")
				c.end(ws, under)
				synctest.Wait()
				if got := fmt.Sprint(e.closed); got != c.want {
					t.Errorf("%s, want %s", got, c.want)
				}
				err := halls.Get(d, "a").Do(t.Context(), func(_ context.Context, h *hall) error {
					if n, tagged := len(h.st.Sockets("")), len(h.st.Sockets("y")); n != 0 || tagged != 0 {
						t.Errorf("%d sockets left, %d of them tagged", n, tagged)
					}
					return nil
				})
				if err != nil {
					t.Fatal(err)
				}
			})
		})
	}
}

// A frame is delivered once the handler of the previous one has returned or waits, so that a stop gets through.
func TestSocketFrameIsDeliveredOnceThePreviousOneWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var seen []string
		stop := make(chan struct{})
		e := &hallEvents{message: func(h *hall, ctx context.Context, s *dohost.Socket, f dohost.Frame) error {
			seen = append(seen, "begin "+string(f.Data))
			switch string(f.Data) {
			case "run":
				if err := dohost.Await(ctx, func(context.Context) error { <-stop; return nil }); err != nil {
					return err
				}
			case "stop":
				close(stop)
			default:
				if err := dohost.Put(ctx, h.st.Storage(), "k", 1); err != nil {
					return err
				}
			}
			seen = append(seen, "end "+string(f.Data))
			return nil
		}}
		d := openDoor(t, e, nil)
		ws, _ := d.dial(t, "a")
		for _, text := range []string{"one", "two", "run", "stop", "three"} {
			say(t, ws, text)
		}
		synctest.Wait()
		want := "[begin one end one begin two end two begin run begin stop end stop"
		if got := fmt.Sprint(seen); !strings.HasPrefix(got, want) || !strings.Contains(got, "end run") || !strings.Contains(got, "end three") {
			t.Errorf("%s, want %s ...", got, want)
		}
	})
}

// Frames wait at the client while the handler of the last one has the turn.
func TestSocketFramesWaitAtTheClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		goOn, seen := make(chan struct{}), 0
		e := &hallEvents{message: func(*hall, context.Context, *dohost.Socket, dohost.Frame) error {
			seen++
			<-goOn
			return nil
		}}
		d := openDoor(t, e, nil)
		ws, _ := d.dial(t, "a")
		done := make(chan struct{})
		go func() {
			defer close(done)
			for range 10 {
				say(t, ws, "frame")
			}
		}()
		synctest.Wait()
		if info, err := d.Inspect(t.Context(), halls.Get(d, "a").ID()); err != nil || info.Queued > 0 {
			t.Errorf("%d frames are queued, %v", info.Queued, err)
		}
		close(goOn)
		<-done
		synctest.Wait()
		if seen != 10 {
			t.Errorf("%d frames were handled", seen)
		}
	})
}

// A handler's frame leaves when its earlier writes are on the disk.
func TestSocketFrameIsReleasedAfterEarlierWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs := objectstore.NewMemFS()
		e := &hallEvents{message: func(h *hall, ctx context.Context, s *dohost.Socket, f dohost.Frame) error {
			if err := dohost.Put(ctx, h.st.Storage(), "k", 1); err != nil {
				return err
			}
			return s.Send(ctx, f)
		}}
		d := openDoor(t, e, &dohost.Options{FS: fs})
		ws, _ := d.dial(t, "a")
		release := fs.HoldSyncs()
		heard := make(chan string, 1)
		say(t, ws, "hello")
		go func() { heard <- hear(t, ws) }()
		synctest.Wait()
		select {
		case text := <-heard:
			t.Errorf("%q came before the write was on the disk", text)
		default:
		}
		release()
		if text := <-heard; text != "hello" {
			t.Error(text)
		}
	})
}

// The host answers by itself, and neither notifies nor wakes the object.
func TestAutoResponse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &hallEvents{message: echo}
		d := openDoor(t, e, &dohost.Options{IdleAfter: 10 * time.Second})
		ws, _ := d.dial(t, "a")
		err := halls.Get(d, "a").Do(t.Context(), func(ctx context.Context, h *hall) error {
			if err := h.st.SetAutoResponse(ctx, strings.Repeat("x", dohost.MaxAutoResponse+1), ""); !isLimit(err) {
				t.Error(err)
			}
			return h.st.SetAutoResponse(ctx, "ping", "pong")
		})
		if err != nil {
			t.Fatal(err)
		}
		pass(30 * time.Second)
		at := time.Now()
		say(t, ws, "ping")
		if got := hear(t, ws); got != "pong" || d.LiveCount() != 0 {
			t.Errorf("%q, %d live", got, d.LiveCount())
		}
		if err := ws.Write(t.Context(), websocket.MessageBinary, []byte("ping")); err != nil { // not a text
			t.Fatal(err)
		}
		if kind, data, err := ws.Read(t.Context()); kind != websocket.MessageBinary || string(data) != "ping" {
			t.Error(kind, string(data), err)
		}
		err = halls.Get(d, "a").Do(t.Context(), func(ctx context.Context, h *hall) error {
			if got := h.st.Sockets("")[0].AutoResponded(); !got.Equal(at) {
				t.Errorf("answered at %v, want %v", got, at)
			}
			return h.st.SetAutoResponse(ctx, "", "")
		})
		if err != nil {
			t.Fatal(err)
		}
		say(t, ws, "ping")
		if got := hear(t, ws); got != "ping" {
			t.Error(got)
		}
	})
}

func isLimit(err error) bool {
	_, ok := errors.AsType[*dohost.LimitError](err)
	return ok
}

// A client that reads nothing delays neither the object nor the others.
func TestSocketOfASlowClientIsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &hallEvents{message: func(h *hall, ctx context.Context, _ *dohost.Socket, f dohost.Frame) error {
			for _, s := range h.st.Sockets("") {
				if err := s.Send(ctx, f); err != nil && !errors.Is(err, dohost.ErrClosed) {
					return err
				}
			}
			return nil
		}}
		d := openDoor(t, e, nil)
		slow, _ := d.dial(t, "a")
		quick, _ := d.dial(t, "a")
		quick.SetReadLimit(1 << 20)
		text := strings.Repeat("x", 100<<10)
		for i := range 20 { // 2 MiB
			if i == 15 {
				if n := len(d.Sockets(halls.Get(d, "a").ID())); n != 2 {
					t.Errorf("%d sockets: much waits, and not for long", n)
				}
				pass(11 * time.Second)
			}
			say(t, quick, text)
			if got := hear(t, quick); got != text {
				t.Fatal(len(got))
			}
		}
		slow.SetReadLimit(1 << 20)
		var err error
		for err == nil {
			_, _, err = slow.Read(t.Context())
		}
		if websocket.CloseStatus(err) != dohost.CloseBusy {
			t.Error(err)
		}
		say(t, quick, "still there")
		if got := hear(t, quick); got != "still there" {
			t.Error(got)
		}
		synctest.Wait()
		if len(e.closed) != 1 || !strings.HasSuffix(e.closed[0], "1 left") {
			t.Errorf("closed sockets: %q", e.closed)
		}
	})
}

// A client that disappears without closing is noticed.
func TestSocketOfADeadPeerIsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &hallEvents{message: echo}
		d := openDoor(t, e, &dohost.Options{IdleAfter: time.Second})
		_, dead := d.dial(t, "a")
		swallowed := make(chan struct{})
		go func() { // reads everything, and answers nothing
			defer close(swallowed)
			_, _ = io.Copy(io.Discard, dead)
		}()
		ws, _ := d.dial(t, "a")
		read := make(chan struct{})
		go func() { // answers pings
			defer close(read)
			_, _, _ = ws.Read(t.Context())
		}()
		pass(5 * time.Minute)
		if len(e.closed) != 1 || !strings.HasPrefix(e.closed[0], "1006 ") {
			t.Errorf("closed sockets: %q", e.closed)
		}
		<-swallowed // it was cut
		_ = ws.CloseNow()
		<-read
	})
}

// Values out of bounds are refused, with their kind and the limit.
func TestSocketLimits(t *testing.T) {
	for want, o := range map[string]dohost.AcceptOptions{
		"tag has 257 bytes, the limit is 256":            {Tags: []string{strings.Repeat("x", 257)}},
		"empty tag":                                      {Tags: []string{""}},
		"socket has 11 tags, the limit is 10":            {Tags: slices.Repeat([]string{"x"}, 11)},
		"attachment has 16385 bytes, the limit is 16384": {Attachment: make([]byte, 16<<10+1)},
	} {
		synctest.Test(t, func(t *testing.T) {
			d := openDoor(t, &hallEvents{accept: o, message: echo}, nil)
			c := newClient()
			r := get(t)
			d.ServeObject(c, r, halls.Get(d, "a").ID())
			if c.status != http.StatusBadRequest || !strings.Contains(c.body.String(), want) {
				t.Errorf("%d %q, want %q", c.status, c.body.String(), want)
			}
		})
	}
}

// A socket that the object closes is closed, and accepts no more frames.
func TestSocketClosedByItsObjectAcceptsNoFrames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &hallEvents{message: func(_ *hall, ctx context.Context, s *dohost.Socket, f dohost.Frame) error {
			for _, code := range []int{999, 1004, 1006, 1015, 5000} {
				if err := s.Close(ctx, code, ""); err == nil {
					t.Errorf("Close accepted the code %d", code)
				}
			}
			if err := s.Close(ctx, 4000, strings.Repeat("x", 124)); !isLimit(err) {
				t.Error(err)
			}
			if err := s.Close(ctx, 4000, "\xff"); err == nil || isLimit(err) || !strings.Contains(err.Error(), "UTF-8") {
				t.Error(err)
			}
			if err := s.Send(ctx, f); err != nil {
				return err
			}
			if err := s.Close(ctx, 4000, "enough"); err != nil {
				return err
			}
			if err := s.Send(ctx, f); !errors.Is(err, dohost.ErrClosed) {
				t.Error(err)
			}
			return nil
		}}
		d := openDoor(t, e, nil)
		ws, _ := d.dial(t, "a")
		say(t, ws, "hello")
		if got := hear(t, ws); got != "hello" {
			t.Error(got)
		}
		_, _, err := ws.Read(t.Context())
		ce, _ := errors.AsType[websocket.CloseError](err)
		if ce.Code != 4000 || ce.Reason != "enough" {
			t.Error(err)
		}
		synctest.Wait()
		if len(e.closed) != 1 || !strings.HasPrefix(e.closed[0], `4000 "enough" clean true`) {
			t.Errorf("closed sockets: %q", e.closed)
		}
	})
}

// An object with a socket leaves memory ten seconds after its last event, also if it would have stayed longer before
// the socket came, and after the usual time when it has no socket any more.
func TestSocketObjectHibernatesAfterTenSeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &hallEvents{message: func(*hall, context.Context, *dohost.Socket, dohost.Frame) error { return nil }}
		d := openDoor(t, e, nil)
		id := halls.Get(d, "a").ID()
		live := func(when string, want bool) {
			t.Helper()
			if d.IsLive(id) != want {
				t.Errorf("%s it is in memory: %t", when, !want)
			}
		}
		if err := halls.Get(d, "a").Do(t.Context(), func(context.Context, *hall) error { return nil }); err != nil {
			t.Fatal(err)
		}
		pass(5 * time.Second)
		ws, _ := d.dial(t, "a")
		pass(9 * time.Second)
		live("after nine seconds", true)
		pass(3 * time.Second)
		live("after twelve seconds", false)
		say(t, ws, "hello")
		synctest.Wait()
		live("after a message", true)
		pass(12 * time.Second)
		live("twelve seconds after a message", false)
		if err := ws.Close(websocket.StatusNormalClosure, ""); err != nil {
			t.Error(err)
		}
		pass(69 * time.Second)
		live("69 seconds after the last socket", true)
		pass(73 * time.Second)
		live("142 seconds after the last socket", false)
	})
}

// The client's closing frame arrives while the object is busy with a message of that client, so that another
// goroutine than the reader reads it.
func TestSocketCloseIsDeliveredToABusyObject(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &hallEvents{message: func(_ *hall, ctx context.Context, s *dohost.Socket, f dohost.Frame) error {
			if string(f.Data) == "go on" {
				pass(time.Second)
				return nil
			}
			return s.Close(ctx, 4000, "enough")
		}}
		d := openDoor(t, e, nil)
		ws, _ := d.dial(t, "a")
		say(t, ws, "close")
		say(t, ws, "go on")
		if _, _, err := ws.Read(t.Context()); websocket.CloseStatus(err) != 4000 {
			t.Error(err)
		}
		pass(2 * time.Second)
		if len(e.closed) != 1 || !strings.HasPrefix(e.closed[0], `4000 "enough" clean true`) {
			t.Errorf("closed sockets: %q", e.closed)
		}
	})
}

// Code of an ended incarnation can do nothing with the sockets that it has kept: neither with those that the end has
// closed, nor with those that stay.
func TestSocketRefusesCodeOfAnEndedIncarnation(t *testing.T) {
	for name, end := range map[string]func(*door, dohost.ID){
		"fence": func(d *door, id dohost.ID) { d.Evict(id, dohost.EndFence) },
		"idle":  func(*door, dohost.ID) { pass(25 * time.Second) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				left := make(chan func() []error, 1)
				e := &hallEvents{message: func(h *hall, ctx context.Context, s *dohost.Socket, f dohost.Frame) error {
					left <- func() []error {
						return []error{
							s.Send(ctx, f), s.SetAttachment(ctx, []byte("!")), s.Close(ctx, 4000, ""), h.st.SetAutoResponse(ctx, "a", "b"),
						}
					}
					return nil
				}}
				d := openDoor(t, e, &dohost.Options{IdleAfter: 10 * time.Second})
				ws, _ := d.dial(t, "a")
				say(t, ws, "hello")
				try := <-left
				end(d, halls.Get(d, "a").ID())
				for i, err := range try() {
					if !errors.Is(err, dohost.ErrFenced) && !errors.Is(err, dohost.ErrClosed) {
						t.Errorf("%d: %v", i, err)
					}
				}
				if name == "fence" {
					ws, _ = d.dial(t, "a") // the next incarnation's
				}
				e.message = echo
				say(t, ws, "a")
				if got := hear(t, ws); got != "a" {
					t.Errorf("%q, want what the object answers, without an attachment", got)
				}
			})
		})
	}
}
