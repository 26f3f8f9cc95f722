package dohost_test

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/internal/sockettest"
)

// A frame for one socket arrives between the broadcasts before and after it, and frames sent before a socket is
// closed arrive before the closing frame.
func TestBroadcastKeepsTheOrderOfFrames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &socketHooks{message: func(h *socketObject, ctx context.Context, s *dohost.Socket, f dohost.Frame) error {
			for _, text := range strings.Fields(string(f.Data)) {
				f := dohost.Frame{Text: true, Data: []byte(text)}
				var err error
				switch text {
				case "one":
					err = s.Send(ctx, f)
				case "end":
					err = s.Close(ctx, 4000, "")
				default:
					err = h.st.Broadcast(ctx, f, h.st.Sockets(""))
				}
				if err != nil {
					return err
				}
			}
			return nil
		}}
		h := open(t, nil, e.class())
		serve := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { h.ServeObject(w, r, socketObjects.Get(h, "a").ID()) })
		var all []*websocket.Conn
		for range 100 {
			ws, _, err := sockettest.Dial(t.Context(), serve, "/")
			if err != nil {
				t.Fatal(err)
			}
			defer ws.CloseNow()
			all = append(all, ws)
		}
		last := all[len(all)-1]
		sendText(t, last, "all one all2 one all3 end all4")
		for _, ws := range all {
			want := "all all2 all3 all4"
			if ws == last {
				want = "all one all2 one all3"
			}
			for _, text := range strings.Fields(want) {
				if got := readText(t, ws); got != text {
					t.Fatalf("%q, want %q of %s", got, text, want)
				}
			}
		}
		if _, _, err := last.Read(t.Context()); websocket.CloseStatus(err) != 4000 {
			t.Error(err)
		}
	})
}

// A handler that exceeds its timeout, with the turn or without, ends the incarnation; one that does not exceed it
// does not.
func TestSocketHandlerTimeoutEndsTheIncarnation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &socketHooks{timeout: time.Minute, message: func(h *socketObject, ctx context.Context, s *dohost.Socket, f dohost.Frame) error {
			d, err := time.ParseDuration(string(f.Data))
			if err == nil {
				err = dohost.Sleep(ctx, d)
			}
			if err != nil {
				return err
			}
			return echo(h, ctx, s, f)
		}}
		d := openSocketServer(t, e, nil)
		ws, _ := d.dial(t, "a")
		sendText(t, ws, "59s")
		if got := readText(t, ws); got != "59s" {
			t.Error(got)
		}
		began := time.Now()
		sendText(t, ws, "1h")
		_, _, err := ws.Read(t.Context())
		if took := time.Since(began); websocket.CloseStatus(err) != dohost.CloseRestart || took < time.Minute || took > time.Minute+2*time.Second {
			t.Errorf("after %v: %v", took, err)
		}
	})
	for _, timeout := range []time.Duration{-1, dohost.MaxSocketTimeout + 1} {
		if h, err := dohost.Open(t.TempDir(), nil, (&socketHooks{timeout: timeout}).class()); err == nil {
			_ = h.Close()
			t.Errorf("a timeout of %v was taken", timeout)
		}
	}
}
