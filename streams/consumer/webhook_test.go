package consumer_test

import (
	"bytes"
	"crypto/ed25519"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/dohosttest"
	"github.com/dohost/dohost/streams/consumer"
)

// consumerTest is a consumer of a fakeServer in virtual time.
type consumerTest struct {
	h    *dohosttest.Host
	f    *fakeServer
	s    *consumer.Subscription
	hook http.Handler

	mu      sync.Mutex
	reports []string
}

// report records a report of the host.
func (c *consumerTest) report(_ dohost.ID, event string, attrs ...slog.Attr) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reports = append(c.reports, fmt.Sprint(event, " ", attrs))
}

// reported reports whether the host has reported a text.
func (c *consumerTest) reported(text string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return count(c.reports, text) > 0
}

// runConsumer runs test with a consumer; tune may change its description before.
func runConsumer(t *testing.T, tune func(*consumer.Subscription), test func(t *testing.T, c *consumerTest)) {
	t.Helper()
	f := newFakeServer()
	s := &consumer.Subscription{Server: root, ID: "s", Targets: []consumer.Target{toTickets()}, Transport: f}
	if tune != nil {
		tune(s)
	}
	c := &consumerTest{f: f, s: s}
	o := &dohosttest.Options{Options: dohost.Options{Listener: dohost.Listener{Service: c.report}}, Classes: []dohost.Class{consumer.Class(s), ticketClass()}}
	dohosttest.Run(t, o, func(t *testing.T, h *dohosttest.Host) {
		c.h, c.hook = h, s.Webhook(h.Host(), nil)
		test(t, c)
	})
}

// wake delivers the present wake, which must be accepted.
func (c *consumerTest) wake(t *testing.T) []byte {
	t.Helper()
	body := c.f.begin()
	if body == nil {
		t.Fatal("the server has no wake")
	}
	if w := c.f.deliver(t.Context(), c.hook, body); w.Code != 202 {
		t.Fatalf("the delivery: %d %s", w.Code, w.Body)
	}
	return body
}

// taken returns the requests since the last call.
func (f *fakeServer) taken() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	list := f.requests
	f.requests = nil
	return list
}

func (f *fakeServer) setAnswer(answer func(*http.Request) (int, string)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.answer = answer
}

func count(list []string, part string) (n int) {
	for _, text := range list {
		if strings.Contains(text, part) {
			n++
		}
	}
	return n
}

func (c *consumerTest) settled(t *testing.T) {
	t.Helper()
	if !c.f.settled() || len(c.f.faults) > 0 {
		t.Errorf("the server has the wake %q at generation %d, cursors %v, faults %q", c.f.wake, c.f.generation, c.f.acked, c.f.faults)
	}
}

func TestWebhookRefusals(t *testing.T) {
	runConsumer(t, nil, func(t *testing.T, c *consumerTest) {
		c.f.append("tickets/7", "1")
		good := c.f.begin()
		now := time.Now()
		for _, r := range []struct {
			name      string
			body      []byte
			signature string
			want      int
		}{
			{"no signature", good, "", 401},
			{"no JSON, and no signature", []byte("{"), "t=1,kid=k1,ed25519=AA", 401},
			{"no JSON, and the signature of another body", []byte("{"), c.f.sign(good, now), 401},
			{"the signature of another body", good, c.f.sign([]byte("{}"), now), 401},
			{"the signature of another time", good, strings.Replace(c.f.sign(good, now), "t=", "t=1", 1), 401},
			{"old", good, c.f.sign(good, now.Add(-6*time.Minute)), 401},
			{"early", good, c.f.sign(good, now.Add(6*time.Minute)), 401},
			{"unknown key", good, strings.Replace(c.f.sign(good, now), "k1", "k2", 1), 401},
			{"no JSON", []byte("{"), c.f.sign([]byte("{"), now), 400},
			{"another subscription", bytes.Replace(good, []byte(`"s"`), []byte(`"x"`), 1), "", 400},
			{"no ID", bytes.Replace(good, []byte(`"wake_id":"w1"`), []byte(`"wake_id":""`), 1), "", 400},
			{"no token", bytes.Replace(good, []byte(`token of w1`), nil, 1), "", 400},
			{"a large body", make([]byte, 4<<20+1), c.f.sign(make([]byte, 4<<20+1), now), 413},
		} {
			if r.want == 400 && r.signature == "" {
				r.signature = c.f.sign(r.body, now)
			}
			q := httptest.NewRequest("POST", "/wake", bytes.NewReader(r.body))
			q.Header.Set("Webhook-Signature", r.signature)
			w := httptest.NewRecorder()
			if c.hook.ServeHTTP(w, q); w.Code != r.want {
				t.Errorf("%s: %d %s, want %d", r.name, w.Code, w.Body, r.want)
			}
		}
		if w := httptest.NewRecorder(); true {
			if c.hook.ServeHTTP(w, httptest.NewRequest("GET", "/wake", nil)); w.Code != 405 || w.Header().Get("Allow") != "POST" {
				t.Errorf("GET: %d", w.Code)
			}
		}
		c.h.Advance(time.Minute)
		if n := count(c.f.taken(), "callback"); n > 0 {
			t.Errorf("%d requests for refused deliveries", n)
		}
	})
}

