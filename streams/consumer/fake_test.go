package consumer_test

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing/iotest"
	"time"

	"github.com/dohost/dohost"
)

// fakeServer is a server of streams in memory, in place of one in another process. It shares no code with package streams. deliver is called by
// tests: nothing happens by itself.
type fakeServer struct {
	private ed25519.PrivateKey
	kid     string // its name
	kind    string // of the content of all streams; empty: JSON
	page    int    // of messages in a response; zero: all
	latency time.Duration

	mu         sync.Mutex
	streams    map[string][]string
	acked      map[string]int
	generation int
	wake       string
	names      int       // of wakes
	lease      time.Time // its end
	leaseTime  time.Duration
	last       []byte // the body of the last accepted delivery
	ended      []string
	keyReads   int
	requests   []string
	faults     []string                                        // violations of the protocol by the worker
	answer     func(r *http.Request) (status int, body string) // instead of the server; a status of zero: the server answers
	header     http.Header                                     // of the responses of answer
}

func newFakeServer() *fakeServer {
	return &fakeServer{
		private: ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize)), kid: "k1",
		streams: map[string][]string{}, acked: map[string]int{}, leaseTime: 30 * time.Second,
	}
}

func offsetOf(n int) string {
	if n == 0 {
		return "-1"
	}
	return fmt.Sprintf("%06d", n)
}

// numberOf returns the number of an offset; zero for "-1" and for a text that is none.
func numberOf(offset string) int {
	n, err := strconv.Atoi(offset)
	if err != nil {
		return 0
	}
	return max(0, n)
}

func (f *fakeServer) append(path string, messages ...string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.streams[path] = append(f.streams[path], messages...)
}

// settled reports whether all messages have been acknowledged, and no wake is in flight.
func (f *fakeServer) settled() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.wake == "" && !f.pending()
}

func (f *fakeServer) endedWakes() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.ended)
}

func (f *fakeServer) pending() bool {
	for path, messages := range f.streams {
		if f.acked[path] < len(messages) {
			return true
		}
	}
	return false
}

// begin ends a wake whose lease has ended, begins the next one if there is pending work and none is in flight, and returns the body of the
// delivery. It is nil if there is no wake.
func (f *fakeServer) begin() []byte {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.wake != "" && !time.Now().Before(f.lease) {
		f.wake = ""
	}
	if f.wake == "" {
		if !f.pending() {
			return nil
		}
		f.generation++
		f.names++
		f.wake = fmt.Sprint("w", f.names)
		f.lease = time.Now().Add(f.leaseTime)
	}
	return f.body()
}

func (f *fakeServer) body() []byte {
	list := []map[string]any{}
	for path, messages := range f.streams {
		list = append(list, map[string]any{"path": path, "link_type": "glob", "acked_offset": offsetOf(f.acked[path]),
			"tail_offset": offsetOf(len(messages)), "has_pending": f.acked[path] < len(messages)})
	}
	slices.SortFunc(list, func(a, b map[string]any) int { return strings.Compare(a["path"].(string), b["path"].(string)) })
	body, err := json.Marshal(map[string]any{"subscription_id": "s", "wake_id": f.wake, "generation": f.generation, "streams": list,
		"callback_url": "https://elsewhere.example/", "callback_token": "token of " + f.wake})
	if err != nil {
		panic(err)
	}
	return body
}

// sign returns the signature of a body.
func (f *fakeServer) sign(body []byte, at time.Time) string {
	t := fmt.Sprint(at.Unix())
	return "t=" + t + ",kid=" + f.kid + ",ed25519=" + base64.RawURLEncoding.EncodeToString(ed25519.Sign(f.private, []byte(t+"."+string(body))))
}

// deliver sends a signed delivery to a webhook.
func (f *fakeServer) deliver(ctx context.Context, hook http.Handler, body []byte) *httptest.ResponseRecorder {
	r := httptest.NewRequestWithContext(ctx, "POST", "/wake", bytes.NewReader(body))
	r.Header.Set("Webhook-Signature", f.sign(body, time.Now()))
	w := httptest.NewRecorder()
	hook.ServeHTTP(w, r)
	f.mu.Lock()
	defer f.mu.Unlock()
	if w.Code == 202 && bytes.Contains(body, []byte(fmt.Sprintf("%q", f.wake))) {
		f.last = body
	}
	return w
}

