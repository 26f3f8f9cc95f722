package streams

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/dohosttest"
	"github.com/dohost/dohost/internal/kernel"
	"github.com/dohost/dohost/objectstore"
)

// damage replaces a row of a subscription by one that cannot be read, until restore is called.
func damage[T any](t *testing.T, h *dohosttest.Host, id, key string) (restore func()) {
	t.Helper()
	do := func(f func(context.Context, *dohost.Storage) error) {
		t.Helper()
		if err := Subscriptions.Get(h, id).Do(t.Context(), func(ctx context.Context, s *Subscription) error {
			return f(ctx, s.state.Storage())
		}); err != nil {
			t.Fatal(err)
		}
	}
	var old T
	do(func(ctx context.Context, st *dohost.Storage) (err error) {
		old, _, err = dohost.Get[T](ctx, st, key)
		if err != nil {
			return err
		}
		return dohost.Put(ctx, st, key, "damaged")
	})
	return func() {
		t.Helper()
		do(func(ctx context.Context, st *dohost.Storage) error { return dohost.Put(ctx, st, key, old) })
	}
}

// sendNotice sends the subscription s a notice, as a stream does.
func sendNotice(t *testing.T, h *dohosttest.Host, id string, n *noticeRequest) {
	t.Helper()
	d, err := dohost.Call(t.Context(), Subscriptions.Get(h, id), (*Subscription).describe, struct{}{})
	if err != nil {
		t.Fatal(err)
	}
	n.Instance = d.Config.Instance
	if known, err := dohost.Call(t.Context(), Subscriptions.Get(h, id), (*Subscription).notice, n); err != nil || !known {
		t.Fatalf("the notice is refused: %v", err)
	}
}

const pullNamed = `{"type":"pull-wake","streams":["events/a","events/b"],"wake_stream":"events/wakes","lease_ttl_ms":1000}`

// TestSubscriptionOfStreamWithUnreadTailBeginsAtTheNotice appends to a stream while the new subscription waits for the tail of another one.
func TestSubscriptionOfStreamWithUnreadTailBeginsAtTheNotice(t *testing.T) {
	runPull(t, func(t *testing.T, h *dohosttest.Host, s http.Handler) {
		put(t, s, "events/a")
		tail := put(t, s, "events/b")
		block(t, h, Streams.Get(h, "events/a"), 2*time.Second)
		h.Client(func(context.Context) error {
			want[any](t, s, "201", "PUT", to("s", ""), pullNamed)
			return nil
		})
		h.Advance(100 * time.Millisecond)
		put(t, s, "events/b")
		h.Advance(3 * time.Second)
		if b := claimBy(t, s, "w"); b.Streams[0].Path != "events/b" || b.Streams[0].Acked != tail {
			t.Errorf("the wake is %+v, want the data after %s", b.Streams, tail)
		}
	})
}

// TestCreationsAtTheSameTimeReadTailsOnce sends the same request several times while a stream does not answer.
func TestCreationsAtTheSameTimeReadTailsOnce(t *testing.T) {
	runPull(t, func(t *testing.T, h *dohosttest.Host, s http.Handler) {
		put(t, s, "events/a")
		block(t, h, Streams.Get(h, "events/a"), 2*time.Second)
		for range 5 {
			h.Client(func(context.Context) error {
				if w := serve(s, "PUT", to("s", ""), pullNamed); w.Code > 201 {
					t.Errorf("create: %s", code(w))
				}
				return nil
			})
			h.Advance(10 * time.Millisecond)
		}
		h.Advance(3 * time.Second)
		heads := 0
		for line := range strings.Lines(h.Log()) {
			if strings.Contains(line, "stream/events/a:") && strings.Contains(line, " head, start ") {
				heads++
			}
		}
		if heads != 1 {
			t.Errorf("the tail was read %d times, want once", heads)
		}
	})
}

