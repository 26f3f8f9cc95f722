package cluster_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/cluster"
	"github.com/dohost/dohost/sharedlog"
	"github.com/dohost/dohost/sharedlog/dirlog"
	"github.com/dohost/dohost/web"
)

// room sends a frame back, or to all clients.
type room struct {
	st   *dohost.State
	kind *roomKind
}

const rooms dohost.Namespace[room] = "room"

type roomKind struct {
	name    string
	durable bool
	writes  bool // each frame writes a row
	all     bool // each frame goes to all clients
}

func (r *room) enter(w http.ResponseWriter, req *http.Request) {
	if _, err := r.st.Accept(w, req, nil); err != nil {
		r.st.WriteError(w, err)
	}
}

func (r *room) said(ctx context.Context, s *dohost.Socket, f dohost.Frame) error {
	if r.kind.writes {
		if err := dohost.Put(ctx, r.st.Storage(), "last", f.Data); err != nil {
			return err
		}
	}
	if r.kind.all {
		return r.st.Broadcast(ctx, f, r.st.Sockets(""))
	}
	return s.Send(ctx, f)
}

func (k *roomKind) class() dohost.Class {
	return dohost.Bind(rooms, func(_ context.Context, st *dohost.State) (*room, error) { return &room{st, k}, nil }, &dohost.Handlers[room]{
		OnHTTP: (*room).enter, OnSocket: &dohost.SocketHandlers[room]{Durable: k.durable, Message: (*room).said},
	})
}

// serveRooms returns the URL of the only node of a cluster with one cell. The log of the cell is in a directory, which syncs each record.
func serveRooms(b *testing.B, k *roomKind) string {
	b.Helper()
	dir, classes := b.TempDir(), []dohost.Class{k.class()}
	handlers := &web.Options{Classes: []string{string(rooms)}}
	l, err := dirlog.Open(b.TempDir())
	if err != nil {
		b.Fatal(err)
	}
	server := httptest.NewUnstartedServer(nil)
	node, err := cluster.Start(b.Context(), &cluster.Options{
		Table: &memory{}, TTL: 3 * time.Second, Cells: 1, Advertise: "http://" + server.Listener.Addr().String(), Secret: []byte("at least 16 bytes"),
		Log: func(context.Context, int) (sharedlog.Log, error) { return l, nil },
		Open: func(_ int, lease sharedlog.Lease, remote dohost.Remote) (cluster.Host, error) {
			h, err := dohost.Open(dir, &dohost.Options{Lease: lease, Remote: remote}, classes...)
			if err != nil {
				return nil, err
			}
			return cellHost{h, web.Handler(h, handlers)}, nil
		},
	})
	if err != nil {
		b.Fatal(err)
	}
	object := web.ObjectOf(classes, handlers)
	server.Config.Handler = node.Router(&cluster.RouterOptions{
		Cell:    func(r *http.Request) (int, bool) { _, ok := object(r); return 0, ok },
		Durable: func(r *http.Request) (dohost.ID, bool) { id, ok := object(r); return id, ok && k.durable },
	})
	server.Start()
	b.Cleanup(func() {
		if err := node.Close(context.Background()); err != nil {
			b.Error(err)
		}
		server.Close()
	})
	return "ws" + strings.TrimPrefix(server.URL, "http") + "/objects/room/one/http/"
}

// BenchmarkSockets sends frames of 100 bytes to an object and waits for its answers: to one client that waits for each, to 64 of them, and
// to 1,000 clients while one of them speaks. It compares sockets that end with the object's host, with and without a row that the object writes for
// each frame, with durable ones.
func BenchmarkSockets(b *testing.B) {
	for _, k := range []roomKind{{name: "ordinary"}, {name: "ordinary, with a row", writes: true}, {name: "durable", durable: true}} {
		for _, c := range []struct{ clients, speakers int }{{1, 1}, {64, 64}, {1000, 1}} {
			k.all = c.clients > c.speakers
			b.Run(strings.ReplaceAll(k.name, " ", "_")+"/clients="+strconv.Itoa(c.clients), func(b *testing.B) {
				benchmarkRoom(b, serveRooms(b, &k), c.clients, c.speakers)
			})
		}
	}
}

// nodeStarts is how long clients wait for the node's cell.
var nodeStarts = &dohost.RetryPolicy{
	MaxAttempts: 1000, BaseDelay: 10 * time.Millisecond, MaxDelay: 10 * time.Millisecond, ShouldRetry: dohost.RetryAnyError,
}

func benchmarkRoom(b *testing.B, url string, clients, speakers int) {
	b.Helper()
	list := make([]*websocket.Conn, clients)
	for i := range list {
		var c *websocket.Conn
		err := dohost.Retry(b.Context(), nodeStarts, func(ctx context.Context) (err error) {
			c, _, err = websocket.Dial(ctx, url, nil)
			return err
		})
		if err != nil {
			b.Fatal(err)
		}
		defer c.CloseNow()
		list[i] = c
	}
	frame := fmt.Appendf(nil, "%100d", 0)
	var running sync.WaitGroup
	errs := make(chan error, clients)
	run := func(frames int) {
		for i, c := range list {
			running.Go(func() {
				errs <- speak(b.Context(), c, frame, frames/speakers, i < speakers)
			})
		}
		running.Wait()
		for range list {
			if err := <-errs; err != nil {
				b.Fatal(err)
			}
		}
	}
	run(speakers)
	b.ResetTimer()
	run(b.N + speakers - 1)
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "frames/s")
	b.ReportMetric(float64(b.N)*float64(clients)/float64(speakers)/b.Elapsed().Seconds(), "delivered/s")
}

// speak sends frames, if it is a speaker, and waits for the answer to each.
func speak(ctx context.Context, c *websocket.Conn, frame []byte, frames int, speaks bool) error {
	for range frames {
		if speaks {
			if err := c.Write(ctx, websocket.MessageText, frame); err != nil {
				return err
			}
		}
		if _, _, err := c.Read(ctx); err != nil {
			return err
		}
	}
	return nil
}
