package streams

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/dohosttest"
)

// runPull runs f with a pull-wake subscription of events/**, in virtual time.
func runPull(t *testing.T, f func(t *testing.T, h *dohosttest.Host, s http.Handler)) {
	t.Helper()
	run(t, func(t *testing.T, h *dohosttest.Host) {
		s := Server(h.Host(), nil)
		put(t, s, "events/wakes")
		f(t, h, s)
	})
}

// block keeps an object busy.
func block[O any](t *testing.T, h *dohosttest.Host, to dohost.Stub[O], d time.Duration) {
	t.Helper()
	h.Client(func(ctx context.Context) error {
		return dohost.CallNoResult(ctx, to, func(_ *O, ctx context.Context, d time.Duration) error {
			return dohost.Exclusive(ctx, func(ctx context.Context) error { return dohost.Sleep(ctx, d) })
		}, d)
	})
	h.Advance(time.Millisecond)
}

// TestAppendWaitsForNoSubscription appends while a subscription does not answer. The other one gets its wakes in the meantime, the appends
// are one notice, and the alarm repeats it after an eviction.
func TestAppendWaitsForNoSubscription(t *testing.T) {
	runPull(t, func(t *testing.T, h *dohosttest.Host, s http.Handler) {
		want[any](t, s, "201", "PUT", to("s", ""), pullAll)
		want[any](t, s, "201", "PUT", to("other", ""), pullAll)
		from := put(t, s, "events/a")
		b := claimBy(t, s, "w")
		want[any](t, s, "200", "POST", to("s", "/ack"), b.ackBody(true), b.bearer())
		block(t, h, Subscriptions.Get(h, "s"), 20*time.Second)
		tail := ""
		for _, pass := range []time.Duration{promptTimeout, time.Millisecond, time.Millisecond} {
			sent := time.Now()
			if tail = put(t, s, "events/a"); time.Since(sent) != 0 {
				t.Errorf("the append takes %v", time.Since(sent))
			}
			h.Advance(pass)
			began := time.Now()
			b := want[wakeBody](t, s, "200", "POST", to("other", "/claim"), `{"worker":"w"}`)
			if b.Streams[0].Tail != tail || time.Since(began) != 0 {
				t.Errorf("the wake of the other subscription is %+v after %v, want the tail %s", b.Streams, time.Since(began), tail)
			}
			want[any](t, s, "200", "POST", to("other", "/ack"), b.ackBody(true), b.bearer())
		}
		if list := left(t, h, "events/a"); len(list) != 1 || list[0].From != from {
			t.Errorf("the notices %+v are left, want one from %s", list, from)
		}
		h.EvictAll() // this waits for the turn of the subscription
		h.Advance(20 * time.Second)
		b = claimBy(t, s, "w")
		if b.Streams[0].Acked != from || b.Streams[0].Tail != tail {
			t.Errorf("the wake is %+v, want the data after %s up to %s", b.Streams, from, tail)
		}
		if list := left(t, h, "events/a"); len(list) != 0 {
			t.Errorf("the notices %+v are left", list)
		}
	})
}

