package streams

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/dohosttest"
)

// receiver is a webhook, in place of the network.
type receiver struct {
	mu     sync.Mutex
	bodies [][]byte
	fields []string                                       // Webhook-Signature
	answer func(context.Context, *wakeBody) (int, string) // nil: 200 and no body
}

func (r *receiver) RoundTrip(q *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(q.Body)
	if err != nil {
		return nil, err
	}
	var b wakeBody
	if err := json.Unmarshal(body, &b); err != nil {
		return nil, err
	}
	r.mu.Lock()
	r.bodies = append(r.bodies, body)
	r.fields = append(r.fields, q.Header.Get("Webhook-Signature"))
	answer := r.answer
	r.mu.Unlock()
	status, text := 200, ""
	if answer != nil {
		status, text = answer(q.Context(), &b)
	}
	if err := q.Context().Err(); err != nil {
		return nil, err
	}
	if status == 0 {
		return nil, errors.New("no connection")
	}
	w := httptest.NewRecorder()
	w.WriteHeader(status)
	_, _ = w.WriteString(text) // never fails
	return w.Result(), nil
}

// set replaces the answer.
func (r *receiver) set(answer func(context.Context, *wakeBody) (int, string)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.answer = answer
}

// take returns the deliveries since the last call.
func (r *receiver) take(t *testing.T) (list []*wakeBody) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, body := range r.bodies {
		var b wakeBody
		if err := json.Unmarshal(body, &b); err != nil {
			t.Fatal(err)
		}
		list = append(list, &b)
	}
	r.bodies, r.fields = nil, nil
	return list
}

const hook = `{"type":"webhook","pattern":"events/*","webhook":{"url":"https://hook.example/x"},"lease_ttl_ms":10000}`

// runWebhook runs f with a subscription hook, in virtual time.
func runWebhook(t *testing.T, f func(t *testing.T, h *dohosttest.Host, s http.Handler, r *receiver)) {
	t.Helper()
	r := &receiver{}
	classes := Classes(&ClassOptions{Webhooks: &WebhookOptions{Transport: r}})
	dohosttest.Run(t, &dohosttest.Options{Classes: classes}, func(t *testing.T, h *dohosttest.Host) {
		s := Server(h.Host(), &ServerOptions{URL: "https://streams.example/v1/stream"})
		want[any](t, s, "201", "PUT", to("h", ""), hook)
		f(t, h, s, r)
	})
}

// one returns the only delivery since the last call.
func one(t *testing.T, r *receiver) *wakeBody {
	t.Helper()
	list := r.take(t)
	if len(list) != 1 {
		t.Fatalf("%d deliveries, want 1", len(list))
	}
	return list[0]
}

