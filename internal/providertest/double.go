// Package providertest contains test doubles of model providers, with their real HTTP, for the official SDKs.
// They detect repeated requests: each generation is counted, its words are unique and are sent again only if
// the answer is fetched by its id, and a truncated stream stays truncated. They refuse the requests that the
// providers refuse.
package providertest

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

// Key is the key that a double requires.
const Key = "sk-proj-Do-Not-Tell-0123456789"

// Plan configures a generation. The zero Plan is eight words.
type Plan struct {
	Words int
	// Tool is called after the words, with this input. Empty: none.
	Tool, Input string

	// Status refuses the request, with that status, and RetryAfter as the header if it is not empty.
	Status     int
	RetryAfter string
	// After is the number of words before Sever, Malformed, Fail or Silent takes effect, in place of the next word.
	After     int
	Sever     bool // the connection ends
	Malformed bool // an event is malformed
	Fail      bool // the stream reports an error
	Silent    bool // no more words come
	Length    bool // the answer reports its length limit
}

// Generation is a billed generation.
type Generation struct {
	Number int             // from 0
	Asked  json.RawMessage // the body of the request
	ID     string

	plan       Plan
	background bool
	stored     bool
	begun      time.Time

	truncatedOnce bool // a connection was cut off as planned
	words         int  // the number of generated words
	status        string
	changed       chan struct{} // closed and replaced after each change
}

// Double is a model provider. It is an [http.Handler] with all three APIs.
type Double struct {
	// Plan returns the plan of a request from its number and its body. Nil means eight words.
	Plan func(n int, asked []byte) Plan
	// Pace is the time for a word.
	Pace time.Duration
	// RefusePrefill refuses requests that end with a message of the assistant.
	RefusePrefill bool
	// RefuseUsage refuses chat completions with stream_options.
	RefuseUsage bool
	// RefuseOutput refuses requests with the schema of an answer.
	RefuseOutput bool

	mu        sync.Mutex
	all       []*Generation
	refused   []string // the reasons
	fetched   int
	cancelled int
}

// Reset clears the double's state.
func (d *Double) Reset() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.all, d.refused, d.fetched, d.cancelled = nil, nil, 0, 0
}

// Generations returns the billed generations.
func (d *Double) Generations() []*Generation {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(d.all), func(g *Generation) bool { return g.plan.Status != 0 })
}

// Refused returns the reasons for refusals of invalid requests.
func (d *Double) Refused() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.refused)
}

// Fetched returns how often an answer was requested by its id.
func (d *Double) Fetched() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.fetched
}

// Cancelled returns how many answers were cancelled by their ids.
func (d *Double) Cancelled() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.cancelled
}

// Word returns the i-th word of a generation.
func Word(generation, i int) string { return fmt.Sprintf("g%dw%d ", generation, i) }

// Text returns the first n words of a generation.
func Text(generation, n int) string {
	var b strings.Builder
	for i := range n {
		b.WriteString(Word(generation, i))
	}
	return b.String()
}

// SplitText splits a text into its generations. Each contributes a prefix of its words, and the last one all of
// them, as many as last.
func SplitText(text string, last int) (generations []int, err error) {
	for text != "" {
		var g int
		if _, err := fmt.Sscanf(text, "g%dw0 ", &g); err != nil || len(generations) > 0 && g <= generations[len(generations)-1] {
			return generations, fmt.Errorf("no generation begins with %q", text[:min(len(text), 40)])
		}
		generations = append(generations, g)
		n := 0
		for ; strings.HasPrefix(text, Word(g, n)); n++ {
			text = text[len(Word(g, n)):]
		}
		if text == "" && n != last {
			return generations, fmt.Errorf("the last generation has %d words of %d", n, last)
		}
	}
	return generations, nil
}

