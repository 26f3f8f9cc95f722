package web_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/dohosttest"
	"github.com/dohost/dohost/internal/adminapi"
	"github.com/dohost/dohost/internal/sockettest"
	"github.com/dohost/dohost/web"
)

// broadcastObject is an object that sends the frames of each socket to all.
type broadcastObject struct{ st *dohost.State }

const broadcastObjects dohost.Namespace[broadcastObject] = "room"

var broadcastClass = dohost.Bind(broadcastObjects, func(_ context.Context, st *dohost.State) (*broadcastObject, error) {
	return &broadcastObject{st}, nil
}, &dohost.Handlers[broadcastObject]{
	OnHTTP:   (*broadcastObject).serve,
	OnSocket: &dohost.SocketHandlers[broadcastObject]{Message: (*broadcastObject).onMessage},
})

func (o *broadcastObject) serve(w http.ResponseWriter, r *http.Request) {
	if _, err := o.st.Accept(w, r, &dohost.AcceptOptions{Tags: r.URL.Query()["tag"]}); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
	}
}

func (o *broadcastObject) onMessage(ctx context.Context, _ *dohost.Socket, f dohost.Frame) error {
	for _, s := range o.st.Sockets("") {
		if err := s.Send(ctx, f); err != nil {
			return err
		}
	}
	return nil
}

// TestSocketsOverRealConnections has clients on real connections, through all layers of the handler.
func TestSocketsOverRealConnections(t *testing.T) {
	h, err := dohost.Open(t.TempDir(), nil, broadcastClass)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(handler(h, nil))
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
	// A page of another origin may not connect, and the handler gets a request that is no handshake.
	foreign := &websocket.DialOptions{HTTPHeader: http.Header{"Origin": {"https://elsewhere.example"}}}
	if _, r, err := websocket.Dial(t.Context(), url, foreign); err == nil || r == nil || r.StatusCode != http.StatusForbidden {
		t.Errorf("a foreign page: %v, %v", r, err)
	}
	r, err := http.Get(server.URL + "/objects/room/a/http/")
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Body.Close(); err != nil || r.StatusCode != http.StatusBadRequest { // by the handler
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

// TestSocketListDoesNotWakeObjects lists sockets by HTTP, and in the metrics, with the object in memory and without.
func TestSocketListDoesNotWakeObjects(t *testing.T) {
	wakes := 0
	o := dohosttest.Options{Classes: []dohost.Class{broadcastClass}, Options: dohost.Options{
		IdleAfter: 10 * time.Second,
		Listener:  dohost.Listener{Waking: func(dohost.ID, dohost.Epoch) { wakes++ }},
	}}
	dohosttest.Run(t, &o, func(t *testing.T, h *dohosttest.Host) {
		began := time.Now().UTC()
		id := broadcastObjects.Get(h, "a").ID()
		serve := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { h.Host().ServeObject(w, r, id) })
		for _, path := range []string{"/?tag=x&tag=y", "/"} {
			ws, _, err := sockettest.Dial(t.Context(), serve, path)
			if err != nil {
				t.Fatal(err)
			}
			defer ws.CloseNow()
			ws.CloseRead(t.Context()) // so that it answers pings
		}
		h.Advance(time.Second)
		wantSockets(t, h.Host(), began, "live", "dohost_sockets{state=\"hibernating\"} 0\ndohost_sockets{state=\"live\"} 2\n")
		h.Advance(time.Minute)
		wantSockets(t, h.Host(), began, "hibernating", "dohost_sockets{state=\"hibernating\"} 2\ndohost_sockets{state=\"live\"} 0\n")
		if wakes != 1 || h.Host().LiveCount() != 0 {
			t.Errorf("%d wakes, %d live", wakes, h.Host().LiveCount())
		}
	})
}

// TestSocketsAreClosedByOperator closes those of a tag and then the others, with the object in memory and
// without.
func TestSocketsAreClosedByOperator(t *testing.T) {
	for _, rest := range []time.Duration{time.Second, time.Minute} {
		dohosttest.Run(t, &dohosttest.Options{Classes: []dohost.Class{broadcastClass}}, func(t *testing.T, h *dohosttest.Host) {
			id := broadcastObjects.Get(h, "a").ID()
			serve := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { h.Host().ServeObject(w, r, id) })
			heard := map[string]*string{}
			for _, tag := range []string{"x", "y", ""} {
				ws, _, err := sockettest.Dial(t.Context(), serve, "/?tag="+tag)
				if tag == "" {
					ws, _, err = sockettest.Dial(t.Context(), serve, "/")
				}
				if err != nil {
					t.Fatal(err)
				}
				closed := new(string)
				heard[tag] = closed
				go func() {
					for {
						_, data, err := ws.Read(context.Background())
						if err != nil {
							*closed += fmt.Sprint(websocket.CloseStatus(err))
							return
						}
						*closed += string(data) + " "
					}
				}()
			}
			h.Advance(rest)
			if live := h.Host().IsLive(id); live != (rest == time.Second) {
				t.Fatalf("after %v it is in memory: %v", rest, live)
			}
			expect := func(path, want, x, y, none string) {
				t.Helper()
				rec := httptest.NewRecorder()
				web.Admin(h.Host(), nil).ServeHTTP(rec, httptest.NewRequest("DELETE", "http://localhost/v1/objects/room/"+path, nil))
				h.Advance(time.Second)
				if got := strings.TrimSpace(rec.Body.String()); got != want {
					t.Errorf("%s: %s, want %s", path, got, want)
				}
				for tag, want := range map[string]string{"x": x, "y": y, "": none} {
					if got := *heard[tag]; got != want {
						t.Errorf("%s: the one with tag %q has heard %q, want %q", path, tag, got, want)
					}
				}
			}
			expect("b/sockets", `{"closed":0}`, "", "", "")
			expect("a/sockets?tag=z", `{"closed":0}`, "", "", "")
			empty := httptest.NewRecorder()
			web.Admin(h.Host(), nil).ServeHTTP(empty, httptest.NewRequest("DELETE", "http://localhost/v1/objects/room/a/sockets?tag=", nil))
			if empty.Code != http.StatusBadRequest {
				t.Errorf("an empty tag: %d, %s", empty.Code, empty.Body)
			}
			expect("a/sockets?tag=x", `{"closed":1}`, "StatusPolicyViolation", "", "")
			if n := len(h.Host().Sockets(id)); n != 2 {
				t.Errorf("%d sockets are left, want 2", n)
			}
			expect("a/sockets", `{"closed":2}`, "StatusPolicyViolation", "StatusPolicyViolation", "StatusPolicyViolation")
		})
	}
}

