package consumer_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/streams/consumer"
)

// TestDrainSendsHeartbeats has a read of 100 s: a heartbeat leaves each third of the lease.
func TestDrainSendsHeartbeats(t *testing.T) {
	runConsumer(t, func(s *consumer.Subscription) { s.Timeout = time.Hour }, func(t *testing.T, c *consumerTest) {
		c.f.setAnswer(func(r *http.Request) (int, string) {
			if strings.Contains(r.URL.Path, "tickets") && dohost.Sleep(r.Context(), 105*time.Second) != nil {
				return 503, ""
			}
			return 0, ""
		})
		c.f.append("tickets/7", "1")
		c.wake(t)
		c.h.Advance(104 * time.Second)
		if n := count(c.f.taken(), "callback"); n != 11 { // the claim, and one each 10 s
			t.Errorf("%d requests during the read, want 11", n)
		}
		c.h.Advance(2 * time.Second)
		c.settled(t)
		if c.f.generation != 1 {
			t.Errorf("the lease has ended: generation %d", c.f.generation)
		}
	})
}

// TestDrainHeartbeatMayHang has a heartbeat without a response: the next ones keep the lease.
func TestDrainHeartbeatMayHang(t *testing.T) {
	runConsumer(t, func(s *consumer.Subscription) { s.Timeout = time.Hour }, func(t *testing.T, c *consumerTest) {
		callbacks := 0
		c.f.setAnswer(func(r *http.Request) (int, string) {
			switch {
			case strings.HasSuffix(r.URL.Path, "callback"):
				if callbacks++; callbacks == 2 {
					<-r.Context().Done()
					return 503, ""
				}
			case strings.Contains(r.URL.Path, "tickets") && dohost.Sleep(r.Context(), 105*time.Second) != nil:
				return 503, ""
			}
			return 0, ""
		})
		c.f.append("tickets/7", "1")
		c.wake(t)
		c.h.Advance(110 * time.Second)
		c.settled(t)
		if c.f.generation != 1 {
			t.Errorf("the lease has ended: generation %d", c.f.generation)
		}
	})
}

// TestDrainIsSuperseded ends the lease of a drain. Its requests are refused, it ends without an error, and the next wake is worked on.
func TestDrainIsSuperseded(t *testing.T) {
	runConsumer(t, nil, func(t *testing.T, c *consumerTest) {
		c.f.setAnswer(func(r *http.Request) (int, string) {
			if strings.Contains(r.URL.Path, "tickets") && dohost.Sleep(r.Context(), 15*time.Second) != nil {
				return 503, ""
			}
			return 0, ""
		})
		c.f.append("tickets/7", "1")
		c.wake(t)
		c.h.Advance(time.Second)
		c.f.lease = time.Now()
		c.wake(t) // the drain of the first wake is running
		c.h.Advance(time.Second)
		if got := c.f.taken(); count(got, "GET /v1/stream/tickets") != 1 {
			t.Errorf("requests %q, want one read", got)
		}
		c.h.Advance(time.Minute)
		c.settled(t)
		wantTexts(t, c.h, "7", "1")
		if c.f.generation != 2 || len(c.f.ended) != 1 || c.f.ended[0] != "w2" {
			t.Errorf("generation %d, ended %q", c.f.generation, c.f.ended)
		}
		if !c.reported("consumer:superseded") || c.reported("rows:error") {
			t.Errorf("the host has reported %q, want a superseded drain and no error", c.reports)
		}
	})
}

// TestDrainRepeatsFailures has an object that fails: its stream waits, the other one does not.
func TestDrainRepeatsFailures(t *testing.T) {
	runConsumer(t, nil, func(t *testing.T, c *consumerTest) {
		fail := func(err error) {
			if err := tickets.Get(c.h, "7").Do(t.Context(), func(_ context.Context, o *ticket) error { o.fail = err; return nil }); err != nil {
				t.Fatal(err)
			}
		}
		fail(errors.New("no paper"))
		c.f.append("tickets/7", "1", "2")
		c.f.append("tickets/8", "3")
		c.f.append("other/1", "4")
		c.wake(t)
		c.h.Advance(5 * time.Second)
		wantTexts(t, c.h, "7", "")
		wantTexts(t, c.h, "8", "3")
		if c.f.acked["tickets/8"] != 1 || c.f.acked["tickets/7"] != 0 || c.f.acked["other/1"] != 0 {
			t.Errorf("cursors %v", c.f.acked)
		}
		fail(nil)
		c.h.Advance(10 * time.Second)
		wantTexts(t, c.h, "7", "1 2")
		if c.f.settled() || c.f.acked["other/1"] != 0 {
			t.Error("the wake has ended, although no object has the messages of a stream")
		}
		delete(c.f.streams, "other/1")
		c.h.Advance(2 * time.Minute)
		if c.f.wake == "" || c.f.acked["tickets/7"] != 2 {
			t.Errorf("the wake is %q, the cursors %v", c.f.wake, c.f.acked)
		}
	})
}

