package simtest

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/coder/websocket"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/dohosttest"
	"github.com/dohost/dohost/internal/sockettest"
)

// socketClient is a client with one WebSocket at a time, which reconnects when the host closes
// it or cuts it.
type socketClient struct {
	h    *dohosttest.Host
	id   dohost.ID
	path string
	ws   *websocket.Conn // nil: none
}

// maxConnects is how often a client tries to connect, one second after the other.
const maxConnects = 20

// connect connects the client, unless it is connected.
func (v *socketClient) connect(ctx context.Context) error {
	serve := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { v.h.Host().ServeObject(w, r, v.id) })
	var err error
	for range maxConnects {
		if v.ws != nil {
			return nil
		}
		if v.ws, _, err = sockettest.Dial(ctx, serve, v.path); err != nil {
			v.ws = nil
			time.Sleep(time.Second)
		}
	}
	return err
}

// send sends a text. If the connection has ended, the next receive reports that.
func (v *socketClient) send(ctx context.Context, text string) {
	_ = v.ws.Write(ctx, websocket.MessageText, []byte(text))
}

// receive reads a text. It returns false if the connection ended because its incarnation or
// its process was ended; other ends are errors.
func (v *socketClient) receive(ctx context.Context) (text string, connected bool, err error) {
	_, data, err := v.ws.Read(ctx)
	if err == nil {
		return string(data), true, nil
	}
	if cause := context.Cause(ctx); cause != nil {
		return "", false, cause
	}
	_ = v.ws.CloseNow() // in case it is open
	v.ws = nil
	if ce, closed := errors.AsType[websocket.CloseError](err); closed && ce.Code != dohost.CloseRestart {
		return "", false, fmt.Errorf("the host has closed the socket of %v: %w", v.path, err)
	}
	return "", false, nil
}

// close closes the connection.
func (v *socketClient) close() {
	if v.ws != nil {
		_ = v.ws.Close(websocket.StatusNormalClosure, "") // the host may have been first
		v.ws = nil
	}
}

// textFrame is a frame.
func textFrame(format string, args ...any) dohost.Frame {
	return dohost.Frame{Text: true, Data: fmt.Appendf(nil, format, args...)}
}
