package cluster

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"

	"github.com/dohost/dohost"
)

// RelaySocketHeader is the header of a client's handshake for a durable socket that a node has passed on: the id of that node, and the
// number of the socket, separated by a space. The signature in [Header] includes it; the header of a client is removed.
const RelaySocketHeader = "Dohost-Relay-Socket"

// maxEdgeName is the length of the name of an edge.
const maxEdgeName = 64

// parseRelay returns the socket in a RelaySocketHeader.
func parseRelay(text string) (s dohost.RelayedSocket, ok bool) {
	edge, number, _ := strings.Cut(text, " ")
	n, err := strconv.ParseUint(number, 10, 64)
	return dohost.RelayedSocket{Edge: edge, Number: n}, err == nil && n > 0 && edge != "" && len(edge) <= maxEdgeName
}

// isUpgrade reports whether a request asks for a WebSocket.
func isUpgrade(r *http.Request) bool {
	for _, line := range r.Header["Upgrade"] {
		for t := range strings.SplitSeq(line, ",") {
			if strings.EqualFold(strings.TrimSpace(t), "websocket") {
				return true
			}
		}
	}
	return false
}

// withRelay marks the requests for a handler.
func withRelay(h http.Handler, s dohost.RelayedSocket) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { h.ServeHTTP(w, dohost.RelayRequest(r, s)) })
}

// relayed returns the handler of a client's handshake for a durable socket, and whether it calls the host of a cell of this node.
func (rt *router) relayed(r *http.Request, id dohost.ID) (h http.Handler, here bool) {
	e := &rt.node.edge
	s, err := e.register(rt, id, r)
	if err != nil {
		return refuseSocket(err), false
	}
	h, here = rt.find(r, passed{client: r.RemoteAddr, relay: fmt.Sprint(rt.node.self.ID, " ", s.number)})
	return &handshake{s, h}, here
}

// refuseSocket returns the handler of a handshake that the edge refuses.
func refuseSocket(err error) http.Handler {
	if errors.Is(err, errEdgeClosed) {
		return http.HandlerFunc(unavailable)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		body, status := dohost.ErrorBody{Code: "too_many_sockets", Message: err.Error(), Ran: dohost.OutcomeNotRun.String()}, http.StatusServiceUnavailable
		if _, bad := errors.AsType[*badMessage](err); bad {
			body.Code, body.Message, status = "bad_url", "the URL of the request has no path", http.StatusBadRequest
		}
		answer(w, status, &body)
	})
}

// handshake is the handler of a client's handshake for a durable socket.
type handshake struct {
	s    *edgeSocket
	next http.Handler
}

// ServeHTTP calls the host, or passes the request on. If the object has accepted a durable socket, it answers the client.
func (h *handshake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	rw, returned := &relayWriter{ResponseWriter: w}, false
	defer func() {
		e := h.s.entry
		switch {
		case !rw.accepted:
			e.refuse(h.s, !rw.hijacked && (!returned || rw.status == 0 || rw.status == http.StatusBadGateway))
		case !e.accept(h.s):
			h.s.abort()
			unavailable(w, r)
		case !returned: // a panic
			h.s.abort()
			e.end(h.s, closing{Code: closeNoFrame, Reason: "the handshake was not completed"})
		default:
			for _, name := range []string{dohost.RelayHeader, "Content-Length", "Content-Type", "Transfer-Encoding"} {
				w.Header().Del(name)
			}
			h.s.open(w, r)
		}
	}()
	h.next.ServeHTTP(rw, r)
	returned = true
}

// relayWriter is the response to a handshake. It does not write one with dohost.RelayHeader.
type relayWriter struct {
	http.ResponseWriter
	status   int // 0 before the header
	accepted bool
	hijacked bool
}

// Unwrap is for http.ResponseController.
func (w *relayWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// WriteHeader writes the header.
func (w *relayWriter) WriteHeader(status int) {
	if status >= http.StatusOK && w.status == 0 {
		w.status = status
		w.accepted = status == http.StatusOK && w.Header().Get(dohost.RelayHeader) != ""
	}
	if !w.accepted {
		w.ResponseWriter.WriteHeader(status)
	}
}

// Write writes a part of the body.
func (w *relayWriter) Write(p []byte) (int, error) {
	if w.status == 0 {
		w.WriteHeader(http.StatusOK)
	}
	if w.accepted {
		return len(p), nil
	}
	return w.ResponseWriter.Write(p)
}

// FlushError flushes the response.
func (w *relayWriter) FlushError() error {
	if w.status == 0 {
		w.WriteHeader(http.StatusOK)
	}
	if w.accepted {
		return nil
	}
	return http.NewResponseController(w.ResponseWriter).Flush()
}

// Hijack passes the connection to the host or the proxy: the object has accepted a socket that is not durable.
func (w *relayWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	w.hijacked = true
	return http.NewResponseController(w.ResponseWriter).Hijack()
}
