package dohost_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	goruntime "runtime"
	"strings"
	"testing"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/internal/crowd"
	"github.com/dohost/dohost/internal/invariants"
)

// memory returns the bytes of this process's heap and of the stacks of its goroutines.
func memory() uint64 {
	var m goruntime.MemStats
	for range 3 {
		goruntime.GC()
	}
	goruntime.ReadMemStats(&m)
	return m.HeapAlloc + m.StackInuse
}

// TestSocketsOfTwoThousandClientsHibernate has two thousand clients in a process of their own. The object leaves memory
// and all clients stay. One of them wakes the object, and its message reaches all.
func TestSocketsOfTwoThousandClientsHibernate(t *testing.T) {
	size := 2000
	if invariants.Enabled {
		size = 500
	}
	idle := make(chan struct{}, 1)
	e := &socketHooks{message: func(h *socketObject, ctx context.Context, _ *dohost.Socket, f dohost.Frame) error {
		return h.st.Broadcast(ctx, f, h.st.Sockets(""))
	}}
	h := open(t, &dohost.Options{IdleAfter: time.Millisecond, Listener: dohost.Listener{Fenced: func(end dohost.Ended) {
		if end.Cause.Reason == "idle" {
			select {
			case idle <- struct{}{}:
			default:
			}
		}
	}}}, e.class())
	id := socketObjects.Get(h, "a").ID()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { h.ServeObject(w, r, id) }))
	defer server.Close()
	before := memory()
	clients, err := crowd.Start(t.Context(), crowd.Config{
		Address: strings.TrimPrefix(server.URL, "http://"), Path: "/", Clients: size, Text: "hello",
	})
	if err != nil {
		t.Fatal(err)
	}
	for h.IsLive(id) {
		<-idle // it may have left memory between two of them, and returned
	}
	each := (int64(memory()) - int64(before)) / int64(size)
	t.Logf("%d B for an idle socket, of %d, beside what the system has for it", each, size)
	if each > 20<<10 && !invariants.Enabled {
		t.Errorf("%d B for a socket, want at most 20 KiB", each)
	}
	if live, hibernating := h.SocketCount(); live != 0 || hibernating != size {
		t.Errorf("%d sockets live, %d hibernate, want %d", live, hibernating, size)
	}
	if err := clients.Send(size/2, "hello"); err != nil {
		t.Fatal(err)
	}
	if err := clients.WaitRounds(1); err != nil {
		t.Fatal(err)
	}
	least, most, err := clients.Close()
	if err != nil || least != 1 || most != 1 {
		t.Errorf("one client heard %d frames, another %d, %v", least, most, err)
	}
}
