package streams

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/dohosttest"
	"github.com/dohost/dohost/internal/pointtest"
)

// pointWorker is the worker of a subscription, which outlives incarnations and processes. It takes the data that each wake offers it.
type pointWorker struct {
	h  *dohosttest.Host
	id string

	sent atomic.Int64 // producers that have all responses

	mu         sync.Mutex
	generation uint64
	at         map[string]string // cursors
	data       map[string]string // messages of each stream with a comma after each
}

// take reads the data of a wake. It skips data that it has taken.
func (w *pointWorker) take(ctx context.Context, b *wakeBody) error {
	w.mu.Lock()
	last := w.generation
	w.generation = max(last, b.Generation)
	w.mu.Unlock()
	if b.Generation < last {
		return fmt.Errorf("generation %d follows %d", b.Generation, last)
	}
	for _, s := range b.Streams {
		if s.Pending {
			if err := w.takeStream(ctx, &s); err != nil {
				return err
			}
		}
	}
	return nil
}

func (w *pointWorker) takeStream(ctx context.Context, s *streamInfo) error {
	w.mu.Lock()
	from, known := w.at[s.Path]
	w.mu.Unlock()
	if known && s.Acked > from {
		return fmt.Errorf("%s: the cursor is %s, but the worker has taken the data up to %s", s.Path, s.Acked, from)
	}
	if !known {
		from = s.Acked
	}
	if s.Tail <= from {
		return nil
	}
	r, err := retry(ctx, w.h, "GET", s.Path+"?offset="+from, "")
	if err != nil || r.Code != 200 {
		return errors.Join(err, fmt.Errorf("read %s from %s: %s", s.Path, from, summary(r)))
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if now, ok := w.at[s.Path]; ok && now != from {
		return nil // a delivery that was repeated has taken it
	}
	if text := strings.Trim(r.Body.String(), "[]"); text != "" {
		w.data[s.Path] += text + ","
	}
	w.at[s.Path] = r.Header().Get("Stream-Next-Offset")
	return nil
}

// subscribe creates the subscription, and sets created when it has the response.
func (w *pointWorker) subscribe(ctx context.Context, config string, created *bool) error {
	r, err := retry(ctx, w.h, "PUT", to(w.id, ""), config)
	if err != nil || r.Code > 201 {
		return errors.Join(err, errors.New(summary(r)))
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	*created = true
	return nil
}

// locked returns a variable that subscribe sets.
func (w *pointWorker) locked(created *bool) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return *created
}

// pull claims wakes until all is sent, and there is no work: an ack may have been lost, and a read may have returned more than the wake.
func (w *pointWorker) pull(ctx context.Context) error {
	for {
		r, err := retry(ctx, w.h, "POST", to(w.id, "/claim"), `{"worker":"w"}`)
		if err != nil {
			return err
		}
		if w.sent.Load() == pointSenders && code(r) == "409 NO_PENDING_WORK" {
			return nil
		}
		if r.Code != 200 { // not created yet, nothing to do, or the response to a claim was lost
			if err := dohost.Sleep(ctx, 300*time.Millisecond); err != nil {
				return err
			}
			continue
		}
		var b wakeBody
		if err := json.Unmarshal(r.Body.Bytes(), &b); err != nil {
			return err
		}
		w.mu.Lock()
		again := b.Generation <= w.generation
		w.mu.Unlock()
		if again {
			return fmt.Errorf("two claims of generation %d", b.Generation)
		}
		if err := w.take(ctx, &b); err != nil {
			return err
		}
		// The response to an ack may be lost, and the repeated ack is then refused: the worker need not know.
		if r, err = retry(ctx, w.h, "POST", to(w.id, "/ack"), b.ackBody(true), b.bearer()); err != nil || r.Code != 200 && r.Code != 409 {
			return errors.Join(err, fmt.Errorf("ack: %s", summary(r)))
		}
	}
}

// pointProducers append messages to the same streams concurrently, and know which of them follow the creation of the subscription.
type pointProducers struct {
	h     *dohosttest.Host
	w     *pointWorker
	after map[string]int // by stream and producer: the first message that was sent after the creation
}

// There are pointStreams streams, and pointSenders producers that append pointMessages messages to each.
const pointStreams, pointSenders = 1, 2

// produce sends each message of a producer until it is accepted. Message i of producer n is the number 10n+i.
func (p *pointProducers) produce(ctx context.Context, n int, created *bool) error {
	for i := range pointMessages {
		for at := range pointStreams {
			path := fmt.Sprint("events/", at)
			if i == 0 {
				if r, err := retry(ctx, p.h, "PUT", path, "", asJSON); err != nil || r.Code > 201 {
					return errors.Join(err, errors.New(summary(r)))
				}
			}
			p.w.mu.Lock()
			if _, ok := p.after[fmt.Sprint(path, n)]; !ok && *created {
				p.after[fmt.Sprint(path, n)] = i
			}
			p.w.mu.Unlock()
			r, err := retry(ctx, p.h, "POST", path, fmt.Sprint(10*n+i), asJSON, fmt.Sprint("Producer-Id: ", n), "Producer-Epoch: 0", fmt.Sprint("Producer-Seq: ", i))
			if err != nil || r.Code != 200 && r.Code != 204 {
				return errors.Join(err, fmt.Errorf("message %d: %s", i, summary(r)))
			}
		}
		for i == pointMessages-2 && !p.w.locked(created) { // the last messages follow the creation in each run
			if err := dohost.Sleep(ctx, time.Second); err != nil {
				return err
			}
		}
	}
	p.w.sent.Add(1)
	return nil
}

// ended reports whether the worker has the last messages of each stream.
func (w *pointWorker) ended() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for at := range pointStreams {
		for n := range pointSenders {
			if !strings.Contains(","+w.data[fmt.Sprint("events/", at)], fmt.Sprint(",", 10*n+pointMessages-1, ",")) {
				return false
			}
		}
	}
	return true
}

