package streams

import (
	"context"
	"net/http"
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

// TestNoticesAreRepeated appends while the subscription does not answer. The response waits for 5 s, and the alarm repeats the notice.
func TestNoticesAreRepeated(t *testing.T) {
	runPull(t, func(t *testing.T, h *dohosttest.Host, s http.Handler) {
		want[any](t, s, "201", "PUT", to("s", ""), pullAll)
		if w := serve(s, "PUT", "events/a", "", asJSON); w.Code != 201 {
			t.Fatal(code(w))
		}
		block(t, h, Subscriptions.Get(h, "s"), 8*time.Second)
		began := time.Now()
		if w := serve(s, "POST", "events/a", "1", asJSON); w.Code != 204 || time.Since(began) != noticeTimeout {
			t.Errorf("the append has the response %s after %v", code(w), time.Since(began))
		}
		h.Advance(noticeTimeout)
		want[any](t, s, "409 NO_PENDING_WORK", "POST", to("s", "/claim"), `{"worker":"w"}`)
		h.EvictAll()
		h.Advance(noticeRetry)
		if b := claimBy(t, s, "w"); b.Streams[0].Path != "events/a" {
			t.Errorf("the wake is %+v", b)
		}
	})
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

// TestLateNoticeMovesNewCursorBack has a notice of an append that follows the creation of the subscription, and arrives after the
// subscription has read the tail. A cursor that a worker has moved stays.
func TestLateNoticeMovesNewCursorBack(t *testing.T) {
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
