package cluster

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/internal/budget"
	"github.com/dohost/dohost/internal/sockettest"
)

// TestEdgeTakesPositionsOfAnotherHistory has an object that was restored: its positions are smaller.
func TestEdgeTakesPositionsOfAnotherHistory(t *testing.T) {
	withEdge(t, false, accepts, func(t *edgeTest) {
		c := t.dial()
		time.Sleep(time.Second)
		for i, position := range []string{"history27", "history12", "history11"} {
			t.owner.now().o.Send(&dohost.LinkOutput{Sockets: []uint64{1}, Position: position, Frame: &dohost.Frame{Text: true, Data: fmt.Append(nil, i)}})
		}
		t.owner.now().o.Send(&dohost.LinkOutput{Sockets: []uint64{1}, Position: "history13", Frame: &dohost.Frame{Text: true, Data: []byte("last")}})
		for _, want := range []string{"0", "1", "last"} {
			t.want(c, want)
		}
	})
}

// TestEdgeClosesASocketThatIsGoneWhileItOpens has an object that ends a socket while the response is in transit.
func TestEdgeClosesASocketThatIsGoneWhileItOpens(t *testing.T) {
	var hold chan struct{}
	withEdge(t, true, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			<-hold
		}
		accepts(w, r)
	}, func(t *edgeTest) {
		hold = make(chan struct{})
		t.dial().CloseRead(t.Context())
		time.Sleep(time.Second)
		got := make(chan *websocket.Conn, 1)
		go func() {
			c, _, err := sockettest.Dial(t.Context(), t.router, "/slow")
			if err != nil {
				t.Error(err)
			}
			got <- c
		}()
		synctest.Wait()
		t.owner.now().o.Send(&dohost.LinkOutput{Sockets: []uint64{2}, Gone: true})
		time.Sleep(time.Second)
		close(hold)
		c := <-got
		time.Sleep(5 * time.Second)
		list := t.owner.linked()
		if len(list) != 2 || len(list[1].Sockets) != 2 || list[1].Sockets[0].Opening || list[1].Sockets[1].Opening {
			t.Errorf("%d links", len(list))
		}
		t.owner.now().o.Send(&dohost.LinkOutput{Sockets: []uint64{2}, Gone: true}) // as the object answers that link
		t.wantClosed(c, 1012)
	})
}

// TestEdgeBoundsTheFramesOfAllClients has an object that does not answer, and then clients that do not read.
func TestEdgeBoundsTheFramesOfAllClients(t *testing.T) {
	withEdge(t, false, accepts, func(t *edgeTest) {
		t.owner.silent = true
		reads := budget.New(4 << 20)
		t.edge.edge.reads = reads
		first := t.dial()
		frame := strings.Repeat("x", 400<<10)
		t.write(first, frame)
		t.write(first, frame)
		time.Sleep(time.Second)
		second := t.dial()
		t.write(second, frame) // with bytes of the reserve, which become bytes by the rule
		time.Sleep(time.Second)
		third := t.dial()
		t.write(third, frame) // with bytes of the reserve
		time.Sleep(time.Second)
		other := t.dial()
		go func() { _ = other.Write(t.Context(), websocket.MessageText, []byte(frame)) }()
		small := t.dial()
		t.write(small, "small")
		t.wantClosed(other, 1013)
		if n := reads.Usage().Used; n != int64(4*(len(frame)+inputOverhead)-3*budget.Free) {
			t.Errorf("%d bytes are counted", n)
		}
		for _, c := range []*websocket.Conn{first, second, third, small} {
			_ = c.CloseNow()
		}
		t.owner.mu.Lock()
		t.owner.silent = false
		t.owner.current.endLocked()
		t.owner.mu.Unlock()
		time.Sleep(10 * time.Second)
		if n := reads.Usage().Used; n != 0 {
			t.Errorf("%d bytes are counted after the end of all", n)
		}
	})
}

// TestEdgeKeepsAWindowOfInputs counts the inputs that are delivered and not acknowledged.
func TestEdgeKeepsAWindowOfInputs(t *testing.T) {
	withEdge(t, false, accepts, func(t *edgeTest) {
		delivered := 0
		t.owner.silent = true
		t.owner.poison = func(*dohost.LinkInput) bool {
			delivered++
			return false
		}
		c := t.dial()
		for range 20 {
			t.write(c, strings.Repeat("x", 10<<10))
		}
		time.Sleep(time.Second)
		t.owner.mu.Lock()
		defer t.owner.mu.Unlock()
		if delivered != 6 {
			t.Errorf("%d inputs of 10 KiB are delivered", delivered)
		}
	})
}

// TestEdgeBoundsTheUnsentFramesOfAllClients has clients that do not read.
func TestEdgeBoundsTheUnsentFramesOfAllClients(t *testing.T) {
	withEdge(t, false, accepts, func(t *edgeTest) {
		var all []*websocket.Conn
		for range 10 {
			all = append(all, t.dial())
		}
		time.Sleep(time.Second)
		for range 30 {
			for i := range all {
				t.owner.now().o.Send(&dohost.LinkOutput{Sockets: []uint64{uint64(i + 1)}, Frame: &dohost.Frame{Data: make([]byte, 1<<20)}})
			}
		}
		if n := t.edge.edge.sends.bytes.Load(); n > maxSends || n < maxSends/4 {
			t.Errorf("%d bytes wait for the clients", n)
		}
		for _, c := range all {
			_ = c.CloseNow()
		}
		time.Sleep(time.Minute)
		if n := t.edge.edge.sends.bytes.Load(); n != 0 {
			t.Errorf("%d bytes wait after the end of all", n)
		}
	})
}

type contextKey struct{}

// TestLinkHasNoValuesOfTheFirstClient links in the context of no client.
func TestLinkHasNoValuesOfTheFirstClient(t *testing.T) {
	withEdge(t, false, accepts, func(t *edgeTest) {
		handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			t.router.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), contextKey{}, r.URL.Path)))
		})
		for _, path := range []string{"/admin", "/other"} {
			c, _, err := sockettest.Dial(t.Context(), handler, path)
			if err != nil {
				t.Fatal(err)
			}
			c.CloseRead(t.Context())
		}
		t.edge.edge.mu.Lock()
		value := t.edge.edge.ctx.Value(contextKey{})
		t.edge.edge.mu.Unlock()
		time.Sleep(time.Second)
		list := t.owner.linked()
		if value != nil || len(list) == 0 || list[0].Sockets[0].Handshake.Context().Value(contextKey{}) == nil {
			t.Errorf("the context of links has the value %v; %d links", value, len(list))
		}
	})
}
