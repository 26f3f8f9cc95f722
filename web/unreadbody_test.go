package web

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/dohosttest"
	"github.com/dohost/dohost/internal/sockettest"
)

// servePipes serves h, with the times of package cli, while f runs.
func servePipes(t *testing.T, h http.Handler, f func(dial func() net.Conn)) {
	t.Helper()
	l := sockettest.NewPipes()
	server := &http.Server{Handler: h, ReadHeaderTimeout: 5 * time.Second, IdleTimeout: 2 * time.Minute}
	ended := make(chan error)
	go func() { ended <- server.Serve(l) }()
	f(l.Dial)
	_ = server.Close()
	<-ended
}

// ask sends a request and returns all bytes until the server closes the connection, and the time.
func ask(t *testing.T, c net.Conn, request ...string) (string, time.Duration) {
	t.Helper()
	defer c.Close()
	begun := time.Now()
	if err := c.SetDeadline(begun.Add(10 * time.Minute)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(c, strings.Join(request, "\r\n")+"\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	all, err := io.ReadAll(c)
	if err != nil {
		t.Errorf("%q: %v, after %q", request, err, all)
	}
	return string(all), time.Since(begun)
}

type plain struct{}

func plainClass() dohost.Class {
	return dohost.Bind(dohost.Namespace[plain]("plain"), func(context.Context, *dohost.State) (*plain, error) { return &plain{}, nil },
		&dohost.Handlers[plain]{
			OnHTTP: func(_ *plain, w http.ResponseWriter, _ *http.Request) { http.Error(w, "nothing here", 404) },
		})
}

// TestBodyUnreadTimesOut has clients announce a body, send none of it and wait.
func TestBodyUnreadTimesOut(t *testing.T) {
	o := dohosttest.Options{Classes: []dohost.Class{plainClass()}}
	dohosttest.Run(t, &o, func(t *testing.T, h *dohosttest.Host) {
		classes := []string{"plain"}
		public := Handler(h.Host(), &Options{Classes: classes, Hosts: []string{"localhost"}, Page: true})
		guarded := Handler(h.Host(), &Options{Classes: classes, Tokens: []string{"x"}})
		operators, locked := Admin(h.Host(), nil), Admin(h.Host(), &AdminOptions{Tokens: []string{"x"}})
		cells := AdminCells(&Cells{Admin: func(cell int) http.Handler {
			if cell == 1 {
				return operators
			}
			return nil
		}}, nil)
		for _, tt := range []struct {
			handler http.Handler
			request string
			header  string
			status  int
		}{
			{public, "POST /x", "", 404},
			{public, "GET /", "", 200},
			{public, "POST /objects/plain/a/none", "Host: evil.example", 403},
			{public, "POST /objects/none/a/none", "", 404},
			{public, "POST /agents/plain/a", "", 404},
			{public, "POST /agents/none/a", "", 400},
			{public, "POST /agents/plain/a", "Origin: http://evil.example", 403},
			{guarded, "POST /objects/plain/a/none", "", 401},
			{guarded, "GET /agents/plain/a", "", 401},
			{operators, "POST /v1/kill", "Origin: http://evil.example", 403},
			{operators, "POST /v1/kill", "", 404},
			{operators, "GET /healthz", "", 200},
			{operators, "POST /v1/objects/plain/a/evict", "", 200},
			{operators, "POST /agents/plain/a", "", 403},
			{locked, "POST /v1/kill", "", 401},
			{cells, "POST /cells/1/x", "", 404},
			{cells, "POST /cells/0/x", "", 404},
			{cells, "POST /cells/1/x", "Origin: http://evil.example", 403},
			{cells, "POST /cells/1/v1/objects/plain/a/evict", "", 200},
		} {
			for _, length := range []string{"Content-Length: 60000", "Transfer-Encoding: chunked"} {
				host := "Host: localhost"
				if strings.HasPrefix(tt.header, "Host:") {
					host = "X-Other: y"
				}
				lines := []string{tt.request + " HTTP/1.1", host, length}
				if tt.header != "" {
					lines = append(lines, tt.header)
				}
				servePipes(t, tt.handler, func(dial func() net.Conn) {
					got, took := ask(t, dial(), lines...)
					// net/http reads the body before it writes another answer, and the write's deadline may then be over.
					late := got == "" && tt.status < 400
					if !late && !strings.HasPrefix(got, fmt.Sprintf("HTTP/1.1 %d ", tt.status)) || took > 31*time.Second {
						t.Errorf("%q: %q after %v", lines, got, took)
					}
					if tt.status >= 400 && !strings.Contains(got, "\r\nConnection: close\r\n") {
						t.Errorf("%q: the refusal keeps the connection: %q", lines, got)
					}
				})
			}
		}
	})
}

// TestBodyDeadlineDoesNotOutliveTheBody sends two requests on a connection, with pauses longer than the time for a
// body: of the handler, after it has read the body, and between the requests.
func TestBodyDeadlineDoesNotOutliveTheBody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := boundBodies(30*time.Second, time.Minute, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/read" {
				if b, err := io.ReadAll(r.Body); err != nil || string(b) != "body" {
					t.Errorf("%q %v", b, err)
				}
			}
			select {
			case <-r.Context().Done():
				t.Error("the request was cancelled")
			case <-time.After(80 * time.Second):
			}
			fmt.Fprint(w, "done")
		}))
		for _, path := range []string{"/read", "/unread"} {
			servePipes(t, h, func(dial func() net.Conn) {
				c := dial()
				defer c.Close()
				answers := bufio.NewReader(c)
				for range 2 {
					fmt.Fprintf(c, "POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\nbody", path)
					res, err := http.ReadResponse(answers, nil)
					if err != nil {
						t.Fatal(err)
					}
					if b, err := io.ReadAll(res.Body); err != nil || string(b) != "done" || res.Close {
						t.Errorf("%s: %q %v %v", path, b, err, res.Header)
					}
					_ = res.Body.Close()
					time.Sleep(80 * time.Second)
				}
			})
		}
	})
}

