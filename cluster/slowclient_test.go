package cluster

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/dohost/dohost/internal/sockettest"
)

// halfCloser has the method of a TCP connection that the proxy looks for.
type halfCloser struct{ net.Conn }

func (*halfCloser) CloseWrite() error { return nil }

// dial connects a client to a server whose connection is a halfCloser.
func dial(to *sockettest.Pipes) net.Conn {
	client, conn := net.Pipe()
	to.Pass(&halfCloser{conn})
	return client
}

// inMemory runs f with a node that has no cell, and knows the owner of cell 0 of two, which serves it with h. dial connects a client to the
// node. All connections are in memory.
func inMemory(t *testing.T, h http.HandlerFunc, f func(t *testing.T, node *routed, dial func() net.Conn)) {
	synctest.Test(t, func(t *testing.T) {
		nodes := map[string]*routed{}
		listeners := map[string]*sockettest.Pipes{}
		ended := make(chan error, 2)
		transport := &http.Transport{DialContext: func(_ context.Context, _, address string) (net.Conn, error) {
			host, _, _ := net.SplitHostPort(address)
			return dial(listeners[host]), nil
		}}
		for _, id := range []string{"owner", "node"} {
			n := &routed{Node: &Node{o: Options{Secret: []byte(testSecret)}, self: Member{ID: id}, log: slog.New(slog.DiscardHandler)}}
			for i := range 2 {
				n.cells = append(n.cells, &localCell{node: n.Node, number: i})
			}
			router := n.Router(&RouterOptions{Transport: transport, Bound: boundTo30s, Cell: func(r *http.Request) (int, bool) {
				return strings.Count(r.URL.Path, "other"), true
			}})
			l := sockettest.NewPipes()
			server := &http.Server{Handler: router}
			go func() { ended <- server.Serve(l) }()
			defer server.Close()
			nodes[id], listeners[id] = n, l
		}
		nodes["owner"].serve(0, h)
		knows(map[string]string{"owner": "http://owner", "node": "http://node"}, []string{"owner", ""}, nodes["node"], nodes["owner"])
		f(t, nodes["node"], func() net.Conn { return dial(listeners["node"]) })
	})
}

// boundTo30s is a simple Bound.
func boundTo30s(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Body != nil && r.Body != http.NoBody {
			_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(30 * time.Second))
		}
		next.ServeHTTP(w, r)
	})
}

// answerOf sends a request, and returns the text that the client gets until the connection ends. It fails if that is not within the time.
func answerOf(t *testing.T, c net.Conn, within time.Duration, request string) string {
	t.Helper()
	defer c.Close()
	begun := time.Now()
	_ = c.SetDeadline(begun.Add(time.Hour))
	if _, err := io.WriteString(c, request); err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(c)
	if took := time.Since(begun); err != nil || took > within {
		t.Errorf("%q: %q, %v after %v", request, text, err, took)
	}
	return string(text)
}

// TestBodyThatStallsEndsItsPassedOnRequest has clients that announce a body, and send none, or a malformed one.
func TestBodyThatStallsEndsItsPassedOnRequest(t *testing.T) {
	reads := func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) }
	refuses := func(w http.ResponseWriter, _ *http.Request) {
		// Until the transport reads the body. For a later Read, net/http of the node would wait with a mutex, and virtual time stops.
		time.Sleep(time.Second)
		w.Header().Set("Connection", "close")
		w.WriteHeader(http.StatusUnauthorized)
	}
	cases := 0
	for _, tt := range []struct {
		owner  http.HandlerFunc
		path   string
		header string
		status int
	}{
		{reads, "/x", "Content-Length: 1000", http.StatusRequestTimeout},
		{reads, "/x", "Transfer-Encoding: chunked", http.StatusRequestTimeout},
		{reads, "/x", "Transfer-Encoding: chunked\r\n\r\nz", http.StatusBadRequest},
		{refuses, "/x", "Content-Length: 1000", http.StatusUnauthorized},
		{reads, "/other", "Content-Length: 1000", http.StatusServiceUnavailable},
		{reads, "/x", Header + ": 1 x y\r\nContent-Length: 1000", http.StatusForbidden},
	} {
		cases++
		inMemory(t, tt.owner, func(t *testing.T, _ *routed, dial func() net.Conn) {
			got := answerOf(t, dial(), 31*time.Second, "POST "+tt.path+" HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"+tt.header+"\r\n\r\n")
			if !strings.HasPrefix(got, fmt.Sprintf("HTTP/1.1 %d ", tt.status)) {
				t.Errorf("%s, %q: %q, want %d", tt.path, tt.header, got, tt.status)
			}
		})
	}
	if cases != 6 {
		t.Errorf("%d cases", cases)
	}
}

