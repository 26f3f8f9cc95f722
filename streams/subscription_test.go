package streams

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/dohost/dohost/dohosttest"
)

// wakeBody is a wake as a worker gets it, by a webhook or by a claim.
type wakeBody struct {
	Subscription string       `json:"subscription_id"`
	Wake         string       `json:"wake_id"`
	Generation   uint64       `json:"generation"`
	Streams      []streamInfo `json:"streams"`
	Callback     string       `json:"callback_url"`
	Token        string       `json:"callback_token"`
	ClaimToken   string       `json:"token"`
}

// describedBody is the description of a subscription.
type describedBody struct {
	Streams []streamInfo `json:"streams"`
	Status  string       `json:"status"`
	Webhook struct {
		Signing struct {
			ID   string `json:"kid"`
			JWKS string `json:"jwks_url"`
		} `json:"signing"`
	} `json:"webhook"`
}

// to is the path of a subscription's request.
func to(id, action string) string { return "__ds/subscriptions/" + id + action }

// code returns the status of a response, and the code of an error.
func code(w *httptest.ResponseRecorder) string {
	var e struct {
		Code  string `json:"code"`
		Error struct {
			Code string `json:"code"`
		} `json:"error"`
	}
	_ = json.Unmarshal(w.Body.Bytes(), &e) // a body of another form has no code
	return strings.TrimSpace(fmt.Sprint(w.Code, " ", e.Error.Code, e.Code))
}

// want sends a request, and decodes the body of the response.
func want[T any](t *testing.T, h http.Handler, status, method, path, body string, header ...string) (v T) {
	t.Helper()
	w := serve(h, method, path, body, header...)
	if got := code(w); got != status {
		t.Fatalf("%s %s %s: %s, want %s: %s", method, path, body, got, status, w.Body)
	}
	if w.Body.Len() > 0 {
		if err := json.Unmarshal(w.Body.Bytes(), &v); err != nil {
			t.Fatalf("%s %s: %v in %s", method, path, err, w.Body)
		}
	}
	return v
}

// ackBody is the body of an ack of all streams of a wake.
func (b *wakeBody) ackBody(done bool) string {
	r := map[string]any{"wake_id": b.Wake, "generation": b.Generation, "done": done}
	var acks []map[string]string
	for _, s := range b.Streams {
		if s.Pending {
			acks = append(acks, map[string]string{"stream": s.Path, "offset": s.Tail})
		}
	}
	r["acks"] = acks
	text, err := json.Marshal(r)
	if err != nil {
		panic(err)
	}
	return string(text)
}

func (b *wakeBody) bearer() string { return "Authorization: Bearer " + b.Token + b.ClaimToken }

type okBody struct {
	OK       bool `json:"ok"`
	NextWake bool `json:"next_wake"`
}

const pullAll = `{"type":"pull-wake","pattern":"events/**","wake_stream":"events/wakes","lease_ttl_ms":1000}`

// claimBy claims the wake of the subscription s.
func claimBy(t *testing.T, h http.Handler, worker string) *wakeBody {
	t.Helper()
	b := want[wakeBody](t, h, "200", "POST", to("s", "/claim"), `{"worker":"`+worker+`"}`)
	return &b
}

// put appends a message to a JSON stream, which it creates.
func put(t *testing.T, h http.Handler, path string) (tail string) {
	t.Helper()
	if w := serve(h, "PUT", path, "", asJSON); w.Code > 201 {
		t.Fatalf("PUT %s: %s", path, code(w))
	}
	w := serve(h, "POST", path, `{"n":1}`, asJSON)
	if w.Code != 204 {
		t.Fatalf("POST %s: %s", path, code(w))
	}
	return w.Header().Get("Stream-Next-Offset")
}