// TestCreationThatIsCutOff evicts a new subscription while it waits for the tail of a stream. The repeated call has created it.
func TestCreationThatIsCutOff(t *testing.T) {
	runPull(t, func(t *testing.T, h *dohosttest.Host, s http.Handler) {
		put(t, s, "events/a")
		block(t, h, Streams.Get(h, "events/a"), 2*time.Second)
		h.Client(func(context.Context) error {
			want[any](t, s, "201", "PUT", to("s", ""), pullNamed)
			return nil
		})
		h.Advance(time.Second)
		h.Evict(Subscriptions.Get(h, "s").ID(), dohost.EndFence)
		h.Advance(3 * time.Second)
		want[any](t, s, "200", "PUT", to("s", ""), pullNamed)
	})
}

// TestSubscriptionOfStreamWithUnreadableTail has a stream that fails while the subscription is created. Its first later append sets the cursor.
func TestSubscriptionOfStreamWithUnreadableTail(t *testing.T) {
	runPull(t, func(t *testing.T, h *dohosttest.Host, s http.Handler) {
		tail := put(t, s, "events/a")
		var old properties
		do := func(f func(ctx context.Context, st *dohost.Storage) error) {
			t.Helper()
			if err := Streams.Get(h, "events/a").Do(t.Context(), func(ctx context.Context, s *Stream) error { return f(ctx, s.state.Storage()) }); err != nil {
				t.Fatal(err)
			}
		}
		do(func(ctx context.Context, st *dohost.Storage) (err error) {
			if old, _, err = dohost.Get[properties](ctx, st, propertiesKey); err != nil {
				return err
			}
			return dohost.Put(ctx, st, propertiesKey, "damaged")
		})
		want[any](t, s, "201", "PUT", to("s", ""), pullNamed)
		do(func(ctx context.Context, st *dohost.Storage) error { return dohost.Put(ctx, st, propertiesKey, old) })
		put(t, s, "events/a")
		if b := claimBy(t, s, "w"); b.Streams[0].Path != "events/a" || b.Streams[0].Acked != tail {
			t.Errorf("the wake is %+v, want the data after %s", b.Streams, tail)
		}
	})
}

// TestWebhookThatIsBusyIsNoLongAlarm has a webhook with work for more than the time that an alarm may take.
func TestWebhookThatIsBusyIsNoLongAlarm(t *testing.T) {
	runWebhook(t, func(t *testing.T, h *dohosttest.Host, s http.Handler, r *receiver) {
		r.set(func(ctx context.Context, _ *wakeBody) (int, string) {
			serve(s, "POST", "events/a", "1", asJSON) // it fails at the end of the test
			if err := dohost.Sleep(ctx, 9*time.Second); err != nil {
				return 500, ""
			}
			return 200, `{"done":true}`
		})
		put(t, s, "events/a")
		h.Advance(20 * time.Minute)
		list := r.take(t)
		for i, b := range list {
			if b.Generation != uint64(i+1) {
				t.Fatalf("delivery %d of %d is of generation %d", i, len(list), b.Generation)
			}
		}
		if len(list) < 120 {
			t.Errorf("%d deliveries", len(list))
		}
	})
}

// TestAlarmParkedOfSubscriptionIsSetAgain has an alarm that fails until it is parked, since a row cannot be read. The next change of the
// subscription sets it.
func TestAlarmParkedOfSubscriptionIsSetAgain(t *testing.T) {
	runWebhook(t, func(t *testing.T, h *dohosttest.Host, s http.Handler, r *receiver) {
		r.set(func(context.Context, *wakeBody) (int, string) { return 500, "" })
		put(t, s, "events/a")
		h.Advance(100 * time.Millisecond)
		restore := damage[wake](t, h, "h", wakeKey)
		h.Advance(time.Hour)
		restore()
		r.set(nil)
		r.take(t)
		put(t, s, "events/b")
		h.Advance(time.Second)
		if b := one(t, r); len(b.Streams) != 2 {
			t.Errorf("the wake is %+v", b)
		}
	})
}

