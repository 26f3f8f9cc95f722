package inbox_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/dohosttest"
	"github.com/dohost/dohost/inbox"
)

// farHost is a second host, with an inbox, which other hosts reach by HTTP alone. As an http.RoundTripper it serves a request without a
// socket, so it may be in the bubble of a test.
type farHost struct {
	dir   string
	class dohost.Class

	mu   sync.Mutex // guards host; no call is made with it
	host *dohost.Host
	down int // requests that came while the host was closed
}

func (f *farHost) open() (err error) {
	host, err := dohost.Open(f.dir, &dohost.Options{Grace: time.Millisecond}, f.class)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.host = host
	return err
}

// close interrupts the cycles of the host.
func (f *farHost) close() error {
	f.mu.Lock()
	host := f.host
	f.host = nil
	f.mu.Unlock()
	return host.Close()
}

func (f *farHost) current() *dohost.Host {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.host == nil {
		f.down++
	}
	return f.host
}

func (f *farHost) RoundTrip(r *http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	f.ServeHTTP(w, r)
	return w.Result(), nil
}

// ServeHTTP inserts the request in its body (/ask), once for each ID, or waits for the response to it (/reply).
func (f *farHost) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	host := f.current()
	if host == nil {
		http.Error(w, "closed", http.StatusServiceUnavailable)
		return
	}
	var m inbox.Message
	if err := json.NewDecoder(r.Body).Decode(&m); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	results := make(chan inbox.Message, 1)
	err := desks.Get(host, "lab").Do(r.Context(), func(ctx context.Context, d *desk) error {
		var result inbox.Message
		old, stored, err := messages.Get(ctx, d.Storage(), m.ID)
		switch {
		case err != nil:
		case r.URL.Path == "/reply":
			result, err = inbox.WaitReply(ctx, d, &messages, m)
		case stored:
			result = old.Value
		default:
			result, err = inbox.Send(ctx, d.Storage(), &messages, m)
		}
		if err == nil {
			results <- result
		}
		return err
	})
	switch {
	case errors.Is(err, inbox.ErrNoReply):
		http.Error(w, err.Error(), http.StatusGone)
	case err != nil:
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
	default:
		_ = json.NewEncoder(w).Encode(<-results)
	}
}

// post sends a message to a path of the host until that has a result.
func (f *farHost) post(ctx context.Context, path string, m inbox.Message) (result inbox.Message, err error) {
	body, err := json.Marshal(m)
	if err != nil {
		return result, err
	}
	policy := &dohost.RetryPolicy{MaxAttempts: -1, MaxDelay: time.Second, ShouldRetry: func(err error, _ int) bool { return !errors.Is(err, inbox.ErrNoReply) }}
	err = dohost.Retry(ctx, policy, func(ctx context.Context) error {
		return dohost.Await(ctx, func(ctx context.Context) error {
			r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://far"+path, bytes.NewReader(body))
			if err != nil {
				return err
			}
			answer, err := f.RoundTrip(r)
			switch {
			case err != nil:
				return err
			case ctx.Err() != nil:
				return context.Cause(ctx)
			case answer.StatusCode == http.StatusGone:
				return inbox.ErrExpired
			case answer.StatusCode != http.StatusOK:
				return fmt.Errorf("the status %s", answer.Status)
			}
			return json.NewDecoder(answer.Body).Decode(&result)
		})
	})
	return result, err
}

// TestAgentToolAcrossHosts has a planner on one host and a researcher on another one, which share nothing: the planner's tool inserts its
// request and waits for the response by HTTP. The process of the first is killed while the planner waits, and the second host is closed for a
// while during the cycle of the researcher. There is one request, and it has one response, or none after its deadline.
func TestAgentToolAcrossHosts(t *testing.T) {
	for name, c := range map[string]struct {
		limit   time.Duration
		expires bool
		want    string
	}{
		"in time":  {time.Minute, false, "a heard (researcher says hi)"},
		"too late": {6 * time.Second, true, "a heard (the agent researcher of desk/a did not answer within 6s; its request NAME may still have effects)"},
	} {
		t.Run(name, func(t *testing.T) { askFar(t, c.limit, c.expires, c.want) })
	}
}

func askFar(t *testing.T, limit time.Duration, expires bool, want string) {
	log := &asked{}
	researcher := &inbox.Agent{Name: "researcher", Model: &relay{name: "researcher", wait: 4 * time.Second, log: log}}
	far := &farHost{dir: t.TempDir(), class: deskClass(inbox.On(inbox.ForMessages[desk](&messages, researcher)))}
	tool := inbox.AgentTool{
		Name: "researcher", Timeout: limit,
		Insert: func(ctx context.Context, _ inbox.Ref, m inbox.Message) (inbox.Message, error) {
			return far.post(ctx, "/ask", m)
		},
		Wait: func(ctx context.Context, _ inbox.Ref, m inbox.Message) (inbox.Message, error) {
			return far.post(ctx, "/reply", m)
		},
	}
	planner := &inbox.Agent{Name: "a", Model: &relay{name: "a", log: log}, Agents: []inbox.AgentTool{tool}}
	runDesk(t, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		if err := far.open(); err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := far.close(); err != nil {
				t.Error(err)
			}
		}()
		askA(t, ctx, h, "researcher: hi")
		h.Advance(1500 * time.Millisecond)
		h.Kill()
		h.Advance(time.Second)
		if err := far.close(); err != nil {
			t.Error(err)
		}
		h.Advance(2 * time.Second)
		if err := far.open(); err != nil {
			t.Fatal(err)
		}
		h.Advance(20 * time.Second)
		all, responses := farMessages(t, ctx, far)
		if len(all) != 1 || all[0].Expired != expires || (responses == 1) == expires || responses > 1 || all[0].Path[0].String() != "a of desk/a" {
			t.Errorf("the requests %+v with %d responses", all, responses)
		}
		if got := named(replyTo(t, ctx, h, "a", "r1"), all); got != want {
			t.Errorf("%q, want %q", got, want)
		}
		if far.down == 0 {
			t.Error("no call came while the second host was closed")
		}
		// The planner's question is a recorded answer of its model. The close has interrupted the researcher, whose model was asked again.
		equal(t, "prompts", log.took(), "a got researcher: hi", "researcher got hi", "researcher got hi")
	}, inbox.On(inbox.ForMessages[desk](&messages, planner)))
}

// farMessages returns the requests that the second host has, and the number of its responses.
func farMessages(t *testing.T, ctx context.Context, far *farHost) (all []inbox.Message, responses int) {
	err := desks.Get(far.host, "lab").Do(ctx, func(ctx context.Context, d *desk) error {
		rows, err := messages.List(ctx, d.Storage(), nil)
		for _, row := range rows {
			if m := row.Value; m.Request != "" {
				all = append(all, m)
			} else {
				responses++
			}
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
	return all, responses
}
