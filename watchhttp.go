package dohost

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// watchHeartbeat is the default of WatchOptions.Heartbeat for ServeWatch.
const watchHeartbeat = 15 * time.Second

// watchRetry is the delay of the next request of a client when its watch cannot begin.
const watchRetry = 5 * time.Second

// watchFlush is the number of bytes of events that ServeWatch collects at most before it flushes them, apart from the
// last event.
const watchFlush = 32 << 10

// ServeWatch serves a [Collection.Watch] as server-sent events. An OnHTTP handler calls it with its own w and r:
//
//	func (b *Board) serve(w http.ResponseWriter, r *http.Request) {
//		if err := tasks.ServeWatch(w, r, b.store, open, nil); err != nil {
//			http.Error(w, "cannot watch", http.StatusInternalServerError) // dropped if events were sent
//		}
//	}
//
// The events of a stream are named reset, enter, update, exit and ready. The data of enter, update and exit is the JSON object
//
//	{"cursor":"b3Blbg","was":"ZG9uZQ","key":"a","version":2,"value":{...}}
//
// with was only in an update, and without key if it is not valid UTF-8. The event's id is the delta's position. A
// client that lost its connection sends the id of its last event as Last-Event-ID, as EventSource does, and gets the
// deltas after that event. For a request without Last-Event-ID, o.After is the position. After o.Heartbeat, by
// default 15 s, without an event ServeWatch sends a comment, with the position as an id.
//
// While the client reads slowly, ServeWatch waits without the turn; [Options].SendBudget bounds the unsent bytes. The
// watch ends when the HTTP server reports that the client has disconnected, or when a write to the client fails.
//
// When the host closes, ServeWatch returns nil and the response ends, even if the client does not read. When the
// incarnation ends in another way, the connection is cut. In both cases the client reconnects and continues.
//
// EventSource gives up after a status other than 200. So if the watch cannot begin now, with [ErrOverloaded] or
// [ErrClosed], ServeWatch sends a comment and the field retry with 5 s, and returns nil: the client reconnects
// after that time.
//
// Errors: other errors of Watch, and the errors of w; [ErrMisuse] for a request that no OnHTTP handler has received. If
// no event was sent, nothing has been written, and the handler may answer. Otherwise the rest of the handler's response is
// dropped and the connection is cut.
func (c *Collection[T]) ServeWatch(w http.ResponseWriter, r *http.Request, s *Storage, q *Query[T], o *WatchOptions) error {
	options := watchOptions(r, o)
	watch, err := c.watch(s, q, &options)
	if err != nil {
		return err
	}
	return watch.serve(w, r)
}

// watchOptions returns the options of a watch that a request has asked for.
func watchOptions(r *http.Request, o *WatchOptions) (options WatchOptions) {
	if o != nil {
		options = *o
	}
	if options.Heartbeat == 0 {
		options.Heartbeat = watchHeartbeat
	}
	if id := r.Header.Get("Last-Event-ID"); id != "" {
		options.After = positionOf(id)
	}
	return options
}

// serve writes the events of the watch.
func (w *watcher) serve(rw http.ResponseWriter, r *http.Request) error {
	response, ok := r.Context().Value(responseKey{}).(*responseWriter)
	if !ok {
		return fmt.Errorf("%w: ServeWatch of %q needs the request of an OnHTTP handler", errCollection, w.rows.Name)
	}
	e := &eventStream{w: rw, rc: http.NewResponseController(rw), last: time.Now(), heartbeat: w.o.Heartbeat}
	w.poll = e.alive
	ctx, cancel := context.WithCancelCause(r.Context())
	defer cancel(nil)
	response.until = w.s.rt().Closing()
	response.out.whenClosed(cancel)
	defer func() {
		response.until = nil
		response.out.whenClosed(nil)
	}()
	var failed error
	err := w.run(ctx, func(d Delta[any]) bool {
		failed = e.send(d)
		return failed == nil
	})
	return e.end(response, cmp.Or(failed, err))
}

