package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// streamReaders is the number of the many readers of a stream.
	streamReaders = 1000
	// readMessage is the size of the messages that are read.
	readMessage = 100
)

// readSide appends messages to a stream, one after the other: the next one when all readers have the last one.
type readSide struct {
	streamServer
	readers int
	live    string    // long-poll or sse
	log     syncedLog // measures from its sync; nil: from the beginning of the append

	reconnected atomic.Int64

	running sync.WaitGroup
	stop    context.CancelFunc
	got     chan struct{} // has a value when all readers have the last message

	mu      sync.Mutex // guards the fields below
	sent    int64      // messages
	at      time.Time  // of the last one
	took    []time.Duration
	missing int   // readers without the last message
	failed  error // of a reader
}

// openReaders opens a stream with readers. The times are those from the sync if there is a log.
func openReaders(ctx context.Context, at streamServer, readers int, live string, log syncedLog) (*readSide, error) {
	s := &readSide{streamServer: at, readers: readers, live: live, log: log, got: make(chan struct{}, 1)}
	if err := createStream(ctx, at, 0, "text/plain"); err != nil {
		return nil, err
	}
	ctx, s.stop = context.WithCancel(ctx)
	for range readers {
		s.running.Go(func() {
			if err := s.read(ctx); ctx.Err() == nil {
				s.fail(err)
			}
		})
	}
	return s, nil
}

// fail records the first error of a reader.
func (s *readSide) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failed == nil {
		s.failed = fmt.Errorf("a reader has ended: %w", err)
	}
	s.signal()
}

// signal notifies the producer.
func (s *readSide) signal() {
	select {
	case s.got <- struct{}{}:
	default:
	}
}

// received records that a reader has messages: those after the ones that it had.
func (s *readSide) received(had int64, text string) (now int64, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for ; len(text) >= readMessage; text = text[readMessage:] {
		if number, err := strconv.ParseInt(text[:12], 10, 64); err != nil || number != had || had >= s.sent {
			return had, fmt.Errorf("the message after %d of %d is %.20q", had, s.sent, text)
		}
		if had++; had == s.sent {
			from := s.at
			if s.log != nil {
				if from = s.log.durable(); from.IsZero() {
					return had, errors.New("a reader has a message before a sync of the log")
				}
			}
			s.took = append(s.took, time.Since(from))
			if s.missing--; s.missing == 0 {
				s.signal()
			}
		}
	}
	if text != "" {
		err = fmt.Errorf("after %d messages there are %d more bytes", had, len(text))
	}
	return had, err
}

// maxFailures is the number of connections of a reader that may end in succession without a response. A server may close a connection on which
// it has not seen a request for some time, although one is on its way.
const maxFailures = 10

// read is a reader. It connects again when its connection has ended.
func (s *readSide) read(ctx context.Context) error {
	r := &streamReader{side: s, offset: "-1"}
	for {
		err := r.connect(ctx)
		if r.failures++; r.wrong != nil || r.failures > maxFailures || ctx.Err() != nil {
			return errors.Join(r.wrong, err)
		}
		s.reconnected.Add(1)
	}
}

// streamReader is the position of a reader.
type streamReader struct {
	side           *readSide
	offset, cursor string
	had            int64 // messages
	failures       int   // connections that have ended since the last response
	wrong          error // of a response
}

// connect reads with one connection until it ends.
func (r *streamReader) connect(ctx context.Context) error {
	l, err := dial(ctx, r.side.address())
	if err != nil {
		return err
	}
	defer l.conn.Close()
	defer context.AfterFunc(ctx, func() { _ = l.conn.Close() })()
	for r.wrong == nil {
		path := fmt.Sprintf("%s?offset=%s&live=%s%s", streamPath(0), r.offset, r.side.live, r.cursor)
		resp, err := l.begin(http.MethodGet, path, "", nil)
		if err != nil {
			return err
		}
		r.failures = 0
		switch {
		case resp.StatusCode == http.StatusOK && r.side.live == "sse":
			err = r.events(resp.Body)
		case resp.StatusCode == http.StatusOK || resp.StatusCode == http.StatusNoContent:
			err = r.polled(resp)
		default:
			r.wrong = fmt.Errorf("a read: %s", resp.Status)
		}
		if err := errors.Join(err, resp.Body.Close()); err != nil {
			return err
		}
	}
	return nil
}

// polled handles the response to a long poll.
func (r *streamReader) polled(resp *http.Response) error {
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	r.had, r.wrong = r.side.received(r.had, string(text))
	r.offset, r.cursor = resp.Header.Get("Stream-Next-Offset"), "&cursor="+resp.Header.Get("Stream-Cursor")
	return nil
}

