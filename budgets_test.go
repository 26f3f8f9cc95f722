package dohost_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	goruntime "runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/coder/websocket"

	"github.com/dohost/dohost"
)

// echoHooks are hooks that send each frame back to its socket.
func echoHooks() *socketHooks {
	return &socketHooks{message: func(_ *socketObject, ctx context.Context, s *dohost.Socket, f dohost.Frame) error {
		return s.Send(ctx, f)
	}}
}

func TestSocketClosesOnAFrameBeyondMaxFrame(t *testing.T) {
	for _, limit := range []int{0, 700, 5000, 1 << 16} {
		synctest.Test(t, func(t *testing.T) {
			d := openSocketServer(t, echoHooks(), &dohost.Options{MaxFrame: limit})
			limit := limit
			if limit == 0 {
				limit = dohost.DefaultMaxFrame
			}
			ws, _ := d.dial(t, "a")
			ws.SetReadLimit(-1)
			text := strings.Repeat("x", limit)
			go func() { _ = ws.Write(t.Context(), websocket.MessageText, []byte(text)) }() // heard below
			if got := readText(t, ws); got != text {
				t.Fatalf("%d bytes came back, want %d", len(got), limit)
			}
			go func() { _ = ws.Write(t.Context(), websocket.MessageText, []byte(text+"x")) }() // cut off
			if _, _, err := ws.Read(t.Context()); websocket.CloseStatus(err) != websocket.StatusMessageTooBig {
				t.Errorf("limit %d: %v", limit, err)
			}
			synctest.Wait()
			if u := d.ReadBudget(); u.Used != 0 {
				t.Errorf("%+v", u)
			}
		})
	}
}

// TestReadBudgetIsSharedByFrames receives a slow frame that takes a quarter of the budget, next to a body that is kept.
func TestReadBudgetIsSharedByFrames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := openSocketServer(t, echoHooks(), &dohost.Options{MaxFrame: 1 << 20, ReadBudget: 4 << 20})
		kept := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", strings.NewReader(strings.Repeat("x", 100_000)))
		_, release, err := d.ReadBody(kept, dohost.ID{})
		if err != nil {
			t.Fatal(err)
		}
		slow, _ := d.dial(t, "a")
		slow.SetReadLimit(-1)
		part, err := slow.Writer(t.Context(), websocket.MessageText)
		if err != nil {
			t.Fatal(err)
		}
		write := func(n int) {
			if _, err := part.Write([]byte(strings.Repeat("s", n))); err != nil {
				t.Fatal(err)
			}
		}
		write(600 << 10) // a buffer of 1 MiB
		synctest.Wait()
		if u := d.ReadBudget(); u.Used < 1<<20-4<<10 || u.Used > u.Limit {
			t.Errorf("%+v", u)
		}
		large, _ := d.dial(t, "b")
		began := time.Now()
		go func() { _ = large.Write(t.Context(), websocket.MessageText, make([]byte, 1<<20)) }() // refused
		small, _ := d.dial(t, "b")
		small.SetReadLimit(-1)
		text := strings.Repeat("x", 4<<10-1)
		sendText(t, small, text)
		if got := readText(t, small); got != text || time.Since(began) > time.Second {
			t.Errorf("a small frame waited: %v", time.Since(began))
		}
		_, _, err = large.Read(t.Context())
		if websocket.CloseStatus(err) != dohost.CloseBusy || time.Since(began) < 10*time.Second || d.ReadBudget().Refused != 1 {
			t.Errorf("%v after %v, %+v", err, time.Since(began), d.ReadBudget())
		}
		write(10)
		if err := part.Close(); err != nil {
			t.Fatal(err)
		}
		if got := readText(t, slow); len(got) != 600<<10+10 {
			t.Errorf("%d bytes of the slow one", len(got))
		}
		release()
		synctest.Wait()
		if u := d.ReadBudget(); u.Used != 0 {
			t.Errorf("in the end: %+v", u)
		}
	})
}