// TestPullWake has a worker that claims, acknowledges and releases wakes, while others are refused.
func TestPullWake(t *testing.T) {
	run(t, func(t *testing.T, h *dohosttest.Host) {
		s := Server(h.Host(), nil)
		old := put(t, s, "events/old")
		put(t, s, "events/wakes")
		put(t, s, "other/a")
		d := want[describedBody](t, s, "201", "PUT", to("s", ""), pullAll)
		want[describedBody](t, s, "200", "PUT", to("s", ""), pullAll)
		want[any](t, s, "409 SUBSCRIPTION_ALREADY_EXISTS", "PUT", to("s", ""), strings.Replace(pullAll, "1000", "1001", 1))
		if len(d.Streams) != 1 || d.Streams[0].Path != "events/old" || d.Streams[0].LinkType != "glob" || d.Streams[0].Acked != old {
			t.Errorf("the subscription has %+v, want events/old at its tail %s", d.Streams, old)
		}
		want[any](t, s, "409 NO_PENDING_WORK", "POST", to("s", "/claim"), `{"worker":"w"}`)

		tail := put(t, s, "events/a/b")
		h.Advance(time.Millisecond)
		first := claimBy(t, s, "w")
		if first.Generation != 1 || len(first.Streams) != 2 || first.Streams[0].Path != "events/a/b" || first.Streams[0].Tail != tail || !first.Streams[0].Pending || first.Streams[1].Pending {
			t.Errorf("the wake is %+v", first)
		}
		busy := want[struct {
			Error struct {
				Holder     string `json:"current_holder"`
				Generation uint64 `json:"generation"`
			}
		}](t, s, "409 ALREADY_CLAIMED", "POST", to("s", "/claim"), `{"worker":"v"}`)
		if busy.Error.Holder != "w" || busy.Error.Generation != 1 {
			t.Errorf("the refusal is %+v", busy)
		}
		events := want[[]map[string]any](t, s, "200", "GET", "events/wakes", "")
		if e := events[len(events)-1]; len(events) != 2 || e["type"] != "wake" || e["subscription_id"] != "s" || e["stream"] != "events/a/b" || e["generation"] != 1.0 {
			t.Errorf("the wake stream has %v", events)
		}

		h.Advance(900 * time.Millisecond)
		want[okBody](t, s, "200", "POST", to("s", "/ack"), fmt.Sprintf(`{"wake_id":%q,"generation":1}`, first.Wake), first.bearer()) // a heartbeat
		h.Advance(900 * time.Millisecond)
		want[any](t, s, "401 TOKEN_INVALID", "POST", to("s", "/ack"), first.ackBody(true))
		want[any](t, s, "401 TOKEN_INVALID", "POST", to("s", "/ack"), first.ackBody(true), "Authorization: Bearer "+first.ClaimToken[:8]+"AAAA")
		want[any](t, s, "400 INVALID_REQUEST", "POST", to("s", "/callback"), first.ackBody(true), first.bearer())
		for offset, stream := range map[string]string{"x": "events/a/b", tail + "0": "events/a/b", "-1": "events/a/b", tail: "events/c", old: "events/a/b"} {
			body := fmt.Sprintf(`{"wake_id":%q,"generation":1,"done":true,"acks":[{"stream":%q,"offset":%q}]}`, first.Wake, stream, offset)
			if offset != old || old > tail {
				want[any](t, s, "409 INVALID_OFFSET", "POST", to("s", "/ack"), body, first.bearer())
			}
		}
		put(t, s, "events/a/b") // after the claim
		h.Advance(time.Millisecond)
		if r := want[okBody](t, s, "200", "POST", to("s", "/ack"), first.ackBody(true), first.bearer()); !r.OK || !r.NextWake {
			t.Errorf("done with pending work: %+v", r)
		}
		want[any](t, s, "409 FENCED", "POST", to("s", "/ack"), first.ackBody(true), first.bearer())

		second := claimBy(t, s, "w")
		want[any](t, s, "409 FENCED", "POST", to("s", "/release"), first.ackBody(false), first.bearer())
		want[any](t, s, "409 FENCED", "POST", to("s", "/ack"), second.ackBody(true), first.bearer())
		want[any](t, s, "204", "POST", to("s", "/release"), second.ackBody(false), second.bearer())
		third := claimBy(t, s, "w")
		if second.Generation != 2 || third.Generation != 3 || third.Streams[0].Acked != tail {
			t.Errorf("generations %d and %d with %+v", second.Generation, third.Generation, third.Streams)
		}
		h.Advance(1100 * time.Millisecond) // the lease ends
		want[any](t, s, "409 FENCED", "POST", to("s", "/ack"), third.ackBody(true), third.bearer())
		fourth := claimBy(t, s, "v")
		if r := want[okBody](t, s, "200", "POST", to("s", "/ack"), fourth.ackBody(true), fourth.bearer()); r.NextWake || fourth.Generation != 4 {
			t.Errorf("done of generation %d: %+v", fourth.Generation, r)
		}
		want[any](t, s, "409 NO_PENDING_WORK", "POST", to("s", "/claim"), `{"worker":"w"}`)
		want[any](t, s, "204", "DELETE", to("s", ""), "")
		want[any](t, s, "404 SUBSCRIPTION_NOT_FOUND", "POST", to("s", "/ack"), fourth.ackBody(true), fourth.bearer())
		want[any](t, s, "404 SUBSCRIPTION_NOT_FOUND", "GET", to("s", ""), "")
		put(t, s, "events/a/b")
		if exists, err := h.Host().Exists(t.Context(), Subscriptions.Get(h, "s").ID()); exists || err != nil {
			t.Errorf("the deleted subscription exists: %v", err)
		}
	})
}