// ServeHTTP implements http.Handler.
func (d *Double) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Authorization") != "Bearer "+Key && r.Header.Get("X-Api-Key") != Key {
		d.refuse(w, http.StatusUnauthorized, "Incorrect API key provided: sk-proj-********6789 ("+
			r.Header.Get("Authorization")+r.Header.Get("X-Api-Key")+").")
		return
	}
	switch path := strings.TrimPrefix(r.URL.Path, "/v1"); {
	case r.Method == http.MethodPost && path == "/chat/completions":
		d.completions(w, r)
	case r.Method == http.MethodPost && path == "/messages":
		d.messages(w, r)
	case r.Method == http.MethodPost && path == "/responses":
		d.responses(w, r)
	case strings.HasPrefix(path, "/responses/"):
		_, _ = io.Copy(io.Discard, r.Body) // the SDK sends a body, and a pipe has no buffer
		d.response(w, r, strings.TrimPrefix(path, "/responses/"))
	default:
		d.refuse(w, http.StatusNotFound, "there is nothing at "+r.URL.Path)
	}
}

func (d *Double) refuse(w http.ResponseWriter, status int, why string) {
	d.mu.Lock()
	d.refused = append(d.refused, why)
	d.mu.Unlock()
	answer(w, status, map[string]any{
		"type": "error", "error": map[string]any{"message": why, "type": "invalid_request_error", "code": "refused", "param": "messages"},
	})
}

func answer(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // the client may have disconnected
}

// request is the body of a request.
type request interface {
	// invalid returns the provider's error text for an invalid request, or "".
	invalid(refusePrefill bool) string
}

// startGeneration reads a request, and bills and starts a generation, unless the request is refused.
func (d *Double) startGeneration(w http.ResponseWriter, r *http.Request, q request) (*Generation, bool) {
	body, err := io.ReadAll(r.Body)
	if err == nil {
		err = json.Unmarshal(body, q)
	}
	why := fmt.Sprint(err)
	if err == nil {
		why = q.invalid(d.RefusePrefill)
	}
	if why != "" {
		d.refuse(w, http.StatusBadRequest, why)
		return nil, false
	}
	if q, ok := q.(*completionsRequest); ok && d.RefuseUsage && q.Options != nil {
		d.refuse(w, http.StatusBadRequest, "Unrecognized request argument supplied: stream_options")
		return nil, false
	}
	if field, schema := outputSchema(body); d.RefuseOutput && schema != nil {
		d.refuse(w, http.StatusBadRequest, field+": the schema is not supported")
		return nil, false
	}
	d.mu.Lock()
	g := &Generation{Number: len(d.all), Asked: body, begun: time.Now(), status: "in_progress", changed: make(chan struct{})}
	g.ID = fmt.Sprintf("resp_%d", g.Number)
	if d.Plan != nil {
		g.plan = d.Plan(g.Number, body)
	}
	if g.plan.Words == 0 {
		g.plan.Words = 8
	}
	if q, ok := q.(*responsesRequest); ok {
		g.background, g.stored = q.Background, q.Store == nil || *q.Store
	}
	d.all = append(d.all, g)
	d.mu.Unlock()
	if g.plan.Status != 0 {
		if g.plan.RetryAfter != "" {
			w.Header().Set("Retry-After", g.plan.RetryAfter)
		}
		answer(w, g.plan.Status, map[string]any{"type": "error", "error": map[string]any{
			"message": "it is as planned, with " + Key, "type": "planned", "code": "planned", "param": "",
		}})
		return nil, false
	}
	go d.generate(r.Context(), g)
	return g, true
}

// generate produces the words, until it is cancelled or, except in the background, the client disconnects.
func (d *Double) generate(ctx context.Context, g *Generation) {
	if g.background {
		ctx = context.WithoutCancel(ctx)
	}
	for {
		d.mu.Lock()
		if ctx.Err() != nil && g.status == "in_progress" {
			g.status = "severed"
		}
		if g.words == g.plan.Words && g.status == "in_progress" {
			g.status = "completed"
		}
		if g.status == "in_progress" && !(g.plan.Silent && g.words == g.plan.After) {
			g.words++
		}
		done := g.status != "in_progress" || g.plan.Silent && g.words == g.plan.After
		close(g.changed)
		g.changed = make(chan struct{})
		d.mu.Unlock()
		if done {
			return
		}
		t := time.NewTimer(max(d.Pace, time.Millisecond))
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
		}
	}
}