// TestReadBudgetIsFreedByADroppedFrame lets a frame wait too long for the turn.
func TestReadBudgetIsFreedByADroppedFrame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := openSocketServer(t, echoHooks(), &dohost.Options{MaxAge: 5 * time.Second})
		ws, _ := d.dial(t, "a")
		quit, done := make(chan struct{}), make(chan error, 1)
		go func() {
			done <- socketObjects.Get(d, "a").Do(t.Context(), func(context.Context, *socketObject) error {
				<-quit
				return nil
			})
		}()
		synctest.Wait()
		if err := ws.Write(t.Context(), websocket.MessageBinary, make([]byte, 1<<20)); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if u := d.ReadBudget(); u.Used < 1<<20-4<<10 {
			t.Errorf("a frame waits: %+v", u)
		}
		advance(10 * time.Second)
		if u := d.ReadBudget(); u.Used != 0 {
			t.Errorf("it was dropped: %+v", u)
		}
		close(quit)
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// TestReadBudgetCountsTheFramesOfWaitingHandlers has a client that sends frames of 1 MiB to handlers that wait. Small
// frames of the same socket pass. The bytes return to the budget when the handlers end, also with their incarnation.
func TestReadBudgetCountsTheFramesOfWaitingHandlers(t *testing.T) {
	for _, tt := range []struct {
		name string
		end  func(t *testing.T, d *socketServer, quit chan struct{})
	}{
		{"the handlers return", func(_ *testing.T, _ *socketServer, quit chan struct{}) { close(quit) }},
		{"the incarnation ends", func(t *testing.T, d *socketServer, _ chan struct{}) {
			if !d.Evict(socketObjects.Get(d, "a").ID(), dohost.EndFence) {
				t.Error("not evicted")
			}
		}},
		{"a handler panics", func(t *testing.T, d *socketServer, _ chan struct{}) {
			_ = socketObjects.Get(d, "a").Do(t.Context(), func(context.Context, *socketObject) error { panic("enough") })
		}},
	} {
		synctest.Test(t, func(t *testing.T) {
			quit := make(chan struct{})
			var begun, small atomic.Int64
			e := &socketHooks{message: func(_ *socketObject, ctx context.Context, _ *dohost.Socket, f dohost.Frame) error {
				if len(f.Data) < 100 {
					small.Add(1)
					return nil
				}
				begun.Add(1)
				_, _, err := dohost.Recv(ctx, quit)
				return err
			}}
			d := openSocketServer(t, e, &dohost.Options{MaxFrame: 1 << 20, ReadBudget: 6 << 20, Grace: -1})
			ws, _ := d.dial(t, "a")
			go func() { _, _, _ = ws.Read(t.Context()) }()
			for i := range 2 {
				if err := ws.Write(t.Context(), websocket.MessageBinary, make([]byte, 1<<20)); err != nil {
					t.Fatal(err)
				}
				sendText(t, ws, "small")
				synctest.Wait()
				want := int64(i+1) * (1<<20 + 1 - 4<<10)
				if u := d.ReadBudget(); begun.Load() != int64(i+1) || small.Load() != begun.Load() || u.Used != want {
					t.Errorf("%s: %d handlers wait, %d small frames, %+v, want %d used", tt.name, begun.Load(), small.Load(), u, want)
				}
			}
			tt.end(t, d, quit)
			synctest.Wait()
			if u := d.ReadBudget(); u.Used != 0 {
				t.Errorf("%s: in the end %+v", tt.name, u)
			}
		})
	}
}

func TestFrameThatIsLargeHasToArriveInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := openSocketServer(t, echoHooks(), nil)
		ws, _ := d.dial(t, "a")
		go func() { _, _, _ = ws.Read(t.Context()) }() // it answers pings
		part, err := ws.Writer(t.Context(), websocket.MessageText)
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		for err == nil {
			_, err = part.Write(make([]byte, 8<<10))
			time.Sleep(5 * time.Second)
		}
		synctest.Wait()
		if took := time.Since(began); took < 90*time.Second || took > 105*time.Second || d.ReadBudget().Used != 0 {
			t.Errorf("cut after %v, %+v", took, d.ReadBudget())
		}
	})
}