// TestSubscriptionOfNamedStreams names streams that exist and streams that do not.
func TestSubscriptionOfNamedStreams(t *testing.T) {
	run(t, func(t *testing.T, h *dohosttest.Host) {
		s := Server(h.Host(), nil)
		put(t, s, "w")
		at := put(t, s, "a")
		paths := func() (list []string) {
			for _, l := range want[describedBody](t, s, "200", "GET", to("s", ""), "").Streams {
				list = append(list, l.Path+" "+l.LinkType+" "+l.Acked)
			}
			return list
		}
		check := func(want ...string) {
			t.Helper()
			if got := paths(); strings.Join(got, ", ") != strings.Join(want, ", ") {
				t.Errorf("the streams are %q, want %q", got, want)
			}
		}
		want[any](t, s, "201", "PUT", to("s", ""), `{"type":"pull-wake","streams":["later","/a"],"wake_stream":"w","pattern":"x/*"}`)
		check("a explicit "+at, "later explicit -1")
		other := put(t, s, "b")
		want[any](t, s, "204", "POST", to("s", "/streams"), `{"streams":["b","a","x/y"]}`)
		check("a explicit "+at, "b explicit "+other, "later explicit -1", "x/y explicit -1")
		want[any](t, s, "204", "DELETE", to("s", "/streams/b"), "")
		want[any](t, s, "204", "DELETE", to("s", "/streams/b"), "")
		put(t, s, "b")
		put(t, s, "x/y")
		h.Advance(time.Millisecond)
		want[any](t, s, "204", "DELETE", to("s", "/streams/x%2Fy"), "")
		check("x/y glob -1", "a explicit "+at, "later explicit -1") // pending work comes first
		put(t, s, "later")
		h.Advance(time.Millisecond)
		h.EvictAll()
		b := claimBy(t, s, "w")
		if len(b.Streams) != 3 || b.Streams[0].Path != "x/y" || b.Streams[1].Path != "later" || b.Streams[1].Acked != "-1" || !b.Streams[1].Pending {
			t.Errorf("the wake is %+v", b.Streams)
		}
		want[any](t, s, "200", "POST", to("s", "/ack"), b.ackBody(true), b.bearer())

		// A deleted stream leaves the subscription, unless it is named.
		serve(s, "DELETE", "x/y", "")
		serve(s, "DELETE", "later", "")
		h.Advance(time.Millisecond)
		check("a explicit "+at, "later explicit -1")
		if w := serve(s, "PUT", "x/y", `[1]`, asJSON); w.Code != 201 {
			t.Fatal(code(w))
		}
		again := claimBy(t, s, "w")
		if got := again.Streams[0]; got.Path != "x/y" || got.Acked <= b.Streams[0].Tail || !got.Pending {
			t.Errorf("the stream that was created again is %+v, after %+v", got, b.Streams[0])
		}
		if w := serve(s, "GET", "x/y?offset="+again.Streams[0].Acked, ""); w.Body.String() != "[1]" {
			t.Errorf("the data after the cursor is %s", w.Body)
		}
	})
}

