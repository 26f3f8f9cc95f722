package streams

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/dohosttest"
)

// onStream runs f with the turn of a stream.
func onStream(t *testing.T, h *dohosttest.Host, path string, f func(context.Context, *Stream) error) {
	t.Helper()
	if err := Streams.Get(h, path).Do(t.Context(), func(ctx context.Context, s *Stream) error { return f(ctx, s) }); err != nil {
		t.Fatal(err)
	}
}

// alarmOf returns the time of a stream's alarm from now on; zero: none is set.
func alarmOf(t *testing.T, h *dohosttest.Host, path string) (in time.Duration) {
	t.Helper()
	onStream(t, h, path, func(ctx context.Context, s *Stream) error {
		at, ok, err := s.state.GetAlarm(ctx)
		if ok {
			in = time.Until(at)
		}
		return err
	})
	return in
}

// TestAlarmRunsDuringNoRound has a subscription that does not answer while the alarm repeats its notice.
func TestAlarmRunsDuringNoRound(t *testing.T) {
	runPull(t, func(t *testing.T, h *dohosttest.Host, s http.Handler) {
		want[any](t, s, "201", "PUT", to("s", ""), pullAll)
		block(t, h, Subscriptions.Get(h, "s"), 20*time.Second)
		put(t, s, "events/a")
		h.Advance(2 * time.Second)
		ended := false
		for line := range strings.Lines(h.Log()) {
			ended = ended || strings.Contains(line, "stream/events/a:") && strings.Contains(line, " alarm, end ")
		}
		if in := alarmOf(t, h, "events/a"); !ended || in <= 0 || in > noticeRetry {
			t.Errorf("the alarm has ended: %t, and the next one is in %v", ended, in)
		}
		if list := left(t, h, "events/a"); len(list) != 1 {
			t.Errorf("the notices %+v are left", list)
		}
		h.Advance(time.Minute)
		claimBy(t, s, "w")
		h.Advance(time.Minute)
		if in := alarmOf(t, h, "events/a"); in != 0 {
			t.Errorf("an alarm is in %v, and no notice is left", in)
		}
	})
}

// TestAlarmFollowsEachAppendSoon appends after the alarm has begun a round, which an eviction ends together with the one of the append.
func TestAlarmFollowsEachAppendSoon(t *testing.T) {
	runPull(t, func(t *testing.T, h *dohosttest.Host, s http.Handler) {
		want[any](t, s, "201", "PUT", to("s", ""), pullAll)
		block(t, h, Subscriptions.Get(h, "s"), 3*time.Second)
		for range 3 {
			put(t, s, "events/a")
			h.Evict(Streams.Get(h, "events/a").ID(), dohost.EndCrash)
			h.Advance(noticeDelay / 2)
		}
		h.Advance(4*time.Second - 3*noticeDelay/2)
		want[any](t, s, "200", "POST", to("s", "/claim"), `{"worker":"w"}`)
	})
}

// TestSubscriptionThatIsSlowIsCalledAgain has a subscription that answers after the time of the first call, and before the alarm.
func TestSubscriptionThatIsSlowIsCalledAgain(t *testing.T) {
	runPull(t, func(t *testing.T, h *dohosttest.Host, s http.Handler) {
		want[any](t, s, "201", "PUT", to("s", ""), pullAll)
		block(t, h, Subscriptions.Get(h, "s"), noticeDelay*8/10)
		began := time.Now()
		put(t, s, "events/a")
		claimBy(t, s, "w")
		if took := time.Since(began); took > noticeDelay*9/10 {
			t.Errorf("the claim takes %v", took)
		}
	})
}

// TestRetriesOfNoticesBecomeRare has a subscription that cannot be read for a day.
func TestRetriesOfNoticesBecomeRare(t *testing.T) {
	runPull(t, func(t *testing.T, h *dohosttest.Host, s http.Handler) {
		want[any](t, s, "201", "PUT", to("s", ""), pullAll)
		restore := damage[wake](t, h, "s", wakeKey)
		put(t, s, "events/a")
		h.Advance(24 * time.Hour)
		alarms := strings.Count(h.Log(), " alarm, start ")
		if most := int(24*time.Hour/maxNoticeRetry) + 10; alarms < most/2 || alarms > most {
			t.Errorf("%d alarms, want about %d", alarms, most)
		}
		restore()
		h.Advance(maxNoticeRetry)
		claimBy(t, s, "w")
	})
}

