package streams

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// The values of the query parameter live.
const (
	livePoll   = "long-poll"
	liveEvents = "sse"
)

// readQuery is the query of a GET.
type readQuery struct {
	offset, live string
	cursor       int64 // of an earlier response; 0: none
	read         readRequest
}

// queryOf decodes the query of a GET. parse decodes an offset that the protocol does not reserve. want is the reason if it cannot.
func queryOf(raw string, parse func(offset string) bool) (q readQuery, want string) {
	values, err := url.ParseQuery(raw)
	if err != nil {
		return q, "a query"
	}
	for _, field := range []string{"offset", "live", "cursor"} {
		if len(values[field]) > 1 {
			return q, field + " once"
		}
	}
	q.offset, q.live = values.Get("offset"), values.Get("live")
	q.cursor, _ = integer(values.Get("cursor"), maxCursor) // another text is no cursor of this server
	switch {
	case q.live != "" && q.live != livePoll && q.live != liveEvents:
		return q, "live=long-poll or live=sse"
	case q.live != "" && q.offset == "":
		return q, "an offset with live"
	case values.Has("offset") && q.offset == "":
		return q, "an offset that is not empty"
	}
	switch q.offset {
	case "", offsetStart:
		q.read.Start = true
	case offsetNow:
		q.read.Now = true
	default:
		if !parse(q.offset) {
			return q, "an offset of this server, -1 or now"
		}
	}
	return q, ""
}

// get answers GET.
func (s *server) get(w http.ResponseWriter, r *http.Request, name string) {
	var from position
	q, want := queryOf(r.URL.RawQuery, func(offset string) bool {
		var err error
		from, err = parseOffset(offset)
		return err == nil
	})
	q.read.From = from
	if want != "" {
		s.refuse(w, http.StatusBadRequest, "bad_query", "want %s", want)
		return
	}
	bounded := &boundedWriter{ResponseWriter: w, rc: http.NewResponseController(w), step: s.o.StepTimeout}
	defer bounded.end()
	w = bounded
	if q.live == "" {
		if p := s.first(w, r, name, q.read); p != nil {
			s.answer(w, r, p, &q)
		}
		return
	}
	if s.waiting.Add(1) > int64(s.o.MaxWaiting) {
		s.waiting.Add(-1)
		w.Header().Set("Retry-After", "5")
		s.refuse(w, http.StatusTooManyRequests, "too_many_readers", "the limit is %d live readers", s.o.MaxWaiting)
		return
	}
	defer s.waiting.Add(-1)
	if q.live == livePoll {
		s.longPoll(w, r, name, &q)
	} else {
		s.serveEvents(w, r, name, &q)
	}
}

// page reads a page, with the other readers that ask for it. It is nil if the stream does not exist.
func (s *server) page(ctx context.Context, name string, from readRequest) (*page, error) {
	at := from.From.String()
	if from.Now {
		at = offsetNow
	}
	if from.Start {
		at = offsetStart
	}
	return s.reads.do(ctx, at+" "+name, func(ctx context.Context) (*page, error) {
		return call(ctx, Streams.Get(s.host, name), true, (*Stream).read, from)
	})
}

// first reads the first page of a response. It answers the request, and returns nil, if there is none.
func (s *server) first(w http.ResponseWriter, r *http.Request, name string, from readRequest) *page {
	p, err := s.page(r.Context(), name, from)
	switch {
	case err != nil:
		s.host.WriteError(w, err)
	case p == nil:
		s.noStream(w)
	case p.Gone:
		s.refuse(w, http.StatusGone, "gone", "the stream does not have this offset: it was deleted and created again, or restored from a backup")
	default:
		return p
	}
	return nil
}