// TestSubscriptionRequestsThatAreInvalid sends requests that are refused, and change nothing.
func TestSubscriptionRequestsThatAreInvalid(t *testing.T) {
	run(t, func(t *testing.T, h *dohosttest.Host) {
		s := Server(h.Host(), nil)
		sent := 0
		for _, r := range []struct{ want, method, path, body string }{
			{"404 NO_ROUTE", "GET", "__ds", ""},
			{"404 NO_ROUTE", "GET", "__ds/x", ""},
			{"404 NO_ROUTE", "GET", "__ds/subscriptions/", ""},
			{"404 NO_ROUTE", "GET", to("s", "/x"), ""},
			{"404 NO_ROUTE", "GET", to("s", "/claim/x"), ""},
			{"404 NO_ROUTE", "PUT", to(strings.Repeat("i", 257), ""), pullAll},
			{"405 METHOD_NOT_ALLOWED", "POST", to("s", ""), pullAll},
			{"405 METHOD_NOT_ALLOWED", "GET", to("s", "/claim"), ""},
			{"405 METHOD_NOT_ALLOWED", "POST", "__ds/jwks.json", ""},
			{"404 SUBSCRIPTION_NOT_FOUND", "GET", to("s", ""), ""},
			{"404 SUBSCRIPTION_NOT_FOUND", "POST", to("s", "/claim"), `{"worker":"w"}`},
			{"404 SUBSCRIPTION_NOT_FOUND", "POST", to("s", "/streams"), `{"streams":["a"]}`},
			{"404 SUBSCRIPTION_NOT_FOUND", "DELETE", to("s", "/streams/a"), ""},
			{"204", "DELETE", to("s", ""), ""},
			{"400 INVALID_REQUEST", "POST", to("s", "/claim"), ``},
			{"400 INVALID_REQUEST", "POST", to("s", "/streams"), `{"streams":[]}`},
			{"400 INVALID_REQUEST", "POST", to("s", "/streams"), `{"streams":["a//b"]}`},
			{"400 INVALID_REQUEST", "PUT", to("s", ""), `{`},
			{"400 INVALID_REQUEST", "PUT", to("s", ""), `[]`},
			{"400 INVALID_REQUEST", "PUT", to("s", ""), ``},
			{"400 INVALID_REQUEST", "PUT", to("s", ""), `{"type":"x","pattern":"a"}`},
			{"400 INVALID_REQUEST", "PUT", to("s", ""), `{"type":"webhook","pattern":"a"}`},
			{"400 INVALID_REQUEST", "PUT", to("s", ""), `{"type":"pull-wake","pattern":"a"}`},
			{"400 INVALID_REQUEST", "PUT", to("s", ""), `{"type":"pull-wake","wake_stream":"w"}`},
			{"400 INVALID_REQUEST", "PUT", to("s", ""), `{"type":"pull-wake","wake_stream":"w","pattern":"a*"}`},
			{"400 INVALID_REQUEST", "PUT", to("s", ""), `{"type":"pull-wake","wake_stream":"w","pattern":"a/../b"}`},
			{"400 INVALID_REQUEST", "PUT", to("s", ""), `{"type":"pull-wake","wake_stream":"w","streams":["."]}`},
			{"400 INVALID_REQUEST", "PUT", to("s", ""), `{"type":"pull-wake","wake_stream":"w","pattern":"a","lease_ttl_ms":999}`},
			{"400 INVALID_REQUEST", "PUT", to("s", ""), `{"type":"pull-wake","wake_stream":"w","pattern":"a","lease_ttl_ms":600001}`},
			{"400 INVALID_REQUEST", "PUT", to("s", ""), `{"type":"pull-wake","wake_stream":"w","pattern":"a","lease_ttl_ms":1.5}`},
			{"400 WEBHOOK_URL_REJECTED", "PUT", to("s", ""), `{"type":"webhook","pattern":"a","webhook":{"url":"http://127.0.0.1/"}}`},
			{"400 WEBHOOK_URL_REJECTED", "PUT", to("s", ""), `{"type":"webhook","pattern":"a","webhook":{"url":"https://10.0.0.1/"}}`},
			{"413 too_large", "PUT", to("s", ""), strings.Repeat(" ", maxControlBody+1)},
		} {
			sent++
			if got := code(serve(s, r.method, r.path, r.body, asJSON)); got != r.want {
				t.Errorf("%s %s %.80s: %s, want %s", r.method, r.path, r.body, got, r.want)
			}
		}
		t.Logf("%d requests", sent)
		if exists, err := h.Host().Exists(t.Context(), Subscriptions.Get(h, "s").ID()); exists || err != nil {
			t.Errorf("a refused request has left a subscription: %v", err)
		}
	})
}

