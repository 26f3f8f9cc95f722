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
	"github.com/dohost/dohost/internal/sockettest"
	"github.com/dohost/dohost/objectstore"
)

// socketObject is an object with socket handlers that a test chooses.
type socketObject struct {
	st    *dohost.State
	hooks *socketHooks
}

// socketHooks is the test's part of all socketObjects.
type socketHooks struct {
	accept  dohost.AcceptOptions
	message func(h *socketObject, ctx context.Context, s *dohost.Socket, f dohost.Frame) error
	timeout time.Duration

	mu           sync.Mutex // held while an object writes: there may be several
	incarnations int
	closed       []string // how sockets have ended
}

const socketObjects dohost.Namespace[socketObject] = "hall"

func (e *socketHooks) class() dohost.Class {
	return dohost.Bind(socketObjects, func(_ context.Context, st *dohost.State) (*socketObject, error) {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.incarnations++
		return &socketObject{st, e}, nil
	}, &dohost.Handlers[socketObject]{
		OnHTTP: (*socketObject).serve,
		OnSocket: &dohost.SocketHandlers[socketObject]{
			Timeout: e.timeout,
			Message: func(h *socketObject, ctx context.Context, s *dohost.Socket, f dohost.Frame) error {
				return e.message(h, ctx, s, f)
			},
			Closed: func(h *socketObject, _ context.Context, s *dohost.Socket, how dohost.Closing) error {
				e.mu.Lock()
				defer e.mu.Unlock()
				e.closed = append(e.closed, fmt.Sprintf("%d %q clean %v, %d left", how.Code, how.Reason, how.Clean, len(h.st.Sockets(""))))
				return nil
			},
		},
		OnAlarm: (*socketObject).onAlarm,
	})
}

func (h *socketObject) onAlarm(context.Context, dohost.AlarmInfo) error { return nil }

func (h *socketObject) serve(w http.ResponseWriter, r *http.Request) {
	o := h.hooks.accept
	if tag := r.URL.Query().Get("tag"); tag != "" {
		o.Tags = append(slices.Clone(o.Tags), tag)
	}
	if _, err := h.st.Accept(w, r, &o); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
	}
}

// advance advances the clock and waits until the bubble is idle.
func advance(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// socketServer is a server of a host's socketObjects, in memory.
type socketServer struct {
	*dohost.Host
	pipes *sockettest.Pipes
	hooks *socketHooks
}

func openSocketServer(t *testing.T, e *socketHooks, o *dohost.Options) *socketServer {
	t.Helper()
	return openSocketServerOn(t, objectstore.NewMemFS(), e, o)
}

func openSocketServerOn(t *testing.T, fs *objectstore.FS, e *socketHooks, o *dohost.Options) *socketServer {
	t.Helper()
	d := &socketServer{openOn(t, fs, o, e.class()), sockettest.NewPipes(), e}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		d.ServeObject(w, r, socketObjects.Get(d, strings.TrimPrefix(r.URL.Path, "/")).ID())
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

// dial connects a client to an object, and returns the connection too.
func (d *socketServer) dial(t *testing.T, path string) (*websocket.Conn, net.Conn) {
	t.Helper()
	var under net.Conn
	transport := &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) {
		client, server := net.Pipe()
		under = client
		d.pipes.Pass(server)
		return client, nil
	}}
	ws, _, err := websocket.Dial(t.Context(), "ws://hall/"+path, &websocket.DialOptions{HTTPClient: &http.Client{Transport: transport}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ws.CloseNow() })
	return ws, under
}

// sendText sends a text, hear reads one.
func sendText(t *testing.T, ws *websocket.Conn, text string) {
	t.Helper()
	if err := ws.Write(t.Context(), websocket.MessageText, []byte(text)); err != nil {
		t.Fatal(err)
	}
}

