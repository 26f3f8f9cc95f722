package agent_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/agent"
)

// A refused client has no connection: the agent ignores its frames, calls no hook for its end, and replaces no
// older connection.
func TestConnectionThatIsRefusedIsIgnored(t *testing.T) {
	closed := make(chan string, 3)
	s := serve(t, wireClass(&wireHandlers{
		OnClose: func(_ *wireAgent, _ context.Context, c *agent.Conn, _ dohost.Closing) error {
			closed <- c.ID()
			return nil
		},
		OnConnect: func(_ *wireAgent, _ context.Context, _ *agent.Conn, r *http.Request) error {
			if r.URL.Query().Has("broken") {
				return errors.New("no door")
			}
			return nil
		},
	}))
	older := s.dial(t, "/r?_pk=me")
	older.want(greeting("r", `{"title":"untitled","count":0}`)...)
	s.dial(t, "/r?_pk=me&token=wrong").wantClose(4001, "who are you?")

	for _, query := range []string{"token=wrong", "broken"} {
		callWithTheRequest(t, s, query)
	}

	older.send(`{"type":"rpc","id":"1","method":"add","args":[0]}`)
	older.want(`{"type":"cf_agent_state","state":{"title":"untitled","count":0}}`, `{"type":"rpc","id":"1","success":true,"done":true,"result":0}`)
	if err := older.ws.CloseNow(); err != nil {
		t.Error(err)
	}
	if id := <-closed; id != "me" || len(closed) > 0 {
		t.Errorf("the agent got OnClose of %q, and %d more", id, len(closed))
	}
}

// callWithTheRequest connects with a query, and sends a call and a closing frame in one piece with the
// request.
func callWithTheRequest(t *testing.T, s *testServer, query string) {
	t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	call := `{"type":"rpc","id":"1","method":"add","args":[5]}`
	request := "GET /r?" + query + " HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n" +
		"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
	closeFrame := "\x88\x80\x00\x00\x00\x00" // so that the server is done with it
	masked := append([]byte{0x81, 0x80 | byte(len(call)), 0, 0, 0, 0}, call...)
	if _, err := conn.Write(append(append([]byte(request), masked...), closeFrame...)); err != nil {
		t.Fatal(err)
	}
	if err := conn.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(bufio.NewReader(conn))
	if err != nil || !strings.HasPrefix(string(got), "HTTP/1.1 101") {
		t.Errorf("%s: %q, %v", query, got, err)
	}
}

// A refusal with an invalid code or reason is still a refusal.
func TestConnectionRefusedWithInvalidCloseError(t *testing.T) {
	for _, e := range []*dohost.CloseError{{Code: 401, Reason: "no"}, {Code: 4001, Reason: strings.Repeat("x", 124)}} {
		s := serve(t, agent.Bind(wireAgents, func(_ context.Context, a *agent.Agent[wireState]) (*wireAgent, error) {
			return &wireAgent{Agent: a}, nil
		},
			&agent.Handlers[wireAgent, wireState]{
				OnAccept:  func(*wireAgent, *http.Request) agent.ConnOptions { return agent.ConnOptions{NoProtocol: true} },
				OnConnect: func(*wireAgent, context.Context, *agent.Conn, *http.Request) error { return e },
			},
			agent.Callable("add", (*wireAgent).add)))
		c := s.dial(t, "/r")
		c.send(`{"type":"rpc","id":"1","method":"add","args":[5]}`)
		c.wantClose(agent.CloseFailed, "the agent gave no valid reason")
	}
}

// TestConnectionRefusedWithANilCloseError returns a nil pointer from OnConnect, which refuses without a code.
func TestConnectionRefusedWithANilCloseError(t *testing.T) {
	s := serve(t, wireClass(&wireHandlers{
		OnConnect: func(*wireAgent, context.Context, *agent.Conn, *http.Request) error { return (*dohost.CloseError)(nil) },
	}))
	c := s.dial(t, "/r?silent")
	if _, data, err := c.ws.Read(t.Context()); err != nil || !strings.Contains(string(data), `"error":"internal error 0`) {
		t.Errorf("%s, %v", data, err)
	}
	c.wantClose(agent.CloseFailed, "the agent refused the connection")
}

// Only its parent gives access to a sub-agent.
func TestSubAgentIsPrivateToItsParent(t *testing.T) {
	s := serveNested(t, nestedClass(nil))
	id := dohost.ID{Class: string(nestedAgents), Name: "sub/BigTree/oak/branch"}
	if _, err := s.Invoke(t.Context(), id, "grow", []byte("1")); !errors.Is(err, dohost.ErrForbidden) {
		t.Error(err)
	}
	res, err := http.Get(s.url + "/sub%2FBigTree%2Foak%2Fbranch/x")
	if err != nil {
		t.Fatal(err)
	}
	if err := res.Body.Close(); err != nil || res.StatusCode != http.StatusOK {
		t.Errorf("a root may be called so as it stands in a URL: %d, %v", res.StatusCode, err)
	}
	w := &responseRecorder{header: http.Header{}}
	r, err := http.NewRequestWithContext(t.Context(), "GET", "/x", nil)
	if err != nil {
		t.Fatal(err)
	}
	s.ServeObject(w, r, id)
	if w.status != http.StatusForbidden {
		t.Errorf("status %d", w.status)
	}
}

// responseRecorder is a response that records its status.
type responseRecorder struct {
	header http.Header
	status int
}

func (a *responseRecorder) Header() http.Header         { return a.header }
func (a *responseRecorder) WriteHeader(status int)      { a.status = status }
func (a *responseRecorder) Write(p []byte) (int, error) { return len(p), nil }
