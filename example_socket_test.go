package dohost_test

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"

	"github.com/coder/websocket"

	"github.com/dohost/dohost"
)

// lobby is a chat room: each member hears the messages of the others.
type lobby struct{ st *dohost.State }

const lobbies dohost.Namespace[lobby] = "lobby"

// join accepts a WebSocket. The attachment keeps the client's name while the object is not in memory.
func (l *lobby) join(w http.ResponseWriter, r *http.Request) {
	name := r.URL.Query().Get("name")
	if _, err := l.st.Accept(w, r, &dohost.AcceptOptions{Attachment: []byte(name)}); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
	}
}

// say counts a message durably, and broadcasts it once it is on the disk.
func (l *lobby) say(ctx context.Context, from *dohost.Socket, f dohost.Frame) error {
	n, _, err := dohost.Get[int](ctx, l.st.Storage(), "said")
	if err != nil {
		return err
	}
	if err := dohost.Put(ctx, l.st.Storage(), "said", n+1); err != nil {
		return err
	}
	text := fmt.Sprintf("%d. %s: %s", n+1, from.Attachment(), f.Data)
	for _, s := range l.st.Sockets("") {
		if err := s.Send(ctx, dohost.Frame{Text: true, Data: []byte(text)}); err != nil {
			return err
		}
	}
	return nil
}

// Sockets stay connected while their object is not in memory; a message wakes it.
func ExampleSocketHandlers() {
	class := dohost.Bind(lobbies, func(_ context.Context, st *dohost.State) (*lobby, error) {
		return &lobby{st}, nil
	}, &dohost.Handlers[lobby]{
		OnHTTP:   (*lobby).join,
		OnSocket: &dohost.SocketHandlers[lobby]{Message: (*lobby).say},
	})
	withHost(func(ctx context.Context, h *dohost.Host) {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			h.ServeObject(w, r, lobbies.Get(h, "north").ID())
		}))
		defer server.Close()
		enter := func(name string) *websocket.Conn {
			ws, _, err := websocket.Dial(ctx, server.URL+"?name="+name, nil)
			if err != nil {
				log.Fatal(err)
			}
			return ws
		}
		alice, bob := enter("alice"), enter("bob")
		if err := bob.Write(ctx, websocket.MessageText, []byte("hello")); err != nil {
			log.Fatal(err)
		}
		for _, ws := range []*websocket.Conn{alice, bob} {
			_, text, err := ws.Read(ctx)
			fmt.Println(string(text), err)
			ws.CloseNow()
		}
	}, class)
	// Output:
	// 1. bob: hello <nil>
	// 1. bob: hello <nil>
}