// TestReadBudgetIsSharedByBodies has handlers that keep their bodies until the test continues them.
func TestReadBudgetIsSharedByBodies(t *testing.T) {
	for _, length := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			proceed := make(chan struct{})
			h := open(t, &dohost.Options{MaxFrame: 1000, ReadBudget: 40_000}, httpClass(func(p *httpObject, w http.ResponseWriter, r *http.Request) {
				n, err := io.Copy(io.Discard, r.Body)
				if errors.Is(err, dohost.ErrOverloaded) {
					http.Error(w, "full", http.StatusServiceUnavailable)
					return
				}
				_, _, _ = dohost.Recv(r.Context(), proceed)
				fmt.Fprint(w, n)
			}))
			ask := func(n int) (*client, <-chan any) {
				r := httptest.NewRequestWithContext(t.Context(), "POST", "/", strings.NewReader(strings.Repeat("x", n)))
				if !length {
					r.ContentLength = -1
				}
				c := newClient()
				return c, serve(h, c, r)
			}
			first, firstDone := ask(4096 + 8000)
			synctest.Wait()
			if u := h.ReadBudget(); u.Used != 8000 {
				t.Errorf("length %t: %+v", length, u)
			}
			lent, lentDone := ask(4096 + 8000) // the reserve lends it a part
			synctest.Wait()
			if u := h.ReadBudget(); u.Used != 16_000 {
				t.Errorf("length %t: %+v", length, u)
			}
			second, secondDone := ask(4096 + 8000)
			small, smallDone := ask(4096)
			synctest.Wait()
			if u := h.ReadBudget(); u.Used > u.Limit {
				t.Errorf("length %t: %+v", length, u)
			}
			time.Sleep(11 * time.Second)
			<-secondDone
			if status, body := second.got(); status != 503 || h.ReadBudget().Refused != 1 {
				t.Errorf("length %t: the second one: %d %s, %+v", length, status, body, h.ReadBudget())
			}
			if length {
				if e := second.wantError(t, 503, "overloaded"); !e.Overloaded || e.Ran != "no" {
					t.Errorf("%+v", e)
				}
			}
			close(proceed)
			<-firstDone
			<-lentDone
			<-smallDone
			lent.want(t, 200, "12096")
			first.want(t, 200, "12096")
			small.want(t, 200, "4096")
			synctest.Wait()
			if u := h.ReadBudget(); u.Used != 0 {
				t.Errorf("length %t: in the end %+v", length, u)
			}
		})
	}
}

// silentBody is a body without a byte before quit is closed.
type silentBody struct{ quit chan struct{} }

func (s silentBody) Read([]byte) (int, error) {
	<-s.quit
	return 0, io.EOF
}

func (s silentBody) Close() error { return nil }

// TestReadBudgetIgnoresAnnouncedBytes has requests that announce more than the budget in total, and send nothing.
func TestReadBudgetIgnoresAnnouncedBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := open(t, nil)
		quit := make(chan struct{})
		for range 17 {
			r := httptest.NewRequestWithContext(t.Context(), "POST", "/", silentBody{quit})
			r.ContentLength = 16 << 20
			go func() {
				if _, release, err := h.ReadBody(r, dohost.ID{}); err != nil {
					t.Error(err)
				} else {
					release()
				}
			}()
		}
		synctest.Wait()
		if u := h.ReadBudget(); u.Used > 17*64<<10 || u.Refused != 0 {
			t.Errorf("%+v", u)
		}
		large := httptest.NewRequestWithContext(t.Context(), "POST", "/", strings.NewReader(strings.Repeat("x", 16<<20)))
		if body, release, err := h.ReadBody(large, dohost.ID{}); err != nil || len(body) != 16<<20 {
			t.Errorf("%d bytes, %v", len(body), err)
		} else {
			release()
		}
		close(quit)
		synctest.Wait()
		if u := h.ReadBudget(); u.Used != 0 {
			t.Errorf("in the end: %+v", u)
		}
	})
}

// TestReadBudgetIsUsedUntilTheHandlerReturns counts the body until the handler has returned.
func TestReadBudgetIsUsedUntilTheHandlerReturns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		proceed := make(chan struct{})
		h := open(t, nil, httpClass(func(p *httpObject, w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			_, _, _ = dohost.Recv(r.Context(), proceed)
		}))
		ctx, cancel := context.WithCancel(t.Context())
		r := httptest.NewRequestWithContext(ctx, "POST", "/", strings.NewReader(strings.Repeat("x", 10_000)))
		done := serve(h, newClient(), r)
		synctest.Wait()
		cancel()
		<-done
		if u := h.ReadBudget(); u.Used != 10_000-4096 {
			t.Errorf("%+v", u)
		}
		close(proceed)
		synctest.Wait()
		if u := h.ReadBudget(); u.Used != 0 {
			t.Errorf("in the end %+v", u)
		}
	})
}