// TestWebhookKeys has senders that invent keys, a server whose keys cannot be read, and one whose key changes.
func TestWebhookKeys(t *testing.T) {
	runConsumer(t, nil, func(t *testing.T, c *consumerTest) {
		c.f.setAnswer(func(r *http.Request) (int, string) {
			if strings.HasSuffix(r.URL.Path, "jwks.json") {
				return 500, ""
			}
			return 0, ""
		})
		c.f.append("tickets/7", "1")
		body := c.f.begin()
		for range 3 {
			if w := c.f.deliver(t.Context(), c.hook, body); w.Code != 503 {
				t.Errorf("without keys: %d %s", w.Code, w.Body)
			}
		}
		if n := count(c.f.taken(), "jwks"); n != 1 {
			t.Errorf("%d requests for keys in one moment", n)
		}
		c.f.setAnswer(nil)
		c.h.Advance(11 * time.Second)
		invent := func(i int) int {
			q := httptest.NewRequest("POST", "/wake", bytes.NewReader(body))
			q.Header.Set("Webhook-Signature", strings.Replace(c.f.sign(body, time.Now()), "k1", fmt.Sprint("x", i), 1))
			w := httptest.NewRecorder()
			c.hook.ServeHTTP(w, q)
			return w.Code
		}
		for i := range 20 {
			if status := invent(i); status != 401 {
				t.Errorf("an invented key: %d", status)
			}
		}
		if n := count(c.f.taken(), "jwks"); n != 1 {
			t.Errorf("%d requests for keys in one moment", n)
		}
		c.wake(t)
		c.h.Advance(time.Second)
		c.settled(t)
		c.f.kid, c.f.private = "k2", ed25519.NewKeyFromSeed([]byte(strings.Repeat("2", ed25519.SeedSize)))
		c.h.Advance(11 * time.Second)
		c.f.append("tickets/7", "2")
		c.wake(t)
		c.h.Advance(time.Second)
		c.settled(t)
	})
}

