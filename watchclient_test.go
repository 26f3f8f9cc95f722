package dohost_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dohost/dohost"
)

// itemsNone selects no item. Its Where calls each with the number of rows that it was asked for.
func itemsNone(each func(n int)) *dohost.Query[item] {
	n := 0
	return &dohost.Query[item]{Where: func(item) bool {
		n++
		each(n)
		return false
	}}
}

// manyItems is more than a page of rows.
func manyItems() (list []item) {
	for n := range 1000 {
		list = append(list, item{ID: fmt.Sprint(n)})
	}
	return list
}

// TestServeWatchEndsForASlowClientWhenTheHostCloses has a client that reads nothing, so that Flush waits for it.
func TestServeWatchEndsForASlowClientWhenTheHostCloses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		items := itemsWith(10)
		result := errors.New("not ended")
		h := watchPage(t, items, nil, &result)
		c := newClient()
		c.clear = make(chan struct{})
		done := serve(h, c, get(t))
		synctest.Wait()
		for n := range 20 {
			onPage(t, h, putItems(items, item{ID: "a", N: n, Pad: strings.Repeat("p", 100<<10)}))
		}
		begun := time.Now()
		if err := h.Close(); err != nil {
			t.Error(err)
		}
		if took := time.Since(begun); took > 0 || result != nil {
			t.Errorf("Close took %v, and ServeWatch returned %v", took, result)
		}
		close(c.clear)
		if p := <-done; p != nil || c.status != http.StatusOK {
			t.Errorf("status %d, %v", c.status, p)
		}
	})
}

// TestServeWatchEndsWhenTheClientDisconnects does so in the middle of a list that has no rows for it, and while the
// watch waits for a change.
func TestServeWatchEndsWhenTheClientDisconnects(t *testing.T) {
	for _, inList := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			items := itemsWith(0)
			result := errors.New("not ended")
			ctx, disconnect := context.WithCancel(t.Context())
			left, read, c := make(chan struct{}), 0, newClient()
			h := watchPage(t, items, itemsNone(func(n int) {
				if read = n; inList && n == 300 {
					time.Sleep(time.Millisecond) // until the response is written
					if got := c.text(); got != "event: reset\nid: \ndata: {}\n\n" {
						t.Errorf("at the second page the client has %q", got)
					}
					disconnect()
					<-left
				}
			}), &result)
			onPage(t, h, putItems(items, manyItems()...))
			done := serve(h, c, get(t).WithContext(ctx))
			go func() {
				<-done
				close(left)
			}()
			time.Sleep(time.Second)
			synctest.Wait()
			if !inList {
				disconnect()
				synctest.Wait()
			}
			if inList && read > 512 || !errors.Is(result, context.Canceled) {
				t.Errorf("in the list: %t: the watch has read %d rows, and ended with %v", inList, read, result)
			}
		})
	}
}

// TestServeWatchSendsCommentsDuringAListWithoutMatches has a list whose pages take 20 s each, for a client that gets
// none of the rows.
func TestServeWatchSendsCommentsDuringAListWithoutMatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		items := itemsWith(0)
		var result error
		h := watchPage(t, items, itemsNone(func(n int) {
			if n%256 == 0 {
				time.Sleep(20 * time.Second)
			}
		}), &result)
		onPage(t, h, putItems(items, manyItems()...))
		c := newClient()
		done := serve(h, c, get(t))
		time.Sleep(time.Minute + time.Second) // three full pages; the first one precedes the reset
		e := &eventReader{}
		if e.read(t, c.text()); e.took() != "reset comment comment ready" {
			t.Errorf("the client got %q", c.text())
		}
		if err := h.Close(); err != nil {
			t.Error(err)
		}
		<-done
	})
}

// TestServeWatchEndsDuringAListWhenTheHostCloses ends the response as after any Close, so that EventSource connects again.
func TestServeWatchEndsDuringAListWhenTheHostCloses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		items := itemsWith(0)
		var h *dohost.Host
		result, read, closed := errors.New("not ended"), 0, make(chan error, 1)
		h = watchPage(t, items, itemsNone(func(n int) {
			if read = n; n == 10 {
				go func() { closed <- h.Close() }()
				time.Sleep(time.Millisecond)
			}
		}), &result)
		onPage(t, h, putItems(items, manyItems()...))
		c := newClient()
		if p := <-serve(h, c, get(t)); p != nil || result != nil || c.status != http.StatusOK || read > 256 {
			t.Errorf("status %d %q after %d rows, %v, ServeWatch returned %v", c.status, c.text(), read, p, result)
		}
		if err := <-closed; err != nil {
			t.Error(err)
		}
	})
}

// TestServeWatchAsksARefusedClientToTryAgain has more watches than the object may have. EventSource does not connect
// again after another status than 200.
func TestServeWatchAsksARefusedClientToTryAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		items := itemsWith(0)
		result := errors.New("not ended")
		h := open(t, &dohost.Options{MaxEvents: 2}, httpClass(func(p *httpObject, w http.ResponseWriter, r *http.Request) {
			result = items.ServeWatch(w, r, p.st.Storage(), nil, nil)
		}))
		done := serve(h, newClient(), get(t))
		synctest.Wait()
		c := newClient()
		if p := <-serve(h, c, get(t)); p != nil || result != nil {
			t.Errorf("the response ended with %v, and ServeWatch returned %v", p, result)
		}
		c.want(t, http.StatusOK, ": try again\nretry: 5000\n\n")
		if got := c.header.Get("Content-Type"); got != "text/event-stream" {
			t.Errorf("content type %q", got)
		}
		if err := h.Close(); err != nil {
			t.Error(err)
		}
		<-done
	})
}

// TestServeWatchCutsAResponseAfterAnError has a row that does not decode, and a handler that then answers with a text.
func TestServeWatchCutsAResponseAfterAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		items := itemsWith(0)
		var result error
		h := watchPage(t, items, nil, &result)
		bad := dohost.Collection[string]{Name: "items", Key: func(s string) string { return s }, Feed: items.Feed}
		onPage(t, h, func(ctx context.Context, s *dohost.Storage) error {
			if err := putItems(items, manyItems()...)(ctx, s); err != nil {
				return err
			}
			return bad.Insert(ctx, s, "broken")
		})
		c := newClient()
		p := <-serve(h, c, get(t))
		if p != http.ErrAbortHandler || result == nil || !strings.Contains(result.Error(), `row "broken"`) {
			t.Errorf("the response ended with %v, and ServeWatch returned %v", p, result)
		}
		if got := c.text(); !strings.HasPrefix(got, "event: reset\n") || strings.Contains(got, "no watch") {
			t.Errorf("the client got %.100q, ..., %q", got, got[max(0, len(got)-100):])
		}
	})
}