// end ends the response after an error of the watch or of the client's connection.
func (e *eventStream) end(response *responseWriter, err error) error {
	closes := errors.Is(err, ErrClosed) || errors.Is(err, errFlushEnded)
	switch {
	case response.ctx.Err() != nil, response.out.closedBy() != nil:
		return err
	case closes && e.begun:
		return nil
	case !e.begun && (closes || errors.Is(err, ErrOverloaded)):
		fmt.Fprintf(&e.buf, ": try again\nretry: %d\n\n", watchRetry.Milliseconds())
		if err := e.flush(); !errors.Is(err, errFlushEnded) {
			return err
		}
		return nil
	case e.begun && response.err == nil:
		response.err = err // the handler cannot add to the events, and the connection is cut
	}
	return err
}

// eventStream is a response of server-sent events.
type eventStream struct {
	w         http.ResponseWriter
	rc        *http.ResponseController
	buf       bytes.Buffer // events that are not written
	begun     bool         // something was written
	ready     bool         // the list of rows is complete, and the client knows it
	last      time.Time    // of the last flush
	heartbeat time.Duration
}

// watchEvent is the data of an event.
type watchEvent struct {
	Cursor  Cursor `json:"cursor"`
	Was     Cursor `json:"was,omitempty"`
	Key     string `json:"key,omitempty"`
	Version uint64 `json:"version"`
	Value   any    `json:"value"`
}

// send adds the event of a delta, and flushes when the watch has no other.
func (e *eventStream) send(d Delta[any]) error {
	switch d.Kind {
	case DeltaReset:
		e.ready = false
		e.add("reset", d.At, []byte("{}"))
		return e.flush() // the list may be long, and have no rows for the client
	case DeltaReady:
		if !e.ready {
			e.ready = true
			e.add("ready", d.At, []byte("{}"))
			return e.flush()
		}
		if err := e.alive(d.At); err != nil {
			return err
		}
		return e.flush()
	default:
		event := watchEvent{Cursor: d.Row.Cursor, Was: d.Was, Key: d.Row.Key, Version: d.Row.Version, Value: d.Row.Value}
		if !utf8.ValidString(event.Key) {
			event.Key = ""
		}
		data, err := json.Marshal(event)
		if err != nil {
			return fmt.Errorf("dohost: the JSON of row %.64q: %w", d.Row.Key, err)
		}
		e.add(d.Kind.String(), d.At, data)
	}
	if e.buf.Len() >= watchFlush {
		return e.flush()
	}
	return nil
}

// alive sends the events, or a comment if there are none, when nothing was sent for a heartbeat. at is the position of the client.
func (e *eventStream) alive(at Position) error {
	if time.Since(e.last) < e.heartbeat {
		return nil
	}
	if e.buf.Len() == 0 {
		e.buf.WriteString(": alive\n")
		e.add("", at, nil)
	}
	return e.flush()
}

// add adds an event. An event without a position clears the client's last id, so that it does not continue from the
// middle of a list.
func (e *eventStream) add(name string, at Position, data []byte) {
	if name != "" {
		fmt.Fprintf(&e.buf, "event: %s\n", name)
	}
	fmt.Fprintf(&e.buf, "id: %s\n", eventID(at))
	if data != nil {
		fmt.Fprintf(&e.buf, "data: %s\n", data)
	}
	e.buf.WriteByte('\n')
}

// flush sends the events, if there are any. It gives up the turn.
func (e *eventStream) flush() error {
	if e.buf.Len() == 0 {
		return nil
	}
	if !e.begun {
		e.begun = true
		h := e.w.Header()
		h.Set("Content-Type", "text/event-stream")
		h.Set("Cache-Control", "no-store")
		h.Set("X-Accel-Buffering", "no") // of nginx
	}
	if _, err := e.w.Write(e.buf.Bytes()); err != nil {
		return err
	}
	e.buf = bytes.Buffer{} // a row may have been large
	e.last = time.Now()
	return e.rc.Flush()
}

// eventID is a position as the id of an event. It is empty for a position that no watch continues from.
func eventID(p Position) string {
	if p.Log == "" {
		return ""
	}
	return p.Log + "-" + strconv.FormatUint(p.Offset, 10)
}

// positionOf returns the position of an event's id. It is zero for another text.
func positionOf(id string) Position {
	log, offset, _ := strings.Cut(id, "-")
	n, err := strconv.ParseUint(offset, 10, 64)
	if err != nil {
		return Position{}
	}
	return Position{Log: log, Offset: n}
}
