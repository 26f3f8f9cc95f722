package streams

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dohost/dohost/dohosttest"
)

// reading is a request of a live reader in another goroutine.
type reading struct {
	w      *httptest.ResponseRecorder
	client *dohosttest.Client
}

func startReading(h *dohosttest.Host, s http.Handler, path string) *reading {
	r := &reading{}
	r.client = h.Client(func(ctx context.Context) error {
		r.w = serveContext(ctx, s, "GET", path, "")
		return nil
	})
	return r
}

// response waits for the response.
func (r *reading) response(t *testing.T) *httptest.ResponseRecorder {
	t.Helper()
	if err := r.client.Wait(); err != nil {
		t.Fatal(err)
	}
	return r.w
}

// TestReadersThatWaitHoldNoObject has a long poll and a response of events that wait while the object leaves memory, and then get data.
func TestReadersThatWaitHoldNoObject(t *testing.T) {
	run(t, func(t *testing.T, h *dohosttest.Host) {
		s := Server(h.Host(), &ServerOptions{LongPoll: time.Hour, EventStream: time.Hour})
		serve(s, "PUT", "a", "old", plain)
		poll, events := startReading(h, s, "a?offset=now&live=long-poll"), startReading(h, s, "a?offset=now&live=sse")
		h.Advance(5 * time.Minute)
		if h.Host().IsLive(Streams.Get(h, "a").ID()) {
			t.Error("the readers keep the object in memory")
		}
		serve(s, "POST", "a", "new", plain, closeIt)
		w := poll.response(t)
		if w.Code != 200 || w.Body.String() != "new" || w.Header().Get("Stream-Closed") != "true" {
			t.Errorf("long poll: %s", summary(w))
		}
		body := events.response(t).Body.String()
		data, controls := parseEvents(t, body)
		if data != "new" || len(controls) != 2 || !controls[0].UpToDate || controls[0].Cursor == "" || controls[0].Closed || !controls[1].Closed {
			t.Errorf("events: %q, %+v", data, controls)
		}
		if n := strings.Count(body, ": alive\n\n"); n != 19 && n != 20 {
			t.Errorf("%d heartbeats in 5 minutes", n)
		}
	})
}

// parseEvents returns the data and the control events of a response, as a client decodes them.
func parseEvents(t *testing.T, body string) (data string, controls []control) {
	t.Helper()
	for event := range strings.SplitSeq(strings.TrimSuffix(body, "\n\n"), "\n\n") {
		name, lines := "", []string(nil)
		for line := range strings.SplitSeq(event, "\n") {
			field, value, _ := strings.Cut(line, ":")
			switch value = strings.TrimPrefix(value, " "); field {
			case "event":
				name = value
			case "data":
				lines = append(lines, value)
			}
		}
		switch text := strings.Join(lines, "\n"); name {
		case "data":
			data += text
		case "control":
			var c control
			if err := json.Unmarshal([]byte(text), &c); err != nil {
				t.Errorf("control %q: %v", text, err)
			}
			controls = append(controls, c)
		}
	}
	return data, controls
}

// TestLongPollEndsWithoutData waits, and continues at the offset and the cursor of the response.
func TestLongPollEndsWithoutData(t *testing.T) {
	run(t, func(t *testing.T, h *dohosttest.Host) {
		s := Server(h.Host(), nil)
		serve(s, "PUT", "a", "old", plain)
		begun := time.Now()
		w := serve(s, "GET", "a?offset=now&live=long-poll", "")
		if took := time.Since(begun); took != 20*time.Second || summary(w) != "204 up-to-date" {
			t.Errorf("%s after %v", summary(w), took)
		}
		next, cursor := w.Header().Get("Stream-Next-Offset"), w.Header().Get("Stream-Cursor")
		again := startReading(h, s, "a?offset="+next+"&live=long-poll&cursor="+cursor)
		h.Advance(time.Second)
		serve(s, "POST", "a", "x", plain)
		w = again.response(t)
		before, _ := strconv.Atoi(cursor)
		after, err := strconv.Atoi(w.Header().Get("Stream-Cursor"))
		if summary(w) != "200 text/plain up-to-date: x" || err != nil || after <= before {
			t.Errorf("%s, cursor %d after %d, %v", summary(w), after, before, err)
		}
	})
}

