package streams

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/dohosttest"
	"github.com/dohost/dohost/internal/pointtest"
)

const pointMessages = 3

// pointReader is a reader in one mode, which outlives incarnations and processes.
type pointReader struct {
	live   string
	offset string
	data   string // of all responses
	closed bool
}

// retry repeats a request until its status is below 500. Each attempt reaches the process of its time.
func retry(ctx context.Context, h *dohosttest.Host, method, path, body string, header ...string) (w *httptest.ResponseRecorder, err error) {
	p := &dohost.RetryPolicy{MaxAttempts: 20, ShouldRetry: dohost.RetryAnyError}
	err = dohost.Retry(ctx, p, func(ctx context.Context) error {
		s := Server(h.Host(), &ServerOptions{LongPoll: 3 * time.Second, EventStream: 5 * time.Second})
		if w = serveContext(ctx, s, method, path, body, header...); w.Code >= 500 {
			return errors.New(summary(w))
		}
		return nil
	})
	return w, err
}

// produce sends each message until it is accepted, and closes the stream with the last one.
func produce(ctx context.Context, h *dohosttest.Host) error {
	for i := range pointMessages {
		header := []string{asJSON, ofP, "Producer-Epoch: 0", fmt.Sprint("Producer-Seq: ", i)}
		if i == pointMessages-1 {
			header = append(header, closeIt)
		}
		w, err := retry(ctx, h, "POST", "a", fmt.Sprintf(`[{"n":%d},"x"]`, i), header...)
		if err != nil || w.Code != 200 && w.Code != 204 {
			return errors.Join(err, fmt.Errorf("message %d: %s", i, summary(w)))
		}
	}
	return nil
}

// follow reads until the end of the stream.
func (r *pointReader) follow(ctx context.Context, h *dohosttest.Host) error {
	for !r.closed {
		query := "?offset=" + r.offset
		if r.live != "" {
			query += "&live=" + r.live
		}
		w, err := retry(ctx, h, "GET", "a"+query, "")
		if err != nil || w.Code != 200 && w.Code != 204 {
			return errors.Join(err, fmt.Errorf("read %s: %s", query, summary(w)))
		}
		if r.live == liveEvents {
			err = r.takeEvents(w.Body.String())
		} else {
			err = r.take(w.Body.String(), w.Header().Get("Stream-Next-Offset"), w.Header().Get("Stream-Closed") == "true")
		}
		if err != nil {
			return err
		}
		if r.live == "" && !r.closed {
			if err := dohost.Sleep(ctx, time.Second); err != nil {
				return err
			}
		}
	}
	return nil
}

// take takes the data and the next offset of a response.
func (r *pointReader) take(body, next string, closed bool) error {
	if next < r.offset && r.offset != offsetStart {
		return fmt.Errorf("%q: the offset %q follows %q", r.live, next, r.offset)
	}
	if body = strings.Trim(body, "[]"); body != "" {
		if next == r.offset {
			return fmt.Errorf("%q: the offset %q has not moved with %q", r.live, next, body)
		}
		r.data += body + ","
	}
	r.offset, r.closed = next, closed
	return nil
}

// takeEvents takes a response of events.
func (r *pointReader) takeEvents(body string) error {
	data := ""
	for line := range strings.SplitSeq(body, "\n") {
		switch text, ok := strings.CutPrefix(line, "data:"); {
		case !ok:
		case strings.HasPrefix(text, "["):
			data = text
		default:
			var c control
			if err := json.Unmarshal([]byte(text), &c); err != nil {
				return err
			}
			if err := r.take(data, c.NextOffset, c.Closed); err != nil {
				return err
			}
			data = ""
		}
	}
	return nil
}

// TestStreamAtEveryPoint has an idempotent producer, which repeats its requests, and a reader in each mode, while incarnations and
// processes end. Each reader gets each message once and in order, at offsets that only grow.
func TestStreamAtEveryPoint(t *testing.T) {
	var want strings.Builder
	for i := range pointMessages {
		fmt.Fprintf(&want, `{"n":%d},"x",`, i)
	}
	var readers []*pointReader
	s := dohosttest.Scenario{
		FullDisk: true,
		Classes:  Classes(nil),
		Reset: func() {
			readers = nil
			for _, live := range []string{"", livePoll, liveEvents} {
				readers = append(readers, &pointReader{live: live, offset: offsetStart})
			}
		},
		Run: func(ctx context.Context, h *dohosttest.Host) error {
			if w, err := retry(ctx, h, "PUT", "a", "", asJSON); err != nil || w.Code > 201 {
				return errors.Join(err, errors.New(summary(w)))
			}
			clients := []*dohosttest.Client{h.Client(func(ctx context.Context) error { return produce(ctx, h) })}
			for _, r := range readers {
				clients = append(clients, h.Client(func(ctx context.Context) error { return r.follow(ctx, h) }))
			}
			var err error
			for _, c := range clients {
				err = errors.Join(err, c.Wait())
			}
			return err
		},
		Check: func(ctx context.Context, h *dohosttest.Host) error {
			for _, r := range readers {
				if r.data != want.String() {
					return fmt.Errorf("reader %q has %s, want %s", r.live, r.data, want.String())
				}
			}
			all := &pointReader{offset: offsetStart}
			if err := all.follow(ctx, h); err != nil {
				return err
			}
			if all.data != want.String() {
				return fmt.Errorf("the stream has %s, want %s", all.data, want.String())
			}
			return nil
		},
		Batched: true,
	}
	dohosttest.EveryPoint(t, pointtest.Scenario(s, 30, 60))
}
