package dohost_test

import (
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dohost/dohost"
)

// stuckClient is a connection whose client reads nothing until the test says so, with a write deadline.
type stuckClient struct {
	*client
	late chan struct{} // closed by a deadline in the past
}

func newStuckClient() *stuckClient {
	c := &stuckClient{newClient(), make(chan struct{})}
	c.clear = make(chan struct{})
	return c
}

func (c *stuckClient) Write(p []byte) (int, error) {
	select {
	case <-c.late:
		return 0, os.ErrDeadlineExceeded
	case <-c.clear:
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.body.Write(p)
}

func (c *stuckClient) SetWriteDeadline(at time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	select {
	case <-c.late:
	default:
		if !at.After(time.Now()) {
			close(c.late)
		}
	}
	return nil
}

// TestSendBudgetCutsTheLargestResponses has clients that take nothing of responses from 50 kB to 145 kB.
func TestSendBudgetCutsTheLargestResponses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := open(t, &dohost.Options{SendBudget: 1 << 20}, httpClass(func(_ *httpObject, w http.ResponseWriter, r *http.Request) {
			n, err := strconv.Atoi(r.URL.Query().Get("n"))
			if err != nil {
				t.Error(err)
			}
			for range 2 { // one part leaves before the handler returns
				// Both fail if the response is cut between its parts. The body of any other response is checked below.
				if _, err := w.Write(make([]byte, n/2)); err != nil {
					return
				}
				if err := http.NewResponseController(w).Flush(); err != nil {
					return
				}
			}
		}))
		size := func(i int) int { return 50_000 + 5_000*i }
		var clients []*stuckClient
		var ends []<-chan any
		for i := range 20 {
			c := newStuckClient()
			r := httptest.NewRequestWithContext(t.Context(), "GET", "/?n="+strconv.Itoa(size(i)), nil)
			clients, ends = append(clients, c), append(ends, serve(h, c, r))
			synctest.Wait()
			if u := h.SendBudget(); u.Used > u.Limit {
				t.Errorf("after %d clients %+v", i+1, u)
			}
		}
		u := h.SendBudget()
		if u.Refused == 0 || u.Refused > 12 || u.Used < u.Limit/2 {
			t.Errorf("%+v, want a budget that is nearly in use", u)
		}
		cut := uint64(0)
		for i, c := range clients {
			close(c.clear)
			p := <-ends[i]
			switch _, body := c.got(); {
			case p == http.ErrAbortHandler && i >= 5:
				cut++
			case p != nil || len(body) != size(i):
				t.Errorf("client %d has %d bytes, want %d: %v", i, len(body), size(i), p)
			}
		}
		if u := h.SendBudget(); cut != u.Refused || u.Used != 0 {
			t.Errorf("%d responses were cut; in the end %+v", cut, u)
		}
	})
}