// TestAlarmParkedKeepsNoNotice has a stream whose alarm fails until it is parked. The next request begins a round, and sets the alarm if
// the subscription does not accept the notice.
func TestAlarmParkedKeepsNoNotice(t *testing.T) {
	for _, readable := range []bool{true, false} {
		runPull(t, func(t *testing.T, h *dohosttest.Host, s http.Handler) {
			want[any](t, s, "201", "PUT", to("s", ""), pullAll)
			restore := damage[wake](t, h, "s", wakeKey)
			put(t, s, "events/a")
			h.Advance(100 * time.Millisecond)
			var box outbox
			onStream(t, h, "events/a", func(ctx context.Context, s *Stream) (err error) {
				if box, err = s.outbox(ctx); err != nil {
					return err
				}
				return dohost.Put(ctx, s.state.Storage(), outboxKey, "damaged")
			})
			h.Advance(time.Hour)
			onStream(t, h, "events/a", func(ctx context.Context, s *Stream) error {
				if _, parked, err := s.state.ParkedAlarm(ctx); err != nil || !parked {
					t.Errorf("the alarm is parked: %t, %v", parked, err)
				}
				return dohost.Put(ctx, s.state.Storage(), outboxKey, box)
			})
			if readable {
				restore()
			}
			h.EvictAll()
			if w := serve(s, "HEAD", "events/a", ""); w.Code != 200 {
				t.Fatal(code(w))
			}
			h.Advance(time.Second)
			if !readable {
				restore()
				h.Advance(noticeRetry)
			}
			claimBy(t, s, "w")
		})
	}
}

// TestDeletionPrecedesLaterAppends deletes a stream and appends to a new one of its path while the subscription does not answer. Its notice
// has both changes, and a repetition of the deletion has no effect on the new stream.
func TestDeletionPrecedesLaterAppends(t *testing.T) {
	runPull(t, func(t *testing.T, h *dohosttest.Host, s http.Handler) {
		want[any](t, s, "201", "PUT", to("s", ""), pullNamed)
		old := put(t, s, "events/a")
		b := claimBy(t, s, "w")
		want[any](t, s, "200", "POST", to("s", "/ack"), b.ackBody(true), b.bearer())
		put(t, s, "events/a")
		block(t, h, Subscriptions.Get(h, "s"), 20*time.Second)
		if w := serve(s, "DELETE", "events/a", ""); w.Code != 204 {
			t.Fatal(code(w))
		}
		tail := put(t, s, "events/a")
		if list := left(t, h, "events/a"); len(list) != 1 || list[0].Deleted <= old || list[0].From <= list[0].Deleted || list[0].From >= tail {
			t.Errorf("the notices are %+v; the tails were %s and %s", list, old, tail)
		}
		h.Advance(time.Minute)
		b = claimBy(t, s, "w")
		if w := serve(s, "GET", "events/a?offset="+b.Streams[0].Acked, ""); w.Body.String() != `[{"n":1}]` || b.Streams[0].Tail != tail {
			t.Errorf("the wake is %+v, and the data after the cursor is %s", b.Streams, w.Body)
		}
		want[any](t, s, "200", "POST", to("s", "/ack"), b.ackBody(true), b.bearer())
		sendNotice(t, h, "s", &noticeRequest{Path: "events/a", Deleted: old, From: old, Tail: tail}) // it is repeated
		d := want[describedBody](t, s, "200", "GET", to("s", ""), "")
		if d.Streams[0].Acked != tail {
			t.Errorf("a repeated notice moves the cursor to %s", d.Streams[0].Acked)
		}
		want[any](t, s, "409 NO_PENDING_WORK", "POST", to("s", "/claim"), `{"worker":"w"}`)
	})
}

// TestPathsWithOneHash appends to a stream whose path has the hash of one that the subscription names. The subscription ignores its notices.
func TestPathsWithOneHash(t *testing.T) {
	runPull(t, func(t *testing.T, h *dohosttest.Host, s http.Handler) {
		want[any](t, s, "201", "PUT", to("s", ""), pullNamed)
		onStream(t, h, "x", func(_ context.Context, x *Stream) error {
			entry := *x.directory.entries[0]
			entry.explicit = map[uint64]bool{hashOf("x"): true}
			x.directory.put(&entry)
			return nil
		})
		put(t, s, "x")
		h.Advance(time.Second)
		if !strings.Contains(h.Log(), " notice, start ") {
			t.Error("the stream has sent no notice")
		}
		if list := left(t, h, "x"); len(list) != 0 {
			t.Errorf("the notices %+v are left", list)
		}
		if d := want[describedBody](t, s, "200", "GET", to("s", ""), ""); len(d.Streams) != 2 {
			t.Errorf("the streams are %+v", d.Streams)
		}
		want[any](t, s, "409 NO_PENDING_WORK", "POST", to("s", "/claim"), `{"worker":"w"}`)
	})
}

// TestDirectoryHasOneLoader appends to many streams as the first requests to a new process.
func TestDirectoryHasOneLoader(t *testing.T) {
	runPull(t, func(t *testing.T, h *dohosttest.Host, s http.Handler) {
		want[any](t, s, "201", "PUT", to("s", ""), pullAll)
		want[any](t, s, "201", "PUT", to("other", ""), pullAll)
		if err := h.Restart(); err != nil {
			t.Fatal(err)
		}
		before := strings.Count(h.Log(), " enter, start ")
		s = Server(h.Host(), nil)
		for i := range 10 {
			h.Client(func(context.Context) error { put(t, s, fmt.Sprint("events/", i)); return nil })
		}
		h.Advance(time.Second)
		if n := strings.Count(h.Log(), " enter, start ") - before; n != 2 {
			t.Errorf("the 2 subscriptions were entered %d times", n)
		}
		if b := claimBy(t, s, "w"); len(b.Streams) != 10 {
			t.Errorf("the wake has %d streams, want 10", len(b.Streams))
		}
	})
}