// TestSubscriptionsAreBounded creates as many subscriptions as a host may have. A restart does not change their number.
func TestSubscriptionsAreBounded(t *testing.T) {
	run(t, func(t *testing.T, h *dohosttest.Host) {
		create := func(id string) string {
			return code(serve(Server(h.Host(), nil), "PUT", to(id, ""), `{"type":"pull-wake","wake_stream":"w","streams":["`+id+`"]}`))
		}
		for i := range maxSubscriptions {
			if got := create(fmt.Sprint(i)); got != "201" {
				t.Fatalf("subscription %d: %s", i, got)
			}
		}
		for range 2 {
			if got := create("more"); got != "429 TOO_MANY_SUBSCRIPTIONS" {
				t.Errorf("one more: %s", got)
			}
			if err := h.Restart(); err != nil {
				t.Fatal(err)
			}
		}
		if got := create("0"); got != "200" {
			t.Errorf("one that exists: %s", got)
		}
		serve(Server(h.Host(), nil), "DELETE", to("0", ""), "")
		if got := create("more"); got != "201" {
			t.Errorf("one in place of a deleted one: %s", got)
		}
	})
}

// TestGlobMatch compares patterns with paths.
func TestGlobMatch(t *testing.T) {
	for _, c := range []struct {
		pattern, path string
		want          bool
	}{
		{"a", "a", true}, {"a", "b", false}, {"a", "a/b", false}, {"a/*", "a/b", true}, {"a/*", "a", false}, {"a/*", "a/b/c", false},
		{"**", "a", true}, {"**", "a/b/c", true}, {"a/**", "a", true}, {"a/**", "a/b/c", true}, {"a/**", "b", false},
		{"**/c", "c", true}, {"**/c", "a/b/c", true}, {"**/c", "a/b", false}, {"a/**/c", "a/c", true}, {"a/**/c", "a/b/b/c", true},
		{"a/**/c", "a/c/b", false}, {"*/b", "a/b", true}, {"**/**", "a", true}, {"*/**", "a", true}, {"**/*", "a/b", true},
		{strings.Repeat("**/a/", 200) + "b", strings.TrimSuffix(strings.Repeat("a/", 400), "/"), false},
	} {
		if got := globMatch(strings.Split(c.pattern, "/"), strings.Split(c.path, "/")); got != c.want {
			t.Errorf("%.20s matches %.20s: %t", c.pattern, c.path, got)
		}
	}
}