// TestEventsContainTheData has data with all ends of lines, and bytes.
func TestEventsContainTheData(t *testing.T) {
	run(t, func(t *testing.T, h *dohosttest.Host) {
		s := Server(h.Host(), nil)
		const lines = " a\n b\r\nevent: data\ndata: x\r\rd\n\nevent: control\n"
		for contentType, body := range map[string]string{"text/plain": lines, "application/json": `[" a\n", 2]`, "application/octet-stream": lines + "\x00\xff"} {
			path := strings.ReplaceAll(contentType, "/", "-")
			serve(s, "PUT", path, body, "Content-Type: "+contentType, closeIt)
			w := serve(s, "GET", path+"?offset=-1&live=sse", "")
			data, controls := parseEvents(t, w.Body.String())
			want := map[string]string{
				"text/plain":               strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(lines),
				"application/json":         `[" a\n",2]`,
				"application/octet-stream": base64.StdEncoding.EncodeToString([]byte(body)),
			}[contentType]
			if data != want || len(controls) != 1 || !controls[0].Closed {
				t.Errorf("%s: %q, %+v; want %q", contentType, data, controls, want)
			}
			if base64 := w.Header().Get("Stream-SSE-Data-Encoding") == "base64"; base64 != (contentType == "application/octet-stream") {
				t.Errorf("%s: base64 is %v", contentType, base64)
			}
		}
	})
}

// TestEventsEnd has the ends of responses of events: their time, the deletion of the stream, and the end of the host.
func TestEventsEnd(t *testing.T) {
	run(t, func(t *testing.T, h *dohosttest.Host) {
		s := Server(h.Host(), nil)
		for _, end := range []func() time.Duration{
			func() time.Duration { return time.Minute },
			func() time.Duration { h.Advance(5 * time.Second); serve(s, "DELETE", "a", ""); return 5 * time.Second },
			func() time.Duration {
				h.Advance(7 * time.Second)
				if err := h.Restart(); err != nil {
					t.Error(err)
				}
				return 7 * time.Second
			},
		} {
			serve(s, "PUT", "a", "", plain)
			begun := time.Now()
			events, poll := startReading(h, s, "a?offset=-1&live=sse"), startReading(h, s, "a?offset=-1&live=long-poll")
			want := end()
			w := events.response(t)
			if took := time.Since(begun); w.Code != 200 || took != want {
				t.Errorf("status %d after %v, want 200 after %v", w.Code, took, want)
			}
			if w := poll.response(t); w.Code != 204 && w.Code != 404 {
				t.Errorf("long poll: %s", summary(w))
			}
			s = Server(h.Host(), nil)
		}
	})
}

// TestReadersThatAreLiveAreBounded has one reader too many.
func TestReadersThatAreLiveAreBounded(t *testing.T) {
	run(t, func(t *testing.T, h *dohosttest.Host) {
		s := Server(h.Host(), &ServerOptions{MaxWaiting: 2})
		serve(s, "PUT", "a", "", plain)
		first, second := startReading(h, s, "a?offset=-1&live=long-poll"), startReading(h, s, "a?offset=-1&live=sse")
		h.Advance(time.Second)
		if w := serve(s, "GET", "a?offset=-1&live=sse", ""); summary(w) != "429 too_many_readers" {
			t.Error(summary(w))
		}
		first.response(t)
		second.response(t)
		if w := serve(s, "GET", "a?offset=-1&live=long-poll", ""); w.Code != 204 {
			t.Errorf("after the others: %s", summary(w))
		}
	})
}