// TestWebhookDelivery checks a delivery and its signature, by the published keys. A response with done moves the cursors to the tails that
// were delivered, and not to later ones.
func TestWebhookDelivery(t *testing.T) {
	runWebhook(t, func(t *testing.T, h *dohosttest.Host, s http.Handler, r *receiver) {
		tail := ""
		r.set(func(ctx context.Context, _ *wakeBody) (int, string) {
			if tail == "" {
				tail = put(t, s, "events/a") // after the delivery has begun
				if err := dohost.Sleep(ctx, 10*time.Millisecond); err != nil {
					return 500, ""
				}
			}
			return 200, `{"done":true}`
		})
		before := put(t, s, "events/a")
		h.Advance(time.Second)
		r.mu.Lock()
		body, field := r.bodies[0], r.fields[0]
		r.mu.Unlock()
		list := r.take(t)
		if len(list) != 2 || list[0].Generation != 1 || list[1].Generation != 2 || list[0].Wake == list[1].Wake {
			t.Fatalf("deliveries %+v", list)
		}
		if b := list[0]; b.Subscription != "h" || b.Callback != "https://streams.example/v1/stream/__ds/subscriptions/h/callback" ||
			len(b.Streams) != 1 || b.Streams[0].Tail != before {
			t.Errorf("the first delivery is %+v", b)
		}
		if got := list[1].Streams[0]; got.Acked != before || got.Tail != tail {
			t.Errorf("the second delivery has %+v, want the data from %s to %s", got, before, tail)
		}
		if d := want[describedBody](t, s, "200", "GET", to("h", ""), ""); d.Streams[0].Acked != tail || d.Status != "active" ||
			d.Webhook.Signing.JWKS != "https://streams.example/v1/stream/__ds/jwks.json" {
			t.Errorf("the subscription is %+v", d)
		}
		want[any](t, s, "409 FENCED", "POST", to("h", "/callback"), list[1].ackBody(true), list[1].bearer())

		parts := regexp.MustCompile(`^t=(\d+),kid=(ds_[\w-]+),ed25519=([\w-]+)$`).FindStringSubmatch(field)
		keys := want[struct {
			Keys []struct{ Kid, X, Kty, Crv, Alg string }
		}](t, s, "200", "GET", "__ds/jwks.json", "")
		if parts == nil || len(keys.Keys) != 1 || keys.Keys[0].Kid != parts[2] || keys.Keys[0].Kty != "OKP" || keys.Keys[0].Crv != "Ed25519" || keys.Keys[0].Alg != "EdDSA" {
			t.Fatalf("the signature is %s, the keys are %+v", field, keys)
		}
		x, _ := base64.RawURLEncoding.DecodeString(keys.Keys[0].X)
		signature, _ := base64.RawURLEncoding.DecodeString(parts[3])
		if !ed25519.Verify(x, append([]byte(parts[1]+"."), body...), signature) {
			t.Error("the signature is not one of the body")
		}
		if err := h.Restart(); err != nil {
			t.Fatal(err)
		}
		if again := serve(Server(h.Host(), nil), "GET", "__ds/jwks.json", ""); !strings.Contains(again.Body.String(), parts[2]) {
			t.Errorf("the key has changed with the process: %s", again.Body)
		}
	})
}

// TestWebhookCallback has a worker that works after its response.
func TestWebhookCallback(t *testing.T) {
	runWebhook(t, func(t *testing.T, h *dohosttest.Host, s http.Handler, r *receiver) {
		put(t, s, "events/a")
		h.Advance(time.Second)
		first := one(t, r)
		for range 3 {
			h.Advance(8 * time.Second)
			want[okBody](t, s, "200", "POST", to("h", "/callback"), fmt.Sprintf(`{"wake_id":%q,"generation":1}`, first.Wake), first.bearer())
		}
		put(t, s, "events/b")
		h.Advance(8 * time.Second)
		if n := len(r.take(t)); n > 0 {
			t.Errorf("%d deliveries while a wake is in flight", n)
		}
		if ok := want[okBody](t, s, "200", "POST", to("h", "/callback"), first.ackBody(true), first.bearer()); !ok.NextWake {
			t.Error("no next wake")
		}
		h.Advance(time.Second)
		second := one(t, r)
		if second.Generation != 2 || len(second.Streams) != 2 || second.Streams[0].Path != "events/b" {
			t.Errorf("the second delivery is %+v", second)
		}
		h.Advance(30 * time.Second) // the worker is silent: the lease ends, and that of the next wake
		silent := r.take(t)
		if len(silent) < 2 || silent[0].Generation != 3 || silent[1].Generation != 4 {
			t.Fatalf("%d deliveries after silence", len(silent))
		}
		want[any](t, s, "409 FENCED", "POST", to("h", "/callback"), second.ackBody(true), second.bearer())
		last := silent[len(silent)-1]
		want[okBody](t, s, "200", "POST", to("h", "/callback"), last.ackBody(true), last.bearer())
		h.Advance(time.Hour)
		if n := len(r.take(t)); n > 0 {
			t.Errorf("%d deliveries without work", n)
		}
	})
}