// answer answers a catch-up read, or a long poll with data.
func (s *server) answer(w http.ResponseWriter, r *http.Request, p *page, q *readQuery) {
	h := w.Header()
	p.describe(h, q)
	if q.read.Now || p.Empty {
		h.Set("Cache-Control", "no-store") // more data may follow at any time
		if !q.read.Now {
			h.Set("ETag", p.etag())
		}
	} else {
		scope := "private"
		if s.o.Public {
			scope = "public"
		}
		h.Set("Cache-Control", scope+", max-age=60, stale-while-revalidate=300")
		h.Set("ETag", p.etag())
	}
	if tag := h.Get("ETag"); tag != "" && matches(r.Header.Get("If-None-Match"), tag) {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	h.Set("Content-Length", strconv.Itoa(len(p.Data)))
	_ = s.host.WriteBody(w, p.Data) // the client may have disconnected
}

// describe sets the header fields of a page.
func (p *page) describe(h http.Header, q *readQuery) {
	h.Set("Content-Type", p.ContentType)
	h.Set("Stream-Next-Offset", p.Next)
	if p.UpToDate {
		h.Set("Stream-Up-To-Date", "true")
	}
	switch {
	case p.eof():
		h.Set("Stream-Closed", "true")
	case q.live != "":
		h.Set("Stream-Cursor", strconv.FormatInt(cursorAfter(q.cursor, time.Now()), 10))
	}
}

// etag identifies a page and the fields of its header: that of a page which was the last one, or that of a stream which was closed later,
// differs.
func (p *page) etag() string {
	tag := p.From + ":" + p.Next
	switch {
	case p.eof():
		tag += ":c"
	case p.UpToDate:
		tag += ":u"
	}
	return `"` + tag + `"`
}

// matches reports whether If-None-Match contains an entity tag.
func matches(field, tag string) bool {
	return slices.ContainsFunc(strings.Split(field, ","), func(v string) bool {
		v = strings.TrimSpace(v)
		return v == "*" || strings.TrimPrefix(v, "W/") == tag
	})
}

// longPoll answers live=long-poll.
func (s *server) longPoll(w http.ResponseWriter, r *http.Request, name string, q *readQuery) {
	ctx, cancel := context.WithTimeout(r.Context(), s.o.LongPoll)
	defer cancel()
	from := q.read
	var last *page // without data
	use := func(p *page) step {
		if !p.Empty {
			s.answer(w, r, p, q)
			return stepEnd
		}
		if last, from = p, p.next(); p.eof() {
			return stepEnd
		}
		return stepWait
	}
	wait := func(changed <-chan struct{}) bool { return s.wait(ctx, changed, last.renewal(), nil, nil) }
	for s.watch(w, r, name, from, use, wait) {
		last = nil // the next read may have another answer
	}
	if last == nil {
		return
	}
	last.describe(w.Header(), q)
	w.Header().Del("Content-Type")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(http.StatusNoContent)
}

// next asks for the page after p.
func (p *page) next() readRequest {
	at, _ := parseOffset(p.Next) // of this server
	return readRequest{From: at}
}

// step is the next step of a live reader after a page.
type step int

const (
	stepEnd step = iota
	stepRead
	stepWait
)

// watch reads a page, as first does, and calls use with it. If use wants to wait, watch calls wait with a channel that is closed at the
// next change of the stream after the page, and the page is free for collection then. The result is whether to read the next page.
func (s *server) watch(
	w http.ResponseWriter, r *http.Request, name string, from readRequest, use func(*page) step, wait func(<-chan struct{}) bool,
) (more bool) {
	sig, err := s.signalsOf(r.Context(), name)
	if err != nil {
		s.host.WriteError(w, err)
		return false
	}
	t := sig.join(name)
	defer sig.leave(name, t) // also if the host cuts the response, which is a panic
	switch s.useFirst(w, r, name, from, use) {
	case stepRead:
		return true
	case stepWait:
		return wait(t.changed)
	}
	return false
}

// useFirst calls use with the page of first. The page is reachable only during this call.
func (s *server) useFirst(w http.ResponseWriter, r *http.Request, name string, from readRequest, use func(*page) step) step {
	if p := s.first(w, r, name, from); p != nil {
		return use(p)
	}
	return stepEnd
}

// signalsOf returns the signals of the host's streams, which an object knows.
func (s *server) signalsOf(ctx context.Context, name string) (*signals, error) {
	if sig := s.signals.Load(); sig != nil {
		return sig, nil
	}
	sig, err := call(ctx, Streams.Get(s.host, name), true, (*Stream).wakers, struct{}{})
	s.signals.Store(sig)
	return sig, err
}

// wait waits for a change, or for renew, and calls alive after each beat. It returns false if alive does, at the end of ctx, and when the
// host closes.
func (s *server) wait(ctx context.Context, changed <-chan struct{}, renew, beat <-chan time.Time, alive func() bool) bool {
	for {
		select {
		case <-changed:
			return true
		case <-renew:
			return true
		case <-beat:
			if !alive() {
				return false
			}
		case <-s.host.Closing():
			return false
		case <-ctx.Done():
			return false
		}
	}
}