func readText(t *testing.T, ws *websocket.Conn) string {
	t.Helper()
	kind, data, err := ws.Read(t.Context())
	if err != nil || kind != websocket.MessageText {
		t.Fatal(kind, err)
	}
	return string(data)
}

// echo answers with the frame that it got, and the socket's attachment.
func echo(_ *socketObject, ctx context.Context, s *dohost.Socket, f dohost.Frame) error {
	return s.Send(ctx, dohost.Frame{Text: f.Text, Data: append(f.Data, s.Attachment()...)})
}

// A socket stays, with its state, when its object leaves memory, and wakes the object.
func TestSocketsHibernate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &socketHooks{accept: dohost.AcceptOptions{Tags: []string{"x", "x"}, Attachment: []byte("!")}, message: echo}
		d := openSocketServer(t, e, &dohost.Options{IdleAfter: 10 * time.Second})
		ws, _ := d.dial(t, "a?tag=y")
		sendText(t, ws, "one")
		if got := readText(t, ws); got != "one!" {
			t.Fatal(got)
		}
		advance(30 * time.Second)
		if live := d.LiveCount(); live != 0 {
			t.Fatalf("%d live objects", live)
		}
		e.message = func(h *socketObject, ctx context.Context, s *dohost.Socket, f dohost.Frame) error {
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
		sendText(t, ws, "two")
		if got := readText(t, ws); got != "two?" || e.incarnations != 2 {
			t.Errorf("%q, %d incarnations", got, e.incarnations)
		}
	})
}

// TestSocketsAtEachEndOfAnIncarnation is the table of all ends of an incarnation.
func TestSocketsAtEachEndOfAnIncarnation(t *testing.T) {
	const kept, restarted, broken = 0, dohost.CloseRestart, -1
	for _, c := range []struct {
		name string
		want int
		end  func(t *testing.T, d *socketServer, id dohost.ID)
	}{
		{"idle", kept, func(t *testing.T, d *socketServer, id dohost.ID) { advance(25 * time.Second) }},
		{"no memory", kept, func(t *testing.T, d *socketServer, id dohost.ID) {
			for i := range 5 { // MaxLive is 2
				if err := socketObjects.Get(d, fmt.Sprint(i)).Do(t.Context(), func(context.Context, *socketObject) error { return nil }); err != nil {
					t.Fatal(err)
				}
				advance(3 * time.Second)
			}
		}},
		{"fence", restarted, func(t *testing.T, d *socketServer, id dohost.ID) { d.Evict(id, dohost.EndFence) }},
		{"restart", restarted, func(t *testing.T, d *socketServer, id dohost.ID) { d.Evict(id, dohost.EndRestart) }},
		{"crash", broken, func(t *testing.T, d *socketServer, id dohost.ID) { d.Evict(id, dohost.EndCrash) }},
		{"abort", restarted, func(t *testing.T, d *socketServer, id dohost.ID) {
			_ = socketObjects.Get(d, id.Name).Do(t.Context(), func(ctx context.Context, h *socketObject) error {
				return h.st.Abort(ctx, errors.New("enough"), nil)
			})
		}},
		{"panic", restarted, func(t *testing.T, d *socketServer, id dohost.ID) {
			_ = socketObjects.Get(d, id.Name).Do(t.Context(), func(context.Context, *socketObject) error { panic("enough") })
		}},
		{"close of the host", restarted, func(t *testing.T, d *socketServer, id dohost.ID) { go func() { _ = d.Close() }() }},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e := &socketHooks{message: echo}
				o := &dohost.Options{IdleAfter: 10 * time.Second}
				if c.name == "no memory" {
					o.IdleAfter, o.MaxLive = -1, 2
				}
				d := openSocketServer(t, e, o)
				ws, _ := d.dial(t, "a")
				id := socketObjects.Get(d, "a").ID()
				c.end(t, d, id)
				synctest.Wait()
				if c.want == kept && d.IsLive(id) {
					t.Fatal("it is still in memory")
				}
				if c.want == kept {
					sendText(t, ws, "still there")
					if got := readText(t, ws); got != "still there" {
						t.Error(got)
					}
				} else {
					_, _, err := ws.Read(t.Context())
					if code := int(websocket.CloseStatus(err)); code != c.want || err == nil {
						t.Errorf("closed with %d, want %d: %v", code, c.want, err)
					}
				}
				incarnations := e.incarnations
				advance(10 * time.Second)
				if len(e.closed) != 0 || e.incarnations != incarnations {
					t.Errorf("the object heard of %q, and was born %d times again", e.closed, e.incarnations-incarnations)
				}
			})
		})
	}
}