// events handles a response of server-sent events, until it ends.
func (r *streamReader) events(body io.Reader) error {
	event := ""
	for lines := bufio.NewReader(body); ; {
		line, err := lines.ReadString('\n')
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		field, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ":")
		value = strings.TrimPrefix(value, " ")
		switch {
		case field == "event":
			event = value
		case field == "data" && event == "data":
			r.had, r.wrong = r.side.received(r.had, value)
		case field == "data" && event == "control":
			var c struct{ StreamNextOffset string }
			r.wrong = json.Unmarshal([]byte(value), &c)
			r.offset = c.StreamNextOffset
		}
		if r.wrong != nil {
			return nil
		}
	}
}

func (s *readSide) work(ctx context.Context, m *meter) error {
	l, err := dial(ctx, s.address())
	if err != nil {
		return err
	}
	defer l.conn.Close()
	w := m.worker()
	for over := false; !over; over = w.over() {
		if err := s.one(ctx, l); err != nil {
			return err
		}
		s.mu.Lock()
		w.ops += int64(len(s.took))
		w.took, s.took = append(w.took, s.took...), s.took[:0]
		s.mu.Unlock()
	}
	return nil
}

// one appends a message, and waits until all readers have it.
func (s *readSide) one(ctx context.Context, l *httpConn) error {
	s.mu.Lock()
	message := streamMessage(s.sent, readMessage)
	s.sent++
	if s.log != nil {
		s.log.begin()
	}
	s.missing, s.at = s.readers, time.Now()
	s.mu.Unlock()
	if err := l.conn.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		return err
	}
	if err := l.succeed(http.MethodPost, streamPath(0), "Content-Type: text/plain\r\n", message); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, time.Minute, errors.New("not all readers have a message within a minute"))
	defer cancel()
	select {
	case <-s.got:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.failed
}

// verify returns an error unless each reader has each message once. Each has received them in order.
func (s *readSide) verify(_ context.Context, done int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if want := s.sent * int64(s.readers); done != want || s.failed != nil {
		return errors.Join(s.failed, fmt.Errorf("%d messages were received, and %d readers should have %d", done, s.readers, s.sent))
	}
	return nil
}

func (s *readSide) close() error {
	s.stop()
	s.running.Wait()
	return s.streamServer.close()
}

// streamReads measures the time from an append to the readers of the stream.
func streamReads(ctx context.Context, b *bench) (err error) {
	id := 0
	for _, live := range []string{"long-poll", "sse"} {
		for _, readers := range []int{1, min(streamReaders, b.objects/10)} {
			id++
			sides, err := b.streamSides(ctx, readers == 1, func(at streamServer) (side, error) { return openReaders(ctx, at, readers, live, nil) })
			if err != nil {
				return err
			}
			r := Row{ID: fmt.Sprint("SR", id), Unit: "messages received/s"}
			r.What = fmt.Sprintf("messages of %d bytes from an append to %d readers by %s", readMessage, readers, live)
			if r.Sides, err = b.compare(ctx, sides...); err != nil {
				return fmt.Errorf("%s: %w", r.ID, err)
			}
			r.Notes = []string{"p50 and p99 are from the beginning of the append to a reader; the next append begins when all readers have the message", b.streamNote()}
			if readers > 1 {
				r.Notes[1] = "the clients share the machine and the process with the server; the reference server is measured with one reader only"
			}
			b.add(r)
		}
	}
	for _, live := range []string{"long-poll", "sse"} {
		id++
		if err := b.readsAfterSync(ctx, fmt.Sprint("SR", id), live); err != nil {
			return err
		}
	}
	return nil
}

// readsAfterSync measures the time from the sync of an append to the reader of the stream.
func (b *bench) readsAfterSync(ctx context.Context, id, live string) error {
	h, err := b.openStreams(ctx)
	if err != nil {
		return err
	}
	s, err := openReaders(ctx, h, 1, live, h)
	if err != nil {
		return errors.Join(err, h.close())
	}
	r := Row{
		ID: id, Unit: "messages received/s", What: fmt.Sprintf("messages of %d bytes from the sync of an append to 1 reader by %s", readMessage, live),
		Target: Target{Text: "p99 ≤ 1 ms", P99: time.Millisecond},
		Notes: []string{"p50 and p99 are from the end of the first sync of the log after the beginning of the append to the reader; " +
			"messages/s include the sync", "the client shares the machine and the process with the server"},
	}
	if r.Sides, err = b.compare(ctx, named{ours, s}); err != nil {
		return fmt.Errorf("%s: %w", id, err)
	}
	b.add(r)
	return nil
}