func (f *fakeServer) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := dohost.Sleep(r.Context(), f.latency); err != nil {
		return nil, err
	}
	body := ""
	if r.Body != nil {
		text, err := io.ReadAll(r.Body)
		if err != nil {
			return nil, err
		}
		body = string(text)
	}
	w := httptest.NewRecorder()
	f.mu.Lock()
	f.requests = append(f.requests, strings.TrimPrefix(r.Method+" "+r.URL.RequestURI()+" "+body, root))
	answer := f.answer
	f.mu.Unlock()
	if answer != nil {
		if status, text := answer(r); status != 0 {
			maps.Copy(w.Header(), f.header)
			w.WriteHeader(status)
			_, _ = w.WriteString(text) // never fails
			q := w.Result()
			if n := q.ContentLength; n > int64(len(text)) { // as net/http does
				q.Body = io.NopCloser(io.MultiReader(strings.NewReader(text), iotest.ErrReader(io.ErrUnexpectedEOF)))
			}
			return q, nil
		}
	}
	path, ok := strings.CutPrefix(r.URL.String(), root+"/")
	path, _, _ = strings.Cut(path, "?")
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case !ok:
		return nil, fmt.Errorf("a request to %s", r.URL)
	case path == "__ds/jwks.json":
		f.keyReads++
		x := base64.RawURLEncoding.EncodeToString(f.private.Public().(ed25519.PublicKey))
		fmt.Fprintf(w, `{"keys":[{"kty":"OKP","crv":"Ed25519","kid":%q,"x":%q}]}`, f.kid, x)
	case path == "__ds/subscriptions/s/callback" || path == "__ds/subscriptions/s/ack":
		status, text := f.callback(r.Header.Get("Authorization"), body)
		w.WriteHeader(status)
		_, _ = w.WriteString(text)
	case path == "__ds/subscriptions/s/claim":
		status, body := f.claim()
		w.WriteHeader(status)
		_, _ = w.Write(body) // never fails
	default:
		if path, err := url.PathUnescape(path); err != nil {
			w.WriteHeader(400)
		} else {
			f.serveStream(w, path, r.URL.Query().Get("offset"))
		}
	}
	return w.Result(), nil
}

func (f *fakeServer) callback(token, body string) (int, string) {
	var b struct {
		Wake       string `json:"wake_id"`
		Generation int    `json:"generation"`
		Acks       []struct{ Stream, Offset string }
		Done       bool
	}
	if err := json.Unmarshal([]byte(body), &b); err != nil {
		return 400, err.Error()
	}
	if f.wake == "" || b.Wake != f.wake || b.Generation != f.generation || !time.Now().Before(f.lease) || token != "Bearer token of "+f.wake {
		return 409, `{"error":{"code":"FENCED"}}`
	}
	for _, a := range b.Acks {
		n := numberOf(a.Offset)
		switch {
		case offsetOf(n) != a.Offset || n < f.acked[a.Stream]:
			return 409, `{"error":{"code":"INVALID_OFFSET"}}`
		case n > len(f.streams[a.Stream]):
			f.faults = append(f.faults, fmt.Sprintf("an acknowledgement of %s at %s, after its end", a.Stream, a.Offset))
		}
		f.acked[a.Stream] = n
	}
	f.lease = time.Now().Add(f.leaseTime)
	if b.Done {
		for _, s := range f.delivered() {
			if f.acked[s.Path] < s.tail() {
				f.faults = append(f.faults, fmt.Sprintf("done with %s at %d of %d", s.Path, f.acked[s.Path], s.tail()))
			}
		}
		f.ended, f.wake = append(f.ended, f.wake), ""
	}
	return 200, `{"ok":true,"next_wake":false}`
}

// claim answers the claim of a worker.
func (f *fakeServer) claim() (int, []byte) {
	f.mu.Unlock()
	body := f.begin()
	f.mu.Lock()
	if body == nil {
		return 409, []byte(`{"error":{"code":"NO_PENDING_WORK"}}`)
	}
	return 200, bytes.Replace(body, []byte("callback_token"), []byte("token"), 1)
}

// deliveredStream is a stream in the last delivery.
type deliveredStream struct {
	Path string `json:"path"`
	Tail string `json:"tail_offset"`
}

func (s *deliveredStream) tail() int {
	return numberOf(s.Tail)
}

// delivered returns the streams of the last delivery.
func (f *fakeServer) delivered() []deliveredStream {
	var b struct{ Streams []deliveredStream }
	_ = json.Unmarshal(f.last, &b) // it is ours
	return b.Streams
}

func (f *fakeServer) serveStream(w *httptest.ResponseRecorder, path, offset string) {
	messages, ok := f.streams[path]
	if !ok {
		w.WriteHeader(404)
		return
	}
	from := numberOf(offset)
	to := len(messages)
	if f.page > 0 && offset != "" {
		to = min(to, from+f.page)
	}
	w.Header().Set("Stream-Next-Offset", offsetOf(to))
	if f.kind != "" {
		w.Header().Set("Content-Type", f.kind)
		_, _ = w.WriteString(strings.Join(messages[min(from, to):to], "")) // never fails
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.WriteString("[" + strings.Join(messages[min(from, to):to], ",") + "]")
}
