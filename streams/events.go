package streams

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
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

// serveEvents answers live=sse. It keeps one page of a client that reads slowly, and none of a client that waits.
func (s *server) serveEvents(w http.ResponseWriter, r *http.Request, name string, q *readQuery) {
	ctx, cancel := context.WithTimeout(r.Context(), s.o.EventStream)
	defer cancel()
	beat := time.NewTicker(heartbeat)
	defer beat.Stop()
	rc := http.NewResponseController(w)
	write := func(event []byte) bool { return s.host.WriteBody(w, event) == nil }
	alive := func() bool { return write([]byte(": alive\n\n")) && rc.Flush() == nil }
	from, begun, renew := q.read, false, (<-chan time.Time)(nil)
	cursor := strconv.FormatInt(cursorAfter(q.cursor, time.Now()), 10)
	use := func(p *page) step {
		if !begun {
			beginEvents(w.Header(), p.ContentType)
		}
		if !begun || !p.Empty || p.eof() {
			if !p.Empty && !write(p.dataEvent()) || !write(p.controlEvent(cursor)) || rc.Flush() != nil {
				return stepEnd
			}
			beat.Reset(heartbeat)
		}
		from, begun, renew = p.next(), true, p.renewal()
		switch {
		case p.eof() || ctx.Err() != nil:
			return stepEnd
		case p.UpToDate:
			return stepWait
		}
		return stepRead
	}
	wait := func(changed <-chan struct{}) bool { return s.wait(ctx, changed, renew, beat.C, alive) }
	target := w
	for s.watch(target, r, name, from, use, wait) {
		target = discarded{} // of an error: the client connects again, and gets it then
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

// appendLines appends text as lines of an event. Clients remove one space from the beginning of a line, so one is added to a line that has
// one.
func appendLines(b, text []byte) []byte {
	for {
		end := bytes.IndexAny(text, "\r\n")
		line := text
		if end >= 0 {
			line = text[:end]
		}
		b = append(b, "\ndata:"...)
		if len(line) > 0 && line[0] == ' ' {
			b = append(b, ' ')
		}
		b = append(b, line...)
		if end < 0 {
			return b
		}
		if bytes.HasPrefix(text[end:], []byte("\r\n")) {
			end++
		}
		text = text[end+1:]
	}
}

// dataEvent returns the event of the data of a page. The readers of the page share it. It has at most seven times as many bytes as the
// data, which are line ends then.
func (p *page) dataEvent() []byte {
	p.encode.Do(func() {
		const begin = "event: data"
		if !isText(p.ContentType) {
			b := make([]byte, 0, len(begin)+base64.StdEncoding.EncodedLen(len(p.Data))+16)
			b = append(b, begin+"\ndata:"...)
			p.event = append(base64.StdEncoding.AppendEncode(b, p.Data), "\n\n"...)
			return
		}
		lines := 1 + bytes.Count(p.Data, []byte{'\n'}) + bytes.Count(p.Data, []byte{'\r'})
		b := append(make([]byte, 0, len(begin)+len(p.Data)+lines*len("\ndata:")+16), begin...)
		p.event = append(appendLines(b, p.Data), "\n\n"...)
	})
	return p.event
}

// controlEvent returns the event after the data of a page.
func (p *page) controlEvent(cursor string) []byte {
	c := control{NextOffset: p.Next, UpToDate: p.UpToDate, Closed: p.eof()}
	if !c.Closed {
		c.Cursor = cursor
	}
	data, _ := json.Marshal(c) // always JSON
	return fmt.Appendf(nil, "event: control\ndata:%s\n\n", data)
}

// discarded is the ResponseWriter of an error after the beginning of a response.
type discarded struct{}

// Header returns a header that is not sent.
func (discarded) Header() http.Header { return http.Header{} }

// Write discards p.
func (discarded) Write(p []byte) (int, error) { return len(p), nil }

// WriteHeader discards the status.
func (discarded) WriteHeader(int) {}
