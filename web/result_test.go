package web_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/web"
)

// stuckClient is a response whose client reads nothing before clear is closed.
type stuckClient struct {
	*httptest.ResponseRecorder
	clear chan struct{}
}

func (c *stuckClient) Write(p []byte) (int, error) {
	<-c.clear
	return c.ResponseRecorder.Write(p)
}

// TestResultsCountInTheSendBudget calls a method with a large argument and a large result, for clients that read
// nothing. The results count in the send budget, and the arguments no longer in the read budget. The host cuts the largest
// result, which is already being written when the last one arrives.
func TestResultsCountInTheSendBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		class := dohost.Bind(testObjects, func(_ context.Context, st *dohost.State) (*testObject, error) { return &testObject{st}, nil }, nil,
			dohost.Expose("double", func(_ *testObject, _ context.Context, s string) (string, error) { return s + s, nil }))
		h, err := dohost.Open(t.TempDir(), &dohost.Options{SendBudget: 500_000}, class)
		if err != nil {
			t.Fatal(err)
		}
		defer h.Close()
		handler := web.Handler(h, &web.Options{Classes: []string{"thing"}})
		var clients []*stuckClient
		ends := make(chan any)
		sizes := []int{120_000, 100_000, 80_000}
		for _, size := range sizes {
			c := &stuckClient{httptest.NewRecorder(), make(chan struct{})}
			clients = append(clients, c)
			r := httptest.NewRequestWithContext(t.Context(), "POST", "/objects/thing/a/double", strings.NewReader(`"`+strings.Repeat("x", size)+`"`))
			go func() {
				defer func() { ends <- recover() }()
				handler.ServeHTTP(c, r)
			}()
			synctest.Wait()
		}
		if u := h.SendBudget(); u.Used < 3*195_000 || u.Refused != 1 { // a response that is cut counts until its Write ends
			t.Errorf("results: %+v", u)
		}
		if u := h.ReadBudget(); u.Used != 0 {
			t.Errorf("arguments: %+v", u)
		}
		cut := 0
		for i, c := range clients {
			close(c.clear)
			if p := <-ends; p == http.ErrAbortHandler {
				cut++
			} else if n := c.Body.Len(); p != nil || n != 2*sizes[i]+2 {
				t.Errorf("%v: %d bytes", p, n)
			}
		}
		if u := h.SendBudget(); cut != 1 || u.Used != 0 {
			t.Errorf("%d were cut; %+v", cut, u)
		}
	})
}
