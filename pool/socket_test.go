package pool

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/coder/websocket"

	"github.com/dohost/dohost/internal/sockettest"
)

// socketWorker is a worker over a WebSocket.
type socketWorker struct {
	t    *testing.T
	conn *websocket.Conn
}

// send calls a method.
func (w *socketWorker) send(ctx context.Context, id, method, arg string) {
	w.t.Helper()
	frame := `{"type":"rpc","id":"` + id + `","method":"` + method + `","args":[` + arg + `]}`
	if err := w.conn.Write(ctx, websocket.MessageText, []byte(frame)); err != nil {
		w.t.Fatal(err)
	}
}

// answer returns the next answer.
func (w *socketWorker) answer(ctx context.Context) (id, result string) {
	w.t.Helper()
	for {
		_, text, err := w.conn.Read(ctx)
		if err != nil {
			w.t.Fatal(err)
		}
		var f struct {
			Type, ID, Error string
			Result          json.RawMessage
		}
		if err := json.Unmarshal(text, &f); err != nil {
			w.t.Fatal(err)
		}
		if f.Type == "rpc" {
			return f.ID, f.Error + string(f.Result)
		}
	}
}

// TestPostOverASocketHasNoNotify posts with the fields for Go as positional arguments.
func TestPostOverASocketHasNoNotify(t *testing.T) {
	inPool(t, nil, func(ctx context.Context, f *fixture) {
		id := f.pool().ID()
		ws, pipe, err := sockettest.Dial(ctx, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { f.host.ServeObject(w, r, id) }), "/?_pk=w")
		if err != nil {
			t.Fatal(err)
		}
		defer pipe.Close()
		w := &socketWorker{t, ws}
		args := `"b","x","k",false,1000,true,{"To":{"Class":"pool","Name":"p"},"Callback":"sweep"}`
		w.send(ctx, "1", "post", args)
		if id, result := w.answer(ctx); id != "1" || !strings.HasPrefix(result, "unknown: the pool has no role") {
			t.Errorf("%s: %s", id, result)
		}
		f.join("b", "1")
		w.send(ctx, "2", "post", args)
		w.answer(ctx)
		if dump := f.dump(); !strings.Contains(dump, `"Notify":null`) {
			t.Error(dump)
		}
	})
}

// TestWorkerOverASocketSendsHeartbeatsWhileItWaits has one connection that waits for a task, and sends a heartbeat.
func TestWorkerOverASocketSendsHeartbeatsWhileItWaits(t *testing.T) {
	inPool(t, nil, func(ctx context.Context, f *fixture) {
		id := f.pool().ID()
		ws, pipe, err := sockettest.Dial(ctx, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { f.host.ServeObject(w, r, id) }), "/?_pk=w")
		if err != nil {
			t.Fatal(err)
		}
		defer pipe.Close()
		w := &socketWorker{t, ws}
		w.send(ctx, "1", "join", `{"role":"a","conn":"c"}`)
		if id, result := w.answer(ctx); id != "1" || result != `{"until":"2000-01-01T00:01:00Z","beat_ms":30000,"ttl_ms":60000,"lease_ms":60000}` {
			t.Errorf("%s: %s", id, result)
		}
		w.send(ctx, "2", "claim", `{"role":"a","conn":"c","wait_ms":30000}`)
		synctest.Wait()
		w.send(ctx, "3", "beat", `{"role":"a","conn":"c"}`)
		if id, result := w.answer(ctx); id != "3" || result != `{"until":"2000-01-01T00:01:00Z"}` {
			t.Errorf("%s: %s", id, result)
		}
		f.post("a", "x")
		var claimed ClaimResponse
		if id, result := w.answer(ctx); id != "2" || json.Unmarshal([]byte(result), &claimed) != nil || claimed.Task.Text != "x" {
			t.Errorf("%s: %s", id, result)
		}
		w.send(ctx, "4", "beat", `{"role":"a","conn":"other"}`)
		if id, result := w.answer(ctx); id != "4" || result != `stale: the connection is no worker of the role "a": join again` {
			t.Errorf("%s: %s", id, result)
		}
	})
}
