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

	"pgregory.net/rapid"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/internal/kernel"
	"github.com/dohost/dohost/objectstore"
)

// task and label are the rows of the tests.
type (
	task struct {
		ID   string `json:"-"`
		N    int    `json:"n"`
		TxID string `json:"-"`
		Pad  string `json:"pad,omitempty"`
	}
	label struct {
		ID   string `json:"id"`
		Text string `json:"text"`
	}
)

// board is an object with a feed of two collections.
type board struct {
	store  *dohost.Storage
	tasks  *dohost.Collection[task]
	labels *dohost.Collection[label]
}

const boards dohost.Namespace[board] = "board"

var boardID = dohost.ID{Class: string(boards), Name: "a"}

// boardsWith returns the collections with a feed, and the class. keep is the Keep of the feed.
func boardsWith(keep int, o *FeedOptions) (*board, dohost.Class) {
	feed := &dohost.Feed{Name: "board", Values: true, Keep: keep}
	b := &board{
		tasks:  &dohost.Collection[task]{Name: "tasks", Key: func(t task) string { return t.ID }, Feed: feed},
		labels: &dohost.Collection[label]{Name: "labels", Key: func(l label) string { return l.ID }, Feed: feed},
	}
	return b, dohost.Bind(boards, func(_ context.Context, st *dohost.State) (*board, error) {
		return &board{st.Storage(), b.tasks, b.labels}, nil
	}, &dohost.Handlers[board]{OnHTTP: func(b *board, w http.ResponseWriter, r *http.Request) {
		tasks := Rows(b.tasks, &RowsOptions[task]{Type: "task", TxID: func(t task) string { return t.TxID }})
		if err := ServeFeed(w, r, b.store, o, tasks, Rows(b.labels, nil)); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
		}
	}})
}

// feedClient keeps the rows that the events make, and refuses events that are impossible: the rows must be exact after each page.
type feedClient struct {
	offset   string
	rows     map[string]string // JSON, by type and key
	upToDate bool
	resets   int
	pages    int
	inserts  int
	changes  int
}

// feedEvent is a decoded event.
type feedEvent struct {
	Type, Key string
	Value     json.RawMessage
	Headers   struct{ Operation, TxID string }
}

func (c *feedClient) apply(events []feedEvent) error {
	for _, e := range events {
		key := e.Type + " " + e.Key
		had, ok := c.rows[key]
		switch {
		case e.Headers.Operation == "insert" && ok, e.Headers.Operation != "insert" && !ok:
			return fmt.Errorf("%s of %s, which was %q (%t)", e.Headers.Operation, key, had, ok)
		case e.Headers.Operation == "delete":
			delete(c.rows, key)
		default:
			c.rows[key] = string(e.Value)
		}
		if e.Headers.Operation == "insert" {
			c.inserts++
		} else {
			c.changes++
		}
	}
	return nil
}

// read requests the next page.
func (c *feedClient) read(ctx context.Context, h *dohost.Host) error {
	if c.rows == nil {
		c.rows, c.offset = map[string]string{}, "-1"
	}
	w := httptest.NewRecorder()
	h.ServeObject(w, httptest.NewRequestWithContext(ctx, http.MethodGet, "/?offset="+c.offset, nil), boardID)
	switch w.Code {
	case http.StatusOK:
	case http.StatusGone:
		c.resets++
		c.rows, c.upToDate = nil, false
		return nil
	default:
		return fmt.Errorf("%d %s", w.Code, w.Body)
	}
	var events []feedEvent
	if err := json.Unmarshal(w.Body.Bytes(), &events); err != nil {
		return fmt.Errorf("%w: %s", err, w.Body)
	}
	next := w.Header().Get("Stream-Next-Offset")
	if c.pages++; c.offset != "-1" && (next < c.offset || next == c.offset && len(events) > 0) {
		return fmt.Errorf("the offset %s follows %s", next, c.offset)
	}
	c.offset, c.upToDate = next, w.Header().Get("Stream-Up-To-Date") == "true"
	return c.apply(events)
}