// TestReadersShareReads has many readers that come while a read runs: one read serves all of them, and begins after they have come.
func TestReadersShareReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, reads := newSharedReads(), 0
		read := func(context.Context) (*page, error) {
			reads++
			p := &page{Next: fmt.Sprint(reads)}
			time.Sleep(time.Minute)
			return p, nil
		}
		results := make(chan string, 200)
		reader := func(ctx context.Context) {
			p, err := s.do(ctx, "key", read)
			if err != nil {
				results <- err.Error()
				return
			}
			results <- p.Next
		}
		leaving, cancel := context.WithCancelCause(t.Context())
		go reader(t.Context())
		time.Sleep(time.Second)
		for i := range 99 {
			ctx := t.Context()
			if i%3 == 0 {
				ctx = leaving
			}
			go reader(ctx)
		}
		time.Sleep(time.Second)
		cancel(errors.New("left"))
		time.Sleep(3 * time.Minute)
		got := map[string]int{}
		for range 100 {
			got[<-results]++
		}
		if got["1"] != 1 || got["2"] != 66 || got["left"] != 33 || reads != 2 {
			t.Errorf("%v in %d reads", got, reads)
		}
		// A reader leaves although it may read.
		for range 50 {
			_, _ = s.do(leaving, "key", func(context.Context) (*page, error) { return &page{}, nil })
		}
		if len(s.groups) > 0 {
			t.Fatal("a group without members is left")
		}
		// All readers of a group leave before its read begins.
		go reader(t.Context())
		time.Sleep(time.Second)
		gone, cancel := context.WithCancelCause(t.Context())
		go reader(gone)
		time.Sleep(time.Second)
		cancel(errors.New("left"))
		time.Sleep(2 * time.Minute)
		reader(t.Context())
		if a, b, c := <-results, <-results, <-results; a != "left" || b != "3" || c != "4" || len(s.groups) > 0 {
			t.Errorf("%q, %q, %q, %d groups", a, b, c, len(s.groups))
		}
	})
}

// TestReadersShareAnErrorOfAReadThatPanics has two readers that share a read that panics.
func TestReadersShareAnErrorOfAReadThatPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, results := newSharedReads(), make(chan string, 3)
		reader := func(read func(context.Context) (*page, error)) {
			defer func() {
				if p := recover(); p != nil {
					results <- fmt.Sprint(p)
				}
			}()
			_, err := s.do(t.Context(), "key", read)
			results <- fmt.Sprint(err)
		}
		go reader(func(context.Context) (*page, error) { time.Sleep(time.Minute); return &page{}, nil })
		synctest.Wait()
		for range 2 {
			go reader(func(context.Context) (*page, error) { panic("read") })
		}
		got := []string{<-results, <-results, <-results}
		slices.Sort(got)
		if !slices.Equal(got, []string{"<nil>", "read", errReadEnded.Error()}) {
			t.Errorf("%q", got)
		}
	})
}

// cutWriter is the ResponseWriter of a response that the host cuts, which is a panic.
type cutWriter struct{ *httptest.ResponseRecorder }

func (cutWriter) Write([]byte) (int, error) { panic(http.ErrAbortHandler) }

// TestReaderOfACutResponseLeaves has a live reader in each mode.
func TestReaderOfACutResponseLeaves(t *testing.T) {
	run(t, func(t *testing.T, h *dohosttest.Host) {
		s := Server(h.Host(), nil).(*server)
		serve(s, "PUT", "a", "x", plain)
		for _, live := range []string{livePoll, liveEvents} {
			func() {
				defer func() {
					if p := recover(); p != http.ErrAbortHandler {
						t.Errorf("%s: the response is not cut: %v", live, p)
					}
				}()
				s.ServeHTTP(cutWriter{httptest.NewRecorder()}, httptest.NewRequest("GET", "/v1/stream/a?offset=-1&live="+live, nil))
			}()
			if s.signals.Load().watched("a") || s.waiting.Load() > 0 {
				t.Errorf("%s: the reader has not left", live)
			}
		}
	})
}

// deadlines is a ResponseWriter that records its deadlines.
type deadlines struct {
	*httptest.ResponseRecorder
	set []time.Duration // from now; 0: none
}