// A text frame that is not UTF-8 closes its socket, and is not delivered.
func TestSocketWithATextThatIsNotUTF8IsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &socketHooks{message: echo}
		ws, _ := openSocketServer(t, e, nil).dial(t, "a")
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
				e := &socketHooks{message: echo}
				d := openSocketServer(t, e, nil)
				ws, under := d.dial(t, "a?tag=y")
				c.end(ws, under)
				synctest.Wait()
				if got := fmt.Sprint(e.closed); got != c.want {
					t.Errorf("%s, want %s", got, c.want)
				}
				err := socketObjects.Get(d, "a").Do(t.Context(), func(_ context.Context, h *socketObject) error {
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
		e := &socketHooks{message: func(h *socketObject, ctx context.Context, s *dohost.Socket, f dohost.Frame) error {
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
		d := openSocketServer(t, e, nil)
		ws, _ := d.dial(t, "a")
		for _, text := range []string{"one", "two", "run", "stop", "three"} {
			sendText(t, ws, text)
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
		proceed, seen := make(chan struct{}), 0
		e := &socketHooks{message: func(*socketObject, context.Context, *dohost.Socket, dohost.Frame) error {
			seen++
			<-proceed
			return nil
		}}
		d := openSocketServer(t, e, nil)
		ws, _ := d.dial(t, "a")
		done := make(chan struct{})
		go func() {
			defer close(done)
			for range 10 {
				sendText(t, ws, "frame")
			}
		}()
		synctest.Wait()
		if info, err := d.Inspect(t.Context(), socketObjects.Get(d, "a").ID()); err != nil || info.Queued > 0 {
			t.Errorf("%d frames are queued, %v", info.Queued, err)
		}
		close(proceed)
		<-done
		synctest.Wait()
		if seen != 10 {
			t.Errorf("%d frames were handled", seen)
		}
	})
}

// A socket that the object has closed is closing until its client answers.
func TestSocketStateFollowsTheConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &socketHooks{message: func(_ *socketObject, ctx context.Context, s *dohost.Socket, _ dohost.Frame) error {
			return s.Close(ctx, int(websocket.StatusNormalClosure), "")
		}}
		d := openSocketServer(t, e, nil)
		ws, _ := d.dial(t, "a")
		states := func() (all []string) {
			synctest.Wait()
			for _, s := range d.Sockets(socketObjects.Get(d, "a").ID()) {
				all = append(all, s.State.String())
			}
			return all
		}
		same(t, "connected", fmt.Sprint(states()), "[open]")
		sendText(t, ws, "end")
		same(t, "closed by the object", fmt.Sprint(states()), "[closing]")
		_, _, _ = ws.Read(t.Context()) // answers
		same(t, "answered by the client", fmt.Sprint(states()), "[]")
	})
}