func TestReadBodyCountsUntilItIsReleased(t *testing.T) {
	h := open(t, &dohost.Options{MaxFrame: 1000, ReadBudget: 30_000})
	for _, length := range []int64{10_000, -1} {
		r := httptest.NewRequestWithContext(t.Context(), "POST", "/", strings.NewReader(strings.Repeat("x", 10_000)))
		r.ContentLength = length
		body, release, err := h.ReadBody(r, dohost.ID{})
		if err != nil || len(body) != 10_000 || h.ReadBudget().Used != 10_000-4096 {
			t.Errorf("%d bytes, %v, %+v", len(body), err, h.ReadBudget())
		}
		release()
		if u := h.ReadBudget(); u.Used != 0 {
			t.Errorf("%+v", u)
		}
	}
	r := httptest.NewRequestWithContext(t.Context(), "POST", "/", strings.NewReader(strings.Repeat("x", 30_000)))
	if _, _, err := h.ReadBody(r, dohost.ID{}); !errors.As(err, new(*dohost.LimitError)) {
		t.Errorf("more than the largest body: %v", err)
	}
}

// brokenBody is a body that ends its reader in place of an error.
type brokenBody struct {
	io.Reader
	end func()
}

func (b *brokenBody) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	if err == io.EOF {
		b.end()
	}
	return n, err
}

func (b *brokenBody) Close() error { return nil }

// TestReadBodyReleasesItsShareIfTheBodyPanics has a body with a panic, or with runtime.Goexit, after bytes that are counted.
func TestReadBodyReleasesItsShareIfTheBodyPanics(t *testing.T) {
	h := open(t, &dohost.Options{MaxFrame: 1000, ReadBudget: 30_000})
	for name, end := range map[string]func(){"panic": func() { panic("broken") }, "Goexit": goruntime.Goexit} {
		counted := int64(0)
		body := &brokenBody{strings.NewReader(strings.Repeat("x", 10_000)), func() {
			counted = h.ReadBudget().Used
			end()
		}}
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			defer func() { _ = recover() }()
			_, _, _ = h.ReadBody(httptest.NewRequestWithContext(t.Context(), "POST", "/", body), dohost.ID{})
			t.Errorf("%s: ReadBody has returned", name)
		}()
		<-ended
		if u := h.ReadBudget(); counted != 10_000-4096 || u.Used != 0 {
			t.Errorf("%s: %d bytes were counted, and then %+v", name, counted, u)
		}
	}
}

// TestArgumentCountsUntilTheMethodReturns lets the caller of a running method go, and the caller of one that waits for
// its turn. Both have a long argument with a short value.
func TestArgumentCountsUntilTheMethodReturns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		proceed := make(chan struct{})
		h := open(t, nil, dohost.Bind(nilObjects,
			func(_ context.Context, st *dohost.State) (*nilObject, error) { return &nilObject{st}, nil }, nil,
			dohost.Expose("hold", func(_ *nilObject, ctx context.Context, _ struct{}) (struct{}, error) {
				<-proceed // with the turn
				return struct{}{}, nil
			})))
		id := nilObjects.Get(h, "a").ID()
		call := func() (encoded weak.Pointer[byte], end func() error) {
			ctx, cancel := context.WithCancel(t.Context())
			r := httptest.NewRequestWithContext(ctx, "POST", "/", strings.NewReader(`{"pad":"`+strings.Repeat("x", 100_000)+`"}`))
			ctx, err := h.AuthorizeCall(r, id, "hold")
			if err != nil {
				t.Fatal(err)
			}
			arg, release, err := h.ReadBody(r.WithContext(ctx), id)
			if err != nil {
				t.Fatal(err)
			}
			encoded = weak.Make(&arg[0])
			done := make(chan error)
			go func() {
				_, err := h.Invoke(ctx, id, "hold", arg)
				release()
				done <- err
			}()
			synctest.Wait()
			return encoded, func() error { cancel(); return <-done }
		}
		const counted = 100_000 + int64(len(`{"pad":""}`)) - 4096
		encoded, endFirst := call()
		_, endSecond := call()
		if u := h.ReadBudget(); u.Used != 2*counted {
			t.Errorf("one runs, one waits: %+v", u)
		}
		if err := endSecond(); err == nil || h.ReadBudget().Used != counted {
			t.Errorf("the one that waited: %v, %+v", err, h.ReadBudget())
		}
		if err := endFirst(); err == nil || h.ReadBudget().Used != counted {
			t.Errorf("the one that runs: %v, %+v", err, h.ReadBudget())
		}
		goruntime.GC()
		if encoded.Value() != nil {
			t.Error("the encoded argument is in memory while the method runs")
		}
		close(proceed)
		synctest.Wait()
		if u := h.ReadBudget(); u.Used != 0 {
			t.Errorf("in the end: %+v", u)
		}
	})
}