// TestWebhookThatWorksInRequest has a worker that sends heartbeats until it answers.
func TestWebhookThatWorksInRequest(t *testing.T) {
	runWebhook(t, func(t *testing.T, h *dohosttest.Host, s http.Handler, r *receiver) {
		r.set(func(ctx context.Context, b *wakeBody) (int, string) {
			for range 4 {
				if err := dohost.Sleep(ctx, 8*time.Second); err != nil {
					t.Errorf("the request has ended: %v", err)
					return 500, ""
				}
				want[okBody](t, s, "200", "POST", to("h", "/callback"), fmt.Sprintf(`{"wake_id":%q,"generation":1}`, b.Wake), b.bearer())
			}
			return 200, `{"done":true}`
		})
		tail := put(t, s, "events/a")
		h.Advance(time.Minute)
		one(t, r)
		if d := want[describedBody](t, s, "200", "GET", to("h", ""), ""); d.Streams[0].Acked != tail {
			t.Errorf("the subscription is %+v", d)
		}
	})
}

// TestWebhookThatFails has a webhook that does not answer, answers an error, or answers too late.
func TestWebhookThatFails(t *testing.T) {
	runWebhook(t, func(t *testing.T, h *dohosttest.Host, s http.Handler, r *receiver) {
		var began []time.Time
		failing := 0
		r.set(func(context.Context, *wakeBody) (int, string) {
			began = append(began, time.Now())
			failing = 503 - failing // 503, or no connection
			return failing, ""
		})
		put(t, s, "events/a")
		h.Advance(10 * time.Minute)
		list := r.take(t)
		for i, b := range list {
			if b.Generation != 1 || b.Wake != list[0].Wake {
				t.Errorf("attempt %d is of generation %d: a wake that was not delivered stays", i, b.Generation)
			}
			if i == 0 {
				continue
			}
			base := min(time.Second<<(i-1), time.Minute)
			if d := began[i].Sub(began[i-1]); d < base || d > base*5/4+time.Second {
				t.Errorf("attempt %d follows after %v, want %v with jitter", i, d, base)
			}
		}
		if len(list) < 10 {
			t.Errorf("%d attempts", len(list))
		}
		if d := want[describedBody](t, s, "200", "GET", to("h", ""), ""); d.Status != "failed" {
			t.Errorf("the status is %s", d.Status)
		}
		for len(r.take(t)) == 0 { // the next attempt is a minute away then
			h.Advance(time.Second)
		}
		if err := h.Restart(); err != nil { // the schedule of the attempts survives; a start repeats no attempt
			t.Fatal(err)
		}
		h.Advance(time.Second)
		if n := len(r.take(t)); n > 0 {
			t.Errorf("%d attempts right after a restart", n)
		}
		s = Server(h.Host(), nil)

		// The response to this attempt comes too late. The worker has called back before, and is done. The next wake waits for the
		// response only for a short time.
		var ended, next time.Time
		r.set(func(ctx context.Context, b *wakeBody) (int, string) {
			if !ended.IsZero() {
				next = time.Now()
				return 200, `{"done":true}`
			}
			want[okBody](t, s, "200", "POST", to("h", "/callback"), b.ackBody(true), b.bearer())
			ended = time.Now()
			put(t, s, "events/a")
			<-ctx.Done()
			return 500, ""
		})
		h.Advance(2 * time.Minute)
		if b := r.take(t); len(b) != 2 || next.Sub(ended) != linger {
			t.Errorf("%d deliveries, the second %v after the end of the first wake", len(b), next.Sub(ended))
		}
		if d := want[describedBody](t, s, "200", "GET", to("h", ""), ""); d.Status != "active" {
			t.Errorf("the status is %s", d.Status)
		}
		h.Advance(time.Hour)
		if n := len(r.take(t)); n > 0 {
			t.Errorf("%d deliveries without work", n)
		}

		// The webhook takes the wake, and never answers: the lease ends the request, and the wake.
		r.set(func(ctx context.Context, b *wakeBody) (int, string) {
			<-ctx.Done()
			return 200, ""
		})
		put(t, s, "events/a")
		h.Advance(15 * time.Second)
		if b := r.take(t); len(b) != 2 || b[1].Generation <= b[0].Generation {
			t.Errorf("%d deliveries within 15 s, want 2 generations", len(b))
		}
	})
}