// TestClaimEndsExpiredLease has a lease that no alarm ends.
func TestClaimEndsExpiredLease(t *testing.T) {
	runPull(t, func(t *testing.T, h *dohosttest.Host, s http.Handler) {
		want[any](t, s, "201", "PUT", to("s", ""), pullAll)
		put(t, s, "events/a")
		first := claimBy(t, s, "w")
		restore := damage[wake](t, h, "s", wakeKey)
		h.Advance(time.Hour)
		restore()
		if b := claimBy(t, s, "v"); b.Generation != first.Generation+1 {
			t.Errorf("the wake is %+v", b)
		}
	})
}

// TestDoneDoesNotSkipDataOfLateNotice has a cursor that moves back while a worker has the wake. The worker did not see the data, and its
// acks of that stream do not move the cursor.
func TestDoneDoesNotSkipDataOfLateNotice(t *testing.T) {
	runWebhook(t, func(t *testing.T, h *dohosttest.Host, s http.Handler, r *receiver) {
		from := put(t, s, "events/late")
		tail := put(t, s, "events/late")
		want[any](t, s, "204", "DELETE", to("h", ""), "")
		want[any](t, s, "201", "PUT", to("h", ""), hook)
		r.take(t)
		late := func() { sendNotice(t, h, "h", &noticeRequest{Path: "events/late", From: from, Tail: tail}) }
		r.set(func(context.Context, *wakeBody) (int, string) {
			r.set(nil)
			late()
			return 200, `{"done":true}`
		})
		put(t, s, "events/a")
		h.Advance(time.Second)
		list := r.take(t)
		if len(list) != 2 || list[1].Streams[0].Path != "events/late" || list[1].Streams[0].Acked != from || !list[1].Streams[0].Pending {
			t.Fatalf("the deliveries are %+v, want the data after %s in the second", list, from)
		}
	})
	runPull(t, func(t *testing.T, h *dohosttest.Host, s http.Handler) {
		from := put(t, s, "events/late")
		tail := put(t, s, "events/late")
		want[any](t, s, "201", "PUT", to("s", ""), pullAll)
		put(t, s, "events/a")
		b := claimBy(t, s, "w")
		for i := range b.Streams {
			b.Streams[i].Pending = true // so that the worker acknowledges it
		}
		sendNotice(t, h, "s", &noticeRequest{Path: "events/late", From: from, Tail: tail})
		if ok := want[okBody](t, s, "200", "POST", to("s", "/ack"), b.ackBody(true), b.bearer()); !ok.NextWake {
			t.Error("no next wake")
		}
		if b := claimBy(t, s, "w"); b.Streams[0].Path != "events/late" || b.Streams[0].Acked != from {
			t.Errorf("the wake is %+v, want the data after %s", b.Streams, from)
		}
	})
}

// TestAckOfIdleStreamLeavesItsCursorFresh has a worker that acknowledges all streams of a wake, before a late notice moves the cursor of
// an idle one back.
func TestAckOfIdleStreamLeavesItsCursorFresh(t *testing.T) {
	runPull(t, func(t *testing.T, h *dohosttest.Host, s http.Handler) {
		from := put(t, s, "events/late")
		tail := put(t, s, "events/late")
		want[any](t, s, "201", "PUT", to("s", ""), pullAll)
		put(t, s, "events/a")
		b := claimBy(t, s, "w")
		for i := range b.Streams {
			b.Streams[i].Pending = true // so that the worker acknowledges it
		}
		want[any](t, s, "200", "POST", to("s", "/ack"), b.ackBody(true), b.bearer())
		sendNotice(t, h, "s", &noticeRequest{Path: "events/late", From: from, Tail: tail})
		if b := claimBy(t, s, "w"); b.Streams[0].Path != "events/late" || b.Streams[0].Acked != from {
			t.Errorf("the wake is %+v, want the data after %s", b.Streams, from)
		}
	})
}

