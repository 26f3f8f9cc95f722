package consumer_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/dohost/dohost/streams/consumer"
)

// TestDrainContinuesAfterFailure has a stream that fails, and one of 20 responses: one drain passes all of them.
func TestDrainContinuesAfterFailure(t *testing.T) {
	runConsumer(t, nil, func(t *testing.T, c *consumerTest) {
		c.f.page = 1
		c.f.append("other/1", "1")
		for range 20 {
			c.f.append("tickets/8", "2")
		}
		c.wake(t)
		c.h.Advance(500 * time.Millisecond)
		wantTexts(t, c.h, "8", strings.TrimSpace(strings.Repeat("2 ", 20)))
		if c.f.acked["tickets/8"] != 20 || c.f.settled() {
			t.Errorf("cursors %v", c.f.acked)
		}
	})
}

// TestDrainOfRefusedAcknowledgement has a server that refuses the cursor of one stream, and with it all cursors of a request.
func TestDrainOfRefusedAcknowledgement(t *testing.T) {
	runConsumer(t, nil, func(t *testing.T, c *consumerTest) {
		c.f.setAnswer(func(r *http.Request) (int, string) {
			c.f.mu.Lock()
			defer c.f.mu.Unlock()
			if last := c.f.requests[len(c.f.requests)-1]; strings.Contains(last, `"stream":"tickets/7"`) {
				return 409, `{"error":{"code":"INVALID_OFFSET","message":"a\nb"}}`
			}
			return 0, ""
		})
		c.f.append("tickets/7", "1")
		c.f.append("tickets/8", "2")
		c.wake(t)
		c.h.Advance(500 * time.Millisecond)
		if c.f.acked["tickets/8"] != 1 || c.f.acked["tickets/7"] != 0 || c.f.settled() {
			t.Errorf("cursors %v", c.f.acked)
		}
		if c.reported("a\nb") {
			t.Error("a text of the server begins a line of the log")
		}
	})
}

// TestDrainWithoutProgressPauses has a stream that is pending for the server, although it does not exist: the server would begin the next wake
// when this one ends.
func TestDrainWithoutProgressPauses(t *testing.T) {
	runConsumer(t, nil, func(t *testing.T, c *consumerTest) {
		c.f.setAnswer(func(r *http.Request) (int, string) {
			if strings.Contains(r.URL.Path, "tickets") {
				return 404, ""
			}
			return 0, ""
		})
		c.f.append("tickets/7", "1")
		for i := range 3 {
			c.wake(t)
			c.h.Advance(900 * time.Millisecond)
			if ended := c.f.endedWakes(); len(ended) != i {
				t.Errorf("the wakes %q have ended within 900 ms", ended)
			}
			c.h.Advance(200 * time.Millisecond)
			if ended := c.f.endedWakes(); len(ended) != i+1 {
				t.Errorf("the wakes %q have ended", ended)
			}
		}
	})
}

// TestDrainBoundsMessagesExactly has messages of the limit, and one byte beyond it.
func TestDrainBoundsMessagesExactly(t *testing.T) {
	runConsumer(t, func(s *consumer.Subscription) { s.MaxMessage = 2000 }, func(t *testing.T, c *consumerTest) {
		text := func(n int) string { return `"` + strings.Repeat("a", n-2) + `"` }
		most := []string{text(2000), text(2000), text(10), text(2000)}
		c.f.append("tickets/8", most...)
		c.f.append("tickets/7", "1", text(2001), "2")
		c.wake(t)
		c.h.Advance(500 * time.Millisecond)
		wantTexts(t, c.h, "8", strings.Join(most, " "))
		wantTexts(t, c.h, "7", "")
		if !c.reported("more than 2000 bytes") {
			t.Errorf("reports %q", c.reports)
		}
	})
}

// TestDrainOfHostilePaths has paths that leave the root of streams, have no valid length, or make the program's function panic. The messages of
// the other stream are passed.
func TestDrainOfHostilePaths(t *testing.T) {
	name := func(path string) string {
		if path == "tickets/" {
			panic("no name")
		}
		return nameOf(path)
	}
	to := consumer.To(tickets, name, (*ticket).storage, (*ticket).take)
	runConsumer(t, func(s *consumer.Subscription) { s.Targets[0] = to }, func(t *testing.T, c *consumerTest) {
		for _, path := range []string{"tickets/../../secret", "tickets/.", "tickets/9\r\nX: y", "tickets/", strings.Repeat("a", 1025)} {
			c.f.append(path, "1")
		}
		c.f.append("tickets/8?a#b%2e y", "2")
		c.wake(t)
		c.h.Advance(500 * time.Millisecond)
		wantTexts(t, c.h, "8?a#b%2e y", "2")
		got := c.f.taken()
		if count(got, "secret") > 0 || count(got, "/.") > 0 || count(got, "GET /v1/stream/tickets/8%3Fa%23b%252e%20y?offset=") != 1 {
			t.Errorf("requests %q", got)
		}
		for _, want := range []string{`segment \"..\"`, `segment \".\"`, "no name", "1 streams without a path"} {
			if !c.reported(want) && !c.reported(strings.ReplaceAll(want, `\`, "")) {
				t.Errorf("no report of %s: %q", want, c.reports)
			}
		}
	})
}

// closingTransport makes the responses of streams end with their connection.
type closingTransport struct{ *fakeServer }

func (t closingTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	w, err := t.fakeServer.RoundTrip(r)
	if err == nil && strings.Contains(r.URL.Path, "tickets") {
		w.Close, w.ContentLength = true, -1
	}
	return w, err
}

// TestDrainOfDataOfUnknownLength has a response of bytes that could have been cut off.
func TestDrainOfDataOfUnknownLength(t *testing.T) {
	runConsumer(t, func(s *consumer.Subscription) { s.Transport = closingTransport{s.Transport.(*fakeServer)} }, func(t *testing.T, c *consumerTest) {
		c.f.kind = "text/plain"
		c.f.append("tickets/7", "data")
		c.wake(t)
		c.h.Advance(500 * time.Millisecond)
		wantTexts(t, c.h, "7", "")
		if !c.reported("no length") {
			t.Errorf("reports %q", c.reports)
		}
	})
}

// TestWebhookBoundsStoredWake has a delivery of 1,000 streams with long paths and offsets, which are more than a row can have.
func TestWebhookBoundsStoredWake(t *testing.T) {
	runConsumer(t, nil, func(t *testing.T, c *consumerTest) {
		long := strings.Repeat("1", 1020)
		var list []map[string]any
		for i := range 1000 {
			list = append(list, map[string]any{"path": fmt.Sprintf("%0.1020d", i), "acked_offset": "-1" + long, "tail_offset": long, "has_pending": true})
		}
		body, err := json.Marshal(map[string]any{"subscription_id": "s", "wake_id": "w", "generation": 1, "streams": list, "callback_token": "t"})
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if w := c.f.deliver(t.Context(), c.hook, bytes.Clone(body)); w.Code != 202 {
				t.Errorf("the delivery: %d %s", w.Code, w.Body)
			}
		}
	})
}