// TestBodyDeadlineIsClearedByHijack hijacks a request with an unread body, and reads the body afterwards.
func TestBodyDeadlineIsClearedByHijack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := boundBodies(30*time.Second, time.Minute, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			c, rw, err := http.NewResponseController(w).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			defer c.Close()
			if _, err := r.Body.Read(make([]byte, 1)); err == nil {
				t.Error("the body of a hijacked request can be read")
			}
			line, err := rw.ReadString('\n')
			fmt.Fprintf(c, "%q %v", line, err)
		}))
		servePipes(t, h, func(dial func() net.Conn) {
			c := dial()
			fmt.Fprint(c, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 6\r\n\r\n")
			time.Sleep(80 * time.Second)
			fmt.Fprint(c, "hello\n")
			if b, err := io.ReadAll(c); err != nil || string(b) != `"hello\n" <nil>` {
				t.Errorf("%q %v", b, err)
			}
		})
	})
}

// TestBodyTimeoutClosesTheConnection has a handler in full duplex: net/http does not read the rest for it.
func TestBodyTimeoutClosesTheConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := boundBodies(30*time.Second, time.Minute, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			rc := http.NewResponseController(w)
			_ = rc.EnableFullDuplex()
			w.WriteHeader(http.StatusOK)
			_ = rc.Flush()
			if _, err := io.ReadAll(r.Body); err == nil {
				t.Error("a body that stalls has an end")
			}
		}))
		servePipes(t, h, func(dial func() net.Conn) {
			if got, took := ask(t, dial(), "POST / HTTP/1.1", "Host: x", "Content-Length: 60000"); took > time.Minute {
				t.Errorf("%q after %v", got, took)
			}
		})
	})
}
