package consumer_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/dohosttest"
	"github.com/dohost/dohost/streams"
	"github.com/dohost/dohost/streams/consumer"
)

// runPull runs test with two runners of one pull-wake subscription of package streams. Each message is counted by the runner that reads it.
func runPull(t *testing.T, test func(t *testing.T, h *dohosttest.Host, server *handlerTransport, s *consumer.Subscription, pull func(name string) (stop func()))) {
	t.Helper()
	server := &handlerTransport{}
	s := &consumer.Subscription{Server: root, ID: "tickets", Lease: time.Second, Targets: []consumer.Target{toTickets()}, Transport: server}
	dohosttest.Run(t, &dohosttest.Options{Classes: append(streams.Classes(nil), consumer.Class(s), ticketClass())}, func(t *testing.T, h *dohosttest.Host) {
		server.handler = streams.Server(h.Host(), &streams.ServerOptions{URL: root, LongPoll: 3 * time.Second})
		request(t, server.handler, "PUT", "wakes", "")
		if err := s.Create(t.Context(), &consumer.Config{Pattern: "tickets/*", WakeStream: "wakes"}); err != nil {
			t.Fatal(err)
		}
		test(t, h, server, s, func(name string) func() {
			ctx, cancel := context.WithCancelCause(t.Context())
			stopped := errors.New("stopped")
			c := h.Client(func(context.Context) error {
				return s.Pull(ctx, h.Host(), &consumer.PullOptions{WakeStream: "wakes", Worker: name, OnError: func(err error) { t.Log(err) }})
			})
			return func() {
				cancel(stopped)
				if err := c.Wait(); !errors.Is(err, stopped) {
					t.Errorf("Pull returned %v", err)
				}
			}
		})
	})
}

func TestPullOfPackageStreams(t *testing.T) {
	runPull(t, func(t *testing.T, h *dohosttest.Host, server *handlerTransport, s *consumer.Subscription, pull func(string) func()) {
		request(t, server.handler, "PUT", "tickets/7", "")
		request(t, server.handler, "POST", "tickets/7", "[0]") // before there is a runner
		stopA := pull("a")
		h.Advance(2 * time.Second)
		wantTexts(t, h, "7", "0")
		stopB := pull("b")
		for i := range 9 {
			request(t, server.handler, "POST", "tickets/7", fmt.Sprintf("[%d]", i+1))
			h.Advance(time.Duration(i) * 100 * time.Millisecond)
		}
		h.Advance(2 * time.Second)
		wantTexts(t, h, "7", "0 1 2 3 4 5 6 7 8 9")
		stopA()
		request(t, server.handler, "POST", "tickets/7", "[10]")
		h.Advance(2 * time.Second)
		wantTexts(t, h, "7", "0 1 2 3 4 5 6 7 8 9 10")
		stopB()
	})
}

// TestPullFindsLostWake has a server whose stream of wakes does not have the wake: the next regular claim finds it. Errors are passed on, and
// end nothing.
func TestPullFindsLostWake(t *testing.T) {
	f := newFakeServer()
	s := &consumer.Subscription{Server: root, ID: "s", Targets: []consumer.Target{toTickets()}, Transport: f}
	o := &dohosttest.Options{Classes: []dohost.Class{consumer.Class(s), ticketClass()}}
	dohosttest.Run(t, o, func(t *testing.T, h *dohosttest.Host) {
		var failed, waits atomic.Int64
		down := atomic.Bool{}
		f.setAnswer(func(r *http.Request) (int, string) {
			switch {
			case down.Load():
				return 502, "no server"
			case r.URL.Query().Get("live") != "":
				waits.Add(1)
				_ = dohost.Sleep(r.Context(), 20*time.Second) // an error ends the wait
				return 204, ""
			}
			return 0, ""
		})
		f.header = http.Header{"Stream-Next-Offset": {"-1"}}
		f.append("wakes")
		ctx, cancel := context.WithCancel(t.Context())
		c := h.Client(func(context.Context) error {
			return s.Pull(ctx, h.Host(), &consumer.PullOptions{WakeStream: "wakes", OnError: func(err error) {
				if failed.Add(1); !strings.Contains(err.Error(), "502") {
					t.Error(err)
				}
			}})
		})
		h.Advance(time.Second)
		f.append("tickets/7", "1")
		h.Advance(50 * time.Second)
		if waits.Load() < 2 {
			t.Errorf("%d waits", waits.Load())
		}
		wantTexts(t, h, "7", "")
		h.Advance(15 * time.Second)
		wantTexts(t, h, "7", "1")
		down.Store(true)
		h.Advance(5 * time.Minute)
		if n := failed.Load(); n < 5 || n > 20 {
			t.Errorf("%d errors in 5 min", n)
		}
		down.Store(false)
		f.append("tickets/7", "2")
		h.Advance(time.Minute)
		wantTexts(t, h, "7", "1 2")
		cancel()
		if err := c.Wait(); !errors.Is(err, context.Canceled) {
			t.Errorf("Pull returned %v", err)
		}
	})
	if err := s.Pull(t.Context(), nil, &consumer.PullOptions{}); err == nil || !strings.Contains(err.Error(), "WakeStream") {
		t.Errorf("Pull without a stream of wakes returned %v", err)
	}
}

// TestPullOfStreamThatDoesNotWait has streams of wakes that are closed, and a server that answers a long poll immediately.
func TestPullOfStreamThatDoesNotWait(t *testing.T) {
	for _, closed := range []string{"true", "false"} {
		f := newFakeServer()
		s := &consumer.Subscription{Server: root, ID: "s", Targets: []consumer.Target{toTickets()}, Transport: f}
		o := &dohosttest.Options{Classes: []dohost.Class{consumer.Class(s), ticketClass()}}
		dohosttest.Run(t, o, func(t *testing.T, h *dohosttest.Host) {
			var waits, failed atomic.Int64
			f.setAnswer(func(r *http.Request) (int, string) {
				if r.URL.Query().Get("live") == "" {
					return 0, ""
				}
				if waits.Add(1) > 1000 {
					_ = dohost.Sleep(r.Context(), time.Hour) // end a loop that does not wait
				}
				return 204, ""
			})
			f.header = http.Header{"Stream-Next-Offset": {"-1"}, "Stream-Closed": {closed}}
			f.append("wakes")
			ctx, cancel := context.WithCancel(t.Context())
			c := h.Client(func(context.Context) error {
				return s.Pull(ctx, h.Host(), &consumer.PullOptions{WakeStream: "wakes", OnError: func(error) { failed.Add(1) }})
			})
			h.Advance(2 * time.Minute)
			if n := waits.Load(); n < 4 || n > 125 || closed == "true" && n > 20 {
				t.Errorf("closed %s: %d requests in 2 min", closed, n)
			}
			if (failed.Load() > 0) != (closed == "true") {
				t.Errorf("closed %s: %d errors", closed, failed.Load())
			}
			cancel()
			_ = c.Wait() // the error of ctx
		})
	}
}