// TestAcksMoveForward has a worker that acknowledges an offset before its cursor, alone and after one that is valid. Neither moves.
func TestAcksMoveForward(t *testing.T) {
	runPull(t, func(t *testing.T, h *dohosttest.Host, s http.Handler) {
		want[any](t, s, "201", "PUT", to("s", ""), pullAll)
		first := put(t, s, "events/a")
		second := put(t, s, "events/a")
		other := put(t, s, "events/b")
		h.Advance(time.Millisecond)
		b := claimBy(t, s, "w")
		ack := func(status string, acks ...string) {
			t.Helper()
			body := fmt.Sprintf(`{"wake_id":%q,"generation":1,"acks":[%s]}`, b.Wake, strings.Join(acks, ","))
			want[any](t, s, status, "POST", to("s", "/ack"), body, b.bearer())
		}
		at := func(stream, offset string) string {
			return fmt.Sprintf(`{"stream":"events/%s","offset":%q}`, stream, offset)
		}
		ack("200", at("a", second))
		ack("409 INVALID_OFFSET", at("a", first))
		ack("409 INVALID_OFFSET", at("b", other), at("a", first))
		ack("200", at("a", second))
		d := want[describedBody](t, s, "200", "GET", to("s", ""), "")
		if len(d.Streams) != 2 || d.Streams[0].Path != "events/b" || d.Streams[0].Acked >= other || d.Streams[1].Acked != second {
			t.Errorf("the cursors are %+v", d.Streams)
		}
	})
}

// TestPathsAtTheirLimits names streams with the longest path, and with none.
func TestPathsAtTheirLimits(t *testing.T) {
	runPull(t, func(t *testing.T, h *dohosttest.Host, s http.Handler) {
		long := strings.Repeat("x", maxPath)
		named := `{"type":"pull-wake","streams":["` + long + `"],"wake_stream":"events/wakes"}`
		want[any](t, s, "201", "PUT", to("s", ""), named)
		want[any](t, s, "400 bad_name", "PUT", to("s", ""), strings.Replace(named, "xx", "xxx", 1))
		put(t, s, long)
		b := claimBy(t, s, "w")
		for _, stream := range []string{"", "/"} {
			body := fmt.Sprintf(`{"wake_id":%q,"generation":1,"acks":[{"stream":%q,"offset":%q}]}`, b.Wake, stream, b.Streams[0].Tail)
			want[any](t, s, "400 INVALID_REQUEST", "POST", to("s", "/ack"), body, b.bearer())
			want[any](t, s, "400 INVALID_REQUEST", "DELETE", to("s", "/streams/"+stream), "")
		}
		long = strings.Repeat("x", 1<<20)
		body := fmt.Sprintf(`{"wake_id":%q,"generation":1,"acks":[{"stream":%q,"offset":%q}]}`, b.Wake, long, b.Streams[0].Tail)
		if w := serve(s, "POST", to("s", "/ack"), body, b.bearer()); code(w) != "409 INVALID_OFFSET" || w.Body.Len() > 1024 {
			t.Errorf("%s with %d bytes", code(w), w.Body.Len())
		}
		want[any](t, s, "200", "POST", to("s", "/ack"), b.ackBody(true), b.bearer())
	})
}

// TestAckOfDeletedStream has a named stream that is deleted and created again while a worker has the wake.
func TestAckOfDeletedStream(t *testing.T) {
	runPull(t, func(t *testing.T, h *dohosttest.Host, s http.Handler) {
		want[any](t, s, "201", "PUT", to("s", ""), pullNamed)
		put(t, s, "events/a")
		b := claimBy(t, s, "w")
		serve(s, "DELETE", "events/a", "")
		put(t, s, "events/a")
		h.Advance(time.Millisecond)
		want[okBody](t, s, "200", "POST", to("s", "/ack"), b.ackBody(true), b.bearer())
		again := claimBy(t, s, "w")
		if w := serve(s, "GET", "events/a?offset="+again.Streams[0].Acked, ""); w.Body.String() != `[{"n":1}]` {
			t.Errorf("the wake is %+v, and the data after the cursor is %s", again.Streams, w.Body)
		}
	})
}