// feedModel is an object, its rows, and clients.
type feedModel struct {
	h       *dohost.Host
	fs      *objectstore.FS
	b       *board
	rows    map[string]string
	clients []*feedClient
	n       int
	// mayReset reports that the feed may lack changes: they were trimmed, or there was a DeleteAll.
	mayReset bool
}

func (m *feedModel) do(ctx context.Context, f func(ctx context.Context, b *board) error) error {
	return boards.Get(m.h, "a").Do(ctx, f)
}

func (m *feedModel) edit(ctx context.Context, t *rapid.T, b *board) error {
	m.n++
	id := fmt.Sprintf("%03d", rapid.IntRange(0, 400).Draw(t, "id"))
	if rapid.IntRange(0, 3).Draw(t, "label") == 0 {
		l := label{ID: id, Text: fmt.Sprint(m.n)}
		m.rows["labels "+id] = fmt.Sprintf(`{"id":%q,"text":%q}`, l.ID, l.Text)
		return b.labels.Put(ctx, b.store, l)
	}
	if rapid.IntRange(0, 2).Draw(t, "delete") == 0 {
		delete(m.rows, "task "+id)
		_, err := b.tasks.Delete(ctx, b.store, id)
		return err
	}
	m.rows["task "+id] = fmt.Sprintf(`{"n":%d}`, m.n)
	return b.tasks.Put(ctx, b.store, task{ID: id, N: m.n})
}

// write makes edits in one batch. With held, it returns before they are durable, and a client reads in the meantime.
func (m *feedModel) write(ctx context.Context, t *rapid.T, held bool) {
	edits := rapid.IntRange(1, 60).Draw(t, "edits")
	done := make(chan error, 1)
	release := func() {}
	if held {
		release = m.fs.HoldSyncs()
		defer release() // also if a draw panics
	}
	go func() {
		done <- m.do(ctx, func(ctx context.Context, b *board) error {
			for range edits {
				if err := m.edit(ctx, t, b); err != nil {
					return err
				}
			}
			return nil
		})
	}()
	synctest.Wait()
	read := make(chan error, 1)
	if held && len(m.clients) > 0 {
		go func() { read <- m.clients[0].read(ctx, m.h) }()
		synctest.Wait()
	} else {
		close(read)
	}
	release()
	if err := errors.Join(<-done, <-read); err != nil {
		t.Fatal(err)
	}
}

// catchUp reads until the client has everything, and compares its rows.
func (m *feedModel) catchUp(ctx context.Context, t *rapid.T, c *feedClient) {
	for range 1000 {
		if err := c.read(ctx, m.h); err != nil {
			t.Fatal(err)
		}
		if c.upToDate {
			if c.resets > 0 && !m.mayReset {
				t.Fatalf("%d resets without a reason", c.resets)
			}
			if fmt.Sprint(c.rows) != fmt.Sprint(m.rows) {
				t.Fatalf("at %s the rows are %v; want %v", c.offset, c.rows, m.rows)
			}
			return
		}
	}
	t.Fatal("a client that reads a thousand pages does not have everything")
}

