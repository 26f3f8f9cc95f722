package streams

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// control is the data of an event after each data event.
type control struct {
	NextOffset string `json:"streamNextOffset"`
	Cursor     string `json:"streamCursor,omitempty"`
	UpToDate   bool   `json:"upToDate,omitempty"`
	Closed     bool   `json:"streamClosed,omitempty"`
}

// serveEvents answers live=sse. It keeps one page of a client that reads slowly.
func (s *server) serveEvents(w http.ResponseWriter, r *http.Request, name string, q *readQuery) {
	ctx, cancel := context.WithTimeout(r.Context(), s.o.EventStream)
	defer cancel()
	rc := http.NewResponseController(w)
	send := func(event []byte) bool {
		return s.host.WriteBody(w, event) == nil && rc.Flush() == nil
	}
	from, begun := q.read, false
	cursor := strconv.FormatInt(cursorAfter(q.cursor, time.Now()), 10)
	step := func() (more bool) {
		target := w
		if begun {
			target = discarded{} // the client connects again, and gets the error then
		}
		p, changed, leave := s.watch(target, r, name, from)
		if p == nil {
			return false
		}
		defer leave() // also if the host cuts the response, which is a panic
		if !begun {
			beginEvents(w.Header(), p.ContentType)
		}
		if !(begun && p.Empty && !p.eof()) && !send(p.event(cursor)) || p.eof() || ctx.Err() != nil {
			return false
		}
		from, begun = p.next(), true
		return !p.UpToDate || s.waitAlive(ctx, changed, send)
	}
	for step() {
	}
}

// waitAlive waits for a change, and sends a comment after each heartbeat.
func (s *server) waitAlive(ctx context.Context, changed <-chan struct{}, send func([]byte) bool) bool {
	for {
		limited, cancel := context.WithTimeout(ctx, heartbeat)
		woken := s.wait(limited, changed)
		idle := limited.Err() != nil && ctx.Err() == nil
		cancel()
		if woken || !idle || !send([]byte(": alive\n\n")) {
			return woken
		}
	}
}

// beginEvents sets the header of the response.
func beginEvents(h http.Header, contentType string) {
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-cache, no-store")
	h.Set("X-Accel-Buffering", "no") // of nginx
	if !isText(contentType) {
		h.Set("Stream-SSE-Data-Encoding", "base64")
	}
}

// isText reports whether events contain the data of a stream as it is.
func isText(contentType string) bool {
	return isJSON(contentType) || strings.HasPrefix(mediaType(contentType), "text/")
}

// lineEnds replaces each end of a line by the beginning of the next line of an event.
var lineEnds = strings.NewReplacer("\r\n", "\ndata:", "\n", "\ndata:", "\r", "\ndata:")

// eventLines returns a text as lines of an event. Clients remove one space from the beginning of a line, so one is added to a line that
// has one.
func eventLines(text string) string {
	return strings.ReplaceAll("\ndata:"+lineEnds.Replace(text), "\ndata: ", "\ndata:  ")
}

// event returns the events of a page: its data, if there are any, and the control event.
func (p *page) event(cursor string) []byte {
	var b bytes.Buffer
	switch {
	case p.Empty:
	case isText(p.ContentType):
		b.WriteString("event: data")
		b.WriteString(eventLines(string(p.Data)))
		b.WriteString("\n\n")
	default:
		b.WriteString("event: data\ndata:")
		b.Write(base64.StdEncoding.AppendEncode(nil, p.Data))
		b.WriteString("\n\n")
	}
	c := control{NextOffset: p.Next, UpToDate: p.UpToDate, Closed: p.eof()}
	if !c.Closed {
		c.Cursor = cursor
	}
	data, _ := json.Marshal(c) // always JSON
	b.WriteString("event: control\ndata:")
	b.Write(data)
	b.WriteString("\n\n")
	return b.Bytes()
}

// discarded is the ResponseWriter of an error after the beginning of a response.
type discarded struct{}

// Header returns a header that is not sent.
func (discarded) Header() http.Header { return http.Header{} }

// Write discards p.
func (discarded) Write(p []byte) (int, error) { return len(p), nil }

// WriteHeader discards the status.
func (discarded) WriteHeader(int) {}
