package dohost_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
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

// flushingClass answers with n parts of equal size, each flushed, and a header of 10 kB. It counts the flushes.
func flushingClass(n int, part string, flushes *atomic.Int64) dohost.Class {
	return httpClass(func(_ *httpObject, w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-Large", strings.Repeat("h", 10_000))
		for range n {
			// Both fail only if the response is cut. The tests check the whole body.
			if _, err := w.Write([]byte(part)); err != nil {
				return
			}
			if err := http.NewResponseController(w).Flush(); err != nil {
				return
			}
			flushes.Add(1)
		}
	})
}

// TestFlushesOfFewBytesTakeLittleMemory flushes single bytes to a client that reads nothing.
func TestFlushesOfFewBytesTakeLittleMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 60_000
		var flushes atomic.Int64
		h := open(t, nil, flushingClass(n, "x", &flushes))
		mustTouch(t, h)
		heap := func() int64 {
			runtime.GC()
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			return int64(m.HeapAlloc)
		}
		before := heap()
		c := newStuckClient()
		done := serve(h, c, get(t))
		synctest.Wait()
		if got := flushes.Load(); got != n {
			t.Errorf("%d flushes, want %d", got, n)
		}
		if grown := heap() - before; grown > 20*n {
			t.Errorf("the heap grew by %d bytes for %d bytes of a response", grown, n)
		}
		close(c.clear)
		if p := <-done; p != nil {
			t.Error(p)
		}
		c.want(t, 200, strings.Repeat("x", n))
	})
}

// TestSendBudgetCountsTheMemoryOfPieces uses a client that reads nothing of a response. The first and the last piece
// have a header.
func TestSendBudgetCountsTheMemoryOfPieces(t *testing.T) {
	for _, tt := range []struct {
		n, part  int
		min, max int64 // without the first 4 KiB
	}{
		{40, 5000, 40*(5000+64) + 20_000, 40*(5400+200) + 22_000}, // too large to be merged
		{1000, 10, 30_000, 35_000},
	} {
		synctest.Test(t, func(t *testing.T) {
			var flushes atomic.Int64
			h := open(t, nil, flushingClass(tt.n, strings.Repeat("x", tt.part), &flushes))
			c := newStuckClient()
			done := serve(h, c, get(t))
			synctest.Wait()
			if got := flushes.Load(); got != int64(tt.n) {
				t.Errorf("%d flushes, want %d", got, tt.n)
			}
			if u := h.SendBudget(); u.Used < tt.min-4<<10 || u.Used > tt.max-4<<10 {
				t.Errorf("%d flushes of %d bytes: %+v, want %d to %d", tt.n, tt.part, u, tt.min, tt.max)
			}
			close(c.clear)
			if p := <-done; p != nil {
				t.Error(p)
			}
			c.want(t, 200, strings.Repeat("x", tt.n*tt.part))
			if u := h.SendBudget(); u.Used != 0 {
				t.Errorf("in the end %+v", u)
			}
		})
	}
}

// TestWriteBodyIsCountedAndCut writes bodies of 400 kB to clients that read nothing. The third one exceeds the budget.
func TestWriteBodyIsCountedAndCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := open(t, &dohost.Options{SendBudget: 1 << 20})
		body := []byte(strings.Repeat("x", 400_000))
		var clients []*stuckClient
		var ends []chan any
		for i := range 3 {
			c, end := newStuckClient(), make(chan any, 1)
			clients, ends = append(clients, c), append(ends, end)
			go func() {
				defer func() { end <- recover() }()
				if err := h.WriteBody(c, body); err != nil {
					t.Error(err)
				}
			}()
			synctest.Wait()
			if u, want := h.SendBudget(), int64(min(i+1, 2)*400_000); u.Used < want-10_000 || u.Used > want+10_000 {
				t.Errorf("%d bodies: %+v", i+1, u)
			}
		}
		cut := 0
		for i, c := range clients {
			close(c.clear)
			switch p := <-ends[i]; p {
			case http.ErrAbortHandler:
				cut++
			case nil:
				if _, got := c.got(); got != string(body) {
					t.Errorf("client %d has %d bytes", i, len(got))
				}
			default:
				t.Error(p)
			}
		}
		if u := h.SendBudget(); cut != 1 || u.Refused != 1 || u.Used != 0 {
			t.Errorf("%d were cut; in the end %+v", cut, u)
		}
	})
}

// TestCutEndsAResponseWithoutADeadline uses a server that sets a new deadline for each Write, so that none expires.
func TestCutEndsAResponseWithoutADeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := open(t, &dohost.Options{SendBudget: 100_000}, httpClass(func(_ *httpObject, w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write(make([]byte, 200_000)) // the test checks the body
		}))
		c := newClient() // without a write deadline
		c.clear = make(chan struct{})
		done := serve(h, c, get(t))
		synctest.Wait()
		close(c.clear)
		if p := <-done; p != http.ErrAbortHandler {
			t.Error(p)
		}
		if _, got := c.got(); len(got) >= 200_000 {
			t.Errorf("client has all %d bytes", len(got))
		}
	})
}

// writerThatEnds is a response whose Write ends the goroutine.
type writerThatEnds struct {
	*httptest.ResponseRecorder
	end func()
}

func (w writerThatEnds) Write([]byte) (int, error) {
	w.end()
	return 0, nil
}

// TestWriteBodyIsNotCountedAfterAPanicOfTheWriter ends Write by a panic and by runtime.Goexit.
func TestWriteBodyIsNotCountedAfterAPanicOfTheWriter(t *testing.T) {
	h := open(t, nil)
	for _, end := range []func(){runtime.Goexit, func() { panic(errUnwritable) }} {
		ended := make(chan any)
		go func() {
			defer func() { ended <- recover() }()
			_ = h.WriteBody(writerThatEnds{httptest.NewRecorder(), end}, make([]byte, 100_000))
		}()
		if p := <-ended; p != nil && p != errUnwritable {
			t.Errorf("the panic is %v", p)
		}
		if u := h.SendBudget(); u.Used != 0 {
			t.Errorf("%+v", u)
		}
	}
}

var errUnwritable = errors.New("unwritable")