// wait waits until a generation has more than n words or has ended, and returns its number of words.
func (d *Double) wait(ctx context.Context, g *Generation, n int) (words int, status string, err error) {
	for {
		d.mu.Lock()
		words, status = g.words, g.status
		changed := g.changed
		d.mu.Unlock()
		if words > n || status != "in_progress" {
			return words, status, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return words, status, context.Cause(ctx)
		}
	}
}

// stream is an answer as server-sent events, for any API.
type stream struct {
	w     http.ResponseWriter
	named bool // events have names
}

func newStream(w http.ResponseWriter, named bool) *stream {
	w.Header().Set("Content-Type", "text/event-stream")
	w.WriteHeader(http.StatusOK)
	return &stream{w, named}
}

func (s *stream) send(event string, v map[string]any) {
	if s.named {
		v["type"] = event
		fmt.Fprintf(s.w, "event: %s\n", event)
	}
	data, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	s.raw(string(data))
}

func (s *stream) raw(data string) {
	fmt.Fprintf(s.w, "data: %s\n\n", data)
	_ = http.NewResponseController(s.w).Flush() // the client may have disconnected
}

// follow sends the words of a generation, from the first, as they come, and reports whether to send its end.
func (d *Double) follow(ctx context.Context, g *Generation, s *stream, word func(text string), fail func()) bool {
	for n := 0; ; {
		if p := g.plan; n == p.After && (p.Sever && d.first(g) || p.Malformed || p.Fail) {
			switch {
			case p.Sever:
				panic(http.ErrAbortHandler)
			case p.Malformed:
				if s.named {
					fmt.Fprintf(s.w, "event: content_block_delta\n")
				}
				s.raw(`{"id": "x", "choices": [{"del`)
			default:
				fail()
			}
			return false
		}
		words, status, err := d.wait(ctx, g, n)
		if err != nil || status == "severed" || status == "cancelled" {
			return false
		}
		if n == words {
			return true
		}
		word(Word(g.Number, n))
		n++
	}
}

// first reports whether a connection is the first of a generation to be cut off.
func (d *Double) first(g *Generation) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	first := !g.truncatedOnce
	g.truncatedOnce = true
	return first
}

// Client reaches the double within the process, over pipes, so that it works in a bubble of testing/synctest.
func (d *Double) Client() *http.Client { return &http.Client{Transport: pipeTransport{d}} }

// pipeTransport opens a connection for each request.
type pipeTransport struct{ d *Double }

// RoundTrip implements http.RoundTripper.
func (p pipeTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	t := &http.Transport{DisableKeepAlives: true, DialContext: func(context.Context, string, string) (net.Conn, error) {
		client, server := net.Pipe()
		s := &http.Server{Handler: p.d, ReadHeaderTimeout: time.Minute, ErrorLog: log.New(io.Discard, "", 0)}
		go s.Serve(&singleListener{conn: server}) //nolint:errcheck // it ends immediately: there is one connection
		return client, nil
	}}
	return t.RoundTrip(r)
}

// singleListener is a listener of one connection.
type singleListener struct{ conn net.Conn }

// Accept implements net.Listener.
func (o *singleListener) Accept() (c net.Conn, err error) {
	if o.conn == nil {
		return nil, net.ErrClosed
	}
	c, o.conn = o.conn, nil
	return c, nil
}

// Close implements net.Listener.
func (o *singleListener) Close() error { return nil }

// Addr implements net.Listener.
func (o *singleListener) Addr() net.Addr { return &net.UnixAddr{Name: "memory"} }
