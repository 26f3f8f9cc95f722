package streams

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/dohost/dohost"
)

// FeedOptions tunes [ServeFeed]. A nil *FeedOptions, and the zero FeedOptions, mean the defaults.
type FeedOptions struct {
	// LongPoll is how long a long poll waits. Zero means 20 s.
	LongPoll time.Duration
	// EventStream is how long a response of server-sent events lasts. Zero means 60 s, as the protocol recommends: the client connects again.
	EventStream time.Duration

	pageRows int // rows or changes of a page; tests make it small
}

// ServeFeed serves rows of an object as a stream of the Durable Streams protocol with the events of its State Protocol: first an insert
// for each row, and then each change. The published StreamDB and MaterializedState read it. An OnHTTP handler calls it with its own w
// and r:
//
//	func (b *Board) serve(w http.ResponseWriter, r *http.Request) {
//		if err := streams.ServeFeed(w, r, b.store, nil, streams.Rows(&tasks, nil)); err != nil {
//			http.Error(w, "cannot read the tasks", http.StatusInternalServerError) // dropped if events were sent
//		}
//	}
//
// There are 1 to 64 sources, each of another collection, and all with one feed. A client continues from any offset that it has received, in another
// incarnation and process too, also in the middle of the list of rows. At each offset it has exactly the rows as they were at one position
// of the feed, or the part of these rows until a row of the list. No response has a change that a crash can undo.
//
// The query parameters are those of the protocol: offset, which is -1 for all rows or now for later changes alone, and live, which is
// long-poll or sse. A response, and with sse each event, has at most 256 changes and 256 rows, and ends early when the changes, or the rows,
// have 256 KiB. GET and HEAD are possible; a client writes with other methods of the object. If the feed
// does not have the offset of a client any more, the status is 410, and the client
// reads all rows again: after more changes than Feed.Keep or MaxAge allow, a DeleteAll, an import or the restore of a backup. A change
// with a value that does not decode has the same effect.
//
// A live reader waits without the turn, and keeps the object in memory. [dohost.Feed.Wait] bounds the waiting readers of an object, and
// further ones get status 503. When the host closes, live readers get the end of their response.
//
// Errors mean that nothing was written and the handler must answer: [dohost.ErrMisuse] for wrong sources; an error that names the row,
// if a row or key has no JSON form; the errors of the storage and of w.
func ServeFeed(w http.ResponseWriter, r *http.Request, s *dohost.Storage, o *FeedOptions, sources ...Source) error {
	f := &feedReader{store: s, sources: sources, rc: http.NewResponseController(w)}
	if o != nil {
		f.o = *o
	}
	setDefault(&f.o.LongPoll, 20*time.Second)
	setDefault(&f.o.EventStream, time.Minute)
	setDefault(&f.o.pageRows, pageRows)
	if err := f.check(); err != nil {
		return err
	}
	h := w.Header()
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "no-store")
	q, want := feedQueryOf(r.URL.RawQuery, len(sources))
	switch {
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		h.Set("Allow", "GET, HEAD")
		return refuse(w, http.StatusMethodNotAllowed, "method_not_allowed", "want GET or HEAD")
	case want != "":
		return refuse(w, http.StatusBadRequest, "bad_query", "want "+want)
	}
	err := f.serve(w, r, q)
	_, gone := errors.AsType[*dohost.FeedError](err)
	switch {
	case f.begun:
		return nil // the client continues from the last offset
	case gone, errors.Is(err, errUnreadable):
		return refuse(w, http.StatusGone, "gone", "the feed does not have this offset any more: read all rows, from -1")
	case errors.Is(err, dohost.ErrOverloaded), errors.Is(err, dohost.ErrClosed):
		h.Set("Retry-After", "5")
		return refuse(w, http.StatusServiceUnavailable, "overloaded", "the object cannot have more readers now")
	}
	return err
}

// refuse answers a request that ServeFeed does not serve.
func refuse(w http.ResponseWriter, status int, code, message string) error {
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Del("Stream-Next-Offset")
	w.WriteHeader(status)
	return json.NewEncoder(w).Encode(dohost.ErrorBody{Code: code, Message: message, Ran: dohost.OutcomeNotRun.String()})
}

// feedQuery is the query of a request for a feed.
type feedQuery struct {
	from   place
	now    bool
	live   string
	cursor int64
}

// feedQueryOf decodes a query. want is the reason if it cannot.
func feedQueryOf(raw string, sources int) (q feedQuery, want string) {
	of, want := queryOf(raw, func(offset string) bool {
		var ok bool
		q.from, ok = parsePlace(offset)
		return ok && q.from.Source < sources
	})
	q.now, q.live, q.cursor = of.read.Now, of.live, of.cursor
	if of.read.Start {
		q.from = place{}
	}
	return q, want
}

// feedReader serves one request. It holds the turn when it reads, and gives it up to wait and to write.
type feedReader struct {
	store   *dohost.Storage
	sources []Source
	o       FeedOptions
	rc      *http.ResponseController
	begun   bool // something was written
}

