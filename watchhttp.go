package dohost

import (
	"bytes"
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

// watchFlush is the number of bytes of events that ServeWatch collects at most before it flushes them, apart from the
// last event.
const watchFlush = 32 << 10

// ServeWatch serves a [Collection.Watch] as server-sent events. An OnHTTP handler calls it with its own w and r:
//
//	func (b *Board) serve(w http.ResponseWriter, r *http.Request) {
//		if err := tasks.ServeWatch(w, r, b.store, open, nil); err != nil {
//			...
//		}
//	}
//
// The events are named reset, enter, update, exit and ready. The data of enter, update and exit is the JSON object
//
//	{"cursor":"b3Blbg","was":"ZG9uZQ","key":"a","version":2,"value":{...}}
//
// with was in an update only, and without a key that is not valid UTF-8. The event's id is the delta's position. A
// client that has lost its connection sends the id of its last event as Last-Event-ID, as EventSource does, and gets
// the deltas after it. For a request without Last-Event-ID, o.After is the position. After o.Heartbeat, by
// default 15 s, without an event ServeWatch sends a comment, with the position as an id.
//
// While the client reads slowly, ServeWatch waits without the turn; [Options].SendBudget bounds the unsent bytes. It
// notices that a client has disconnected at the next event or comment.
//
// When the host closes, ServeWatch returns nil and the response ends. When the incarnation ends in another way, the
// connection is cut. In both cases the client connects again and continues.
//
// Errors: those of Watch, except [ErrClosed], and those of w. If the first error comes before an event, nothing has been
// written, and the handler may answer.
func (c *Collection[T]) ServeWatch(w http.ResponseWriter, r *http.Request, s *Storage, q *Query[T], o *WatchOptions) error {
	var options WatchOptions
	if o != nil {
		options = *o
	}
	if options.Heartbeat == 0 {
		options.Heartbeat = watchHeartbeat
	}
	if id := r.Header.Get("Last-Event-ID"); id != "" {
		options.After = positionOf(id)
	}
	e := &eventStream{w: w, rc: http.NewResponseController(w), last: time.Now(), heartbeat: options.Heartbeat}
	for d, err := range c.Watch(r.Context(), s, q, &options) {
		if err == nil {
			err = send(e, d)
		}
		if errors.Is(err, ErrClosed) && r.Context().Err() == nil && e.begun {
			return nil
		}
		if err != nil {
			return err
		}
	}
	return nil
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
type watchEvent[T any] struct {
	Cursor  Cursor `json:"cursor"`
	Was     Cursor `json:"was,omitempty"`
	Key     string `json:"key,omitempty"`
	Version uint64 `json:"version"`
	Value   T      `json:"value"`
}

// send adds the event of a delta, and flushes when the watch has no other.
func send[T any](e *eventStream, d Delta[T]) error {
	switch d.Kind {
	case DeltaReset:
		e.ready = false
		e.add("reset", d.At, []byte("{}"))
	case DeltaReady:
		if !e.ready {
			e.ready = true
			e.add("ready", d.At, []byte("{}"))
		} else if e.buf.Len() == 0 && time.Since(e.last) >= e.heartbeat {
			e.buf.WriteString(": alive\n")
			e.add("", d.At, nil)
		}
		return e.flush()
	default:
		event := watchEvent[T]{Cursor: d.Row.Cursor, Was: d.Was, Key: d.Row.Key, Version: d.Row.Version, Value: d.Row.Value}
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
