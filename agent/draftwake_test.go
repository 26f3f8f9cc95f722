package agent_test

import (
	"bytes"
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dohost/dohost/agent"
)

// draftWake is a delivery of an early draft of the Durable Streams protocol. Its first callback is the claim, and the response to each
// callback has the token of the next one.
type draftWake struct {
	Consumer string `json:"consumer_id"`
	Epoch    uint64 `json:"epoch"`
	Wake     string `json:"wake_id"`
	Callback string `json:"callback"`
	Token    string `json:"token"`
	Streams  []struct{ Path, Offset string }
}

// draftCallback is the body of a callback. Without acks and done it is a heartbeat.
type draftCallback struct {
	Epoch uint64              `json:"epoch"`
	Wake  string              `json:"wake_id,omitempty"` // of a claim
	Acks  []map[string]string `json:"acks,omitempty"`
	Done  *bool               `json:"done,omitempty"`
}

// draftWorker connects RunWake with the draft.
type draftWorker struct {
	secret []byte
	sender http.RoundTripper
	within time.Duration     // of the work in the request; zero: it follows the response
	run    func(work func()) // runs the work that follows a response
	work   func(context.Context, *agent.Session[*draftWake]) (agent.Drained, error)
	errs   []error // of RunWake, of one after the other
}

func draftSignature(secret, body []byte, at time.Time) string {
	mac := hmac.New(sha256.New, secret)
	fmt.Fprintf(mac, "%d.%s", at.Unix(), body)
	return fmt.Sprintf("t=%d,sha256=%s", at.Unix(), hex.EncodeToString(mac.Sum(nil)))
}

// verify checks the signature of the raw body, and its time.
func (d *draftWorker) verify(field string, body []byte) bool {
	var unix int64
	if _, err := fmt.Sscanf(field, "t=%d,", &unix); err != nil || time.Since(time.Unix(unix, 0)).Abs() > 5*time.Minute {
		return false
	}
	return hmac.Equal([]byte(field), []byte(draftSignature(d.secret, body, time.Unix(unix, 0))))
}

func (d *draftWorker) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil || !d.verify(r.Header.Get("Webhook-Signature"), body) {
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	var wake draftWake
	if err := json.Unmarshal(body, &wake); err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	if d.within == 0 {
		w.WriteHeader(http.StatusAccepted)
		d.run(func() {
			_, err := agent.RunWake(r.Context(), &wake, d.lifecycle(), d.work)
			d.errs = append(d.errs, err)
		})
		return
	}
	drained, err := agent.RunWake(r.Context(), &wake, d.lifecycle(), d.work)
	d.errs = append(d.errs, err)
	_ = json.NewEncoder(w).Encode(map[string]bool{"done": err == nil && drained.Work == agent.WorkDone}) // never fails
}

func (d *draftWorker) lifecycle() *agent.Lifecycle[*draftWake] {
	return &agent.Lifecycle[*draftWake]{
		Claim: func(ctx context.Context, w *draftWake) (agent.WakeClaim, error) {
			return agent.WakeClaim{Wake: w.Wake, Generation: w.Epoch}, d.callback(ctx, w, draftCallback{Wake: w.Wake})
		},
		Heartbeat: func(ctx context.Context, w *draftWake, _ agent.WakeClaim) error {
			return d.callback(ctx, w, draftCallback{})
		},
		SaveCursors: func(ctx context.Context, w *draftWake, _ agent.WakeClaim, to []agent.SourceCursor) error {
			c := draftCallback{}
			for _, at := range to {
				c.Acks = append(c.Acks, map[string]string{"path": at.Source, "offset": at.Position})
			}
			return d.callback(ctx, w, c)
		},
		Complete: func(ctx context.Context, w *draftWake, _ agent.WakeClaim, work agent.WorkState) error {
			return d.callback(ctx, w, draftCallback{Done: new(work == agent.WorkDone)})
		},
		HeartbeatInterval: 10 * time.Second,
	}
}