// check compares the data of the worker with that of the producers: the last messages of each producer in each stream, among them all that were sent
// after the creation of the subscription, each once and in order.
func (w *pointWorker) check(after map[string]int) error {
	for at := range pointStreams {
		path := fmt.Sprint("events/", at)
		for n := range pointSenders {
			all, got := "", ""
			for i := range pointMessages {
				all += fmt.Sprint(10*n+i, ",")
			}
			for message := range strings.SplitAfterSeq(w.data[path], ",") {
				if v, err := strconv.Atoi(strings.Trim(message, ",")); err == nil && v/10 == n {
					got += message
				}
			}
			sent, ok := after[fmt.Sprint(path, n)]
			if !ok || !strings.HasSuffix(all, got) || strings.Count(got, ",") < pointMessages-sent {
				return fmt.Errorf("%s: the worker has %q of %q, and the messages from %d on (%t) were sent after the creation", path, got, all, sent, ok)
			}
		}
	}
	return nil
}

// settled waits until the subscription has no pending work, and checks its cursors.
func (w *pointWorker) settled(ctx context.Context) error {
	body := ""
	for range 100 {
		r, err := retry(ctx, w.h, "GET", to(w.id, ""), "")
		if err != nil {
			return err
		}
		body = r.Body.String()
		var d describedBody
		if err := json.Unmarshal(r.Body.Bytes(), &d); err != nil {
			return err
		}
		behind := 0
		for _, s := range d.Streams {
			if s.Acked != w.at[s.Path] {
				behind++
			}
		}
		if behind == 0 && len(d.Streams) == pointStreams {
			return nil
		}
		if err := dohost.Sleep(ctx, time.Second); err != nil {
			return err
		}
	}
	return fmt.Errorf("the cursors are not at the tails: the subscription is %s, the worker is at %v", body, w.at)
}

// subscriptionScenario has producers, and a creator of a subscription that begins at the same time.
func subscriptionScenario(classes []dohost.Class, w *pointWorker, config string, work func(ctx context.Context) error) dohosttest.Scenario {
	var created bool
	var p pointProducers
	return dohosttest.Scenario{
		FullDisk: true,
		Classes:  classes,
		Reset: func() {
			created = false
			w.sent.Store(0)
			w.generation, w.at, w.data = 0, map[string]string{}, map[string]string{}
		},
		Run: func(ctx context.Context, h *dohosttest.Host) error {
			w.h, p = h, pointProducers{h, w, map[string]int{}}
			if r, err := retry(ctx, h, "PUT", "wakes", "", asJSON); err != nil || r.Code > 201 {
				return errors.Join(err, errors.New(summary(r)))
			}
			var err error
			for _, c := range []*dohosttest.Client{
				h.Client(func(ctx context.Context) error { return w.subscribe(ctx, config, &created) }),
				h.Client(func(ctx context.Context) error { return p.produce(ctx, 0, &created) }),
				h.Client(func(ctx context.Context) error { return p.produce(ctx, 1, &created) }),
				h.Client(work),
			} {
				err = errors.Join(err, c.Wait())
			}
			return err
		},
		Check: func(ctx context.Context, h *dohosttest.Host) error {
			if err := w.check(p.after); err != nil {
				return err
			}
			return w.settled(ctx)
		},
		Batched: true,
	}
}

// TestPullWakeAtEveryPoint has two workers that claim wakes while incarnations and processes end. They get each message that follows the
// creation of the subscription once and in order, no two claims have the same generation, and in the end all cursors are at the tails.
func TestPullWakeAtEveryPoint(t *testing.T) {
	w := &pointWorker{id: "s"}
	s := subscriptionScenario(Classes(nil), w, `{"type":"pull-wake","pattern":"events/*","wake_stream":"wakes","lease_ttl_ms":1000}`,
		func(ctx context.Context) error {
			other := w.h.Client(w.pull)
			return errors.Join(w.pull(ctx), other.Wait())
		})
	dohosttest.EveryPoint(t, pointtest.Scenario(s, 30, 60))
}

// TestWebhookAtEveryPoint has a webhook that takes the data of each wake before it answers, or calls back later.
func TestWebhookAtEveryPoint(t *testing.T) {
	w := &pointWorker{id: "s"}
	r := &receiver{}
	var failed error
	r.answer = func(ctx context.Context, b *wakeBody) (int, string) {
		if err := w.take(ctx, b); err != nil {
			if ctx.Err() == nil {
				failed = err
			}
			return 500, ""
		}
		if b.Generation%2 == 1 {
			return 200, `{"done":true}`
		}
		a, err := retry(ctx, w.h, "POST", to(w.id, "/callback"), b.ackBody(true), b.bearer())
		if err != nil || a.Code != 200 && a.Code != 409 {
			return 500, ""
		}
		return 202, ""
	}
	classes := Classes(&ClassOptions{Webhooks: &WebhookOptions{Transport: r}})
	s := subscriptionScenario(classes, w, `{"type":"webhook","pattern":"events/*","webhook":{"url":"https://hook.example/"},"lease_ttl_ms":5000}`,
		func(ctx context.Context) error {
			for !w.ended() && failed == nil {
				if err := dohost.Sleep(ctx, time.Second); err != nil {
					return err
				}
			}
			return failed
		})
	reset := s.Reset
	s.Reset = func() { failed = nil; reset() }
	dohosttest.EveryPoint(t, pointtest.Scenario(s, 30, 60))
}
