package cli

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// scriptedHost is a host that answers, or does not.
type scriptedHost struct {
	err    error
	status int
}

func (h *scriptedHost) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	return &http.Response{StatusCode: h.status, Status: http.StatusText(h.status)}, h.err
}

// TestOutagesAreReported has hosts that stop answering, and answer again.
func TestOutagesAreReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, out := &scriptedHost{status: http.StatusOK}, &strings.Builder{}
		o := &outage{base: h, out: out, at: "http://host"}
		send := func(ctx context.Context, n int) {
			for range n {
				r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://host/", nil)
				if err != nil {
					t.Fatal(err)
				}
				_, _ = o.RoundTrip(r)
			}
		}
		check := func(step, want string) {
			t.Helper()
			if out.String() != want {
				t.Errorf("%s: %q, want %q", step, out, want)
			}
			out.Reset()
		}
		send(t.Context(), 3)
		h.err = errors.New("connection\x1b[31m refused")
		send(t.Context(), 1)
		h.err = nil
		send(t.Context(), 1)
		check("one failure", "")

		h.err = errors.New("connection\x1b[31m refused")
		send(t.Context(), 100)
		check("many failures", `dohost: no host answers at http://host: "connection\x1b[31m refused"; trying again`+"\n")
		h.err = nil
		send(t.Context(), 3)
		check("answers", "dohost: the host at http://host answers again\n")

		for range 10 { // it flaps
			h.status = http.StatusServiceUnavailable
			send(t.Context(), 5)
			h.status = http.StatusOK
			send(t.Context(), 5)
		}
		check("a host that flaps", "")
		time.Sleep(outagePause)
		h.status = http.StatusServiceUnavailable
		send(t.Context(), 5)
		check("an overloaded host", "dohost: no host answers at http://host: it answers Service Unavailable; trying again\n")
		time.Sleep(2 * outagePause)
		send(t.Context(), 5)
		check("a long outage", "")
		h.status = http.StatusNotFound
		send(t.Context(), 1)
		check("an error about the request", "dohost: the host at http://host answers again\n")

		time.Sleep(outagePause)
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		send(ended, 5)
		check("a caller that has ended", "")
		late, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		time.Sleep(2 * time.Second)
		send(late, 2)
		check("a host without an answer in time", "dohost: no host answers at http://host: no answer in time; trying again\n")
	})
}

// TestPoolCommandsReportAnOutage begins while no host answers. Then a server answers, which is no host.
func TestPoolCommandsReportAnOutage(t *testing.T) {
	commands := map[string][]string{
		"work":   {"--role", "r", "--", "true"},
		"daemon": {"--role", "r", "--", "true"},
		"post":   {"--role", "r", "--key", "k", "text"},
	}
	for name, args := range commands {
		t.Run(name, func(t *testing.T) { reportsAnOutage(t, append([]string{name, "--pool", "p"}, args...)) })
	}
}

func reportsAnOutage(t *testing.T, args []string) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	at := l.Addr().String()
	l.Close() // no host listens
	defer http.DefaultClient.CloseIdleConnections()
	t.Setenv("DOHOST_AT", at)
	output, w := io.Pipe()
	status := make(chan int, 1)
	go func() {
		defer w.Close()
		status <- (App{}).run(t.Context(), args, stdio{strings.NewReader(""), io.Discard, w})
	}()
	lines := bufio.NewScanner(output)
	next := func(want string) {
		t.Helper()
		if !lines.Scan() || !strings.Contains(lines.Text(), want) {
			t.Errorf("%q, want %q", lines.Text(), want)
		}
	}
	next("no host answers at " + at + ": dial tcp " + at)
	if l, err = net.Listen("tcp", at); err != nil {
		t.Fatal(err)
	}
	s := &httptest.Server{Listener: l, Config: &http.Server{Handler: http.NotFoundHandler()}}
	s.Start()
	defer s.Close()
	next("the host at " + at + " answers again")
	next("404")
	if got := <-status; got == 0 {
		t.Error("status 0 after an error")
	}
}