// callback sends a callback, and keeps the token of the response. A Session sends one at a time.
func (d *draftWorker) callback(ctx context.Context, w *draftWake, c draftCallback) error {
	c.Epoch = w.Epoch
	body, err := json.Marshal(c)
	if err != nil {
		return err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, w.Callback, bytes.NewReader(body))
	if err != nil {
		return err
	}
	r.Header.Set("Authorization", "Bearer "+w.Token)
	res, err := d.sender.RoundTrip(r)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	var answer struct{ Token, Code string }
	if err := json.NewDecoder(res.Body).Decode(&answer); err != nil {
		return err
	}
	switch {
	case res.StatusCode == http.StatusOK:
		w.Token = answer.Token
		return nil
	case answer.Code == "ALREADY_CLAIMED":
		return agent.ErrWakeClaimed
	case answer.Code == "STALE_EPOCH", res.StatusCode == http.StatusGone, res.StatusCode == http.StatusUnauthorized:
		return fmt.Errorf("%w: %s", agent.ErrWakeStale, answer.Code)
	}
	return fmt.Errorf("callback: %d %s", res.StatusCode, answer.Code)
}

// draftSender is a sender of the draft, for one consumer and one stream. It is idle, waking, or live.
type draftSender struct {
	secret []byte

	mu      sync.Mutex
	state   string // empty: idle
	epoch   uint64
	wake    string
	tokens  int       // drawn
	until   time.Time // silence until then ends a live or waking consumer
	acked   int
	tail    int
	log     []string
	refused []string
}

const draftLease = 30 * time.Second

// begin returns the next delivery if there is pending work and no wake is in flight; the sender may repeat it.
func (s *draftSender) begin() []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.state != "" && !time.Now().Before(s.until) {
		s.state = ""
	}
	if s.state != "" || s.acked == s.tail {
		return nil
	}
	s.epoch++
	s.state, s.wake, s.until = "waking", fmt.Sprint("w", s.epoch), time.Now().Add(draftLease)
	s.tokens++
	body, err := json.Marshal(map[string]any{
		"consumer_id": "c", "epoch": s.epoch, "wake_id": s.wake, "callback": "https://sender.example/callback", "token": fmt.Sprint(s.tokens),
		"streams": []map[string]string{{"path": "a", "offset": fmt.Sprint(s.acked)}},
	})
	if err != nil {
		panic(err)
	}
	return body
}

// RoundTrip answers a callback.
func (s *draftSender) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	var c draftCallback
	if err := json.NewDecoder(r.Body).Decode(&c); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	status, code := s.accept(&c, strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer "))
	if status == http.StatusOK {
		s.tokens, s.until = s.tokens+1, time.Now().Add(draftLease)
	} else {
		s.refused = append(s.refused, fmt.Sprint(status, " ", code))
	}
	w := httptest.NewRecorder()
	w.WriteHeader(status)
	fmt.Fprintf(w, `{"token":"%d","code":"%s"}`, s.tokens, code)
	return w.Result(), nil
}

func (s *draftSender) accept(c *draftCallback, token string) (status int, code string) {
	expired := s.state == "" || !time.Now().Before(s.until)
	switch {
	case c.Epoch != s.epoch || expired:
		return http.StatusConflict, "STALE_EPOCH"
	case c.Wake != "" && s.state == "live":
		return http.StatusConflict, "ALREADY_CLAIMED"
	case token != fmt.Sprint(s.tokens):
		return http.StatusUnauthorized, "TOKEN_INVALID"
	case s.state == "waking" && c.Wake != s.wake:
		return http.StatusConflict, "NOT_CLAIMED"
	}
	entry := "heartbeat"
	if s.state == "waking" {
		s.state, entry = "live", "claim"
	}
	for _, a := range c.Acks {
		var n int
		if _, err := fmt.Sscan(a["offset"], &n); err != nil || a["path"] != "a" || n < s.acked || n > s.tail {
			return http.StatusConflict, "INVALID_OFFSET"
		}
		s.acked, entry = n, "ack "+a["offset"]
	}
	if c.Done != nil {
		s.state, entry = "", fmt.Sprint("done ", *c.Done)
	}
	s.log = append(s.log, entry)
	return http.StatusOK, ""
}

// want compares the accepted callbacks and the refusals since the last call.
func (s *draftSender) want(t *testing.T, accepted, refused string) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if got := strings.Join(s.log, ", "); got != accepted {
		t.Errorf("accepted callbacks: %s; want %s", got, accepted)
	}
	if got := strings.Join(s.refused, ", "); got != refused {
		t.Errorf("refused callbacks: %s; want %s", got, refused)
	}
	s.log, s.refused = nil, nil
}

