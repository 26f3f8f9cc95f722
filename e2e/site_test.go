//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// site is the environment of the clients of one generation and place: a server of its own and its proxy, with the
// pages, and with an endpoint for requests of cases to the test.
type site struct {
	t      *testing.T
	who    string // generation and place
	server *server
	proxy  proxy
	http   *httptest.Server
	chrome *chrome // nil without a browser
	shots  string  // folder for pictures; none if it is empty
	done   chan struct{}

	mu          sync.Mutex // guards the rest; a case holds it while it waits
	first, last *tab       // of the cases; opened by one of them
	running     string     // case
	results     []result
}

// result is the outcome of a case.
type result struct {
	recording
	problem string
	log     string // the end of the server's
}

func newSite(t *testing.T, who, bin, pages string) *site {
	t.Helper()
	s := &site{t: t, who: who, server: newServer(t, bin), done: make(chan struct{})}
	if err := s.server.start(); err != nil {
		t.Fatal(err)
	}
	s.proxy.serve(s.server.address())
	files := http.StripPrefix("/page/", http.FileServer(http.Dir(pages)))
	s.http = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if verb, ok := strings.CutPrefix(r.URL.Path, "/control/"); ok {
			s.control(w, r, verb)
		} else if strings.HasPrefix(r.URL.Path, "/page/") {
			files.ServeHTTP(w, r)
		} else {
			s.proxy.ServeHTTP(w, r)
		}
	}))
	t.Cleanup(s.http.Close)
	return s
}

func (s *site) host() string { return s.http.Listener.Addr().String() }

func (s *site) page(query string) string { return s.http.URL + "/page/" + query }

// control serves the requests of a case. Cases make one request after the other.
func (s *site) control(w http.ResponseWriter, r *http.Request, verb string) {
	body, err := io.ReadAll(r.Body)
	if err == nil {
		var answer string
		s.set(func() { answer, err = s.act(r.Context(), verb, string(body)) })
		if err == nil {
			_, _ = io.WriteString(w, answer) // without it the client fails
			return
		}
	}
	http.Error(w, err.Error(), http.StatusInternalServerError)
}

func (s *site) set(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

func (s *site) act(ctx context.Context, verb, arg string) (answer string, err error) {
	switch verb {
	case "begin":
		s.running = arg
		s.proxy.begin()
	case "end":
		return s.end(arg), nil
	case "done":
		close(s.done)
	case "kill":
		s.proxy.serve("")
		if err := errors.Join(s.server.kill(), s.server.start()); err != nil {
			return "", err
		}
		s.proxy.serve(s.server.address())
	case "restart":
		return "", s.server.restart(ctx, arg)
	case "asleep":
		return "", s.server.asleep(ctx, arg)
	default:
		return "", s.actInTab(verb, arg)
	}
	return "", nil
}

// actInTab does actions that need the browser, most of them in the last tab.
func (s *site) actInTab(verb, arg string) (err error) {
	switch {
	case s.chrome == nil:
		return fmt.Errorf("%s: there is no browser", verb)
	case verb == "tab":
		s.last, err = s.chrome.open(s.page(arg))
		return err
	case verb == "picture":
		return s.picture(arg)
	case verb == "shows":
		loaded := `new Promise((r) => document.readyState === "complete" ? r() : addEventListener("load", r))`
		return s.last.run(fmt.Sprintf("%s.then(() => window.shows(%s))", loaded, strconv.Quote(arg)))
	case verb == "click":
		return s.last.run(fmt.Sprintf("document.querySelector(%s).click()", strconv.Quote(arg)))
	case verb == "close":
		defer func() { s.last = nil }()
		return s.last.close()
	}
	return fmt.Errorf("no verb %s", verb)
}

// end ends a case, and returns the problems that the test itself finds.
func (s *site) end(problem string) (more string) {
	over := make(chan []exchange, 1)
	go func() { over <- s.proxy.end() }()
	r := recording{Case: s.running, Clients: []string{s.who}}
	select {
	case wire := <-over:
		r.Wire = normal(wire)
	case <-time.After(patience):
		more = "\nconnections are left open"
	}
	s.results = append(s.results, result{r, problem + more, s.server.tail()})
	return more
}

// report runs a test for each case, and returns the recordings.
func (s *site) report(pinned int) (all []recording) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.results {
		s.t.Run(r.Case, func(t *testing.T) {
			if r.problem != "" {
				t.Errorf("%s, %s: %s\nwire:\n%s\nserver:\n%s", s.who, r.Case, r.problem, render(r.Wire), r.log)
			}
		})
		all = append(all, r.recording)
	}
	if len(s.results) != pinned {
		s.t.Errorf("%s: %d cases, want %d; the last to begin is %q", s.who, len(s.results), pinned, s.running)
	}
	return all
}

// picture takes one of the last tab.
func (s *site) picture(name string) error {
	if s.shots == "" {
		return nil
	}
	p := s.last
	if p == nil {
		p = s.first
	}
	return p.picture(filepath.Join(s.shots, fmt.Sprintf("e2e-%s-%s.png", strings.ReplaceAll(s.who, " ", "-"), name)))
}