// TestBodyBeyondTheReadBudgetIsRefused sends bodies that the budget never has room for. The client gets the limit
// without a wait, and the object does not run if the length was announced.
func TestBodyBeyondTheReadBudgetIsRefused(t *testing.T) {
	for _, length := range []int64{200_000, -1} {
		synctest.Test(t, func(t *testing.T) {
			runs := 0
			h := open(t, &dohost.Options{MaxFrame: 1000, ReadBudget: 100_000}, httpClass(func(p *httpObject, w http.ResponseWriter, r *http.Request) {
				runs++
				if _, err := io.Copy(io.Discard, r.Body); err != nil {
					p.st.WriteError(w, err)
				}
			}))
			r := httptest.NewRequestWithContext(t.Context(), "POST", "/", strings.NewReader(strings.Repeat("x", 200_000)))
			r.ContentLength = length
			began := time.Now()
			c := newClient()
			<-serve(h, c, r)
			e := c.wantError(t, http.StatusRequestEntityTooLarge, "too_large")
			if !strings.HasSuffix(e.Message, "the limit is 29096") || e.Retryable || time.Since(began) > time.Second {
				t.Errorf("length %d: after %v: %+v", length, time.Since(began), e)
			}
			if u := h.ReadBudget(); runs == 1 == (length > 0) || u.Used != 0 {
				t.Errorf("length %d: the handler ran %d times; %+v", length, runs, u)
			}
		})
	}
}

// TestReadBudgetIsFreeBeforeTheResponseIsRead uses a client that reads nothing.
func TestReadBudgetIsFreeBeforeTheResponseIsRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := open(t, nil, httpClass(func(_ *httpObject, w http.ResponseWriter, r *http.Request) {
			n, err := io.Copy(io.Discard, r.Body)
			fmt.Fprint(w, n, err)
		}))
		c := newStuckClient()
		r := httptest.NewRequestWithContext(t.Context(), "POST", "/", strings.NewReader(strings.Repeat("x", 100_000)))
		done := serve(h, c, r)
		synctest.Wait()
		if u := h.ReadBudget(); u.Used != 0 {
			t.Errorf("the handler has returned: %+v", u)
		}
		close(c.clear)
		<-done
		c.want(t, 200, "100000 <nil>")
		if u := h.ReadBudget(); u.Used != 0 {
			t.Errorf("in the end: %+v", u)
		}
	})
}

// TestReadBudgetIsFreeAfterARefusedRequest sends a request to an object whose constructor fails.
func TestReadBudgetIsFreeAfterARefusedRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := open(t, nil, dohost.Bind(httpObjects, func(context.Context, *dohost.State) (*httpObject, error) {
			return nil, errors.New("no")
		}, &dohost.Handlers[httpObject]{OnHTTP: (*httpObject).ServeHTTP}))
		c := newClient()
		<-serve(h, c, httptest.NewRequestWithContext(t.Context(), "POST", "/", strings.NewReader(strings.Repeat("x", 100_000))))
		c.wantError(t, 500, "constructor")
		if u := h.ReadBudget(); u.Used != 0 {
			t.Errorf("%+v", u)
		}
	})
}