// A handler's frame leaves when its earlier writes are on the disk.
func TestSocketFrameIsReleasedAfterEarlierWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs := objectstore.NewMemFS()
		e := &socketHooks{message: func(h *socketObject, ctx context.Context, s *dohost.Socket, f dohost.Frame) error {
			if err := dohost.Put(ctx, h.st.Storage(), "k", 1); err != nil {
				return err
			}
			return s.Send(ctx, f)
		}}
		d := openSocketServerOn(t, fs, e, nil)
		ws, _ := d.dial(t, "a")
		release := fs.HoldSyncs()
		heard := make(chan string, 1)
		sendText(t, ws, "hello")
		go func() { heard <- readText(t, ws) }()
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
		e := &socketHooks{message: echo}
		d := openSocketServer(t, e, &dohost.Options{IdleAfter: 10 * time.Second})
		ws, _ := d.dial(t, "a")
		err := socketObjects.Get(d, "a").Do(t.Context(), func(ctx context.Context, h *socketObject) error {
			if err := h.st.SetAutoResponse(ctx, strings.Repeat("x", dohost.MaxAutoResponse+1), ""); !isLimit(err) {
				t.Error(err)
			}
			return h.st.SetAutoResponse(ctx, "ping", "pong")
		})
		if err != nil {
			t.Fatal(err)
		}
		advance(30 * time.Second)
		at := time.Now()
		sendText(t, ws, "ping")
		if got := readText(t, ws); got != "pong" || d.LiveCount() != 0 {
			t.Errorf("%q, %d live", got, d.LiveCount())
		}
		if err := ws.Write(t.Context(), websocket.MessageBinary, []byte("ping")); err != nil { // not a text
			t.Fatal(err)
		}
		if kind, data, err := ws.Read(t.Context()); kind != websocket.MessageBinary || string(data) != "ping" {
			t.Error(kind, string(data), err)
		}
		err = socketObjects.Get(d, "a").Do(t.Context(), func(ctx context.Context, h *socketObject) error {
			if got := h.st.Sockets("")[0].AutoResponded(); !got.Equal(at) {
				t.Errorf("answered at %v, want %v", got, at)
			}
			return h.st.SetAutoResponse(ctx, "", "")
		})
		if err != nil {
			t.Fatal(err)
		}
		sendText(t, ws, "ping")
		if got := readText(t, ws); got != "ping" {
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
		e := &socketHooks{message: func(h *socketObject, ctx context.Context, _ *dohost.Socket, f dohost.Frame) error {
			for _, s := range h.st.Sockets("") {
				if err := s.Send(ctx, f); err != nil && !errors.Is(err, dohost.ErrClosed) {
					return err
				}
			}
			return nil
		}}
		d := openSocketServer(t, e, nil)
		slow, _ := d.dial(t, "a")
		quick, _ := d.dial(t, "a")
		quick.SetReadLimit(1 << 20)
		text := strings.Repeat("x", 100<<10)
		for i := range 20 { // 2 MiB
			if i == 15 {
				if n := len(d.Sockets(socketObjects.Get(d, "a").ID())); n != 2 {
					t.Errorf("%d sockets: much waits, and not for long", n)
				}
				advance(11 * time.Second)
			}
			sendText(t, quick, text)
			if got := readText(t, quick); got != text {
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
		sendText(t, quick, "still there")
		if got := readText(t, quick); got != "still there" {
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
		e := &socketHooks{message: echo}
		d := openSocketServer(t, e, &dohost.Options{IdleAfter: time.Second})
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
		advance(5 * time.Minute)
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
			d := openSocketServer(t, &socketHooks{accept: o, message: echo}, nil)
			c := newClient()
			r := get(t)
			d.ServeObject(c, r, socketObjects.Get(d, "a").ID())
			if c.status != http.StatusBadRequest || !strings.Contains(c.body.String(), want) {
				t.Errorf("%d %q, want %q", c.status, c.body.String(), want)
			}
		})
	}
}

