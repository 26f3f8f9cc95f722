package dohost_test

import (
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"

	"github.com/dohost/dohost"
)

// slowBody is a body of rest bytes. A Read returns at most 64 KiB, after a pause.
type slowBody struct {
	rest  int
	pause time.Duration
}

func (b *slowBody) Read(p []byte) (int, error) {
	if b.rest == 0 {
		return 0, io.EOF
	}
	time.Sleep(b.pause)
	n := min(len(p), b.rest, 64<<10)
	b.rest -= n
	return n, nil
}

func (b *slowBody) Close() error { return nil }

// TestReadBudgetLetsLongBodiesEnd has more concurrent uploads to an object than the budget has bytes for. The uploads do not wait for each
// other: the bytes that one gets from the reserve suffice for its end.
func TestReadBudgetLetsLongBodiesEnd(t *testing.T) {
	for _, length := range []int64{mib, -1} {
		synctest.Test(t, func(t *testing.T) {
			h := open(t, &dohost.Options{MaxFrame: 1000, ReadBudget: 8 * mib})
			wantUploads(t, h, length)
			wantUnused(t, h)
		})
	}
}

// wantUploads sends 12 concurrent uploads of 1 MiB to an object.
func wantUploads(t *testing.T, h *dohost.Host, length int64) {
	var all sync.WaitGroup
	for i := range 12 {
		all.Go(func() {
			r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", &slowBody{mib, time.Duration(40+i) * time.Millisecond})
			r.ContentLength = length
			body, release, err := h.ReadBody(r, nilObjects.Get(h, "a").ID())
			if err != nil || len(body) != mib {
				t.Errorf("length %d: upload %d: %d bytes, %v", length, i, len(body), err)
			}
			time.Sleep(100 * time.Millisecond) // the call
			release()
		})
	}
	all.Wait()
}

// TestReadBudgetLetsLongBodiesEndAfterOneThatIsKept has a body with bytes of the reserve that is kept, as by a handler that does not return. When the
// bodies before it are released, its bytes are no longer of the reserve, which has all of its bytes for later uploads to the object.
func TestReadBudgetLetsLongBodiesEndAfterOneThatIsKept(t *testing.T) {
	for _, length := range []int64{mib, -1} {
		synctest.Test(t, func(t *testing.T) {
			h := open(t, &dohost.Options{MaxFrame: 1000, ReadBudget: 8 * mib})
			var all []func()
			for range 3 { // the third one gets bytes of the reserve
				r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", &slowBody{mib, 0})
				r.ContentLength = length
				_, release, err := h.ReadBody(r, nilObjects.Get(h, "a").ID())
				if err != nil {
					t.Fatal(err)
				}
				all = append(all, release)
			}
			all[0]()
			all[1]()
			wantUploads(t, h, length)
			all[2]()
			wantUnused(t, h)
		})
	}
}

// TestReadBudgetKeepsTheBytesOfAFrameThatHasArrived has a frame that is smaller than the largest one, after the reserve has lent the bytes for the
// largest one.
func TestReadBudgetKeepsTheBytesOfAFrameThatHasArrived(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		quit := make(chan struct{})
		d := openSocketServer(t, silentHooks(quit), &dohost.Options{MaxFrame: mib, ReadBudget: 7 * mib, Grace: -1})
		want := int64(0)
		for _, f := range []struct{ size, buffer int64 }{{mib, mib + 1}, {mib, mib + 1}, {300 << 10, 512 << 10}} {
			ws, _ := d.dial(t, "silent")
			go func() { _, _, _ = ws.Read(t.Context()) }()
			if err := ws.Write(t.Context(), websocket.MessageBinary, make([]byte, f.size)); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			want += f.buffer - 4<<10
		}
		if u := d.ReadBudget(); u.Used != want {
			t.Errorf("%+v, want %d used", u, want)
		}
		close(quit)
		wantUnused(t, d.Host)
	})
}

// TestReadBudgetWaitEndsWithTheSocket has a socket with a frame that waits while bodies have the bytes of its object, and ends the socket.
func TestReadBudgetWaitEndsWithTheSocket(t *testing.T) {
	for name, end := range map[string]func(d *socketServer, id dohost.ID){
		"closed by an operator":  func(d *socketServer, id dohost.ID) { d.CloseSockets(id, "") },
		"end of the incarnation": func(d *socketServer, id dohost.ID) { d.Evict(id, dohost.EndFence) },
		"crash":                  func(d *socketServer, id dohost.ID) { d.Evict(id, dohost.EndCrash) },
	} {
		synctest.Test(t, func(t *testing.T) {
			d := openSocketServer(t, echoHooks(), &dohost.Options{MaxFrame: mib, ReadBudget: 9 * mib, Grace: -1})
			id := socketObjects.Get(d, "a").ID()
			for range 3 {
				r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", &slowBody{mib, 0})
				_, release, err := d.ReadBody(r, id)
				if err != nil {
					t.Fatal(err)
				}
				defer release()
			}
			kept := d.ReadBudget().Used
			ws, _ := d.dial(t, "a")
			if name == "closed by an operator" {
				go func() { _, _, _ = ws.Read(t.Context()) }() // it answers the closing frame
			}
			go func() { _ = ws.Write(t.Context(), websocket.MessageBinary, make([]byte, mib)) }()
			synctest.Wait()
			before := d.ReadBudget().Used
			end(d, id)
			if synctest.Wait(); name == "closed by an operator" {
				advance(6 * time.Second) // for the closing handshake
			}
			if u := d.ReadBudget(); before < kept+100_000 || u.Used != kept || u.Refused != 0 {
				t.Errorf("%s: bodies have %d bytes, with the frame %d were used, and now %+v", name, kept, before, u)
			}
			d.Close()
		})
	}
}

// TestReadBudgetRefusalIsLogged has bodies for an object that are kept, and a further one.
func TestReadBudgetRefusalIsLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		h := open(t, &dohost.Options{MaxFrame: 1000, ReadBudget: 4 * mib, Logger: slog.New(slog.NewTextHandler(&log, nil))})
		id := nilObjects.Get(h, "a").ID()
		for err := error(nil); err == nil; {
			var release func()
			r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", &slowBody{mib, 0})
			_, release, err = h.ReadBody(r, id)
			defer release()
		}
		if got := log.String(); !strings.Contains(got, "the read budget has refused a client") || !strings.Contains(got, "object="+id.String()+" ") {
			t.Errorf("the log has %q", got)
		}
	})
}