func (m *feedModel) actions(ctx context.Context) map[string]func(*rapid.T) {
	read := func(t *rapid.T) {
		for _, c := range m.clients {
			if rapid.Bool().Draw(t, "reads") {
				if err := c.read(ctx, m.h); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	return map[string]func(*rapid.T){
		"write": func(t *rapid.T) { m.write(ctx, t, false) }, "held": func(t *rapid.T) { m.write(ctx, t, true) },
		"read": read, "read ": read, "read  ": read,
		"join": func(*rapid.T) { m.clients = append(m.clients, &feedClient{}) },
		"deleteAll": func(t *rapid.T) {
			if rapid.IntRange(0, 4).Draw(t, "really") > 0 {
				return
			}
			clear(m.rows)
			m.mayReset = true
			if err := m.do(ctx, func(ctx context.Context, b *board) error { return b.store.DeleteAll(ctx) }); err != nil {
				t.Fatal(err)
			}
		},
		"evict": func(*rapid.T) { m.h.Evict(boardID, dohost.EndFence) },
		"catch up": func(t *rapid.T) {
			for _, c := range m.clients {
				m.catchUp(ctx, t, c)
			}
		},
	}
}

// TestFeedModel lets clients read pages between drawn writes, also such that are not durable. Each client has exactly the rows that its
// offset covers, so no event is impossible, and at the end of the feed it has all rows.
func TestFeedModel(t *testing.T) {
	var total feedClient
	checks := 0
	synctest.Test(t, func(t *testing.T) {
		rapid.Check(struct{ rapid.TB }{t}, func(rt *rapid.T) { // a bubble has no Deadline
			checks++
			m := &feedModel{fs: objectstore.NewMemFS(), rows: map[string]string{}}
			keep := rapid.SampledFrom([]int{0, 0, 20, 300}).Draw(rt, "keep")
			b, class := boardsWith(keep, &FeedOptions{pageRows: rapid.SampledFrom([]int{3, 10, 0}).Draw(rt, "page")})
			m.b, m.mayReset = b, keep > 0
			m.h = openHost(t, m.fs, class)
			defer m.h.Close()
			rt.Repeat(m.actions(t.Context()))
			m.clients = append(m.clients, &feedClient{})
			for _, c := range m.clients {
				m.catchUp(t.Context(), rt, c)
				total.pages, total.resets = total.pages+c.pages, total.resets+c.resets
				total.inserts, total.changes = total.inserts+c.inserts, total.changes+c.changes
			}
		})
	})
	t.Logf("%d checks, %d pages, %d inserts, %d other changes, %d resets", checks, total.pages, total.inserts, total.changes, total.resets)
	if !t.Failed() && (total.pages < 10*checks || total.changes == 0 || total.resets == 0) {
		t.Error("hardly any page was read, or no change or reset occurred")
	}
}

// openHost opens a host in a bubble.
func openHost(t *testing.T, fs *objectstore.FS, classes ...dohost.Class) *dohost.Host {
	h, err := dohost.Open("data", kernel.OnFS(&dohost.Options{}, fs), classes...)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// TestPlaceTexts decodes and compares offsets.
func TestPlaceTexts(t *testing.T) {
	place1 := rapid.Custom(func(t *rapid.T) place {
		p := place{At: dohost.Position{Log: rapid.SampledFrom([]string{"", "01J0C1WSC8TZQ0QH1R6Z8B4M7K"}).Draw(t, "log"), Offset: rapid.Uint64().Draw(t, "offset")}}
		if p.Listed = rapid.Bool().Draw(t, "listed"); !p.Listed {
			p.Source = rapid.IntRange(0, maxSources-1).Draw(t, "source")
			p.After = dohost.Cursor(rapid.String().Draw(t, "after"))
		}
		return p
	})
	rapid.Check(t, func(t *rapid.T) {
		p, q := place1.Draw(t, "p"), place1.Draw(t, "q")
		if got, ok := parsePlace(p.String()); !ok || got != p {
			t.Fatalf("%+v becomes %+v, %t", p, got, ok)
		}
		q.At = p.At
		if !p.Listed && (q.Listed || q.Source > p.Source || q.Source == p.Source && q.After > p.After) && q.String() <= p.String() {
			t.Fatalf("%+v is not before %+v", p, q)
		}
		if q.At.Offset = p.At.Offset + 1; q.At.Offset != 0 && q.String() <= p.String() {
			t.Fatalf("%+v is not before %+v", p, q)
		}
		bad := p.String() + rapid.SampledFrom([]string{"_", "0", "z", "_z"}).Draw(t, "more")
		if got, ok := parsePlace(bad); ok && got.String() != bad {
			t.Fatalf("%q is accepted", bad)
		}
	})
	for _, bad := range []string{"", "_", "__", "_0_y", "x", "_00_z", strings.Repeat("_", 9), "0_10_z_", "0_10_10_!", "1_10_z"} {
		if p, ok := parsePlace(bad); ok {
			t.Errorf("%q is accepted as %+v", bad, p)
		}
	}
}