// TestDeletionAfterRestartReachesSubscription deletes a stream with the first request to a new process, and lets one expire.
func TestDeletionAfterRestartReachesSubscription(t *testing.T) {
	runPull(t, func(t *testing.T, h *dohosttest.Host, s http.Handler) {
		want[any](t, s, "201", "PUT", to("s", ""), pullAll)
		put(t, s, "events/a")
		if w := serve(s, "PUT", "events/b", "[1]", asJSON, "Stream-TTL: 10"); w.Code != 201 {
			t.Fatal(code(w))
		}
		for _, end := range []func(){
			func() { serve(Server(h.Host(), nil), "DELETE", "events/a", "") },
			func() { h.Advance(time.Minute) },
		} {
			if err := h.Restart(); err != nil {
				t.Fatal(err)
			}
			end()
		}
		h.Advance(time.Minute)
		if d := want[describedBody](t, Server(h.Host(), nil), "200", "GET", to("s", ""), ""); len(d.Streams) != 0 {
			t.Errorf("the streams are %+v, want none", d.Streams)
		}
	})
}

// TestDeletionReachesSubscriptionAfterCreation deletes a stream and creates it again, with a TTL, while the subscription does not answer.
func TestDeletionReachesSubscriptionAfterCreation(t *testing.T) {
	runPull(t, func(t *testing.T, h *dohosttest.Host, s http.Handler) {
		want[any](t, s, "201", "PUT", to("s", ""), pullAll)
		put(t, s, "events/a")
		block(t, h, Subscriptions.Get(h, "s"), 15*time.Second)
		h.Client(func(context.Context) error { serve(s, "DELETE", "events/a", ""); return nil })
		h.Advance(100 * time.Millisecond)
		if w := serve(s, "PUT", "events/a", "", asJSON, "Stream-TTL: 3600"); w.Code != 201 {
			t.Fatal(code(w))
		}
		h.Advance(time.Minute)
		if d := want[describedBody](t, s, "200", "GET", to("s", ""), ""); len(d.Streams) != 0 {
			t.Errorf("the streams are %+v, want none", d.Streams)
		}
	})
}

// TestSubscriptionWithDamageStopsNoAppend restarts the host with a subscription that cannot be read.
func TestSubscriptionWithDamageStopsNoAppend(t *testing.T) {
	runPull(t, func(t *testing.T, h *dohosttest.Host, s http.Handler) {
		want[any](t, s, "201", "PUT", to("bad", ""), pullAll)
		want[any](t, s, "201", "PUT", to("s", ""), pullAll)
		damage[config](t, h, "bad", configKey)
		if err := h.Restart(); err != nil {
			t.Fatal(err)
		}
		s = Server(h.Host(), nil)
		put(t, s, "events/a")
		claimBy(t, s, "w")
	})
}