// draftTest is a sender and a worker, whose cycles take a message each and some time.
type draftTest struct {
	sender *draftSender
	worker *draftWorker
	cycle  time.Duration
	took   []int // messages
	cycles atomic.Int64
	queued []func() // work that follows a response
}

func runDraft(t *testing.T, f func(t *testing.T, c *draftTest)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		secret := []byte("secret")
		s := &draftSender{secret: secret}
		c := &draftTest{sender: s, worker: &draftWorker{secret: secret, sender: s}, cycle: time.Second}
		c.worker.run = func(work func()) { c.queued = append(c.queued, work) }
		c.worker.work = c.drain
		f(t, c)
	})
}

func (c *draftTest) drain(ctx context.Context, s *agent.Session[*draftWake]) (agent.Drained, error) {
	var at int
	if _, err := fmt.Sscan(s.Wake().Streams[0].Offset, &at); err != nil {
		return agent.Drained{}, err
	}
	d, err := agent.Drain(ctx, agent.DrainSource{
		Pending: func(context.Context) (bool, error) { return at < c.sender.tail, nil },
		Cycle: func(ctx context.Context) error {
			c.cycles.Add(1)
			select {
			case <-time.After(c.cycle):
			case <-ctx.Done():
				return context.Cause(ctx)
			}
			if at++; !slices.Contains(c.took, at) { // the worker's own record of its effects
				c.took = append(c.took, at)
			}
			return nil
		},
		Between: func(ctx context.Context) error {
			return s.SaveCursors(ctx, agent.SourceCursor{Source: "a", Position: fmt.Sprint(at)})
		},
	}, &agent.DrainOptions{MaxTime: cmp.Or(c.worker.within, -1)})
	if err != nil {
		return d, err
	}
	return d, s.Complete(ctx, d.Work)
}

// start starts the work of the deliveries so far.
func (c *draftTest) start() {
	for _, work := range c.queued {
		go work()
	}
	c.queued = nil
	synctest.Wait()
}

// deliver sends a delivery to the worker.
func (c *draftTest) deliver(ctx context.Context, body []byte) *httptest.ResponseRecorder {
	return c.deliverSigned(ctx, body, draftSignature(c.sender.secret, body, time.Now()))
}

func (c *draftTest) deliverSigned(ctx context.Context, body []byte, signature string) *httptest.ResponseRecorder {
	r := httptest.NewRequestWithContext(ctx, "POST", "/wake", bytes.NewReader(body))
	r.Header.Set("Webhook-Signature", signature)
	w := httptest.NewRecorder()
	c.worker.ServeHTTP(w, r)
	return w
}

