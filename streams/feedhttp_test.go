package streams

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/dohosttest"
	"github.com/dohost/dohost/internal/pointtest"
	"github.com/dohost/dohost/objectstore"
)

// boardTest is a host with boards.
type boardTest struct {
	*testing.T
	h *dohost.Host
	b *board
}

// inBoards runs f with a host of boards. keep is the Keep of their feed.
func inBoards(t *testing.T, keep int, o *FeedOptions, f func(t *boardTest)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b, class := boardsWith(keep, o)
		h := openHost(t, objectstore.NewMemFS(), class)
		defer h.Close()
		f(&boardTest{t, h, b})
	})
}

func (t *boardTest) do(f func(ctx context.Context, b *board) error) {
	t.Helper()
	if err := boards.Get(t.h, "a").Do(t.Context(), f); err != nil {
		t.Fatal(err)
	}
}

func (t *boardTest) put(tasks ...task) {
	t.Helper()
	t.do(func(ctx context.Context, b *board) error {
		for _, row := range tasks {
			if err := b.tasks.Put(ctx, b.store, row); err != nil {
				return err
			}
		}
		return nil
	})
}

// get requests the feed. If the host cuts the connection, the status is that of the part that was sent.
func (t *boardTest) get(ctx context.Context, method, query string) (w *httptest.ResponseRecorder) {
	w = httptest.NewRecorder()
	defer func() {
		if p := recover(); p != nil && p != http.ErrAbortHandler {
			panic(p)
		}
	}()
	t.h.ServeObject(w, httptest.NewRequestWithContext(ctx, method, "/"+query, nil), boardID)
	return w
}

// offsetOf returns the offset of the next read.
func offsetOf(w *httptest.ResponseRecorder) string { return w.Header().Get("Stream-Next-Offset") }

func TestFeedEvents(t *testing.T) {
	inBoards(t, 0, nil, func(t *boardTest) {
		t.put(task{ID: "a", N: 1, TxID: "t1"}, task{ID: "b", N: 2})
		t.do(func(ctx context.Context, b *board) error { return b.labels.Put(ctx, b.store, label{"x", "red"}) })
		first := t.get(t.Context(), "GET", "?offset=-1")
		want := `[{"type":"task","key":"a","value":{"n":1},"headers":{"operation":"insert","txid":"t1"}},` +
			`{"type":"task","key":"b","value":{"n":2},"headers":{"operation":"insert"}}]`
		if first.Body.String() != want || first.Header().Get("Stream-Up-To-Date") != "" || first.Header().Get("Content-Type") != "application/json" {
			t.Errorf("%v %s", first.Header(), first.Body)
		}
		second := t.get(t.Context(), "GET", "?offset="+offsetOf(first))
		if want := `[{"type":"labels","key":"x","value":{"id":"x","text":"red"},"headers":{"operation":"insert"}}]`; second.Body.String() != want ||
			second.Header().Get("Stream-Up-To-Date") != "true" {
			t.Errorf("%v %s", second.Header(), second.Body)
		}
		t.put(task{ID: "a", N: 3, TxID: "t2"})
		t.do(func(ctx context.Context, b *board) error {
			_, err := b.tasks.Delete(ctx, b.store, "b")
			return err
		})
		third := t.get(t.Context(), "GET", "?offset="+offsetOf(second))
		want = `[{"type":"task","key":"a","value":{"n":3},"headers":{"operation":"update","txid":"t2"}},` +
			`{"type":"task","key":"b","headers":{"operation":"delete"}}]`
		if third.Body.String() != want {
			t.Errorf("%s", third.Body)
		}
		if w := t.get(t.Context(), "GET", "?offset=now"); w.Body.String() != "[]" || offsetOf(w) != offsetOf(third) {
			t.Errorf("now: %s at %s, want %s", w.Body, offsetOf(w), offsetOf(third))
		}
		if w := t.get(t.Context(), "HEAD", ""); w.Code != 200 || w.Body.Len() != 0 || offsetOf(w) != offsetOf(third) {
			t.Errorf("HEAD: %d, %s at %s", w.Code, w.Body, offsetOf(w))
		}
	})
}

