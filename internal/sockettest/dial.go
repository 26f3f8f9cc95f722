// Package sockettest connects clients in memory, for tests in a bubble of testing/synctest. Dial connects a WebSocket client to a handler
// without a server, and needs no goroutine of its own: the handler gets the client's request, with its context. Pipes is the listener of
// a server.
package sockettest

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/http"

	"github.com/coder/websocket"
)

// Dial connects a client to a handler, and returns its connection too. It fails if the
// handler answers with anything but a WebSocket, or panics.
func Dial(ctx context.Context, h http.Handler, path string) (*websocket.Conn, net.Conn, error) {
	d := &dialing{handler: h}
	ws, _, err := websocket.Dial(ctx, "ws://memory"+path, &websocket.DialOptions{HTTPClient: &http.Client{Transport: d}})
	if err != nil {
		return nil, nil, err
	}
	return ws, d.client, nil
}

// dialing is the transport of one request.
type dialing struct {
	handler http.Handler
	client  net.Conn
}

// RoundTrip calls the handler on the caller's goroutine.
func (d *dialing) RoundTrip(r *http.Request) (res *http.Response, err error) {
	client, server := net.Pipe()
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("the handler panicked: %v", p)
		}
		if err != nil {
			_, _ = client.Close(), server.Close() // pipes have no error
		}
	}()
	w := &response{header: http.Header{}, conn: server}
	r.ProtoMajor, r.ProtoMinor = 1, 1
	d.handler.ServeHTTP(w, r)
	if !w.hijacked {
		return nil, fmt.Errorf("the handler answers %d: %s", w.status, w.body)
	}
	d.client = client
	return &http.Response{StatusCode: w.status, Header: w.header, Body: client, Request: r}, nil
}

// response is the handler's http.ResponseWriter.
type response struct {
	header   http.Header
	status   int
	body     []byte
	conn     net.Conn
	hijacked bool
}

// Header is part of http.ResponseWriter.
func (w *response) Header() http.Header { return w.header }

// WriteHeader is part of http.ResponseWriter.
func (w *response) WriteHeader(status int) { w.status = status }

// Write keeps the text of a refusal.
func (w *response) Write(p []byte) (int, error) {
	w.body = append(w.body, p...)
	return len(p), nil
}

// Hijack passes the connection to the handler.
func (w *response) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	w.hijacked = true
	return w.conn, bufio.NewReadWriter(bufio.NewReader(w.conn), bufio.NewWriter(w.conn)), nil
}