// TestDiskDamageStopsNoAppend damages the disk where the subscriptions are.
func TestDiskDamageStopsNoAppend(t *testing.T) {
	const subscriptions = 100
	dir := t.TempDir()
	open := func() *dohost.Host {
		t.Helper()
		h, err := dohost.Open(dir, nil, Classes(nil)...)
		if err != nil {
			t.Fatal(err)
		}
		return h
	}
	closed := func(h *dohost.Host) {
		t.Helper()
		if err := h.Close(); err != nil {
			t.Fatal(err)
		}
	}
	h := open()
	put(t, Server(h, nil), "events/a")
	for i := range subscriptions {
		description := rand.Text() + strings.Repeat(rand.Text(), 30) // the tables are compressed
		want[any](t, Server(h, nil), "201", "PUT", to(fmt.Sprint(i), ""), strings.Replace(pullAll, "{", `{"description":"`+description+`",`, 1))
	}
	closed(h)
	closed(open()) // this flushes the log
	tables, err := filepath.Glob(filepath.Join(dir, "*", "*.sst"))
	if err != nil || len(tables) == 0 {
		t.Fatalf("tables %q, %v", tables, err)
	}
	for _, name := range tables {
		table, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		table[len(table)/2] ^= 1
		if err := os.WriteFile(name, table, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	h = open()
	defer closed(h)
	if w := serve(Server(h, nil), "PUT", "events/b", "[1]", asJSON); w.Code != 201 {
		t.Errorf("create: %s: %s", code(w), w.Body)
	}
	if h.Stats().Damaged == 0 {
		t.Error("no damage was found")
	}
	want[any](t, Server(h, nil), "201", "PUT", to("new", ""), pullAll)
}

// TestWakeStreamWithManyProducers has a wake stream that accepts no further producer.
func TestWakeStreamWithManyProducers(t *testing.T) {
	runPull(t, func(t *testing.T, h *dohosttest.Host, s http.Handler) {
		want[any](t, s, "201", "PUT", to("s", ""), pullAll)
		if err := Streams.Get(h, "events/wakes").Do(t.Context(), func(ctx context.Context, s *Stream) error {
			p, err := s.load(ctx)
			if err != nil {
				return err
			}
			p.Producers = maxProducers
			return dohost.Put(ctx, s.state.Storage(), propertiesKey, *p)
		}); err != nil {
			t.Fatal(err)
		}
		put(t, s, "events/a")
		h.Advance(time.Minute)
		if events := want[[]map[string]any](t, s, "200", "GET", "events/wakes", ""); len(events) != 2 || events[1]["type"] != "wake" {
			t.Errorf("the wake stream has %v", events)
		}
	})
}

// TestStreamsThatAreNamedAgainAreNoMore names the same streams twice. Their number is more than half of the limit.
func TestStreamsThatAreNamedAgainAreNoMore(t *testing.T) {
	runPull(t, func(t *testing.T, h *dohosttest.Host, s http.Handler) {
		var names []string
		for i := range maxExplicit {
			names = append(names, fmt.Sprintf("%q", fmt.Sprint("n/", i)))
		}
		all := `{"streams":[` + strings.Join(names, ",") + `]}`
		want[any](t, s, "201", "PUT", to("s", ""), `{"type":"pull-wake","wake_stream":"w",`+all[1:])
		want[any](t, s, "204", "POST", to("s", "/streams"), all)
		want[any](t, s, "400 INVALID_REQUEST", "POST", to("s", "/streams"), `{"streams":["more"]}`)
	})
}

// TestWorkerOfNoSubscriptionWakesNoObject sends requests of workers, which need no rights, for subscriptions that do not exist.
func TestWorkerOfNoSubscriptionWakesNoObject(t *testing.T) {
	runPull(t, func(t *testing.T, h *dohosttest.Host, s http.Handler) {
		for _, action := range []string{"/ack", "/callback", "/release"} {
			want[any](t, s, "404 SUBSCRIPTION_NOT_FOUND", "POST", to("x", action), `{}`, "Authorization: Bearer x")
		}
		if h.Host().IsLive(Subscriptions.Get(h, "x").ID()) {
			t.Error("the object is in memory")
		}
	})
}

// TestNamesAreNoCreations creates a subscription with streams that do not exist: the only object that counts, and wakes, is the subscription.
func TestNamesAreNoCreations(t *testing.T) {
	runPull(t, func(t *testing.T, h *dohosttest.Host, s http.Handler) {
		created := ""
		counted := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			s.ServeHTTP(w, r.WithContext(dohost.CheckCreation(r.Context(), func(q *dohost.AccessRequest) error {
				created += q.ID.Class + "/" + q.ID.Name + " "
				return nil
			})))
		})
		want[any](t, counted, "201", "PUT", to("s", ""), `{"type":"pull-wake","pattern":"x/*","streams":["a","b"],"wake_stream":"w"}`)
		want[any](t, counted, "204", "POST", to("s", "/streams"), `{"streams":["c"]}`)
		if created != "subscription/s " {
			t.Errorf("the objects that count as created are %s", created)
		}
		for _, path := range []string{"a", "b", "c", "x/*", "w"} {
			if h.Host().IsLive(Streams.Get(h, path).ID()) {
				t.Errorf("the stream %s is in memory", path)
			}
		}
	})
}

