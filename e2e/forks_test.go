//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
)

// forkProxy passes the requests of conformance tests to a server of streams. The server must refuse each request for a fork with 501, and
// leave the streams that it names as they were.
type forkProxy struct {
	server *httputil.ReverseProxy
	at     string // the URL of the server

	mu      sync.Mutex
	test    string         // that runs
	refused map[string]int // requests for forks, by test
	faults  []string
}

func newForkProxy(server string) *forkProxy {
	p := &forkProxy{at: "http://" + server, refused: map[string]int{}}
	to := &url.URL{Scheme: "http", Host: server}
	p.server = &httputil.ReverseProxy{FlushInterval: -1, ModifyResponse: p.check, Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(to)
		r.Out.Host = r.In.Host
	}}
	return p
}

// ServeHTTP passes a request to the server, or begins a test.
func (p *forkProxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/before" {
		p.mu.Lock()
		p.test = r.URL.Query().Get("test")
		p.mu.Unlock()
		return
	}
	if !asksForFork(r) {
		p.server.ServeHTTP(w, r)
		return
	}
	before, err := p.state(r)
	if err != nil {
		p.fault("%v", err)
	}
	p.server.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), stateKey{}, before)))
}

// stateKey is the key of the streams' state before a request for a fork, in the context of the request.
type stateKey struct{}

func asksForFork(r *http.Request) bool {
	for field := range r.Header {
		if strings.HasPrefix(field, "Stream-Fork") {
			return true
		}
	}
	return false
}

// check checks the response to a request for a fork. Until a test has got one, all of its other requests must succeed: nothing else makes it
// fail.
func (p *forkProxy) check(res *http.Response) error {
	r := res.Request
	p.mu.Lock()
	test, first := p.test, p.refused[p.test] == 0
	p.mu.Unlock()
	if !asksForFork(r) {
		if first && res.StatusCode > 299 {
			p.fault("%s: %s %s before the request for a fork: %s", test, r.Method, r.URL.Path, res.Status)
		}
		return nil
	}
	body, err := io.ReadAll(res.Body)
	if err != nil {
		return err
	}
	res.Body = io.NopCloser(strings.NewReader(string(body)))
	if r.Method != http.MethodPut || res.StatusCode != http.StatusNotImplemented || !strings.Contains(string(body), `"not_implemented"`) {
		p.fault("%s: %s %s of a fork: %s %s", test, r.Method, r.URL.Path, res.Status, body)
	}
	after, err := p.state(r)
	if err != nil {
		return err
	}
	before, _ := r.Context().Value(stateKey{}).([]string)
	for i := range after {
		expired := strings.HasPrefix(after[i], "404") && (strings.Contains(before[i], "Stream-Ttl") || strings.Contains(before[i], "Stream-Expires-At"))
		if after[i] != before[i] && !expired {
			p.fault("%s: PUT %s of a fork: the stream was %s, and is %s", test, r.URL.Path, before[i], after[i])
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refused[test]++
	return nil
}

func (p *forkProxy) fault(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.faults = append(p.faults, fmt.Sprintf(format, args...))
}

// state returns the properties of each stream that a request for a fork names, its target and its source, with their tails.
func (p *forkProxy) state(r *http.Request) (list []string, err error) {
	for _, path := range []string{r.URL.Path, r.Header.Get("Stream-Forked-From")} {
		if !strings.HasPrefix(path, "/v1/stream/") {
			continue
		}
		q, err := http.NewRequestWithContext(r.Context(), http.MethodHead, p.at+path, nil)
		if err != nil {
			return nil, err
		}
		res, err := http.DefaultClient.Do(q)
		if err != nil {
			return nil, err
		}
		res.Body.Close()
		text := res.Status
		for _, field := range slices.Sorted(maps.Keys(res.Header)) {
			if strings.HasPrefix(field, "Stream-") || field == "Content-Type" {
				text += fmt.Sprintf(", %s: %s", field, res.Header.Get(field))
			}
		}
		list = append(list, text)
	}
	return list, nil
}

// TestStreamsRefuseForks runs the published conformance tests of forks. In each of them the server refuses the requests for forks with 501,
// which create and change nothing, and no other response before them is an error: so the tests that fail do so since there are no forks.
func TestStreamsRefuseForks(t *testing.T) {
	s := startStreams(t, "../cmd/dohost")
	p := newForkProxy(s.at)
	proxy := httptest.NewServer(p)
	defer proxy.Close()
	ran := runConformance(t, proxy.URL, proxy.URL+"/before", named(forks))
	p.mu.Lock()
	defer p.mu.Unlock()
	passed, failed, requests := 0, 0, 0
	for _, r := range ran {
		if r.Status == "passed" {
			passed++
		} else {
			failed++
		}
		if n := p.refused[r.Title]; n > 0 {
			requests += n
		} else {
			t.Errorf("%s has asked for no fork, and has %s: %.500s", r.Title, r.Status, strings.Join(r.FailureMessages, "\n"))
		}
	}
	t.Logf("%d passed, %d failed; %d requests for forks", passed, failed, requests)
	if passed != forksThatPass || failed != refusedForks || len(p.refused) != passed+failed {
		t.Errorf("%d passed and %d failed of %d tests, want %d and %d", passed, failed, len(p.refused), forksThatPass, refusedForks)
	}
	for _, fault := range p.faults {
		t.Error(fault)
	}
}