func TestFeedRefusals(t *testing.T) {
	inBoards(t, 3, nil, func(t *boardTest) {
		t.put(task{ID: "a", N: 1})
		old := offsetOf(t.get(t.Context(), "GET", ""))
		for n := range 9 {
			t.put(task{ID: "a", N: n})
		}
		for _, c := range []struct {
			method, query string
			status        int
			text          string
		}{
			{"POST", "", 405, "want GET or HEAD"},
			{"GET", "?offset=x", 400, "want an offset of this server, -1 or now"},
			{"GET", "?offset=0_10_1164_", 400, "want an offset of this server"}, // of a source that does not exist
			{"GET", "?live=sse", 400, "want an offset with live"},
			{"GET", "?offset=-1&live=often", 400, "want live=long-poll or live=sse"},
			{"GET", "?offset=-1&offset=-1", 400, "want offset once"},
			{"GET", "?offset=" + old, 410, "read all rows, from -1"},
			{"GET", "?live=sse&offset=" + old, 410, "read all rows, from -1"},
			{"GET", "?live=long-poll&offset=" + old, 410, "read all rows, from -1"},
		} {
			w := t.get(t.Context(), c.method, c.query)
			var body dohost.ErrorBody
			err := json.Unmarshal(w.Body.Bytes(), &body)
			if w.Code != c.status || !strings.Contains(body.Message, c.text) || body.Ran != "no" || err != nil {
				t.Errorf("%s %s: %d %s, %v", c.method, c.query, w.Code, w.Body, err)
			}
		}
		now := offsetOf(t.get(t.Context(), "GET", "?offset=now"))
		t.do(func(ctx context.Context, b *board) error { return b.store.DeleteAll(ctx) })
		if w := t.get(t.Context(), "GET", "?offset="+now); w.Code != 410 {
			t.Errorf("after a DeleteAll: %d %s", w.Code, w.Body)
		}
	})
}

// TestFeedOfWrongSources calls ServeFeed with sources that it cannot serve.
func TestFeedOfWrongSources(t *testing.T) {
	feed, other, bare := &dohost.Feed{Name: "f", Values: true}, &dohost.Feed{Name: "g", Values: true}, &dohost.Feed{Name: "f"}
	of := func(name string, f *dohost.Feed) Source {
		return Rows(&dohost.Collection[label]{Name: name, Key: func(l label) string { return l.ID }, Feed: f}, nil)
	}
	many := make([]Source, maxSources+1)
	for i := range many {
		many[i] = of(fmt.Sprint(i), feed)
	}
	for want, sources := range map[string][]Source{
		"has 0 sources: want 1 to 64":       {},
		"has 65 sources":                    many,
		`"a" has no Feed with Values`:       {of("a", nil)},
		`"b" has no Feed with Values`:       {of("a", feed), of("b", bare)},
		`"a" and "b" have different feeds`:  {of("a", feed), of("b", other)},
		`the collection "a" is there twice`: {of("a", feed), of("b", feed), of("a", feed)},
	} {
		err := ServeFeed(httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), "GET", "/", nil), nil, nil, sources...)
		if !errors.Is(err, dohost.ErrMisuse) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v; want %s", err, want)
		}
	}
}

// TestFeedOfUnreadableRows has a key that is no text, and then a change with such a key.
func TestFeedOfUnreadableRows(t *testing.T) {
	inBoards(t, 0, nil, func(t *boardTest) {
		now := offsetOf(t.get(t.Context(), "GET", "?offset=now"))
		t.put(task{ID: "a\xff"})
		for _, offset := range []string{"-1", now} {
			if w := t.get(t.Context(), "GET", "?offset="+offset); w.Code != 500 || !strings.Contains(w.Body.String(), `"a\xff" of a "task" is empty or not UTF-8`) {
				t.Errorf("from %s: %d %s", offset, w.Code, w.Body)
			}
		}
	})
}

func TestFeedLongPoll(t *testing.T) {
	inBoards(t, 0, nil, func(t *boardTest) {
		at := offsetOf(t.get(t.Context(), "GET", "?offset=now"))
		begun := time.Now()
		w := t.get(t.Context(), "GET", "?live=long-poll&offset="+at)
		if took := time.Since(begun); w.Code != 204 || took != 20*time.Second || offsetOf(w) != at || w.Header().Get("Stream-Cursor") == "" {
			t.Errorf("%d after %v, %v", w.Code, took, w.Header())
		}
		done := make(chan *httptest.ResponseRecorder)
		go func() { done <- t.get(t.Context(), "GET", "?live=long-poll&offset="+at) }()
		time.Sleep(time.Second)
		t.put(task{ID: "a", N: 1})
		if w := <-done; w.Code != 200 || !strings.Contains(w.Body.String(), `"key":"a"`) || w.Header().Get("Stream-Up-To-Date") != "true" {
			t.Errorf("%d %s, %v", w.Code, w.Body, w.Header())
		}
	})
}

// TestFeedSSE reads rows and a change as server-sent events.
func TestFeedSSE(t *testing.T) {
	inBoards(t, 0, nil, func(t *boardTest) {
		t.put(task{ID: "a", N: 1})
		done := make(chan *httptest.ResponseRecorder)
		begun := time.Now()
		go func() { done <- t.get(t.Context(), "GET", "?live=sse&offset=-1") }()
		time.Sleep(20 * time.Second)
		t.put(task{ID: "b", N: 2})
		w := <-done
		text := w.Body.String()
		rows, change := strings.Index(text, `"key":"a"`), strings.Index(text, `"key":"b"`)
		if took := time.Since(begun); took != time.Minute || w.Header().Get("Content-Type") != "text/event-stream" || rows < 0 || change < rows ||
			strings.Count(text, "event: data\n") != 2 || strings.Count(text, "event: control\n") != 3 || strings.Count(text, ": alive") != 3 ||
			strings.Count(text, `"upToDate":true`) != 2 {
			t.Errorf("after %v: %s", took, text)
		}
	})
}