// TestDraftWakeAcknowledgedFirst has a worker that answers before it works, and is killed once. The next wake has a higher epoch, and the
// callbacks of the old one are refused. Each callback needs the token of the last response.
func TestDraftWakeAcknowledgedFirst(t *testing.T) {
	runDraft(t, func(t *testing.T, c *draftTest) {
		c.sender.tail, c.cycle = 3, 24*time.Second
		running, kill := context.WithCancel(t.Context())
		first := c.sender.begin()
		if w := c.deliver(running, first); w.Code != 202 || w.Body.Len() > 0 || len(c.sender.log) > 0 {
			t.Errorf("the delivery: %d %s after the callbacks %q", w.Code, w.Body, c.sender.log)
		}
		c.start()
		time.Sleep(23 * time.Second)
		synctest.Wait()
		c.sender.want(t, "claim, heartbeat, heartbeat", "")
		time.Sleep(11 * time.Second)
		kill()
		synctest.Wait()
		c.sender.want(t, "ack 1, heartbeat", "")
		if again := c.sender.begin(); again != nil {
			t.Errorf("the sender wakes during the lease: %s", again)
		}
		time.Sleep(draftLease)
		second := c.sender.begin()
		if c.deliver(t.Context(), second); c.sender.epoch != 2 {
			t.Errorf("epoch %d after silence", c.sender.epoch)
		}
		c.start()
		c.sender.want(t, "claim", "")
		var old draftWake
		if err := json.Unmarshal(first, &old); err != nil {
			t.Fatal(err)
		}
		for range 2 { // the first delivery again, twice
			if w := c.deliver(t.Context(), first); w.Code != 202 {
				t.Errorf("the first delivery again: %d", w.Code)
			}
			c.start()
		}
		c.sender.want(t, "", "409 STALE_EPOCH, 409 STALE_EPOCH")
		cycles := c.cycles.Load()
		c.deliver(t.Context(), second) // its sender has lost the response
		c.start()
		c.sender.want(t, "", "409 ALREADY_CLAIMED")
		if c.cycles.Load() != cycles {
			t.Error("a wake that another run has was worked on")
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		c.sender.want(t, "heartbeat, heartbeat, ack 2, heartbeat, heartbeat, ack 3, done true", "")
		if !slices.Equal(c.took, []int{1, 2, 3}) || c.sender.state != "" || c.sender.begin() != nil {
			t.Errorf("the worker has %v, the state is %q", c.took, c.sender.state)
		}
		want := []error{context.Canceled, agent.ErrWakeStale, agent.ErrWakeStale, agent.ErrWakeClaimed, nil}
		for i, err := range c.worker.errs {
			if i >= len(want) || !errors.Is(err, want[i]) {
				t.Errorf("run %d: %v, want %v", i, err, want)
			}
		}
	})
}

// TestDraftWakeTokens has callbacks with an old token, and with none of the sender.
func TestDraftWakeTokens(t *testing.T) {
	runDraft(t, func(t *testing.T, c *draftTest) {
		c.sender.tail = 1
		var w draftWake
		if err := json.Unmarshal(c.sender.begin(), &w); err != nil {
			t.Fatal(err)
		}
		token := w.Token
		if err := c.worker.callback(t.Context(), &w, draftCallback{Wake: w.Wake}); err != nil || w.Token == token {
			t.Fatalf("the claim: %v, the token %q follows %q", err, w.Token, token)
		}
		for _, bad := range []string{token, "", "x"} {
			w.Token = bad
			if err := c.worker.callback(t.Context(), &w, draftCallback{}); !errors.Is(err, agent.ErrWakeStale) {
				t.Errorf("a callback with the token %q: %v", bad, err)
			}
		}
		c.sender.want(t, "claim", "401 TOKEN_INVALID, 401 TOKEN_INVALID, 401 TOKEN_INVALID")
	})
}

// TestDraftWakeInRequest has a worker that works in the request, for 2 s. The wake ends with pending work, and the next one begins immediately.
func TestDraftWakeInRequest(t *testing.T) {
	runDraft(t, func(t *testing.T, c *draftTest) {
		c.sender.tail, c.worker.within = 3, 2*time.Second
		if w := c.deliver(t.Context(), c.sender.begin()); w.Code != 200 || strings.TrimSpace(w.Body.String()) != `{"done":false}` {
			t.Errorf("the first delivery: %d %s", w.Code, w.Body)
		}
		c.sender.want(t, "claim, ack 1, ack 2, done false", "")
		if w := c.deliver(t.Context(), c.sender.begin()); w.Code != 200 || strings.TrimSpace(w.Body.String()) != `{"done":true}` {
			t.Errorf("the second delivery: %d %s", w.Code, w.Body)
		}
		c.sender.want(t, "claim, ack 3, done true", "")
		if !slices.Equal(c.took, []int{1, 2, 3}) || c.sender.epoch != 2 {
			t.Errorf("the worker has %v at the epoch %d", c.took, c.sender.epoch)
		}
	})
}

// TestDraftWakeSignature has deliveries without a valid signature. None of them causes a callback, also if the body is no delivery.
func TestDraftWakeSignature(t *testing.T) {
	runDraft(t, func(t *testing.T, c *draftTest) {
		c.sender.tail = 1
		good, now := c.sender.begin(), time.Now()
		tried := 0
		for name, d := range map[string]struct {
			body      []byte
			signature string
		}{
			"none":               {good, ""},
			"of another secret":  {good, draftSignature([]byte("x"), good, now)},
			"of another body":    {[]byte("{"), draftSignature(c.sender.secret, good, now)},
			"of an earlier time": {good, draftSignature(c.sender.secret, good, now.Add(-6*time.Minute))},
			"of a later time":    {good, draftSignature(c.sender.secret, good, now.Add(6*time.Minute))},
		} {
			tried++
			if w := c.deliverSigned(t.Context(), d.body, d.signature); w.Code != 401 {
				t.Errorf("the signature is %s: %d", name, w.Code)
			}
		}
		synctest.Wait()
		c.sender.want(t, "", "")
		t.Logf("%d deliveries", tried)
	})
}