// TestEvictionDuringDelivery evicts the subscription while the webhook works, soon after the request has begun and later.
func TestEvictionDuringDelivery(t *testing.T) {
	runWebhook(t, func(t *testing.T, h *dohosttest.Host, s http.Handler, r *receiver) {
		r.set(func(ctx context.Context, _ *wakeBody) (int, string) {
			<-ctx.Done()
			return 500, ""
		})
		put(t, s, "events/a")
		h.Advance(100 * time.Millisecond)
		first := one(t, r)
		for _, c := range []struct{ age, within time.Duration }{{500 * time.Millisecond, firstCheck}, {6 * time.Second, maxCheck}} {
			h.Advance(c.age)
			h.Evict(Subscriptions.Get(h, "h").ID(), dohost.EndFence)
			h.Advance(c.within)
			if again := one(t, r); again.Wake != first.Wake {
				t.Errorf("the wake %s follows %s", again.Wake, first.Wake)
			}
		}
	})
}

// TestWebhookAddresses checks URLs and addresses.
func TestWebhookAddresses(t *testing.T) {
	refused := errors.New("refused by Check")
	check := func(u *url.URL) error {
		if u.Hostname() == "refused.example" {
			return refused
		}
		return nil
	}
	for _, local := range []bool{false, true} {
		s := newSender(&WebhookOptions{Loopback: local, Check: check})
		for text, ok := range map[string]bool{
			"https://a.example/x?y=1": true, "https://8.8.8.8/": true, "https://[2606:4700::1111]/": true,
			"http://a.example/": false, "https://": false, "https:///x": false, "ftp://a.example/": false, "a.example": false,
			"https://u:p@a.example/": false, "https://a.example/#x": false, "https://refused.example/": false,
			"https://a.example/" + strings.Repeat("x", maxWebhookURL): false,
			"https://10.0.0.1/": false, "https://192.168.1.1/": false, "https://169.254.169.254/": false, "https://0.0.0.0/": false,
			"https://[::]/": false, "https://[fe80::1]/": false, "https://[fd00::1]/": false, "https://[::ffff:10.0.0.1]/": false,
			"https://[64:ff9b::a00:1%25x]/": false, "https://[2002:a00:1::%25x]/": false, "https://[fec0::1]/": false, "https://[::a00:1]/": false,
			"https://[5f00::1]/": false, "https://[2001:db8::1]/": false, "https://[2606:4700::1111%25x]/": true,
			"https://100.64.0.1/": false, "https://224.0.0.1/": false, "https://[64:ff9b::a00:1]/": false,
			"http://localhost:1/": local, "https://localhost:1/": local, "http://127.0.0.2:1/": local, "http://[::1]:1/": local,
			"http://[::ffff:127.0.0.1]:1/": local, "http://10.0.0.1/": false,
		} {
			if err := s.checkURL(text); (err == nil) != ok {
				t.Errorf("loopback %t, %.60s: %v", local, text, err)
			}
		}
		if err := s.checkAddress(netip.MustParseAddr("127.0.0.1")); (err == nil) != local {
			t.Errorf("loopback %t, the address 127.0.0.1: %v", local, err)
		}
	}
}

// TestWebhookRefusesLocalAddressOfName has a name that resolves to a loopback address, and a webhook that redirects.
func TestWebhookRefusesLocalAddressOfName(t *testing.T) {
	called := 0
	target := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		called++
		http.Redirect(w, r, "/again", http.StatusTemporaryRedirect)
	}))
	defer target.Close()
	key := newSigningKey(ed25519.NewKeyFromSeed(bytes.Repeat([]byte{1}, ed25519.SeedSize)))
	for _, local := range []bool{false, true} {
		s := newSender(&WebhookOptions{Loopback: local})
		at := strings.Replace(target.URL, "127.0.0.1", "localhost", 1)
		_, err := s.send(t.Context(), at, []byte("{}"), key)
		if errors.Is(err, errLocalAddress) == local || err == nil {
			t.Errorf("loopback %t: %v", local, err)
		}
		s.client.CloseIdleConnections()
	}
	if called != 1 {
		t.Errorf("the server was called %d times, want 1: no redirect is followed", called)
	}
}