// left returns the notices of a stream.
func left(t *testing.T, h *dohosttest.Host, path string) (list []notice) {
	t.Helper()
	err := Streams.Get(h, path).Do(t.Context(), func(ctx context.Context, s *Stream) error {
		box, err := s.outbox(ctx)
		list = box.Notices
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// TestSubscriptionMissesNoConcurrentAppend appends to a stream right after the new subscription has read its tail.
func TestSubscriptionMissesNoConcurrentAppend(t *testing.T) {
	runPull(t, func(t *testing.T, h *dohosttest.Host, s http.Handler) {
		tail := put(t, s, "events/a")
		block(t, h, Streams.Get(h, "events/a"), 2*time.Second)
		for _, send := range []func(){
			func() { want[any](t, s, "201", "PUT", to("s", ""), pullAll) },
			func() { serve(s, "POST", "events/a", "2", asJSON) },
		} {
			h.Client(func(context.Context) error { send(); return nil }) // it queues at the stream
			h.Advance(100 * time.Millisecond)
		}
		h.Advance(2 * time.Second)
		if b := claimBy(t, s, "w"); b.Streams[0].Acked != tail || !b.Streams[0].Pending {
			t.Errorf("the wake is %+v, want the data after %s", b.Streams, tail)
		}
	})
}

// TestNoticeThatIsLateMovesNewCursorBack has a notice of an append that follows the creation of the subscription, and arrives after the
// subscription has read the tail. A cursor that a worker has moved stays.
func TestNoticeThatIsLateMovesNewCursorBack(t *testing.T) {
	runPull(t, func(t *testing.T, h *dohosttest.Host, s http.Handler) {
		from := put(t, s, "events/a")
		tail := put(t, s, "events/a")
		want[any](t, s, "201", "PUT", to("s", ""), pullAll)
		late := func(instance string) (known bool) {
			t.Helper()
			n := &noticeRequest{Path: "events/a", Instance: instance, From: from, Tail: tail}
			known, err := dohost.Call(t.Context(), Subscriptions.Get(h, "s"), (*Subscription).notice, n)
			if err != nil {
				t.Fatal(err)
			}
			return known
		}
		if late("another") {
			t.Error("a notice for a deleted subscription of this ID is accepted")
		}
		want[any](t, s, "409 NO_PENDING_WORK", "POST", to("s", "/claim"), `{"worker":"w"}`)
		d, err := dohost.Call(t.Context(), Subscriptions.Get(h, "s"), (*Subscription).describe, struct{}{})
		if err != nil || !late(d.Config.Instance) {
			t.Fatalf("the notice is refused: %v", err)
		}
		b := claimBy(t, s, "w")
		if b.Streams[0].Acked != from || b.Streams[0].Tail != tail {
			t.Errorf("the wake is %+v, want the data after %s", b.Streams[0], from)
		}
		want[any](t, s, "200", "POST", to("s", "/ack"), b.ackBody(true), b.bearer())
		late(d.Config.Instance)
		want[any](t, s, "409 NO_PENDING_WORK", "POST", to("s", "/claim"), `{"worker":"w"}`)
	})
}

// TestClaimWaitsForNotice claims while a notice is on its way. A claim does not wait for one that does not arrive within 5 s, and none
// waits twice.
func TestClaimWaitsForNotice(t *testing.T) {
	runPull(t, func(t *testing.T, h *dohosttest.Host, s http.Handler) {
		want[any](t, s, "201", "PUT", to("s", ""), pullAll)
		from := put(t, s, "events/a")
		b := claimBy(t, s, "w")
		want[any](t, s, "200", "POST", to("s", "/ack"), b.ackBody(true), b.bearer())
		claim := func(status string, after time.Duration, arrive func(context.Context)) {
			t.Helper()
			expect := func(s *Subscription, _ context.Context) error {
				s.directory.expect("s", hashOf("events/a"), from+"0")
				return nil
			}
			if err := dohost.CallBare(t.Context(), Subscriptions.Get(h, "s"), expect); err != nil {
				t.Fatal(err)
			}
			c := h.Client(func(ctx context.Context) error { arrive(ctx); return nil })
			for _, after := range []time.Duration{after, 0} {
				began := time.Now()
				want[any](t, s, status, "POST", to("s", "/claim"), `{"worker":"w"}`)
				if time.Since(began) != after {
					t.Errorf("the claim takes %v, want %v", time.Since(began), after)
				}
				status = strings.Replace(status, "200", "409 ALREADY_CLAIMED", 1)
			}
			if err := c.Wait(); err != nil {
				t.Error(err)
			}
		}
		tell := func(ctx context.Context, tail string) {
			err := Streams.Get(h, "events/a").Do(ctx, func(ctx context.Context, s *Stream) error {
				n := notice{ID: "s", Instance: s.subscribers[0].instance, From: from}
				return dohost.Await(ctx, func(ctx context.Context) error { return s.send(ctx, n, tail) })
			})
			if err != nil {
				t.Error(err)
			}
		}
		claim("409 NO_PENDING_WORK", noticeTimeout, func(context.Context) {})
		claim("409 NO_PENDING_WORK", noticeTimeout, func(ctx context.Context) { tell(ctx, from) }) // an earlier one
		claim("200", time.Second, func(ctx context.Context) {
			if err := dohost.Sleep(ctx, time.Second); err != nil {
				t.Error(err)
			}
			tell(ctx, from+"0")
		})
	})
}