// TestListsOfRequestsAreBounded decodes lists that are much larger in memory than as text.
func TestListsOfRequestsAreBounded(t *testing.T) {
	var few, many boundedList[ack]
	for text, list := range map[string]*boundedList[ack]{
		`[` + strings.Repeat(`{},`, maxListed-1) + `{}]`: &few,
		`[` + strings.Repeat(`{},`, 500_000) + `{}]`:     &many,
	} {
		err := json.Unmarshal([]byte(text), list)
		if (err != nil) != (list == &many) || len(*list) > maxListed {
			t.Errorf("%d elements: %v", len(*list), err)
		}
	}
	for _, text := range []string{`1`, `{}`, `"x"`, `[1]`} {
		if err := json.Unmarshal([]byte(text), &few); err == nil {
			t.Errorf("%s is accepted", text)
		}
	}
	if err := json.Unmarshal([]byte("null"), &few); err != nil || len(few) != 0 {
		t.Errorf("null: %d elements, %v", len(few), err)
	}
}

// TestMatchingAllocatesLittle looks for the subscriptions of a stream among many.
func TestMatchingAllocatesLittle(t *testing.T) {
	d := newDirectory()
	for i := range maxSubscriptions {
		d.put(&subscriber{id: fmt.Sprint(i), pattern: &pattern{segments: []string{"a", fmt.Sprint(i)}}})
	}
	allocs := testing.AllocsPerRun(10, func() {
		if found, _ := d.match("a/7", 0, nil); len(found) != 1 {
			t.Errorf("%d subscriptions", len(found))
		}
	})
	if allocs > 20 {
		t.Errorf("%v allocations", allocs)
	}
}

// TestDiskFullDeletesNoStreamWithSubscription deletes a stream when its subscription cannot be notified any more. Then it deletes no
// notices.
func TestDiskFullDeletesNoStreamWithSubscription(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs := objectstore.NewMemFS()
		fs.SetFree(1 << 40)
		h, err := dohost.Open("data", kernel.OnFS(&dohost.Options{}, fs), Classes(nil)...)
		if err != nil {
			t.Fatal(err)
		}
		defer h.Close()
		s := Server(h, nil)
		put(t, s, "events/wakes")
		want[any](t, s, "201", "PUT", to("s", ""), pullAll)
		put(t, s, "events/a")
		fs.SetFree(0)
		time.Sleep(10 * time.Second)
		if w := serve(s, "DELETE", "events/a", ""); w.Code != 507 {
			t.Errorf("delete: %s", summary(w))
		}
		if w := serve(s, "GET", "events/a", ""); w.Code != 200 {
			t.Errorf("read: %s", summary(w))
		}
		fs.SetFree(1 << 40)
		time.Sleep(10 * time.Second)
		err = Streams.Get(h, "events/a").Do(t.Context(), func(ctx context.Context, s *Stream) error {
			p, err := s.load(ctx)
			if err != nil {
				return err
			}
			list := []notice{{ID: "s", From: "x"}}
			if err := dohost.Put(ctx, s.state.Storage(), outboxKey, outbox{Notices: list}); err != nil {
				return err
			}
			fs.SetFree(0)
			time.Sleep(10 * time.Second)
			if again, err := s.deleteAccepted(ctx, list, []bool{true}, p.tail().String()); err != nil || again != nil {
				t.Errorf("a round repeats the notices %v that cannot be deleted: %v", again, err)
			}
			if box, err := s.outbox(ctx); err != nil || len(box.Notices) != 1 {
				t.Errorf("the notices %v are left, %v", box.Notices, err)
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	})
}