// A socket that the object closes is closed, and accepts no more frames.
func TestSocketClosedByItsObjectAcceptsNoFrames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &socketHooks{message: func(_ *socketObject, ctx context.Context, s *dohost.Socket, f dohost.Frame) error {
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
		d := openSocketServer(t, e, nil)
		ws, _ := d.dial(t, "a")
		sendText(t, ws, "hello")
		if got := readText(t, ws); got != "hello" {
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
		e := &socketHooks{message: func(*socketObject, context.Context, *dohost.Socket, dohost.Frame) error { return nil }}
		d := openSocketServer(t, e, nil)
		id := socketObjects.Get(d, "a").ID()
		live := func(when string, want bool) {
			t.Helper()
			if d.IsLive(id) != want {
				t.Errorf("%s it is in memory: %t", when, !want)
			}
		}
		if err := socketObjects.Get(d, "a").Do(t.Context(), func(context.Context, *socketObject) error { return nil }); err != nil {
			t.Fatal(err)
		}
		advance(5 * time.Second)
		ws, _ := d.dial(t, "a")
		advance(9 * time.Second)
		live("after nine seconds", true)
		advance(3 * time.Second)
		live("after twelve seconds", false)
		sendText(t, ws, "hello")
		synctest.Wait()
		live("after a message", true)
		advance(12 * time.Second)
		live("twelve seconds after a message", false)
		if err := ws.Close(websocket.StatusNormalClosure, ""); err != nil {
			t.Error(err)
		}
		advance(69 * time.Second)
		live("69 seconds after the last socket", true)
		advance(73 * time.Second)
		live("142 seconds after the last socket", false)
	})
}

// The client's closing frame arrives while the object is busy with a message of that client, so that another
// goroutine than the reader reads it.
func TestSocketCloseIsDeliveredToABusyObject(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &socketHooks{message: func(_ *socketObject, ctx context.Context, s *dohost.Socket, f dohost.Frame) error {
			if string(f.Data) == "go on" {
				advance(time.Second)
				return nil
			}
			return s.Close(ctx, 4000, "enough")
		}}
		d := openSocketServer(t, e, nil)
		ws, _ := d.dial(t, "a")
		sendText(t, ws, "close")
		sendText(t, ws, "go on")
		if _, _, err := ws.Read(t.Context()); websocket.CloseStatus(err) != 4000 {
			t.Error(err)
		}
		advance(2 * time.Second)
		if len(e.closed) != 1 || !strings.HasPrefix(e.closed[0], `4000 "enough" clean true`) {
			t.Errorf("closed sockets: %q", e.closed)
		}
	})
}

// Code of an ended incarnation can do nothing with the sockets that it has kept: neither with those that the end has
// closed, nor with those that stay.
func TestSocketRefusesCodeOfAnEndedIncarnation(t *testing.T) {
	for name, end := range map[string]func(*socketServer, dohost.ID){
		"fence": func(d *socketServer, id dohost.ID) { d.Evict(id, dohost.EndFence) },
		"idle":  func(*socketServer, dohost.ID) { advance(25 * time.Second) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				left := make(chan func() []error, 1)
				e := &socketHooks{message: func(h *socketObject, ctx context.Context, s *dohost.Socket, f dohost.Frame) error {
					left <- func() []error {
						return []error{
							s.Send(ctx, f), s.SetAttachment(ctx, []byte("!")), s.Close(ctx, 4000, ""), h.st.SetAutoResponse(ctx, "a", "b"),
						}
					}
					return nil
				}}
				d := openSocketServer(t, e, &dohost.Options{IdleAfter: 10 * time.Second})
				ws, _ := d.dial(t, "a")
				sendText(t, ws, "hello")
				try := <-left
				end(d, socketObjects.Get(d, "a").ID())
				for i, err := range try() {
					if !errors.Is(err, dohost.ErrFenced) && !errors.Is(err, dohost.ErrClosed) {
						t.Errorf("%d: %v", i, err)
					}
				}
				if name == "fence" {
					ws, _ = d.dial(t, "a") // the next incarnation's
				}
				e.message = echo
				sendText(t, ws, "a")
				if got := readText(t, ws); got != "a" {
					t.Errorf("%q, want what the object answers, without an attachment", got)
				}
			})
		})
	}
}
