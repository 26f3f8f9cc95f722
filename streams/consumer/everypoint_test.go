package consumer_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/dohosttest"
	"github.com/dohost/dohost/internal/pointtest"
	"github.com/dohost/dohost/streams/consumer"
)

// pointMessages are the messages of each of the streams "tickets/0" and "tickets/1".
const pointMessages = 4

// pointScenario has a server, which outlives processes, a producer, and a sender that delivers the wakes. unkind servers repeat and reorder
// deliveries, end leases early, and begin their generations again.
func pointScenario(unkind bool) dohosttest.Scenario {
	var f *fakeServer
	var s *consumer.Subscription
	server := &handlerTransport{}
	s = &consumer.Subscription{Server: root, ID: "s", Targets: []consumer.Target{toTickets()}, Transport: server}
	var produced atomic.Bool
	produce := func(ctx context.Context) error {
		for i := range pointMessages {
			for stream := range 2 {
				f.append(fmt.Sprint("tickets/", stream), fmt.Sprint(10*stream+i))
			}
			if err := dohost.Sleep(ctx, 700*time.Millisecond); err != nil {
				return err
			}
		}
		produced.Store(true)
		return nil
	}
	return dohosttest.Scenario{
		FullDisk: true,
		Classes:  []dohost.Class{consumer.Class(s), ticketClass()},
		Reset: func() {
			f = newFakeServer()
			server.fake = f
			produced.Store(false)
			f.latency = time.Millisecond
			if !unkind {
				f.leaseTime = 1000 * time.Hour // a wake that was lost ends never
			}
		},
		Run: func(ctx context.Context, h *dohosttest.Host) error {
			producer := h.Client(produce)
			sender := h.Client(func(ctx context.Context) error { return send(ctx, h, f, s, unkind, &produced) })
			return errors.Join(producer.Wait(), sender.Wait())
		},
		Check: func(ctx context.Context, h *dohosttest.Host) error {
			for stream := range 2 {
				got, err := dohost.CallNoArg(ctx, tickets.Get(h, fmt.Sprint(stream)), (*ticket).texts)
				want := ""
				for i := range pointMessages {
					want += fmt.Sprint(10*stream+i, " ")
				}
				if text := strings.Join(got, " ") + " "; err != nil || text != want {
					return fmt.Errorf("ticket %d has %q, %v; want %q", stream, text, err, want)
				}
			}
			if len(f.faults) > 0 {
				return errors.New(strings.Join(f.faults, "; "))
			}
			return nil
		},
		Places:  pointtest.Places(),
		Batched: true,
	}
}

// send delivers the wakes of a server until all messages are acknowledged.
func send(ctx context.Context, h *dohosttest.Host, f *fakeServer, s *consumer.Subscription, unkind bool, produced *atomic.Bool) error {
	accepted := ""
	var previous []byte
	for round := 0; !produced.Load() || !f.settled(); round++ {
		if round == 1000 { // 5 min
			return fmt.Errorf("the wake %q has not ended", accepted)
		}
		body := f.begin()
		f.mu.Lock()
		wake := f.wake
		f.mu.Unlock()
		if body != nil && wake != accepted {
			w := f.deliver(ctx, s.Webhook(h.Host(), nil), body)
			if w.Code != 202 && w.Code < 500 {
				return fmt.Errorf("the delivery of %s: %d %s", wake, w.Code, w.Body)
			}
			if w.Code == 202 {
				accepted = wake
			}
			if unkind {
				for _, again := range [][]byte{body, previous} {
					if err := dohost.Sleep(ctx, 2113*time.Microsecond); err != nil {
						return err
					}
					if again != nil {
						f.deliver(ctx, s.Webhook(h.Host(), nil), again)
					}
				}
				f.misbehave()
			}
			previous = body
		}
		if err := dohost.Sleep(ctx, 300*time.Millisecond); err != nil {
			return err
		}
	}
	return nil
}

// misbehave ends the lease of the first wake and of each third one after it in the middle of its drain, and begins with generation 1 again after five wakes.
func (f *fakeServer) misbehave() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.leaseTime = 5 * time.Second
	if f.names%3 == 1 {
		f.lease = time.Now()
	}
	if f.names == 5 && f.wake == "" {
		f.generation = 0
	}
}

// TestConsumerAtEveryPoint has a server that delivers each wake until it is accepted, and then never again: the wake is not lost. Each message
// is passed once and in order, the acknowledgements never go back, and done follows the acknowledgement of all that the wake names.
func TestConsumerAtEveryPoint(t *testing.T) {
	dohosttest.EveryPoint(t, pointtest.Scenario(pointScenario(false), 30, 60))
}

// TestConsumerOfUnkindServerAtEveryPoint has a server that repeats and reorders deliveries, ends leases early, and forgets its generations.
func TestConsumerOfUnkindServerAtEveryPoint(t *testing.T) {
	dohosttest.EveryPoint(t, pointtest.Scenario(pointScenario(true), 30, 60))
}