// TestDrainOfLongResponse has a response of 1,000 messages that is cut off twice. Each message is passed once.
func TestDrainOfLongResponse(t *testing.T) {
	runConsumer(t, nil, func(t *testing.T, c *consumerTest) {
		want := make([]string, 1000)
		for i := range want {
			want[i] = fmt.Sprintf(`{"n":%d}`, i)
		}
		c.f.append("tickets/7", want...)
		reads := 0
		c.f.setAnswer(func(r *http.Request) (int, string) {
			if reads++; !strings.Contains(r.URL.Path, "tickets") {
				reads--
			} else if reads < 3 {
				return 200, "[" + strings.Join(want[:300*reads], ",")
			}
			return 0, ""
		})
		c.f.header = http.Header{"Stream-Next-Offset": {offsetOf(1000)}, "Content-Type": {"application/json"}}
		c.wake(t)
		c.h.Advance(10 * time.Second)
		c.settled(t)
		wantTexts(t, c.h, "7", strings.Join(want, " "))
		if reads != 3 {
			t.Errorf("%d reads", reads)
		}
	})
}

// TestDrainOfData has a stream of bytes whose first response is cut off.
func TestDrainOfData(t *testing.T) {
	for _, size := range []int{10, 1 << 20, 5<<19 + 7} {
		runConsumer(t, nil, func(t *testing.T, c *consumerTest) {
			data := strings.Repeat("0123456789abcdef", 5<<19/16+1)[:size]
			c.f.kind = "text/plain"
			c.f.append("tickets/7", data)
			cut := 0
			c.f.setAnswer(func(r *http.Request) (int, string) {
				if cut++; !strings.Contains(r.URL.Path, "tickets") {
					cut--
				} else if cut < 3 {
					return 200, data[:size*2/3]
				}
				return 0, ""
			})
			c.f.header = http.Header{"Stream-Next-Offset": {offsetOf(1)}, "Content-Type": {"text/plain"}, "Content-Length": {fmt.Sprint(size)}}
			c.wake(t)
			c.h.Advance(10 * time.Second)
			c.settled(t)
			got, err := dohost.CallNoArg(t.Context(), tickets.Get(c.h, "7"), (*ticket).texts)
			if err != nil || strings.Join(got, "") != data {
				t.Errorf("size %d: the ticket has %d bytes in %d parts, %v", size, len(strings.Join(got, "")), len(got), err)
			}
		})
	}
}

// TestDrainBoundsMessages has a message beyond the limit: its stream fails, and no message before it is lost.
func TestDrainBoundsMessages(t *testing.T) {
	runConsumer(t, func(s *consumer.Subscription) { s.MaxMessage = 100_000 }, func(t *testing.T, c *consumerTest) {
		small := `"` + strings.Repeat("a", 99_000) + `"`
		c.f.append("tickets/8", small, small, small)
		c.f.append("tickets/7", "1", `"`+strings.Repeat("a", 1_000_000)+`"`)
		c.wake(t)
		c.h.Advance(5 * time.Second)
		wantTexts(t, c.h, "8", small+" "+small+" "+small)
		if c.f.acked["tickets/7"] != 0 || !c.reported("more than 100000 bytes") {
			t.Errorf("cursors %v, reports %q", c.f.acked, c.reports)
		}
	})
}

// TestDrainOfStreamThatWasCreatedAgain deletes a stream after its messages were passed, and creates it again.
func TestDrainOfStreamThatWasCreatedAgain(t *testing.T) {
	runConsumer(t, nil, func(t *testing.T, c *consumerTest) {
		c.f.append("tickets/7", "1", "2", "3")
		c.wake(t)
		c.h.Advance(time.Second)
		c.settled(t)
		c.f.streams["tickets/7"], c.f.acked["tickets/7"] = []string{"4"}, 0
		c.wake(t)
		c.h.Advance(time.Second)
		c.settled(t)
		wantTexts(t, c.h, "7", "1 2 3 4")
		c.f.append("tickets/7", "5")
		c.wake(t)
		delete(c.f.streams, "tickets/7") // before it is read
		c.f.append("tickets/8", "6")
		c.h.Advance(time.Second)
		wantTexts(t, c.h, "7", "1 2 3 4")
	})
}

// TestDrainPassesMessagesReadByAnEarlierDrain has a wake whose messages were passed, although no acknowledgement has arrived: the object gets none of
// them again, and the server gets the position.
func TestDrainPassesMessagesReadByAnEarlierDrain(t *testing.T) {
	runConsumer(t, nil, func(t *testing.T, c *consumerTest) {
		c.f.append("tickets/7", "1", "2")
		c.wake(t)
		c.h.Advance(time.Second)
		c.settled(t)
		c.f.acked["tickets/7"] = 0
		c.wake(t)
		c.h.Advance(time.Second)
		c.settled(t)
		wantTexts(t, c.h, "7", "1 2")
	})
}

// TestDrainOfStalledServer has a server that does not end its responses.
func TestDrainOfStalledServer(t *testing.T) {
	runConsumer(t, nil, func(t *testing.T, c *consumerTest) {
		c.f.setAnswer(func(r *http.Request) (int, string) {
			if strings.Contains(r.URL.Path, "tickets") {
				<-r.Context().Done()
			}
			return 0, ""
		})
		c.f.append("tickets/7", "1")
		c.wake(t)
		c.h.Advance(29 * time.Second)
		if c.reported("rows:error") {
			t.Error("the read has failed before its time limit")
		}
		c.f.setAnswer(nil)
		c.h.Advance(10 * time.Second)
		c.settled(t)
		wantTexts(t, c.h, "7", "1")
	})
}
