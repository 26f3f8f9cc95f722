package dohost_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dohost/dohost"
)

// watchPage serves the items of an object as events.
func watchPage(t *testing.T, items *dohost.Collection[item], q *dohost.Query[item], result *error) *dohost.Host {
	return open(t, &dohost.Options{}, httpClass(func(p *httpObject, w http.ResponseWriter, r *http.Request) {
		if *result = items.ServeWatch(w, r, p.st.Storage(), q, nil); *result != nil {
			http.Error(w, "no watch", http.StatusInternalServerError)
		}
	}))
}

func onPage(t *testing.T, h *dohost.Host, f func(ctx context.Context, s *dohost.Storage) error) {
	t.Helper()
	err := httpObjects.Get(h, "x").Do(t.Context(), func(ctx context.Context, p *httpObject) error { return f(ctx, p.st.Storage()) })
	if err != nil {
		t.Fatal(err)
	}
	synctest.Wait()
}

// eventReader is a client of ServeWatch: it folds events, as a page does.
type eventReader struct {
	rows map[string]uint64 // versions by cursor
	id   string
	text []string
}

// read applies the events of a body. It ignores an incomplete last one.
func (e *eventReader) read(t *testing.T, body string) {
	t.Helper()
	events := strings.Split(body, "\n\n")
	for _, event := range events[:len(events)-1] {
		name, data := "", ""
		for line := range strings.Lines(event) {
			field, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ": ")
			switch field {
			case "event":
				name = value
			case "id":
				e.id = value
			case "data":
				data = value
			case "":
				name = "comment"
			}
		}
		var row struct {
			Cursor, Was, Key string
			Version          uint64
		}
		if data != "" {
			if err := json.Unmarshal([]byte(data), &row); err != nil {
				t.Fatalf("%q: %v", event, err)
			}
		}
		_, had := e.rows[row.Cursor]
		if wrong := map[string]bool{"enter": had, "exit": !had}; wrong[name] {
			t.Errorf("an impossible event: %q", event)
		}
		switch name {
		case "reset":
			e.rows = map[string]uint64{}
		case "enter", "update":
			delete(e.rows, row.Was)
			e.rows[row.Cursor] = row.Version
		case "exit":
			delete(e.rows, row.Cursor)
		}
		e.text = append(e.text, strings.TrimSpace(name+" "+row.Key))
	}
}

// text returns the received body.
func (c *client) text() string {
	_, body := c.got()
	return body
}

func (e *eventReader) took() string {
	defer func() { e.text = nil }()
	return strings.Join(e.text, " ")
}

// TestServeWatchContinuesAfterAnEviction reads the events of three connections: the incarnation ends during the
// first, and the host during the third.
func TestServeWatchContinuesAfterAnEviction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		items := itemsWith(0)
		var result error
		h := watchPage(t, items, &dohost.Query[item]{Index: "shelf", Prefix: dohost.KeyOf("x")}, &result)
		onPage(t, h, putItems(items, item{ID: "a", Shelf: "x"}, item{ID: "b", Shelf: "y"}))
		e := &eventReader{}
		connect := func() (*client, <-chan any) {
			c, r := newClient(), get(t)
			if e.id != "" {
				r.Header.Set("Last-Event-ID", e.id)
			}
			done := serve(h, c, r)
			synctest.Wait()
			return c, done
		}
		c, done := connect()
		onPage(t, h, putItems(items, item{ID: "a", Shelf: "x", N: 1}, item{ID: "b", Shelf: "x"}))
		h.Evict(httpObjects.Get(h, "x").ID(), dohost.EndFence)
		if p := <-done; p != http.ErrAbortHandler {
			t.Errorf("after the end of the incarnation the response ended with %v; want a cut connection", p)
		}
		if e.read(t, c.text()); e.took() != "reset enter a ready update a enter b" || c.header.Get("Content-Type") != "text/event-stream" {
			t.Errorf("the first connection got %q, %v", c.text(), c.header)
		}
		onPage(t, h, putItems(items, item{ID: "b", Shelf: "y"}, item{ID: "c", Shelf: "x"}))
		c, done = connect()
		if e.read(t, c.text()); e.took() != "exit b enter c ready" {
			t.Errorf("the second connection got %q", c.text())
		}
		onPage(t, h, putItems(items, item{ID: "b", Shelf: "y"})) // not in the query
		before := e.id
		time.Sleep(16 * time.Second)
		whole := c.text()
		e.read(t, whole[strings.Index(whole, ": alive"):])
		if got := e.took(); got != "comment" || e.id == before {
			t.Errorf("after 16 s: %q, id %q, before it %q", got, e.id, before)
		}
		if err := h.Close(); err != nil {
			t.Error(err)
		}
		if p := <-done; p != nil || result != nil || len(e.rows) != 2 {
			t.Errorf("after Close the response ended with %v, ServeWatch returned %v, and the rows are %v", p, result, e.rows)
		}
	})
}

// TestServeWatchErrorBeforeAnEvent leaves the answer to the handler.
func TestServeWatchErrorBeforeAnEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		items := itemsWith(0)
		var result error
		h := watchPage(t, items, &dohost.Query[item]{Limit: 1}, &result)
		c := newClient()
		if p := <-serve(h, c, get(t)); p != nil || !errors.Is(result, dohost.ErrMisuse) || c.status != http.StatusInternalServerError {
			t.Errorf("status %d, %q, %v, %v", c.status, c.text(), result, p)
		}
	})
}

// TestServeWatchSlowClient has a client that reads nothing, while the object writes more than the feed keeps. The object
// serves others. When the client reads, it gets the rows again.
func TestServeWatchSlowClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		items := itemsWith(10)
		var result error
		h := watchPage(t, items, nil, &result)
		c := newClient()
		c.clear = make(chan struct{})
		done := serve(h, c, get(t))
		synctest.Wait()
		for n := range 100 {
			onPage(t, h, putItems(items, item{ID: "a", N: n, Pad: strings.Repeat("p", 50<<10)}))
		}
		onPage(t, h, putItems(items, item{ID: "b"}))
		close(c.clear)
		synctest.Wait()
		if n := len(c.text()); n > 1<<20 {
			t.Errorf("the client got %d bytes: the host kept changes for it", n)
		}
		e := &eventReader{}
		e.read(t, c.text())
		if fmt.Sprint(e.rows) != fmt.Sprint(map[string]uint64{"YQ": 100, "Yg": 1}) {
			t.Errorf("the client has the rows %v", e.rows)
		}
		h.Close()
		<-done
	})
}
