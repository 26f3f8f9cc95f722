package providertest

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/coder/websocket"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/dohosttest"
	"github.com/dohost/dohost/internal/sockettest"
)

// watcher is a client that watches a conversation, and reconnects when its connection ends. Its text of a reply
// is built from frames alone, and only grows.
type watcher struct {
	ws     *websocket.Conn
	texts  map[string]string // by request
	replay map[string]string // the text of the current replay
	frames int
}

// watchedFrame is the part of a frame that a watcher reads.
type watchedFrame struct {
	Type, ID, Body               string
	Done, Replay, ReplayComplete bool
}

// watch watches until ctx ends.
func (w *watcher) watch(ctx context.Context, h *dohosttest.Host, name string) error {
	w.texts, w.replay, w.ws, w.frames = map[string]string{}, nil, nil, 0
	defer func() {
		if w.ws != nil {
			_ = w.ws.Close(websocket.StatusNormalClosure, "") // the host may have been first
		}
	}()
	for ctx.Err() == nil {
		if w.ws == nil {
			if err := w.connect(ctx, h, name); err != nil || w.ws == nil {
				return err
			}
		}
		_, data, err := w.ws.Read(ctx)
		if err != nil { // its incarnation was ended
			_ = w.ws.CloseNow()
			w.ws = nil
			continue
		}
		var f watchedFrame
		if json.Unmarshal(data, &f) != nil {
			continue // not a frame of a reply
		}
		if err := w.handleFrame(ctx, &f); err != nil {
			return err
		}
	}
	return nil
}

func (w *watcher) connect(ctx context.Context, h *dohosttest.Host, name string) (err error) {
	serve := http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		h.Host().ServeObject(rw, r, dohost.ID{Class: string(Talks), Name: name})
	})
	for range 20 {
		if ctx.Err() != nil {
			return nil
		}
		if w.ws, _, err = sockettest.Dial(ctx, serve, "/?_pk=watcher"); err == nil {
			w.ws.SetReadLimit(32 << 20)
			w.replay = nil
			return w.ws.Write(ctx, websocket.MessageText, []byte(`{"type":"cf_agent_stream_resume_request","probeId":"p"}`))
		}
		w.ws = nil
		time.Sleep(time.Second)
	}
	return err
}

// handleFrame handles a frame.
func (w *watcher) handleFrame(ctx context.Context, f *watchedFrame) error {
	w.frames++
	switch {
	case f.Type == "cf_agent_stream_resuming":
		_ = w.ws.Write(ctx, websocket.MessageText, []byte(`{"type":"cf_agent_stream_resume_ack","id":"`+f.ID+`"}`)) // or it has ended
		return nil
	case f.Type != "cf_agent_use_chat_response" || f.Done:
		return nil
	case f.ReplayComplete:
		now := w.replay[f.ID]
		if !strings.HasPrefix(now, w.texts[f.ID]) {
			return fmt.Errorf("a replay says %q of %q", now, w.texts[f.ID])
		}
		w.texts[f.ID], w.replay = now, nil
		return nil
	}
	var c struct{ Type, Delta string }
	if err := json.Unmarshal([]byte(f.Body), &c); err != nil || c.Type != "text-delta" {
		return err
	}
	if !f.Replay {
		w.texts[f.ID] += c.Delta
		return nil
	}
	if w.replay == nil {
		w.replay = map[string]string{}
	}
	w.replay[f.ID] += c.Delta
	return nil
}