// TestSendBudgetClosesSocketsWithMostUnsentBytes has clients that read nothing, each at an object of its own.
func TestSendBudgetClosesSocketsWithMostUnsentBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &socketHooks{message: func(_ *socketObject, ctx context.Context, s *dohost.Socket, f dohost.Frame) error {
			for range len(f.Data) {
				if err := s.Send(ctx, dohost.Frame{Data: make([]byte, 10_000)}); err != nil {
					return nil // it was closed in the meantime
				}
			}
			return nil
		}}
		d := openSocketServer(t, e, &dohost.Options{SendBudget: 1 << 20})
		peak := int64(0)
		var clients []*websocket.Conn
		for i := range 20 {
			ws, _ := d.dial(t, fmt.Sprint(i))
			ws.SetReadLimit(-1)
			clients = append(clients, ws)
			sendText(t, ws, strings.Repeat("x", 5+i)) // the last one gets 240 kB
			synctest.Wait()
			u := d.SendBudget()
			// A closed socket keeps the frames that are being written to its client, up to 64 KiB.
			if peak = max(peak, u.Used); u.Used > u.Limit+int64(u.Refused)<<16 {
				t.Errorf("after %d clients %+v", i, u)
			}
		}
		closed := int(d.SendBudget().Refused)
		if closed == 0 || closed > 15 || peak < 1<<19 {
			t.Fatalf("%d sockets were closed, peak %d", closed, peak)
		}
		busy := 0
		for i, ws := range clients {
			n, err := 0, error(nil)
			for n < 5+i && err == nil {
				_, _, err = ws.Read(t.Context())
				n++
			}
			if websocket.CloseStatus(err) == dohost.CloseBusy {
				busy++
			} else if err != nil {
				t.Errorf("client %d: %v", i, err)
			}
			if err != nil && i < 5 {
				t.Errorf("client %d, for which little waited, was closed", i)
			}
		}
		synctest.Wait()
		if u := d.SendBudget(); busy != closed || u.Used != 0 {
			t.Errorf("%d heard code 1013, %d were closed, %+v", busy, closed, u)
		}
	})
}

// TestSendBudgetCountsABroadcastOnce sends one to clients that read nothing.
func TestSendBudgetCountsABroadcastOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &socketHooks{message: func(h *socketObject, ctx context.Context, _ *dohost.Socket, f dohost.Frame) error {
			return h.st.Broadcast(ctx, dohost.Frame{Data: make([]byte, 100_000)}, h.st.Sockets(""))
		}}
		d := openSocketServer(t, e, &dohost.Options{SendBudget: 1 << 20})
		var clients []*websocket.Conn
		for range 40 {
			ws, _ := d.dial(t, "a")
			ws.SetReadLimit(-1)
			clients = append(clients, ws)
		}
		for range 5 {
			sendText(t, clients[0], "go")
		}
		synctest.Wait()
		if u := d.SendBudget(); u.Used < 500_000 || u.Used > 510_000 || u.Refused != 0 {
			t.Errorf("%+v", u)
		}
		for _, ws := range clients[:30] {
			for range 5 {
				if _, data, err := ws.Read(t.Context()); len(data) != 100_000 {
					t.Fatalf("%d bytes, %v", len(data), err)
				}
			}
		}
		synctest.Wait()
		if u := d.SendBudget(); u.Used < 500_000 {
			t.Errorf("ten clients have not read: %+v", u)
		}
		d.CloseSockets(socketObjects.Get(d, "a").ID(), "")
		for _, ws := range clients[30:] {
			_ = ws.CloseNow()
		}
		advance(time.Minute)
		if u := d.SendBudget(); u.Used != 0 {
			t.Errorf("in the end %+v", u)
		}
	})
}

func TestBudgetOptionsOutOfRangeAreRefused(t *testing.T) {
	for _, o := range []dohost.Options{{MaxFrame: -1}, {ReadBudget: -1}, {SendBudget: -1}, {ReadBudget: 1 << 20}, {MaxFrame: 334, ReadBudget: 1000}} {
		if h, err := dohost.Open(t.TempDir(), &o); err == nil || !strings.Contains(err.Error(), "Options.MaxFrame") {
			t.Errorf("%+v: %v, %v", o, h, err)
		}
	}
}