// TestBodyThatStallsIsNotADisconnect has a transport that notices the end of the request's context, which net/http ends with the body, before
// the error of the body.
func TestBodyThatStallsIsNotADisconnect(t *testing.T) {
	to := &target{body: &onceBody{Reader: iotest.ErrReader(os.ErrDeadlineExceeded)}}
	_, _ = to.body.Read(make([]byte, 1))
	ctx, cancel := context.WithCancel(context.WithValue(t.Context(), passedKey{}, to))
	cancel()
	w := httptest.NewRecorder()
	(&router{}).fail(w, httptest.NewRequestWithContext(ctx, http.MethodPost, "/", nil), context.Canceled)
	if w.Code != http.StatusRequestTimeout || ran(t, w.Body.String()) != "unknown" {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

// upgraded is a connection after the request of an upgrade. The owner runs f with its own.
func upgraded(t *testing.T, f func(owner net.Conn), client func(c net.Conn)) {
	ended := make(chan struct{})
	upgrade := func(w http.ResponseWriter, _ *http.Request) {
		defer close(ended)
		c, buffered, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer c.Close()
		_, _ = buffered.WriteString("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n")
		_ = buffered.Flush()
		f(c)
	}
	inMemory(t, upgrade, func(t *testing.T, _ *routed, dial func() net.Conn) {
		c := dial()
		defer c.Close()
		if _, err := io.WriteString(c, "GET /x HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		client(c)
		<-ended
	})
}

// TestClientThatIsSilentDoesNotKeepAWebSocket has an owner that writes after a long pause and closes its connection, and a client that closes none.
func TestClientThatIsSilentDoesNotKeepAWebSocket(t *testing.T) {
	late := func(owner net.Conn) {
		time.Sleep(time.Hour)
		_, _ = io.WriteString(owner, "late")
	}
	upgraded(t, late, func(c net.Conn) {
		_ = c.SetReadDeadline(time.Now().Add(2 * time.Hour))
		if got, err := io.ReadAll(c); err != nil || !strings.HasPrefix(string(got), "HTTP/1.1 101 ") || !strings.HasSuffix(string(got), "late") {
			t.Errorf("%q, %v: the connection of the client is still open", got, err)
		}
	})
}

// TestClientThatReadsNothingDoesNotKeepAWebSocket has an owner that writes, and a client that reads at most the header of the response.
func TestClientThatReadsNothingDoesNotKeepAWebSocket(t *testing.T) {
	for _, header := range []bool{true, false} {
		upgraded(t, func(owner net.Conn) {
			_ = owner.SetWriteDeadline(time.Now().Add(time.Hour))
			var err error
			for err == nil {
				_, err = owner.Write(make([]byte, 1000))
			}
			if errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("header %t: %v: the connection of the owner is still open", header, err)
			}
		}, func(c net.Conn) {
			if header {
				if _, err := http.ReadResponse(bufio.NewReaderSize(c, 16), nil); err != nil {
					t.Error(err)
				}
			}
			time.Sleep(2 * time.Hour)
		})
	}
}
