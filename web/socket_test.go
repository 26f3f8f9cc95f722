package web_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/coder/websocket"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/web"
)

// room is an object with sockets, which hear what each of them says.
type room struct{ st *dohost.State }

const rooms dohost.Namespace[room] = "room"

var roomClass = dohost.Bind(rooms, func(_ context.Context, st *dohost.State) (*room, error) {
	return &room{st}, nil
}, dohost.OnHTTP((*room).join), dohost.OnSocket(dohost.SocketEvents[room]{Message: (*room).say}))

func (o *room) join(w http.ResponseWriter, r *http.Request) {
	if _, err := o.st.Accept(w, r, nil); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
	}
}

func (o *room) say(ctx context.Context, _ *dohost.Socket, f dohost.Frame) error {
	for _, s := range o.st.Sockets("") {
		if err := s.Send(ctx, f); err != nil {
			return err
		}
	}
	return nil
}

// TestSocketsThroughAServer has clients on real connections, through all that the handler
// puts around a request.
func TestSocketsThroughAServer(t *testing.T) {
	h, err := dohost.Open(t.TempDir(), nil, roomClass)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(web.Handler(h, nil))
	defer server.Close()
	url := strings.Replace(server.URL, "http", "ws", 1) + "/objects/room/a/http/"
	var clients []*websocket.Conn
	for range 3 {
		ws, _, err := websocket.Dial(t.Context(), url, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer ws.CloseNow()
		clients = append(clients, ws)
	}
	if err := clients[1].Write(t.Context(), websocket.MessageText, []byte("hello")); err != nil {
		t.Fatal(err)
	}
	for i, ws := range clients {
		if _, data, err := ws.Read(t.Context()); err != nil || string(data) != "hello" {
			t.Errorf("client %d: %q, %v", i, data, err)
		}
	}
	// A page of another origin may not connect, and what is no WebSocket is told so.
	foreign := &websocket.DialOptions{HTTPHeader: http.Header{"Origin": {"https://elsewhere.example"}}}
	if _, r, err := websocket.Dial(t.Context(), url, foreign); err == nil || r == nil || r.StatusCode != http.StatusForbidden {
		t.Errorf("a foreign page: %v, %v", r, err)
	}
	r, err := http.Get(server.URL + "/objects/room/a/http/")
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Body.Close(); err != nil || r.StatusCode != http.StatusUpgradeRequired {
		t.Errorf("status %d, %v", r.StatusCode, err)
	}
	closed := make(chan error, len(clients))
	for _, ws := range clients {
		go func() {
			_, _, err := ws.Read(context.Background())
			closed <- err
		}()
	}
	if err := h.Close(); err != nil {
		t.Error(err)
	}
	for range clients {
		if err := <-closed; websocket.CloseStatus(err) != dohost.CloseRestart {
			t.Error(err)
		}
	}
}