// TestWebhookStale has a delivery of a wake that the server has replaced. A lower generation that the server confirms is the present one: the
// server has lost its memory.
func TestWebhookStale(t *testing.T) {
	runConsumer(t, nil, func(t *testing.T, c *consumerTest) {
		down := true
		c.f.setAnswer(func(r *http.Request) (int, string) {
			if down && strings.Contains(r.URL.Path, "tickets") {
				return 503, ""
			}
			return 0, ""
		})
		c.f.append("tickets/7", "1")
		first := c.wake(t)
		c.f.lease = time.Now()
		c.wake(t)
		if w := c.f.deliver(t.Context(), c.hook, first); w.Code != 409 {
			t.Errorf("an old delivery: %d %s", w.Code, w.Body)
		}
		c.f.lease, c.f.generation = time.Now(), 0
		c.wake(t)
		if c.f.generation != 1 {
			t.Fatalf("generation %d", c.f.generation)
		}
		down = false
		c.h.Advance(time.Minute)
		c.settled(t)
		wantTexts(t, c.h, "7", "1")
		c.f.taken()
		if w := c.f.deliver(t.Context(), c.hook, first); w.Code != 202 { // nothing is stored, so it could be the present one
			t.Errorf("an old delivery: %d %s", w.Code, w.Body)
		}
		c.h.Advance(time.Minute)
		if got := c.f.taken(); len(got) != 1 || !strings.Contains(got[0], "callback") {
			t.Errorf("a stale wake has caused the requests %q", got)
		}
	})
}

// TestWebhookWithin has a handler that waits for the end of the wake.
func TestWebhookWithin(t *testing.T) {
	runConsumer(t, nil, func(t *testing.T, c *consumerTest) {
		c.hook = c.s.Webhook(c.h.Host(), &consumer.WebhookOptions{Within: 20 * time.Second})
		c.f.append("tickets/7", "1")
		if w := c.f.deliver(t.Context(), c.hook, c.f.begin()); w.Code != 200 {
			t.Errorf("the delivery: %d %s", w.Code, w.Body)
		}
		c.settled(t)
		wantTexts(t, c.h, "7", "1")
		c.f.setAnswer(func(r *http.Request) (int, string) {
			if strings.Contains(r.URL.Path, "tickets") && dohost.Sleep(r.Context(), 25*time.Second) != nil {
				return 503, ""
			}
			return 0, ""
		})
		c.f.append("tickets/7", "2")
		if w := c.f.deliver(t.Context(), c.hook, c.f.begin()); w.Code != 202 {
			t.Errorf("the delivery: %d %s", w.Code, w.Body)
		}
		c.h.Advance(10 * time.Second)
		c.settled(t)
		wantTexts(t, c.h, "7", "1 2")
	})
}

// TestConsumerClassMistakes has descriptions that Open refuses, with the name of the field.
func TestConsumerClassMistakes(t *testing.T) {
	good := func() *consumer.Subscription {
		return &consumer.Subscription{Server: root, ID: "s", Targets: []consumer.Target{toTickets()}}
	}
	for want, change := range map[string]func(*consumer.Subscription){
		"ID":         func(s *consumer.Subscription) { s.ID = strings.Repeat("s", 257) },
		"server":     func(s *consumer.Subscription) { s.Server = "ftp://streams.example" },
		"target":     func(s *consumer.Subscription) { s.Targets = nil },
		"target 1":   func(s *consumer.Subscription) { s.Targets = append(s.Targets, consumer.Target{}) },
		"MaxMessage": func(s *consumer.Subscription) { s.MaxMessage = 9 << 20 },
		"Lease":      func(s *consumer.Subscription) { s.Lease = time.Millisecond },
		"Timeout":    func(s *consumer.Subscription) { s.Timeout = -1 },
		"two":        nil,
	} {
		list := []*consumer.Subscription{good()}
		if change != nil {
			change(list[0])
		} else {
			list = append(list, good())
		}
		h, err := dohost.Open(t.TempDir(), nil, consumer.Class(list...), ticketClass())
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Open returned %v, want %q", err, want)
		}
		if h != nil {
			_ = h.Close() // the error of Open is missing
		}
	}
}

// TestWorkerIsNoObjectOfClients has a client that asks for the worker.
func TestWorkerIsNoObjectOfClients(t *testing.T) {
	runConsumer(t, nil, func(t *testing.T, c *consumerTest) {
		_, err := c.h.Host().AuthorizeHTTP(httptest.NewRequest("GET", "/", nil), dohost.ID{Class: consumer.ClassName, Name: "s"})
		if !errors.Is(err, dohost.ErrForbidden) {
			t.Errorf("AuthorizeHTTP returned %v", err)
		}
	})
}