func wantSockets(t *testing.T, h *dohost.Host, began time.Time, state, metrics string) {
	t.Helper()
	var o adminapi.Object
	var list adminapi.SocketList
	for path, into := range map[string]any{"/v1/objects/room/a": &o, "/v1/objects/room/a/sockets": &list} {
		rec := httptest.NewRecorder()
		web.Admin(h, nil).ServeHTTP(rec, httptest.NewRequest("GET", "http://localhost"+path, nil))
		if err := json.Unmarshal(rec.Body.Bytes(), into); err != nil || rec.Code != http.StatusOK {
			t.Fatal(path, rec.Code, rec.Body, err)
		}
	}
	want := []adminapi.Socket{{Tags: []string{"x", "y"}, Since: began, State: state}, {Since: began, State: state}}
	if o.Sockets != 2 || o.Live != (state == "live") || !reflect.DeepEqual(list.Sockets, want) {
		t.Errorf("%+v\n%+v, want\n%+v", o, list.Sockets, want)
	}
	m := web.NewMetrics()
	m.Watch(h)
	rec := httptest.NewRecorder()
	m.ServeHTTP(rec, httptest.NewRequest("GET", "/metrics", nil))
	if !strings.Contains(rec.Body.String(), metrics) {
		t.Errorf("no %q in\n%s", metrics, rec.Body)
	}
}
