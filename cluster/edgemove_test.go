package cluster

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"
)

// TestCellMovesWithItsSockets moves the cell between the nodes several times.
func TestCellMovesWithItsSockets(t *testing.T) {
	both(t, accepts, func(t *edgeTest) {
		c := t.dial()
		for i := range 6 {
			at := []*Node{t.edge, t.other}[i%2]
			t.serve(at, accepts)
			t.owner.mu.Lock()
			if t.owner.current != nil {
				t.owner.current.endLocked()
			}
			t.owner.mu.Unlock()
			t.write(c, fmt.Sprint(i))
			t.want(c, fmt.Sprint(i))
		}
		t.wantHandled(1, "0", "1", "2", "3", "4", "5")
	})
}

// TestCloseOfANodeEndsItsSockets delivers the ends to an object that can be reached, and gives up after a while otherwise.
func TestCloseOfANodeEndsItsSockets(t *testing.T) {
	for _, silent := range []bool{false, true} {
		both(t, accepts, func(t *edgeTest) {
			t.owner.silent = silent
			c := t.dial()
			time.Sleep(time.Second)
			go t.edge.edge.close()
			t.wantClosed(c, 1012)
			time.Sleep(edgeCloseTime)
			synctest.Wait()
			if !silent {
				t.wantHandled(1, "1012")
			}
			if n := t.objects(); n != 0 {
				t.Errorf("%d objects are left", n)
			}
			w := httptest.NewRecorder()
			r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/1", nil)
			r.Header.Set("Upgrade", "websocket")
			if t.router.ServeHTTP(w, r); w.Code != http.StatusServiceUnavailable {
				t.Errorf("a handshake after Close: %d", w.Code)
			}
		})
	}
}
