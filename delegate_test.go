package dohost_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/coder/websocket"

	"github.com/dohost/dohost"
)

// delegator delegates requests, counts them, and answers its own.
type delegator struct{ st *dohost.State }

const delegators dohost.Namespace[delegator] = "porter"

var delegatorClass = dohost.Bind(delegators, func(_ context.Context, st *dohost.State) (*delegator, error) { return &delegator{st}, nil },
	&dohost.Handlers[delegator]{
		OnHTTP: (*delegator).serve,
		OnSocket: &dohost.SocketHandlers[delegator]{
			Message: func(p *delegator, ctx context.Context, s *dohost.Socket, f dohost.Frame) error {
				return s.Send(ctx, dohost.Frame{Text: true, Data: fmt.Appendf(nil, "%s: %s", p.st.ID().Name, f.Data)})
			},
		},
	})

// serve removes the first part of the path and delegates the request to the delegator that the part names.
func (p *delegator) serve(w http.ResponseWriter, r *http.Request) {
	if err := dohost.Add(r.Context(), p.st.Storage(), "seen", 1); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	to, rest, more := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	switch {
	case more:
		r.URL.Path = "/" + rest
		if to == "me" {
			r.URL.Path = "/me/"
			to = p.st.ID().Name
		}
		if err := p.st.Delegate(w, r, delegators.Get(p.st, to).ID()); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		if _, err := io.WriteString(w, "too late"); !errors.Is(err, http.ErrHijacked) {
			panic(err)
		}
		if err := p.st.Delegate(w, r, p.st.ID()); err == nil {
			panic("delegated twice")
		}
	case r.Header.Get("Upgrade") != "":
		if _, err := p.st.Accept(w, r, nil); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
		}
	default:
		body, err := io.ReadAll(r.Body)
		fmt.Fprintf(w, "%s answers %s %s, %v", p.st.ID().Name, r.URL.Path, body, err)
		if err := p.st.Delegate(w, r, p.st.ID()); err == nil {
			panic("delegated after the response had begun")
		}
	}
}

func TestDelegatePassesARequestToAnotherObject(t *testing.T) {
	h := open(t, nil, delegatorClass)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { h.ServeObject(w, r, delegators.Get(h, "a").ID()) }))
	defer server.Close()
	for _, tt := range []struct {
		path, want string
		status     int
	}{
		{"/x", "a answers /x body, <nil>", 200},
		{"/b/x", "b answers /x body, <nil>", 200},
		{"/b/c/x", "c answers /x body, <nil>", 200},
		{"/me/x", "too many delegations", 500},
		{"/" + strings.Repeat("n", 3000) + "/x", "name", 400},
	} {
		res, err := http.Post(server.URL+tt.path, "text/plain", strings.NewReader("body"))
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(res.Body)
		if err := errors.Join(err, res.Body.Close()); err != nil || res.StatusCode != tt.status || !strings.Contains(string(got), tt.want) {
			t.Errorf("%.20s: %d %s (%v), want %d %s", tt.path, res.StatusCode, got, err, tt.status, tt.want)
		}
	}
	ws, _, err := websocket.Dial(t.Context(), strings.Replace(server.URL, "http", "ws", 1)+"/b/c/x", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer ws.CloseNow()
	if err := ws.Write(t.Context(), websocket.MessageText, []byte("hello")); err != nil {
		t.Fatal(err)
	}
	if _, data, err := ws.Read(t.Context()); err != nil || string(data) != "c: hello" {
		t.Error(string(data), err)
	}
	err = delegators.Get(h, "b").Do(t.Context(), func(ctx context.Context, p *delegator) error {
		n, _, err := dohost.Get[int](ctx, p.st.Storage(), "seen")
		if n != 3 {
			t.Errorf("b has seen %d requests", n)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}