// TestFeedReadersEndWithTheirClientAndHost has live readers whose client leaves, and others when the host closes.
func TestFeedReadersEndWithTheirClientAndHost(t *testing.T) {
	inBoards(t, 0, nil, func(t *boardTest) {
		for _, live := range []string{"sse", "long-poll"} {
			at := offsetOf(t.get(t.Context(), "GET", "?offset=now"))
			ctx, leave := context.WithCancel(t.Context())
			done := make(chan *httptest.ResponseRecorder)
			go func() { done <- t.get(ctx, "GET", "?live="+live+"&offset="+at) }()
			time.Sleep(time.Second)
			begun := time.Now()
			leave()
			<-done
			if took := time.Since(begun); took > 0 {
				t.Errorf("%s: %v after the client has left", live, took)
			}
		}
		done := make(chan *httptest.ResponseRecorder, 2)
		for _, live := range []string{"sse", "long-poll"} {
			go func() { done <- t.get(t.Context(), "GET", "?offset=now&live="+live) }()
		}
		time.Sleep(time.Second)
		begun := time.Now()
		if err := t.h.Close(); err != nil {
			t.Error(err)
		}
		a, b := <-done, <-done
		if took := time.Since(begun); took > 0 || a.Code+b.Code != 404 {
			t.Errorf("the readers ended with %d and %d, %v after the host began to close", a.Code, b.Code, took)
		}
	})
}

// TestFeedReadersAreBounded begins more live readers than an object may have.
func TestFeedReadersAreBounded(t *testing.T) {
	inBoards(t, 0, nil, func(t *boardTest) {
		refused := make(chan *httptest.ResponseRecorder, 1)
		for n := range 257 {
			ctx, leave := context.WithCancel(t.Context())
			defer leave()
			go func() {
				if w := t.get(ctx, "GET", "?offset=now&live=long-poll"); n == 256 {
					refused <- w
				}
			}()
			synctest.Wait()
		}
		if w := <-refused; w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") == "" {
			t.Errorf("%d %s", w.Code, w.Body)
		}
		t.put(task{ID: "a"}) // the object has room for other calls
	})
}

// TestFeedAtEveryPoint ends a board while a client reads its rows and changes. The client, which outlives the board, has exactly
// the rows that its offset covers, and all rows at the end.
func TestFeedAtEveryPoint(t *testing.T) {
	b, class := boardsWith(0, &FeedOptions{LongPoll: 300 * time.Millisecond})
	var c *feedClient
	dohosttest.EveryPoint(t, pointtest.Scenario(dohosttest.Scenario{
		FullDisk: true,
		Classes:  []dohost.Class{class},
		Reset:    func() { c = &feedClient{} },
		Run: func(ctx context.Context, h *dohosttest.Host) error {
			writer := h.Client(func(ctx context.Context) error {
				for n := range 4 {
					err := dohost.Retry(ctx, &dohost.RetryPolicy{ShouldRetry: pointtest.RetryIdempotent}, func(ctx context.Context) error {
						return boards.Get(h, "a").Do(ctx, func(ctx context.Context, o *board) error {
							_, err := b.tasks.Delete(ctx, o.store, fmt.Sprint("t", n-2))
							return errors.Join(err, b.tasks.Put(ctx, o.store, task{ID: fmt.Sprint("t", n), N: n}),
								b.labels.Put(ctx, o.store, label{"x", fmt.Sprint(n)}))
						})
					})
					if err != nil {
						return err
					}
					time.Sleep(100 * time.Millisecond)
				}
				return nil
			})
			for range 20 {
				if err := c.read(ctx, h.Host()); err != nil && !strings.HasPrefix(err.Error(), "50") {
					return err
				}
				time.Sleep(50 * time.Millisecond)
			}
			return writer.Wait()
		},
		Check: func(ctx context.Context, h *dohosttest.Host) error {
			for range 10 {
				if err := c.read(ctx, h.Host()); err != nil {
					return err
				}
			}
			want := map[string]string{"task t2": `{"n":2}`, "task t3": `{"n":3}`, "labels x": `{"id":"x","text":"3"}`}
			if fmt.Sprint(c.rows) != fmt.Sprint(want) || c.resets > 0 {
				return fmt.Errorf("the client has %v after %d resets, want %v", c.rows, c.resets, want)
			}
			return nil
		},
	}, 30, 60))
}