func (f *feedReader) check() error {
	wrong := func(text string) error { return fmt.Errorf("streams: %s: %w", text, dohost.ErrMisuse) }
	if len(f.sources) == 0 || len(f.sources) > maxSources {
		return wrong(fmt.Sprintf("ServeFeed has %d sources: want 1 to %d", len(f.sources), maxSources))
	}
	for i := range f.sources {
		s := &f.sources[i]
		switch {
		case s.feed == nil || !s.feed.Values:
			return wrong(fmt.Sprintf("the collection %q has no Feed with Values", s.name))
		case s.feed.Name != f.feed().Name:
			return wrong(fmt.Sprintf("the collections %q and %q have different feeds", f.sources[0].name, s.name))
		case slices.ContainsFunc(f.sources[:i], func(t Source) bool { return t.name == s.name }):
			return wrong(fmt.Sprintf("the collection %q is there twice", s.name))
		}
	}
	return nil
}

func (f *feedReader) feed() *dohost.Feed { return f.sources[0].feed }

// serve answers a request. An error after the beginning of the response ends it.
func (f *feedReader) serve(w http.ResponseWriter, r *http.Request, q feedQuery) error {
	ctx := r.Context()
	from := q.from
	if q.now {
		var err error
		if from, err = f.end(ctx); err != nil {
			return err
		}
	}
	if r.Method == http.MethodHead {
		end, err := f.end(ctx)
		if err != nil {
			return err
		}
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Stream-Next-Offset", end.String())
		f.begun = true
		w.WriteHeader(http.StatusOK)
		return nil
	}
	if q.live == liveEvents {
		return f.serveEvents(ctx, w, from, q)
	}
	p, err := f.page(ctx, from)
	if err == nil && q.live == livePoll && p.Empty && p.UpToDate {
		p, err = f.poll(ctx, p)
	}
	if err != nil {
		return err
	}
	return f.answer(w, p, q)
}

// end returns the place after all changes. They are durable when the response leaves.
func (f *feedReader) end(ctx context.Context) (place, error) {
	at, err := f.feed().End(ctx, f.store)
	return place{At: at, Listed: true}, err
}

// poll waits for a page with events, or for the end of FeedOptions.LongPoll.
func (f *feedReader) poll(ctx context.Context, p *feedPage) (*feedPage, error) {
	limited, cancel := context.WithTimeoutCause(ctx, f.o.LongPoll, errWaited)
	defer cancel()
	for p.Empty {
		err := f.feed().Wait(limited, f.store, p.next.At)
		if errors.Is(err, errWaited) || errors.Is(err, dohost.ErrClosed) {
			return p, nil
		}
		if err != nil {
			return nil, err
		}
		if p, err = f.page(ctx, p.next); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// errWaited is the cause of the end of a wait after its time.
var errWaited = errors.New("streams: no change in time")

// answer answers a catch-up read or a long poll.
func (f *feedReader) answer(w http.ResponseWriter, p *feedPage, q feedQuery) error {
	p.describe(w.Header(), &readQuery{live: q.live, cursor: q.cursor})
	f.begun = true
	if q.live == livePoll && p.Empty {
		w.Header().Del("Content-Type")
		w.WriteHeader(http.StatusNoContent)
		return nil
	}
	w.Header().Set("Content-Length", strconv.Itoa(len(p.Data)))
	_, err := w.Write(p.Data)
	return err
}

// serveEvents answers live=sse.
func (f *feedReader) serveEvents(ctx context.Context, w http.ResponseWriter, from place, q feedQuery) error {
	over := time.Now().Add(f.o.EventStream)
	cursor := strconv.FormatInt(cursorAfter(q.cursor, time.Now()), 10)
	upToDate := false // as the client knows
	for {
		p, err := f.page(ctx, from)
		if err != nil {
			return err
		}
		if !p.Empty || !f.begun || p.UpToDate && !upToDate {
			if !f.begun {
				beginEvents(w.Header(), p.ContentType)
			}
			var data []byte
			if !p.Empty {
				data = p.dataEvent()
			}
			if err := f.write(w, append(slices.Clip(data), p.controlEvent(cursor)...)); err != nil {
				return err
			}
			upToDate = p.UpToDate
		}
		if from = p.next; !time.Now().Before(over) {
			return nil
		}
		if p.UpToDate {
			if err := f.wait(ctx, w, from.At, over); err != nil {
				return err
			}
		}
	}
}

// wait waits for a change or the end of the response, and writes comments in the meantime.
func (f *feedReader) wait(ctx context.Context, w http.ResponseWriter, after dohost.Position, over time.Time) error {
	for {
		limited, cancel := context.WithTimeoutCause(ctx, min(heartbeat, time.Until(over)), errWaited)
		err := f.feed().Wait(limited, f.store, after)
		cancel()
		if !errors.Is(err, errWaited) {
			return err
		}
		if !time.Now().Before(over) {
			return nil
		}
		if err := f.write(w, []byte(": alive\n\n")); err != nil {
			return err
		}
	}
}

// write writes events, and gives up the turn.
func (f *feedReader) write(w http.ResponseWriter, events []byte) error {
	f.begun = true
	if _, err := w.Write(events); err != nil {
		return err
	}
	return f.rc.Flush()
}