func (d *deadlines) SetWriteDeadline(at time.Time) error {
	d.set = append(d.set, max(0, time.Until(at)))
	return nil
}

// TestWritesHaveDeadlines reads a page and its events. The last deadline is removed.
func TestWritesHaveDeadlines(t *testing.T) {
	run(t, func(t *testing.T, h *dohosttest.Host) {
		s := Server(h.Host(), nil)
		serve(s, "PUT", "a", strings.Repeat("x", chunkSize), plain, closeIt)
		for path, least := range map[string]int{"a": 4, "a?offset=-1&live=sse": 5} {
			w := &deadlines{ResponseRecorder: httptest.NewRecorder()}
			s.ServeHTTP(w, httptest.NewRequest("GET", "/v1/stream/"+path, nil))
			if n := len(w.set); n < least || w.set[n-1] != 0 || w.set[0] != 30*time.Second {
				t.Errorf("%s: %v", path, w.set)
			}
		}
	})
}

// TestReadersOfAStreamWithATTLKeepIt has readers that wait for longer than the TTL, and heartbeats in the meantime.
func TestReadersOfAStreamWithATTLKeepIt(t *testing.T) {
	run(t, func(t *testing.T, h *dohosttest.Host) {
		s := Server(h.Host(), nil)
		serve(s, "PUT", "poll", "", plain, "Stream-TTL: 5")
		serve(s, "PUT", "events", "", plain, "Stream-TTL: 5")
		poll, events := startReading(h, s, "poll?offset=-1&live=long-poll"), startReading(h, s, "events?offset=-1&live=sse")
		h.Advance(19 * time.Second)
		if w := serve(s, "POST", "poll", "x", plain); w.Code != 204 {
			t.Errorf("an append under a long poll: %s", summary(w))
		}
		if w := poll.response(t); summary(w) != "200 text/plain up-to-date: x" {
			t.Errorf("long poll: %s", summary(w))
		}
		h.Advance(40 * time.Second)
		if w := serve(s, "POST", "events", "x", plain); w.Code != 204 {
			t.Errorf("an append under a reader of events: %s", summary(w))
		}
		body := events.response(t).Body.String()
		if data, _ := parseEvents(t, body); data != "x" || strings.Count(body, ": alive") != 3 {
			t.Errorf("events: %q", body)
		}
		h.Advance(6 * time.Second)
		if w := serve(s, "HEAD", "poll", ""); w.Code != 404 {
			t.Errorf("without readers: %s", summary(w))
		}
	})
}

// TestReadersShareAnEvent encodes a page for two readers. The event of a page of line ends is the largest.
func TestReadersShareAnEvent(t *testing.T) {
	for contentType, most := range map[string]int{"text/plain": 6*chunkSize + 64, "application/octet-stream": chunkSize*4/3 + 64} {
		p := &page{info: info{ContentType: contentType}, Data: []byte(strings.Repeat("\n", chunkSize))}
		first, second := p.dataEvent(), p.dataEvent()
		if &first[0] != &second[0] || cap(first) > most+chunkSize {
			t.Errorf("%s: %d bytes of %d; shared: %v", contentType, len(first), cap(first), &first[0] == &second[0])
		}
	}
}

// TestETagIsOfTheHeaderToo appends after a page that was up to date.
func TestETagIsOfTheHeaderToo(t *testing.T) {
	run(t, func(t *testing.T, h *dohosttest.Host) {
		s := Server(h.Host(), nil)
		serve(s, "PUT", "a", strings.Repeat("x", chunkSize), plain)
		first := serve(s, "GET", "a?offset=-1", "")
		serve(s, "POST", "a", "more", plain)
		w := serve(s, "GET", "a?offset=-1", "", "If-None-Match: "+first.Header().Get("ETag"))
		if first.Header().Get("Stream-Up-To-Date") == "" || w.Code != 200 || w.Header().Get("Stream-Up-To-Date") != "" {
			t.Errorf("%v, then %d %v", first.Header(), w.Code, w.Header())
		}
	})
}
